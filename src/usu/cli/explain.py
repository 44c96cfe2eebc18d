"""``usu explain``: why the model said what it said, for one picture or a thousand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
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
    model: Annotated[
        str,
        typer.Option(
            help="efficientnet_lite0, torchvision:NAME, timm:NAME, transformers:FOLDER, FILE.py:FUNCTION or FILE.onnx."
        ),
    ] = "efficientnet_lite0",
    weights: Annotated[str | None, typer.Option(help="A local file of weights (.pth or .safetensors).")] = None,
    layer: Annotated[
        str | None, typer.Option(help="Where the *cam sources look; the last spatial layer if not given.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Class index or name; the model's top class if not given.")] = None,
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
    evaluations: Annotated[int | None, typer.Option(help="The most model evaluations per picture.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random groups.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for the results, one folder per picture in it.")] = Path("usu-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no remarks.")] = False,
) -> None:
    """Explain pictures: a pixel map, an overlay, a panel and a manifest for each.

    A picture whose result is there already, made with the same request, is not computed again: an interrupted run goes
    on where it was. Nothing is overwritten.
    """
    from usu.errors import UsuError
    from usu.models import load
    from usu.models.pictures import find

    files = find(pictures)
    settings = run.settings_from(
        preset, budget=budget, temperature=temperature, depth=depth, evaluations=evaluations, seed=seed
    )
    loaded = load(model, weights=weights, device=device)
    goal = _goal(target, loaded)
    origin = run.source_from(source)
    request = {
        "model": model,
        "weights": weights,
        "layer": layer,
        "target": goal,
        "source": source,
        "settings": settings.described(),
    }
    done: list[dict[str, Any]] = []
    failed: list[tuple[Path, str]] = []
    interrupted = False
    with run.bars(len(files), quiet=quiet) as bars:
        try:
            for file in files:
                asked = {"picture": str(file.resolve()), **request}
                folder, finished = _folder(out, file, asked)
                try:
                    if finished is None:
                        bars.start(file.name, settings.evaluations)
                        explanation = _explained(file, loaded, goal, origin, layer, settings, bars)
                        replace(explanation, request=asked).save(folder)
                        finished = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
                    done.append({"picture": str(file), "folder": str(folder), **finished})
                except (UsuError, ValueError, TypeError, OSError, RuntimeError, MemoryError) as error:
                    failed.append((file, _sentence(error)))
                bars.finish()
        except KeyboardInterrupt:  # also between two pictures
            interrupted = True
    _report(done, failed, as_json=as_json, quiet=quiet)
    if interrupted:
        run.note(f"interrupted; {len(done)} of {len(files)} pictures are finished and kept in {out}")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1 if done else 2)


def _goal(target: str | None, loaded: Loaded) -> int | None:
    from usu.models import resolve_target

    return None if target is None else resolve_target(target, loaded.classes)


def _explained(
    file: Path, loaded: Loaded, goal: int | None, origin: Any, layer: str | None, settings: Settings, bars: run.Bars
) -> Explanation:
    from usu.models.pictures import read
    from usu.pipeline import explain as explained
    from usu.sources import LAYER_SOURCES

    picture = read(file)
    image, geometry, view = run.prepared(loaded, picture)
    return explained(
        loaded.model,
        image,
        goal,
        source=origin,
        layer=layer or (loaded.layer if isinstance(origin, str) and origin in LAYER_SOURCES else None),
        preset=settings,
        picture=view,
        classes=loaded.classes,
        original=picture.unit,
        geometry=geometry,
        progress=bars.evaluated,
    )


def _folder(out: Path, file: Path, asked: dict[str, Any]) -> tuple[Path, dict[str, Any] | None]:
    """Where the result goes, and its manifest if it is there already: the first of name, name-2, name-3 that is either
    free or holds the answer to the same request."""
    number = 1
    while True:
        folder = out / (file.stem if number == 1 else f"{file.stem}-{number}")
        manifest = folder / "manifest.json"
        if not folder.exists():
            return folder, None
        if manifest.is_file():
            known = json.loads(manifest.read_text(encoding="utf-8"))
            if known.get("request") == asked:
                return folder, known
        number += 1


def _report(done: list[dict[str, Any]], failed: list[tuple[Path, str]], *, as_json: bool, quiet: bool) -> None:
    if as_json:
        errors = [{"picture": str(file), "error": sentence} for file, sentence in failed]
        typer.echo(json.dumps({"explained": done, "failed": errors}, indent=1, ensure_ascii=False))
        return
    for result in done:
        typer.echo(
            f"{result['picture']}: {result['label']}; {result['evaluations']} evaluations, {result['seconds']:.1f} s, "
            f"mass error {result['mass_error']:.0e} -> {result['folder']}"
        )
        for remark in result["source"]["notes"]:
            run.note(f"{result['picture']}: {remark}", quiet=quiet)
    for _file, sentence in failed:
        sys.stderr.write(f"usu: {sentence}\n")


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
