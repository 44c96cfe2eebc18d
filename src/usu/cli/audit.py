"""``usu audit``: the desiderata, declared versus measured."""

from __future__ import annotations

import importlib
import io
import json
import operator
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usu.cli import run as shared

if TYPE_CHECKING:
    from usu.auditor.report import AuditReport, Finding

_LEGEND = (
    "yes = declared and kept   (yes) = kept, not promised   no = violated (worst case)   - = does not apply\n"
    "moved = share of mass ending in another cell, 7 x 7 -> 224 x 224, smooth / random rectified maps   "
    "total = worst error of the total at integer factors\n"
    "seams = squared jumps across cell borders inside one segment   gain = largest density over the cell's own   "
    "coarse = change for another coarse map of the same total"
)


def audit(
    upsamplers: Annotated[
        list[str] | None, typer.Argument(help="Built-in names, or package.module:function; none: all built-in.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Inputs tried on each upsampler.")] = 25,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    as_json: shared.Json = False,
    figure: Annotated[Path | None, typer.Option(help="A folder for figures of the worst inputs.")] = None,
    quiet: shared.Quiet = False,
) -> None:
    """Measure D1 to D4 of every built-in upsampler, or of your own (coarse, picture, scores=None) -> pixel map."""
    from rich.console import Console
    from rich.progress import track

    if figure is not None:
        shared.need("matplotlib", "plot", "The figures of an audit")
    shared.load_torch()
    from usu.auditor import audit as run
    from usu.results import written
    from usu.upsamplers import BUILT_IN

    chosen: list[Any] = [_find(name) for name in upsamplers] if upsamplers else list(BUILT_IN)
    progress = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    reports = [
        run(one, trials=trials, seed=seed) for one in track(chosen, "auditing", console=progress, transient=True)
    ]
    if figure is not None:
        figure.mkdir(parents=True, exist_ok=True)
        for report in reports:
            drawn = io.BytesIO()
            report.figure().savefig(drawn, format="png")
            written(figure / f"audit_{report.name}.png", drawn.getvalue())
    if as_json:
        typer.echo(json.dumps([report.to_dict() for report in reports], indent=1))
    elif upsamplers:
        typer.echo("\n\n".join(str(report) for report in reports))
    else:
        console = Console()
        if not console.is_terminal:
            console.width = 150  # a pipe has no width: do not fold the table
        console.print(_table(reports))
        console.print(_LEGEND)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _table(reports: list[AuditReport]) -> Any:
    from rich.table import Table

    from usu.types import GUARANTEES

    table = Table(title="Desiderata, declared versus measured", title_justify="left")
    table.add_column("upsampler", no_wrap=True)
    for column in (*GUARANTEES, "moved", "total", "seams", "gain", "coarse"):
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        p = report.profile
        moved = f"{p.moved_smooth:.0%} / {p.moved_rectified:.0%}"
        total = f"{p.total_error_divisible:.0e}" if p.total_error_divisible > 1e-9 else "0"
        rest = (f"{p.seam_energy:.2g}", f"{p.largest_gain:.2g}", f"{p.coarse_sensitivity:.2f}")
        table.add_row(report.name, *(_cell(report[g]) for g in GUARANTEES), moved, total, *rest)
    return table


def _cell(finding: Finding) -> str:
    if finding.worst is None:
        return "[bold red]BROKEN[/]" if finding.declared else "-"
    if finding.holds:
        return "[green]yes[/]" if finding.declared else "(yes)"
    return f"[bold red]BROKEN {finding.worst:.0e}[/]" if finding.declared else f"no {finding.worst:.0e}"


def _find(name: str) -> Any:
    """A built-in upsampler by name, or ``package.module:function``."""
    if ":" not in name:
        from usu.upsamplers import by_name

        return by_name(name)
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # a module beside the caller, as `python -m` would find it
    try:
        found: Any = operator.attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"`upsampler` must be importable as package.module:function; got {name} ({error}).") from error
    finally:
        sys.path.pop(0)
    # a class is an upsampler factory: `module:MyUpsampler` means MyUpsampler()
    return found() if isinstance(found, type) else found
