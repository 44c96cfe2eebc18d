"""``usu evaluate``: a folder of pictures, upsamplers and metrics in; a table, a report and figures out."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usu.cli import run

if TYPE_CHECKING:
    from usu.bench import PictureFile, Table
    from usu.models import Loaded


def evaluate(
    pictures: Annotated[list[str], typer.Argument(help="Pictures, folders or globs.")],
    model: Annotated[str, typer.Option(help="As for usu explain.")] = "efficientnet_lite0",
    weights: Annotated[str | None, typer.Option(help="A local file of weights (.pth or .safetensors).")] = None,
    forward: Annotated[
        str | None, typer.Option(help="The same model as .onnx, for all passes but the source's; several times faster.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Where the source looks.")] = None,
    source: Annotated[str, typer.Option(help="gradcam, hirescam or layercam.")] = "gradcam",
    upsamplers: Annotated[
        str, typer.Option(help="Names with commas between; plain, presets, controls, crossed and all stand for many.")
    ] = "plain,presets",
    metrics: Annotated[
        str | None, typer.Option(help="Names with commas between, or all; the protocol's main ones if not given.")
    ] = None,
    evaluations: Annotated[int, typer.Option(help="What each upsampler may spend that asks the model.")] = 300,
    truth: Annotated[
        Path | None, typer.Option(help="A folder of outlines, bright inside the object, named like the pictures.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The upsampler that the report compares the others with; bilinear if not said."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many pictures, spread evenly over the folder.")] = None,
    part: Annotated[str, typer.Option(help="2/3: this is the second of three processes sharing the work.")] = "1/1",
    seed: Annotated[int, typer.Option(help="Of everything random but the noise fill.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for table, report and figures.")] = Path("usu-evaluation"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no remarks.")] = False,
) -> None:
    """Measure upsamplers on your pictures and your model, with controls and statistics.

    Every row is kept as soon as it is known: run the same command again and it goes on where it was.
    """
    run.load_torch()
    from usu import _checks as check
    from usu.bench import contenders
    from usu.bench import evaluate as measured
    from usu.models import load
    from usu.models.files import onnx_model

    check.whole_number("seed", seed, most=2**63 - 1)
    run.need("pyarrow", "bench", "The table in Parquet")
    run.need("matplotlib", "plot", "The figures of the report")
    loaded = load(model, weights=weights, device=device)
    files = _files(pictures, loaded, truth, limit)
    which, rivals = _part(part), contenders(upsamplers.split(","), evaluations=evaluations, seed=seed)
    names = [rival.name for rival in rivals]
    if against is not None and against not in names:
        raise ValueError(f"`--against` must be one of the upsamplers; got {against!r}. Choose from {', '.join(names)}.")
    with run.bars(1, quiet=quiet) as bars:
        bars.start("rows", None)
        try:
            table = measured(
                rivals,
                files,
                loaded.model,
                None if metrics is None else metrics.split(","),
                forward=None if forward is None else onnx_model(forward),
                source=source,
                layer=layer or loaded.layer,
                seed=seed,
                out=out,
                part=which,
                progress=lambda name, done, total: bars.show(done, total),
            )
        except KeyboardInterrupt:
            run.note(f"interrupted; every finished row is kept in {out}, run the same command to go on")
            raise typer.Exit(130) from None
    _tell(table, out, which)
    _write(table, out, against or "bilinear", quiet=quiet)
    if table.failures:
        raise typer.Exit(1 if len(table) else 2)


def _files(pictures: list[str], loaded: Loaded, truth: Path | None, limit: int | None) -> list[PictureFile]:
    """The pictures, each with its outline where one has its name."""
    from usu import _checks as check
    from usu.bench import PictureFile
    from usu.models.pictures import find, looks_like_picture

    if truth is not None and not truth.is_dir():
        raise FileNotFoundError(f"`--truth` must be a folder of outlines; got {truth}, which is none. Check the path.")
    outlines = [] if truth is None else [path for path in sorted(truth.iterdir()) if looks_like_picture(path)]
    drawn = {path.stem: path for path in outlines}
    found = find(pictures)
    if limit is not None:
        check.whole_number("--limit", limit, least=1)
        found = [found[number * len(found) // limit] for number in range(min(limit, len(found)))]
    stems = [path.stem for path in found]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in found]
    files = [PictureFile(name, path, loaded, drawn.get(path.stem)) for name, path in zip(names, found, strict=True)]
    for what, many in (("pictures", Counter(stems)), ("outlines", Counter(path.stem for path in outlines))):
        twice = next((stem for stem in drawn if many[stem] > 1 and stem in stems), None)
        if twice is not None:
            raise ValueError(
                f"`--truth` must hold one outline per picture; got {many[twice]} {what} called {twice}. Rename them."
            )
    if truth is not None and not any(file.has_truth for file in files):
        raise ValueError(
            f"`--truth` must hold a file named like a picture; got {truth}, where none is. {stems[0]}.png would be one."
        )
    return files


def _tell(table: Table, out: Path, part: tuple[int, int]) -> None:
    """What failed: every one in a file of this part, and one line for those that failed alike."""
    from usu.bench.table import cell_text
    from usu.results import written

    alike: dict[str, list[str]] = {}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("what", "why"))
    for name, sentence in table.failures.items():
        writer.writerow((cell_text(name), cell_text(sentence)))
        alike.setdefault(sentence, []).append(name)
    for sentence, failed in alike.items():
        run.note(f"{failed[0]}{f' and {len(failed) - 1} more' * (len(failed) > 1)}: {sentence}")
    path = out / ("failures.csv" if part == (1, 1) else "failures-{}-of-{}.csv".format(*part))
    if table.failures:
        written(path, text.getvalue().encode())
    else:
        path.unlink(missing_ok=True)


def _part(part: str) -> tuple[int, int]:
    first, slash, many = part.partition("/")
    if not (slash and first.isdigit() and many.isdigit() and 1 <= int(first) <= int(many)):
        raise ValueError(f"`--part` must be like 2/3, counted from 1; got {part!r}. 1/1 is everything.")
    return int(first), int(many)


def _write(table: Table, out: Path, against: str, *, quiet: bool) -> None:
    """Table, report and figures of what is known so far; the last of several parts covers all."""
    from usu.bench.table import latex
    from usu.metrics import by_name
    from usu.results import written
    from usu.stats import report

    if not len(table):
        return
    table.save(out)
    if fills := table.fill_matrices():
        written(out / "fills.csv", fills.encode())
    others = [name for name in table.upsamplers if name != against]
    if against in table.upsamplers and others:
        found = report({name: (by_name(name).better, table.values(name)) for name in table.metrics}, against)
        for suffix, text in (("txt", found.text()), ("md", found.markdown()), ("tex", latex(found))):
            written(out / f"report.{suffix}", (text.rstrip() + "\n").encode())
        figure = found.figure()
        for suffix in ("png", "pdf"):
            drawn = io.BytesIO()
            figure.savefig(drawn, format=suffix)
            written(out / f"report.{suffix}", drawn.getvalue())
    else:
        run.note(f"no report: {against} is not among the upsamplers, or the only one; see --against", quiet=quiet)
    missing = f" ({table.missing} still to come from other parts)" if table.missing else ""
    run.tell(f"{len(table)} rows{missing} -> {out / 'table.csv'}")
