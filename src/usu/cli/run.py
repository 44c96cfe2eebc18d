"""What the commands share: options, settings from them, a coarse map from a file, remarks, a progress bar."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from usu.settings import Settings
    from usu.types import NDArray

BUDGETS = ("cell", "iwmr", "hybrid", "soft")

Model = Annotated[
    str,
    typer.Option(
        help="efficientnet_lite0, torchvision:NAME, timm:NAME, transformers:FOLDER, FILE.py:FUNCTION or FILE.onnx."
    ),
]
Weights = Annotated[str | None, typer.Option(help="A local file of weights (.pth or .safetensors).")]
Layer = Annotated[str | None, typer.Option(help="Where the *cam sources look; the last spatial layer if not given.")]
Engine = Annotated[str, typer.Option(help="What runs the model for scores: torch, onnx, compile or auto.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no remarks.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"usu-xai {version('usu-xai')}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn coarse attribution maps into pixel maps by redistributing their mass."""


def settings_from(
    preset: str,
    *,
    budget: str | None = None,
    temperature: float | None = None,
    depth: int | None = None,
    evaluations: int | None = None,
    seed: int | None = None,
    engine: str | None = None,
) -> Settings:
    """A preset with what was asked for changed."""
    changes: dict[str, Any] = {
        "temperature": temperature, "depth": depth, "evaluations": evaluations, "seed": seed, "engine": engine,
        "budget": budget,
    }  # fmt: skip
    changes = {name: value for name, value in changes.items() if value is not None}
    from usu._checks import choice
    from usu.settings import settings_of

    if budget is not None:
        from usu.operator.redistribute import SoftPrior

        choice("budget", budget, BUDGETS)
        changes["budget"] = SoftPrior() if budget == "soft" else budget
    return replace(settings_of(preset), **changes)


class Bars:
    """Progress on a terminal: pictures, and evaluations per second of the one at work. Silent elsewhere."""

    #: Whether Ctrl-C asked for the map as it stands.
    stopped = False

    def __init__(self, bars: Any, pictures: int) -> None:
        self._bars = bars
        self._all = bars.add_task("pictures", total=pictures) if pictures > 1 else None
        self._one: Any = None

    def start(self, name: str, evaluations: int | None) -> None:
        """The next picture begins."""
        if self._one is not None:
            self._bars.remove_task(self._one)
        self._one = self._bars.add_task(printable(name), total=evaluations)

    def show(self, done: int, total: int) -> None:
        """So far."""
        self._bars.update(self._one, completed=done, total=total)

    def progress(self, done: int, total: int) -> bool:
        """The pipeline's callback."""
        self.show(done, total)
        return self.stopped

    def finish(self) -> None:
        """A picture is done."""
        if self._all is not None:
            self._bars.advance(self._all)


@contextmanager
def bars(pictures: int, *, quiet: bool) -> Iterator[Bars]:
    """Bars on standard error, so that standard output stays what a script expects."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class _Speed(ProgressColumn):
        """Evaluations per second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:.0f}/s" if task.speed else "")

    console, name = Console(stderr=True), TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    shown = not quiet and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        yield Bars(progress, pictures)


@contextmanager
def stoppable(bars: Bars, settings: Settings) -> Iterator[None]:
    """The first Ctrl-C asks for the map as it stands, where there is a posterior to make it from; the second ends all.

    Elsewhere, and in a thread or a process that may not listen to signals, Ctrl-C is what it always was.
    """

    def first(*_: object) -> None:
        bars.stopped = True
        signal.signal(signal.SIGINT, before)
        note("stopping; the map is kept as it stands (once more: it is not)")

    before = signal.getsignal(signal.SIGINT)
    ends_early = settings.scoring == "sampled" and settings.fit == "posterior"
    if not ends_early or before is not signal.default_int_handler or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_torch() -> None:
    """Import torch. Its native code answers Ctrl-C with a crash meanwhile, so until it is there Ctrl-C ends at once.

    What it makes stays until the end: nobody has to look through it for garbage, now, later or at the end.
    """

    def ends(*_: object) -> None:
        os.write(2, b"usu: interrupted; nothing was begun\n")
        os._exit(130)

    if "torch" in sys.modules:
        return
    listens = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    before = signal.signal(signal.SIGINT, ends) if listens else None
    gc.disable()
    import_module("torch")
    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)
    if listens:
        signal.signal(signal.SIGINT, before)


def source_from(text: str) -> str | NDArray:
    """A source's name, or the coarse map in a user's .npy file."""
    from usu.sources import SOURCES

    if text in SOURCES:
        return text
    if not text.endswith(".npy"):
        raise ValueError(f"`--source` must be {', '.join(SOURCES)} or a .npy file with one h x w array; got {text!r}.")
    import numpy as np

    values: Any = None
    try:
        # mapped, not read: a header may promise more than there is
        values = np.load(Path(text).expanduser(), allow_pickle=False, mmap_mode="r")
        got = f"{values.dtype} of {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        got = sentence_of(error)
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(f"`--source` must be a .npy file with one h x w array of real numbers; got {text} ({got}).")
    return np.array(values, dtype=np.float64)


def printable(text: object) -> str:
    """A text as a terminal may show it: what is no letter or sign is written as an escape.

    >>> printable("cat\\x1b[2J.png")
    'cat\\\\x1b[2J.png'
    """
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in str(text)
    )


def tell(sentence: str) -> None:
    """A line of the answer, on standard output."""
    typer.echo(printable(sentence))


def note(sentence: str, *, quiet: bool = False) -> None:
    """A remark for a person, on standard error."""
    if not quiet:
        sys.stderr.write(f"usu: {printable(sentence)}\n")


def sentence_of(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def need(package: str, extra: str, purpose: str) -> None:
    """Say before the work begins what would be missing at its end."""
    from importlib.util import find_spec

    from usu.errors import MissingExtraError

    try:
        found = find_spec(package)
    except ValueError:  # set to None, or to something without a spec, in sys.modules
        found = None
    if found is None:
        raise MissingExtraError(package, extra, purpose)
