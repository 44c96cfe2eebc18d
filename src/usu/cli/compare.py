"""``usu compare``: one picture's map under every upsampler, with what each does to mass and what it costs."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usu.cli import run

if TYPE_CHECKING:
    from usu.settings import Settings
    from usu.types import NDArray

#: Of figures; a name that ends in none of them holds a PNG.
FORMATS = ("png", "pdf", "svg", "jpg", "jpeg")


def compare(
    picture: Annotated[str, typer.Argument(help="A picture.")],
    model: run.Model = "efficientnet_lite0",
    weights: run.Weights = None,
    layer: run.Layer = None,
    target: Annotated[str | None, typer.Option(help="Class index or name.")] = None,
    evaluations: Annotated[int, typer.Option(help="The most evaluations of any preset, besides Grad-CAM's own.")] = 300,
    device: run.Device = "cpu",
    out: Annotated[Path, typer.Option(help="The figure; a PNG unless its name says otherwise.")] = Path(
        "usu-compare.png"
    ),
    quiet: run.Quiet = False,
) -> None:
    """Every upsampler side by side on one picture: kernels, filters and the presets that ask the model."""
    run.load_torch()
    from torch import nn

    from usu import _checks as check
    from usu.metrics import moved_mass
    from usu.models import load, resolve_target
    from usu.models.pictures import prepared, read
    from usu.pipeline import upsample
    from usu.plot import comparison
    from usu.results import written
    from usu.settings import PRESETS
    from usu.sources import gradcam
    from usu.upsamplers import BUILT_IN

    run.need("matplotlib", "plot", "The figure of the comparison")
    check.whole_number("evaluations", evaluations, least=1)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"`--out` must not exist yet; got {out}. Choose another name, or remove it.")
    loaded = load(model, weights=weights, device=device)
    if not isinstance(loaded.model, nn.Module):
        raise TypeError(f"`--model` must have gradients for Grad-CAM; got {model}. Use a torch model to compare.")
    goal = None if target is None else resolve_target(target, loaded.classes)
    image, _, view = prepared(read(picture), loaded.prepare)
    # finer layers are heard in the source's own pass, as in usu explain: no preset pays for it
    source = gradcam(loaded.model, image[None], goal, layer=layer or loaded.layer, finer=True)
    coarse = source.values[0].double().cpu().numpy()
    finer = [level[0] for level in source.finer] or None
    found = source.targets[0] if source.targets else None
    label = loaded.classes[found] if loaded.classes and found is not None else str(found)

    maps: dict[str, tuple[NDArray, str]] = {}
    refused: dict[str, str] = {}

    def add(name: str, field: NDArray, spent: str, seconds: float) -> None:
        maps[name] = (field, f"moved {moved_mass(field, coarse):.1%} of the mass; {spent}, {seconds:.1f} s")

    with run.bars(1, quiet=quiet) as bars:
        for upsampler in BUILT_IN:
            if not upsampler.needs_scores:
                start = time.perf_counter()
                add(upsampler.name, upsampler(coarse, view), "0 evaluations", time.perf_counter() - start)
        for name in PRESETS:
            settings = _within(run.settings_from(name, evaluations=evaluations), view, evaluations)
            bars.start(name, settings.limit)
            try:
                result = upsample(
                    coarse, image, loaded.model, found, preset=settings, picture=view, finer=finer,
                    progress=bars.progress,
                )  # fmt: skip
            except ValueError as error:  # so few evaluations are not enough for it
                refused[f"USU {name}"] = " ".join(str(error).split())
                continue
            fewer = f" for {settings.parts} parts" * (settings.parts != PRESETS[name].parts)
            add(f"USU {name}", result.pixel_map, f"{result.evaluations} evaluations{fewer}", result.seconds)
    content, kind = io.BytesIO(), out.suffix.removeprefix(".").lower()
    figure = comparison(view, maps, coarse=coarse, heading=f"{run.printable(Path(picture).name)}: {label}")
    figure.savefig(content, format=kind if kind in FORMATS else "png")
    out.parent.mkdir(parents=True, exist_ok=True)
    written(out, content.getvalue())
    for name, remark in ({name: remark for name, (_, remark) in maps.items()} | refused).items():
        run.tell(f"{name:<20}{remark}")
    run.tell(f"-> {out}")


def _within(settings: Settings, view: NDArray, evaluations: int) -> Settings:
    """With as many parts as the evaluations allow: one at a time takes one each, and one for the picture as it is."""
    if settings.scoring != "delete":
        return settings
    parts = min(settings.parts, max(1, evaluations - 1))
    # a segmenter is asked for about so many and may give more
    while parts > 1 and int(settings.segmenter(view, parts).max()) + 1 > evaluations - 1:
        parts -= 1
    return replace(settings, parts=parts)
