"""``usu explain``: why the model said what it said, for one picture or a thousand."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usu.cli import run

if TYPE_CHECKING:
    from usu.models import Loaded
    from usu.results import Explanation
    from usu.settings import Settings


def explain(
    pictures: Annotated[list[str], typer.Argument(help="Pictures, folders or globs.")],
    model: run.Model = "efficientnet_lite0",
    weights: run.Weights = None,
    layer: run.Layer = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Class index or name; the model's top class if not given. May be repeated.")
    ] = None,
    top: Annotated[int | None, typer.Option(help="The so many likeliest classes instead.")] = None,
    source: Annotated[
        str,
        typer.Option(
            help="gradcam, hirescam, layercam, attention_rollout, gradient_attention, or a .npy file with a coarse map "
            "of your own."
        ),
    ] = "gradcam",
    preset: Annotated[str, typer.Option(help="soft, cell, fast or paper.")] = "soft",
    budget: Annotated[str | None, typer.Option(help="cell, iwmr, hybrid or soft; the preset's if not given.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the potential: low concentrates.")] = None,
    depth: Annotated[int | None, typer.Option(help="Levels of refinement.")] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="Model evaluations per picture; as many as a stable map takes if not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random groups.")] = None,
    engine: run.Engine = "torch",
    device: run.Device = "cpu",
    sanity: Annotated[
        bool, typer.Option("--sanity", help="Also: does the map change with the model's weights, and only with them?")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results, one folder per picture in it.")] = Path("usu-out"),
    as_json: run.Json = False,
    quiet: run.Quiet = False,
) -> None:
    """Explain pictures: a pixel map, an overlay, a panel and a manifest for each.

    A picture whose result is there already, made from the same contents with the same request, is not computed again:
    an interrupted run goes on where it was. Nothing is overwritten. Ctrl-C keeps the map at work as it stands, with its
    stability; twice ends at once.
    """
    run.need("matplotlib", "plot", "The panel of every picture")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"`--out` must be a folder; got {out}, which is a file.")
    run.load_torch()
    origin = run.source_from(source)
    settings = run.settings_from(
        preset, budget=budget, temperature=temperature, depth=depth, evaluations=evaluations, seed=seed, engine=engine
    )
    described, limit = settings.described(), settings.limit
    from usu.errors import UsuError, UsuWarning
    from usu.models import load, resolve_target
    from usu.models.pictures import find
    from usu.pipeline import explain as explained

    files = find(pictures)
    loaded = load(model, weights=weights, device=device)
    goals = [resolve_target(name, loaded.classes) for name in target or ()]
    goal = goals if len(goals) > 1 else goals[0] if goals else None
    request = {
        "model": model,
        "weights": weights,
        "layer": layer,
        "target": goal,
        "top": top,
        "source": source,
        "settings": described,
        "contents": _contents(model, loaded, origin),
    }
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    with run.bars(len(files), quiet=quiet) as bars:
        try:
            for file in files:
                try:
                    asked = _asked(file, request)
                    folder, finished = _folder(out, file, asked)
                    if finished is None:
                        bars.start(file.name, limit)
                        with run.stoppable(bars, settings), warnings.catch_warnings():
                            # the manifest has them as notes, which are reported with their picture
                            warnings.simplefilter("ignore", UsuWarning)
                            explanation = explained(
                                loaded, file, goal, source=origin, layer=layer, top=top, preset=settings,
                                progress=bars.progress,
                            )  # fmt: skip
                        folder, finished = _saved(replace(explanation, request=asked), out, file, asked)
                    done.append({"picture": str(file), "folder": str(folder), **finished})
                    if sanity and not bars.stopped:
                        done[-1]["sanity"] = _tried(file, loaded, goals, origin, layer, settings)
                except (UsuError, ValueError, TypeError, OSError, RuntimeError, MemoryError) as error:
                    failed.append({"picture": str(file), "error": run.sentence_of(error)})
                bars.finish()
                if bars.stopped:
                    break
        except KeyboardInterrupt:  # also between two pictures
            bars.stopped = True
    _report(done, failed, as_json=as_json, quiet=quiet)
    if bars.stopped:
        run.note(f"interrupted; {len(done)} of {len(files)} pictures are finished and kept in {out}")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1 if done else 2)


def _contents(model: str, loaded: Loaded, origin: Any) -> dict[str, str]:
    """Digests of what the names stand for: the model's tensors and code, its preparation, a coarse map from a file."""
    from usu.forward.digest import described, digest

    file = Path(model.rpartition(":")[0])
    code = file.read_bytes() if file.suffix == ".py" and file.is_file() else b""
    parts = {"model": [loaded.model, loaded.prepare], "source": origin}
    return {name: digest(code, json.dumps(described(part)).encode()) for name, part in parts.items()}


def _asked(file: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The request for one picture, known by its bytes as well as by its place."""
    from usu.forward.digest import digest

    contents = {"picture": digest(file.read_bytes()), **request["contents"]}
    return {"picture": str(file.resolve()), **request, "contents": contents}


def _tried(
    file: Path, loaded: Loaded, goals: list[int], origin: Any, layer: str | None, settings: Settings
) -> dict[str, Any]:
    """Of the first class."""
    from usu.pipeline.sanity import sanity

    if not isinstance(origin, str):
        raise ValueError("`--source` must be a name with --sanity; got a file: its map cannot change with the model.")
    found = sanity(
        loaded, file, goals[0] if goals else None, source=origin, layer=layer, preset=settings,
        evaluations=settings.evaluations if isinstance(settings.evaluations, int) else 150,
    )  # fmt: skip
    return {"passed": found.passed, "sentence": found.sentence, "trials": found.rows()}


def _folder(out: Path, file: Path, asked: dict[str, Any]) -> tuple[Path, dict[str, Any] | None]:
    """Where the result goes, and its manifest if it is there already: the first of name, name-2, name-3 that is either
    free or holds the answer to the same request, whole and not stopped before its end."""
    from usu.errors import UsuError
    from usu.results import saved_manifest

    for number in count(1):
        folder = out / (file.stem if number == 1 else f"{file.stem}-{number}")
        if not folder.exists() and not folder.is_symlink():
            break
        with suppress(UsuError):  # something else, or not whole: no answer
            known = saved_manifest(folder)
            if known.get("request") == asked and known.get("stop_reason") != "STOPPED":
                return folder, known
    return folder, None


def _saved(explanation: Explanation, out: Path, file: Path, asked: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Written to the first free name; or what another process wrote meanwhile, if it is the same answer."""
    while True:
        folder, finished = _folder(out, file, asked)
        try:
            return folder, finished or json.loads((explanation.save(folder) / "manifest.json").read_bytes())
        except FileExistsError:
            if not folder.exists() and not folder.is_symlink():  # a file where a folder should be: nobody took the name
                raise


def _report(done: list[dict[str, Any]], failed: list[dict[str, str]], *, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"explained": done, "failed": failed}, indent=1))
        return
    for result in done:
        stable = result.get("stability")
        run.tell(
            f"{result['picture']}: {result['label']}; {result['evaluations']} evaluations, {result['seconds']:.1f} s, "
            f"mass error {result['mass_error']:.0e}{'' if stable is None else f', stability {stable:.2f}'}"
            f"{', stopped early' if result['stop_reason'] == 'STOPPED' else ''} -> {result['folder']}"
        )
        if "sanity" in result:
            for trial in result["sanity"]["trials"]:
                run.tell(f"  {trial['name']:<32}{trial['wanted']:<7}IoU {trial['iou']:.2f}")
            run.tell(f"  {result['sanity']['sentence']}")
        for remark in [*result["source"]["notes"], *result.get("notes", ())]:
            run.note(f"{result['picture']}: {remark}", quiet=quiet)
    for one in failed:
        run.note(one["error"])
