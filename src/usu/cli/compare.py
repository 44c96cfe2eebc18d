"""``usu compare``: one picture's map under every upsampler, with what each does to mass and what it costs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usu.cli import run

if TYPE_CHECKING:
    from usu.types import NDArray


def compare(
    picture: Annotated[str, typer.Argument(help="A picture.")],
    model: Annotated[str, typer.Option(help="As for usu explain.")] = "efficientnet_lite0",
    weights: Annotated[str | None, typer.Option(help="A local file of weights.")] = None,
    layer: Annotated[str | None, typer.Option(help="Where Grad-CAM looks.")] = None,
    target: Annotated[str | None, typer.Option(help="Class index or name.")] = None,
    evaluations: Annotated[int, typer.Option(help="The most evaluations any preset may use.")] = 300,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    out: Annotated[Path, typer.Option(help="The figure to write (.png or .pdf).")] = Path("usu-compare.png"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Every upsampler side by side on one picture: kernels, filters and the presets that ask the model."""
    import numpy as np
    from torch import nn

    from usu.models import load, resolve_target
    from usu.models.pictures import read
    from usu.operator.cells import Grid
    from usu.pipeline import upsample
    from usu.plot import comparison
    from usu.settings import PRESETS
    from usu.sources import gradcam
    from usu.upsamplers import BUILT_IN

    if out.exists():
        raise FileExistsError(f"`--out` must not exist yet; got {out}. Choose another name, or remove it.")
    loaded = load(model, weights=weights, device=device)
    if not isinstance(loaded.model, nn.Module):
        raise TypeError(f"`--model` must have gradients for Grad-CAM; got {model}. Use a torch model to compare.")
    goal = None if target is None else resolve_target(target, loaded.classes)
    image, _, view = run.prepared(loaded, read(picture))
    source = gradcam(loaded.model, image[None], goal, layer=layer or loaded.layer)
    coarse = source.values[0].double().cpu().numpy()
    (rows, columns), (height, width) = coarse.shape, view.shape[:2]
    cells = Grid((rows, columns), (height, width), source.values.device)
    label = loaded.classes[source.targets[0]] if loaded.classes and source.targets else str(source.targets)

    maps: dict[str, tuple[NDArray, str]] = {}

    def add(name: str, field: NDArray, evaluations: int, seconds: float) -> None:
        sums = np.bincount(cells.labels().cpu().numpy().ravel(), field.ravel())
        mass = coarse.ravel() * cells.sizes.cpu().numpy()
        moved = np.abs(sums - mass).sum() / max(np.abs(mass).sum(), 1e-300)
        maps[name] = (field, f"moved {moved:.1%} of the mass; {evaluations} evaluations, {seconds:.1f} s")

    kernels = [upsampler for upsampler in BUILT_IN if not upsampler.needs_scores]
    with run.bars(1, quiet=quiet) as bars:
        for upsampler in kernels:
            start = time.perf_counter()
            add(upsampler.name, upsampler(coarse, view), 0, time.perf_counter() - start)
        for name in PRESETS:
            settings = run.settings_from(name)
            # one at a time needs at least one evaluation per segment
            least = settings.parts + 1 if settings.scoring == "delete" else 1
            settings = replace(settings, evaluations=max(evaluations, least))
            bars.start(name, settings.evaluations)
            result = upsample(
                coarse, image, loaded.model, source.targets[0] if source.targets else None, preset=settings,
                picture=view, progress=bars.evaluated,
            )  # fmt: skip
            add(f"USU {name}", result.pixel_map, result.evaluations, result.seconds)
    figure = comparison(view, maps, coarse=coarse, heading=f"{Path(picture).name}: {label}")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    for name, (_, remark) in maps.items():
        typer.echo(f"{name:<20}{remark}")
    typer.echo(f"-> {out}")
