"""pytorch-grad-cam (the package ``grad-cam``): its CAMs with redistribution in the place of its resize."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuWarning
from usu.forward import Model, Progress
from usu.integrations._grad_cam import for_scoring, is_a, layer_maps, members, package
from usu.integrations._hooks import without_hooks
from usu.integrations._layered import Combine, for_display, upsample_layers
from usu.results import Upsampled
from usu.settings import EXPLAIN_DEFAULT, UPSAMPLE_DEFAULT, Settings, settings_of
from usu.sources import CoarseMap, gradcam
from usu.types import Array, NDArray

__all__ = ["SOURCES", "Redistributed", "coarse_maps", "source", "wrap"]
#: CAMs that `source` knows, and what each is called in the package.
SOURCES: dict[str, str] = {
    "GradCAM": "GradCAM", "HiResCAM": "HiResCAM", "GradCAM++": "GradCAMPlusPlus", "XGradCAM": "XGradCAM",
    "FullGrad": "FullGrad", "ShapleyCAM": "ShapleyCAM", "FinerCAM": "FinerCAM", "LayerCAM": "LayerCAM",
    "EigenGradCAM": "EigenGradCAM", "EigenCAM": "EigenCAM",
}  # fmt: skip


def wrap(
    cam: Any, *, scale: Literal["unit", "mass"] = "unit", preset: str | Settings | None = None,
    evaluations: int | None = None, seed: int | None = None, model: Model | None = None,
    progress: Progress | None = None,
) -> Redistributed:  # fmt: skip
    """A CAM of pytorch-grad-cam whose maps are redistributed instead of resized.

    ::

        cam = wrap(GradCAM(model=model, target_layers=[model.layer4[-1]]))
        maps = cam(input_tensor=images, targets=[ClassifierOutputTarget(281)])

    Args:
        cam: any CAM of the package that looks at layers.
        scale: ``"unit"``: rectified, and every map from 0 to 1, as the package's users expect (1 from the 98 % quantile
            on). ``"mass"``: signed and in the layer's own units, nothing dropped and nothing scaled.
        preset: None is ``"soft"`` for maps that are looked at, ``"cell"`` for ``scale="mass"``.
        model: who is asked for the scores; None is the CAM's own model. A compiled copy of it is fine.

    Guarantees:
        With constant scores (and no ``base``) the map is nearest-exact of the layer's raw map to 1e-6. With a budget of
        ``"cell"`` every cell keeps its mass; ``last.mass_error`` is the measured error. Several target layers are
        scored once and averaged (FullGrad: summed) with their masses; RefineCAM multiplies them, so it has no mass.
        Without scores (``"fast"``) a target layer follows the finer ones, or the model's own if there are none.
        The model's mode, hooks and gradients are as before, also after an exception.
    """
    members(cam)
    check.choice("scale", scale, ("unit", "mass"))
    if scale == "mass" and is_a(cam, "RefineCAM"):
        raise ValueError("`scale` must be 'unit' for RefineCAM, because a product of maps has no mass; got 'mass'.")
    default = EXPLAIN_DEFAULT if scale == "unit" else UPSAMPLE_DEFAULT
    settings = settings_of(preset, default=default, evaluations=evaluations, seed=seed)
    return Redistributed(cam, scale, settings, model, progress)


@dataclass(eq=False)
class Redistributed:
    """A CAM, called as before; see `wrap`. It can be used in a ``with`` block, which releases the CAM's hooks."""

    cam: Any
    scale: Literal["unit", "mass"]
    settings: Settings
    model: Model | None
    progress: Progress | None
    #: The last call's result, not scaled: tensors on the model's device, evaluations, mass error, provenance.
    last: Upsampled[Tensor] | None = None

    def __call__(
        self, input_tensor: Tensor, targets: Sequence[Any] | None = None, *, aug_smooth: bool = False,
        eigen_smooth: bool = False, picture: Array | None = None, alpha: float | None = None,
        comparison_categories: Sequence[int] | None = None, target_idx: int | None = None,
    ) -> NDArray:  # fmt: skip
        """Maps (B, H, W) in float32, one per picture of a batch (B, C, H, W).

        Args:
            targets: one per picture, as in the package, or class indices; None for each picture's top class.
            aug_smooth: the coarse map is the mean over the CAM's augmentations.
            eigen_smooth: the coarse map is the first principal component.
            alpha: with ``comparison_categories`` and ``target_idx``, FinerCAM's, without ``targets``.
        """
        images = _batch(input_tensor)
        finer = {"alpha": alpha, "comparison_categories": comparison_categories, "target_idx": target_idx}
        maps, used = layer_maps(self.cam, images, targets, aug_smooth, eigen_smooth, finer)
        name, bases = type(self.cam).__name__, members(self.cam)
        layers = [torch.from_numpy(np.ascontiguousarray(m)).to(bases[0].device) for m in maps]
        if self.scale == "unit":
            for remark in _blank(torch.cat([layer.flatten(1) for layer in layers], 1)):
                warnings.warn(f"{name}: {remark}", UsuWarning, stacklevel=2)
            layers = [layer.clamp(min=0) for layer in layers]
        if picture is not None and len(images) == 1 and picture.ndim == 3:
            picture = picture[None]
        how: Combine = "product" if is_a(self.cam, "RefineCAM") else "sum" if is_a(bases[0], "FullGrad") else "mean"
        with without_hooks([handle for base in bases for handle in base.activations_and_grads.handles]):
            result = upsample_layers(
                layers, images.detach(), bases[0].model if self.model is None else self.model,
                [for_scoring(target) for target in used], self.settings, combine=how, picture=picture,
                progress=self.progress,
            )  # fmt: skip
        source = {"cam": name, "layers": [tuple(m.shape[1:]) for m in maps]}
        self.last = replace(result, provenance={**result.provenance, "source": source})
        shown = for_display(result.pixel_map) if self.scale == "unit" else result.pixel_map
        return shown.detach().cpu().numpy().astype(np.float32, copy=False)

    @property
    def outputs(self) -> Any:
        """What the model said in the CAM's own last pass, without a graph; None before the first."""
        return getattr(members(self.cam)[0], "outputs", None)

    def __enter__(self) -> Redistributed:
        return self

    def __exit__(self, *_: object) -> None:
        # the package's own __exit__ prints and swallows every IndexError, also the user's
        _release(self.cam)


def coarse_maps(
    cam: Any, input_tensor: Tensor, targets: Sequence[Any] | None = None, *, aug_smooth: bool = False,
    eigen_smooth: bool = False, alpha: float | None = None, comparison_categories: Sequence[int] | None = None,
    target_idx: int | None = None,
) -> list[NDArray]:  # fmt: skip
    """The CAM's maps at the resolution of its layers, before the package rectifies, scales and resizes them.

    Returns one (B, h, w) per target layer, signed and in the package's own units. FullGrad: first |gradient x picture|
    at the picture's resolution, then |gradient x bias| of every layer, each summed over its channels. RefineCAM: its
    layers one after the other, before they are multiplied. The arguments are those of `Redistributed.__call__`.
    """
    finer = {"alpha": alpha, "comparison_categories": comparison_categories, "target_idx": target_idx}
    return layer_maps(cam, _batch(input_tensor), targets, aug_smooth, eigen_smooth, finer)[0]


def source(name: str) -> Callable[[nn.Module, Tensor, int | None, str | None], CoarseMap]:
    """A CAM of the package as a source for `usu.evaluate`: (model, image, target, layer) -> `CoarseMap`.

    The map is rectified and keeps the layer's resolution and units. FullGrad has maps of many resolutions: each is
    averaged over the cells of the layer (or repeated, where it is coarser) before they are summed. FinerCAM compares
    the target with the three classes most like it, as the package does by default.
    """
    check.choice("source", name, tuple(SOURCES))
    return partial(_of_picture, name)


def _of_picture(name: str, model: nn.Module, image: Tensor, target: int | None, layer: str | None) -> CoarseMap:
    own, spent = None, 1
    if layer is None or target is None or name == "FullGrad":  # the pass that says where to look, at what, how finely
        own, spent = gradcam(model, image[None], target, layer=layer), 2
    place = layer if own is None else own.layer
    goal = target if own is None or not own.targets else own.targets[0]
    if goal is None or place is None:
        raise ValueError("`target` must be a class index; got none, and the model names none.")
    with redirect_stdout(StringIO()):  # FullGrad prints that it takes all layers
        cam = getattr(package(), SOURCES[name])(model=model, target_layers=[model.get_submodule(place)])
    try:
        finer = name == "FinerCAM"
        maps = coarse_maps(cam, image[None], None if finer else [goal], target_idx=goal if finer else None)
    finally:
        _release(cam)
    values = [torch.from_numpy(np.ascontiguousarray(one)).double() for one in maps]
    if own is not None and name == "FullGrad":
        height, width = own.values.shape[-2:]
        values = [nn.functional.adaptive_avg_pool2d(one, (height, width)) for one in values]
    found = torch.stack(values).sum(0).clamp(min=0)
    return CoarseMap(found, place, f"{name} of pytorch-grad-cam", (goal,), spent)


def _batch(input_tensor: Any) -> Tensor:
    images = check.as_tensor("input_tensor", input_tensor)
    if images.ndim != 4:
        raise ValueError(f"`input_tensor` must be a batch of pictures, B x C x H x W; got {check.shape(images)}.")
    return images


def _blank(values: Tensor) -> list[str]:
    """What to say of pictures (B, places) that have no positive value."""
    remarks = []
    for i, (low, high) in enumerate(zip(values.amin(1).tolist(), values.amax(1).tolist(), strict=True)):
        reason = "the target does not depend on the layer here. Try another layer"
        if low < 0:
            reason = f"its values, from {low:.3g} to {high:.3g}, are all evidence against the target. See them with "
            reason += "scale='mass', or ask for another target or layer"
        if high <= 0:
            remarks.append(f"the map of picture {i} is blank: {reason}.")
    return remarks


def _release(cam: Any) -> None:
    for base in members(cam):
        base.activations_and_grads.release()
