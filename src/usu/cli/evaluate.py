"""``usu evaluate``: pictures or a plan in; a store of rows, a table and a report out."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usu.cli import run

if TYPE_CHECKING:
    from usu.bench import Store
    from usu.bench.datasets import PictureFile
    from usu.bench.engines import Engine
    from usu.bench.plan import Plan


def evaluate(
    what: Annotated[list[str], typer.Argument(metavar="PICTURES... | PLAN.toml | status RUN | report RUN | check RUN")],
    model: run.Model = "efficientnet_lite0",
    weights: run.Weights = None,
    forward: Annotated[str | None, typer.Option(help="The same model as .onnx, or auto; not for sources.")] = None,
    layer: Annotated[str | None, typer.Option(help="Where the source looks.")] = None,
    source: Annotated[
        str, typer.Option(help="gradcam, hirescam, layercam, pytorch_grad_cam:NAME, FILE.py:FUNCTION; commas between.")
    ] = "gradcam",
    upsamplers: Annotated[
        str, typer.Option(help="Names with commas between; plain, presets, controls, crossed and all stand for many.")
    ] = "plain,presets",
    metrics: Annotated[str | None, typer.Option(help="Names with commas between, or all; else the main ones.")] = None,
    evaluations: Annotated[int, typer.Option(help="What each upsampler may spend that asks the model.")] = 300,
    truth: Annotated[Path | None, typer.Option(help="A folder of outlines, bright inside, named as pictures.")] = None,
    against: Annotated[str | None, typer.Option(help="What others are compared with; bilinear if not said.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many pictures, spread evenly over the folder.")] = None,
    only: Annotated[str | None, typer.Option(help="Only these models of a plan, commas between.")] = None,
    part: Annotated[str, typer.Option(help="2/3: the second of three parts of the pictures.")] = "1/1",
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes at work, one thread each; 1 if not said.")] = None,
    address: Annotated[str | None, typer.Option(help="A Ray cluster: auto or HOST:PORT.")] = None,
    patience: Annotated[float | None, typer.Option(help="Seconds until a silent worker is replaced.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, after a short probe.")] = False,
    seed: Annotated[int, typer.Option(help="Of everything random but the noise fill.")] = 0,
    device: run.Device = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for rows, table and report.")] = Path("usu-evaluation"),
    quiet: run.Quiet = False,
) -> None:
    """Measure upsamplers on your pictures and your models, with controls and statistics.

    PICTURES are files, folders or globs. Every unit (a picture under a model) is kept as soon as it is known: run the
    same command again and it goes on where it was. ``usu evaluate status RUN`` says how far a run is, ``report RUN``
    writes its report anew, ``check RUN`` verifies every row.
    """
    run.load_torch()
    if what[0] in ("status", "report", "check") and len(what) == 2:
        _look(what[0], Path(what[1]), against)
        return
    from usu.bench import contenders
    from usu.bench.evaluate import asked_metrics, network_of, source_named
    from usu.bench.plan import Plan, narrowed, read_plan, short
    from usu.bench.units import UnitGrid
    from usu.models import load
    from usu.models.files import onnx_model

    run.need("pyarrow", "bench", "The table in Parquet")
    if len(what) == 1 and what[0].endswith(".toml"):
        plan = read_plan(what[0])
    else:  # options as a plan of one dataset and one model, which have no names
        loaded = load(model, weights=weights, device=device)
        passes = onnx_model(forward) if forward is not None and forward.endswith(".onnx") else forward
        sources = source.split(",")
        grid = UnitGrid(
            {"": _pictures(what, truth, limit)},
            {"": network_of(loaded, passes, layer)},
            {short(one) if len(sources) > 1 else "": source_named(one) for one in sources},
            tuple(contenders(upsamplers.split(","), evaluations=evaluations, seed=seed)),
            tuple(asked_metrics(None if metrics is None else metrics.split(","))),
            seed,
        )
        plan, limit = Plan("usu evaluate", grid), None
    names = [rival.name for rival in plan.grid.rivals]
    if against is not None and against not in names:
        raise ValueError(f"`--against` must be one of the upsamplers; got {against!r}. Choose from {', '.join(names)}.")
    grid = narrowed(plan.grid, limit=limit, part=_part(part), models=only.split(",") if only else ())
    plan = Plan(plan.title, grid, against or plan.against)
    if dry_run:
        _foretell(plan, workers or 1)
        return
    _run(plan, out, _engine(engine, workers, address, patience), quiet=quiet)


def _pictures(what: list[str], truth: Path | None, limit: int | None) -> list[PictureFile]:
    from usu.bench.datasets import PictureFile, names_of, outlines, spread
    from usu.models.pictures import find

    found = spread(find(what), limit)
    names, stems = names_of(found), [path.stem for path in found]
    drawn = {} if truth is None else outlines(truth, stems)
    if truth is not None and drawn.keys().isdisjoint(stems):
        raise ValueError(
            f"`--truth` must hold a file named like a picture; got {truth}, where none is. {names[0]}.png would be one."
        )
    return [PictureFile(name, path, truth=drawn.get(path.stem)) for name, path in zip(names, found, strict=True)]


def _part(part: str) -> tuple[int, int]:
    first, slash, many = part.partition("/")
    if not (slash and first.isdigit() and many.isdigit() and 1 <= int(first) <= int(many)):
        raise ValueError(f"`--part` must be like 2/3, counted from 1; got {part!r}. 1/1 is everything.")
    return int(first), int(many)


def _engine(name: str, workers: int | None, address: str | None, patience: float | None) -> Engine:
    from usu import _checks as check
    from usu.bench import Local, Ray

    check.choice("--engine", name, ("local", "ray"))
    if workers is not None:
        check.whole_number("--workers", workers, least=1)
    if name == "ray":
        run.need("ray", "ray", "The engine ray")
        return Ray(address, workers, patience)
    if address is not None:
        raise ValueError(f"`--address` must go with --engine ray; got {address!r} for {name}.")
    return Local(workers or 1, patience)


def _run(plan: Plan, out: Path, engine: Engine, *, quiet: bool) -> None:
    from usu.bench import Store
    from usu.bench.evaluate import run as computed
    from usu.bench.report import write_report

    with run.bars(1, quiet=quiet) as bars, Store(out, write=True) as store:
        for text in store.damage:
            run.note(f"{text} It is computed anew.")
        bars.start("units", None)
        try:
            store.register({"title": plan.title, "against": plan.against})
            for _ in computed(plan.grid, store, engine, lambda _, done, total: bars.show(done, total)):
                pass  # what is finished is in the store
        except KeyboardInterrupt:
            run.note(f"interrupted; every finished unit is kept in {out}, run the same command to go on")
            raise typer.Exit(130) from None
        failed, count = _tell_failures(store, out), store.count()
        write_report(store, out)
    run.tell(f"{count} rows -> {out / 'table.csv'}")
    if failed:
        raise typer.Exit(1)


def _look(word: str, folder: Path, against: str | None) -> None:
    """What is in a folder, without computing anything."""
    from usu.bench import Store
    from usu.bench.report import status, write_report

    with Store(folder) as store:
        if word != "check":
            found = status(store) if word == "status" else write_report(store, folder, against=against)
            for line in found:
                run.tell(str(line))
            return
        problems = store.problems()
        for text in problems:
            run.note(text)
        run.tell(f"{len(problems)} problems" if problems else f"{store.count()} rows, 0 problems")
        raise typer.Exit(1 if problems else 0)


def _foretell(plan: Plan, workers: int) -> None:
    from usu.bench.plan import evaluations_of, probe

    units = list(plan.grid.units())
    rows = sum(len(unit.todo) for unit in units)
    run.tell(f"{len(units)} units, {rows} rows, at most {evaluations_of(plan.grid)} evaluations")
    seconds = probe(plan.grid)
    for name, count in Counter(unit.model for unit in units).items():
        told = f"{name or 'the model'}: {count} units, at most {seconds[name]:.1f} s each by a probe of one picture"
        run.tell(f"{told}, {count * seconds[name] / 60 / workers:.0f} minutes with {workers} workers")


def _tell_failures(store: Store, out: Path) -> bool:
    """What failed: every one in a file, and one line for those that failed alike."""
    from usu.bench.table import cell_text
    from usu.results import written

    failures, path = store.failures(), out / "failures.csv"
    if not failures:
        path.unlink(missing_ok=True)
        return False
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("what", "why", "traceback"))
    alike: dict[str, list[str]] = {}
    for failure in failures:
        writer.writerow([cell_text(one) for one in (failure.name, failure.sentence, failure.traceback)])
        alike.setdefault(failure.sentence, []).append(failure.name)
    for sentence, names in alike.items():
        run.note(f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {sentence}")
    written(path, text.getvalue().encode())
    return True
