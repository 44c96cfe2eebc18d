"""pytorch-grad-cam (the package ``grad-cam``): its CAMs with redistribution in the place of its resize."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Model, Progress
from usu.integrations._grad_cam_layers import LayerMaps, checked_pictures, is_a, layer_maps, members
from usu.integrations._grad_cam_targets import for_scoring, one_each
from usu.integrations._layered import unit, upsample_layers
from usu.integrations._set_aside import deaf
from usu.results import Upsampled
from usu.settings import Settings, settings_of
from usu.types import Array, NDArray

__all__ = ["Redistributed", "coarse_maps", "wrap"]


def wrap(
    cam: Any,
    *,
    scale: Literal["unit", "mass"] = "unit",
    preset: str | Settings | None = None,
    evaluations: int | None = None,
    seed: int | None = None,
    model: Model | None = None,
    progress: Progress | None = None,
) -> Redistributed:
    """A CAM of pytorch-grad-cam whose maps are redistributed instead of resized.

    ::

        cam = wrap(GradCAM(model=model, target_layers=[model.layer4[-1]]))
        maps = cam(input_tensor=images, targets=[ClassifierOutputTarget(281)])

    Args:
        cam: any CAM of the package: GradCAM, HiResCAM, GradCAMPlusPlus, XGradCAM, ShapleyCAM, LayerCAM, EigenCAM,
            ScoreCAM, AblationCAM and the like, FullGrad, FinerCAM, RefineCAM.
        scale: ``"unit"``: rectified, and every map from 0 to 1, as the package's users expect. ``"mass"``: signed and
            in the layer's own units, nothing dropped and nothing scaled.
        preset: as in `usu.upsample`; None is ``"cell"``. Any setting can be had with `usu.Settings`.
        evaluations: the most model evaluations per picture.
        seed: of the random groups.
        model: who is asked for the scores; None is the CAM's own model. A compiled copy of it is fine.
        progress: called with the evaluations done and to do.

    Guarantees:
        With constant scores (and no ``base``) the map is nearest-exact of the layer's raw map to 1e-6. With a budget of
        ``"cell"`` every cell keeps its mass; ``last.mass_error`` is the measured error. Several target layers are
        scored once and averaged (FullGrad: summed) with their masses; RefineCAM multiplies them, so it has no mass.
        The model's mode, hooks, gradients and random numbers are as before, also after an exception.
    """
    members(cam)
    check.choice("scale", scale, ("unit", "mass"))
    settings_of(preset)
    if scale == "mass" and is_a(cam, "RefineCAM"):
        raise ValueError(
            "`scale` must be 'unit' for RefineCAM, which multiplies the maps of its layers, so that no mass is left; "
            "got 'mass'. Wrap its base method with several target layers to have their mean."
        )
    return Redistributed(cam, scale, preset, evaluations, seed, model, progress)


class Redistributed:
    """A CAM, called as before; see `wrap`. It can be used in a ``with`` block, which releases the CAM's hooks."""

    def __init__(
        self,
        cam: Any,
        scale: Literal["unit", "mass"],
        preset: str | Settings | None,
        evaluations: int | None,
        seed: int | None,
        model: Model | None,
        progress: Progress | None,
    ) -> None:
        self.cam, self.scale, self.preset, self.progress = cam, scale, preset, progress
        self.evaluations, self.seed, self.model = evaluations, seed, model
        #: The last call's result, not scaled: tensors on the model's device, evaluations, mass error, provenance.
        self.last: Upsampled[Tensor] | None = None

    def __call__(
        self,
        input_tensor: Tensor,
        targets: Sequence[Any] | None = None,
        *,
        aug_smooth: bool = False,
        eigen_smooth: bool = False,
        picture: Array | None = None,
        alpha: float | None = None,
        comparison_categories: Sequence[int] | None = None,
        target_idx: int | None = None,
    ) -> NDArray:
        """Maps (B, H, W) in float32, one per picture.

        Args:
            input_tensor: (B, C, H, W), as the model takes them.
            targets: one per picture, as in the package, or class indices; None for each picture's top class.
            aug_smooth: the coarse map is the mean over the CAM's augmentations.
            eigen_smooth: the coarse map is the first principal component.
            picture: what the segmenter sees, (B,) H x W x 3 in [0, 1]; made from ``input_tensor`` if absent.
            alpha: for FinerCAM, and
            comparison_categories: for FinerCAM, and
            target_idx: for FinerCAM without ``targets``.
        """
        images = checked_pictures(input_tensor)
        found = _found(
            self.cam, images, targets, aug_smooth, eigen_smooth, alpha, comparison_categories, target_idx
        )  # fmt: skip
        bases = members(self.cam)
        layers = [torch.from_numpy(np.ascontiguousarray(m)).to(bases[0].device) for m in found.maps]
        if self.scale == "unit":
            self._say_what_is_blank(layers)
            layers = [layer.clamp(min=0) for layer in layers]
        if picture is not None and len(images) == 1 and picture.ndim == 3:
            picture = picture[None]
        with deaf(bases):
            result = upsample_layers(
                layers, images.detach(), self.model if self.model is not None else bases[0].model,
                [for_scoring(target) for target in found.targets],
                combine="product" if is_a(self.cam, "RefineCAM") else "sum" if _is_fullgrad(bases) else "mean",
                preset=self.preset, evaluations=self.evaluations, picture=picture, seed=self.seed,
                progress=self.progress,
            )  # fmt: skip
        source = {"cam": type(self.cam).__name__, "layers": [tuple(m.shape[1:]) for m in found.maps]}
        self.last = replace(result, provenance={**result.provenance, "source": source})
        shown = unit(result.pixel_map) if self.scale == "unit" else result.pixel_map
        return shown.detach().cpu().numpy().astype(np.float32, copy=False)

    @property
    def outputs(self) -> Any:
        """What the model said in the CAM's own last pass, without a graph; None before the first."""
        return getattr(members(self.cam)[0], "outputs", None)

    def __enter__(self) -> Redistributed:
        return self

    def __exit__(self, *_: object) -> None:
        # the package's own __exit__ prints and swallows every IndexError, also the user's
        for base in members(self.cam):
            base.activations_and_grads.release()

    def _say_what_is_blank(self, layers: Sequence[Tensor]) -> None:
        highest = torch.stack([layer.flatten(1).amax(1) for layer in layers]).amax(0)
        lowest = torch.stack([layer.flatten(1).amin(1) for layer in layers]).amin(0)
        for i in (highest <= 0).nonzero().flatten().tolist():
            reason = (
                f"its values, from {lowest[i]:.3g} to {highest[i]:.3g}, are all evidence against the target. See them "
                "with scale='mass', or ask for another target or layer"
                if lowest[i] < 0
                else "the target does not depend on the layer here. Try another layer"
            )
            warnings.warn(
                f"{type(self.cam).__name__}: the map of picture {i} is blank: {reason}.", UserWarning, stacklevel=3
            )


def coarse_maps(
    cam: Any,
    input_tensor: Tensor,
    targets: Sequence[Any] | None = None,
    *,
    aug_smooth: bool = False,
    eigen_smooth: bool = False,
    alpha: float | None = None,
    comparison_categories: Sequence[int] | None = None,
    target_idx: int | None = None,
) -> list[NDArray]:
    """The CAM's maps at the resolution of its layers, before the package rectifies, scales and resizes them.

    Returns one (B, h, w) per target layer, signed and in the package's own units. FullGrad: first |gradient x picture|
    at the picture's resolution, then |gradient x bias| of every layer, each summed over its channels. RefineCAM: its
    layers one after the other, before they are multiplied.

    The arguments are those of `Redistributed.__call__`.
    """
    images = checked_pictures(input_tensor)
    found = _found(cam, images, targets, aug_smooth, eigen_smooth, alpha, comparison_categories, target_idx)
    return list(found.maps)


def _found(
    cam: Any,
    images: Tensor,
    targets: Sequence[Any] | None,
    aug_smooth: bool,
    eigen_smooth: bool,
    alpha: float | None,
    comparison_categories: Sequence[int] | None,
    target_idx: int | None,
) -> LayerMaps:
    members(cam)
    given = {"alpha": alpha, "comparison_categories": comparison_categories, "target_idx": target_idx}
    finer = {name: value for name, value in given.items() if value is not None}
    for name in finer:
        if not is_a(cam, "FinerCAM") or targets is not None:
            got = f"{name} for {type(cam).__name__}" + (" with targets" if targets is not None else "")
            raise ValueError(f"`{name}` must be left to FinerCAM without `targets`; got {got}. Leave one of them out.")
    return layer_maps(
        cam, images, one_each(targets, len(images)), aug_smooth=aug_smooth, eigen_smooth=eigen_smooth, finer=finer
    )


def _is_fullgrad(bases: Sequence[Any]) -> bool:
    return all(hasattr(base, "bias_data") for base in bases)
