"""The layer maps of pytorch-grad-cam before it rectifies, scales and resizes them.

The library runs its own forward and backward pass and picks its own targets; this file only steps in where the maps of
the layers lie open (`compute_cam_per_layer`), takes them as they are, and leaves cam and model as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from usu import _checks as check
from usu.errors import MissingExtraError
from usu.forward import undisturbed
from usu.integrations._set_aside import as_found, deaf, replaced
from usu.types import NDArray

#: (pictures, targets) -> the layers' maps and the targets that were used.
_Run: TypeAlias = Callable[[Tensor, Any], tuple[list[NDArray], list[Any]]]


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """What the library had in its hands before it scaled."""

    #: One (B, h, w) per layer, signed, in the library's own units.
    maps: tuple[NDArray, ...]
    #: One per picture, as the library understands them.
    targets: tuple[Any, ...]


def library() -> Any:
    """pytorch-grad-cam, if it is installed."""
    try:
        return import_module("pytorch_grad_cam")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pytorch_grad_cam":
            raise
        raise MissingExtraError("grad-cam", "pytorch-grad-cam", "Wrapping a CAM of pytorch-grad-cam") from None


def is_a(cam: object, name: str) -> bool:
    """Is it one of the library's ``name``? Older versions do not know all of them."""
    kind = getattr(library(), name, None)
    return kind is not None and isinstance(cam, kind)


def members(cam: Any) -> list[Any]:
    """The CAMs that do the work: several for RefineCAM, the inner one for FinerCAM, else the CAM itself."""
    if is_a(cam, "RefineCAM"):
        return list(cam.base_cam_per_layer)
    if is_a(cam, "FinerCAM"):
        return [cam.base_cam]
    if isinstance(cam, import_module("pytorch_grad_cam.base_cam").BaseCAM):
        return [cam]
    raise TypeError(
        f"`cam` must be a CAM of pytorch-grad-cam that looks at layers of a model; got {type(cam).__name__}. "
        "Make one, e.g. GradCAM(model=model, target_layers=[layer])."
    )


def layer_maps(
    cam: Any, images: Tensor, targets: Any, *, aug_smooth: bool, eigen_smooth: bool, finer: dict[str, Any]
) -> LayerMaps:
    """One pass of the library (one per augmentation, and per layer where it cannot share one)."""
    bases = members(cam)
    if not all(base.activations_and_grads.handles for base in bases):
        raise ValueError(
            f"`cam` must have its hooks on the model; got a {type(cam).__name__} without, because its `with` block has "
            "ended or it found no layers. Make a new one."
        )

    def run(pictures: Tensor, goals: Any) -> tuple[list[NDArray], list[Any]]:
        maps: list[NDArray] = []
        for base in bases:
            forward = partial(cam.forward, **finer) if is_a(cam, "FinerCAM") else base.forward
            others = [other for other in bases if other is not base]
            with deaf(others):
                found, goals = _pass(partial(forward, eigen_smooth=eigen_smooth), base, pictures, goals)
            maps += found
        return maps, goals

    model = bases[0].model
    # a caller's no_grad() or inference_mode() must not reach in here
    with torch.inference_mode(False), torch.enable_grad(), undisturbed(model), as_found(model):
        pictures = images.detach().to(bases[0].device).clone()
        if aug_smooth:
            maps, used = _augmented(run, bases[0].tta_transforms, pictures, targets)
        else:
            maps, used = run(pictures, targets)
    for found in maps:
        if found.ndim != 3 or len(found) != len(images):
            got = " x ".join(map(str, found.shape))
            raise ValueError(
                f"`cam` must give one map h x w per picture; got {got} from {type(cam).__name__}. For a transformer "
                "pass reshape_transform when you make it."
            )
    return LayerMaps(tuple(maps), tuple(used))


def _augmented(run: _Run, transforms: Any, pictures: Tensor, targets: Any) -> tuple[list[NDArray], list[Any]]:
    """The mean over the augmentations, each turned back, all of them for the targets of the picture itself."""
    used = run(pictures, None)[1] if targets is None else targets
    total: list[NDArray] = []
    count = 0
    for transform in transforms:
        maps, _ = run(transform.augment_image(pictures), used)
        back = [transform.deaugment_mask(torch.from_numpy(m)[:, None])[:, 0].numpy().astype(np.float64) for m in maps]
        if total and any(a.shape != b.shape for a, b in zip(total, back, strict=True)):
            raise ValueError(
                "`tta_transforms` must keep the size of the layers' maps; got one that changes it. Use flips, turns "
                "and changes of brightness."
            )
        total = [a + b for a, b in zip(total, back, strict=True)] if total else back
        count += 1
    return [(m / count).astype(np.float32) for m in total], used


def _pass(forward: Callable[[Tensor, Any], Any], base: Any, pictures: Tensor, targets: Any) -> tuple[list[Any], Any]:
    """The library's own pass, stopped where it would scale the maps."""
    detached = getattr(base, "detach", True)
    # second derivatives free their graph layer by layer, so such a method looks at one layer per pass
    rounds: list[int | None] = [None] if detached else list(range(len(base.target_layers)))
    maps: list[NDArray] = []
    held = base.activations_and_grads
    for which in rounds:

        def instead(input_tensor: Tensor, goals: Any, eigen_smooth: bool, which: int | None = which) -> None:
            nonlocal targets
            targets = goals
            # ScoreCAM would store the activations of every pass it makes from here on
            with deaf([base]):
                maps.extend(_raw(base, input_tensor, goals, eigen_smooth, which))

        changed = {"compute_cam_per_layer": instead, "aggregate_multi_layers": lambda _: None}
        # FullGrad's layers are convolutions also in a transformer: there is nothing to reshape
        reshape = None if hasattr(base, "bias_data") else held.reshape_transform
        try:
            with (
                replaced(base, changed),
                replaced(held, {"reshape_transform": reshape}),
                nullcontext() if detached else _differentiable_twice(),
            ):
                forward(_ready(base, pictures), targets)
        finally:
            # what is kept here would keep the whole graph, until the next call or for ever
            held.activations, held.gradients = [], []
            if isinstance(getattr(base, "outputs", None), Tensor):
                base.outputs = base.outputs.detach()
    return maps, targets


def _ready(base: Any, pictures: Tensor) -> Tensor:
    """With a gradient of its own where layers are frozen, or the library finds none at the target layer."""
    frozen = not all(parameter.requires_grad for parameter in base.model.parameters())
    if frozen and base.uses_gradients and not base.compute_input_gradient:
        # a copy goes in, because a first layer that works in place may not touch a leaf
        return pictures.detach().requires_grad_().clone()
    return pictures


def _differentiable_twice() -> AbstractContextManager[Any]:
    """The fused attention kernels have no second derivative; the plain one has."""
    try:
        attention = import_module("torch.nn.attention")
    except ModuleNotFoundError:  # before torch 2.3
        return nullcontext()
    return attention.sdpa_kernel(attention.SDPBackend.MATH)  # type: ignore[no-any-return]


def _raw(base: Any, pictures: Tensor, targets: Any, eigen_smooth: bool, which: int | None) -> list[NDArray]:
    """What `compute_cam_per_layer` would have rectified, scaled and resized."""
    if hasattr(base, "bias_data"):
        return _fullgrad(base, pictures, eigen_smooth)
    held, layers, detached = base.activations_and_grads, base.target_layers, getattr(base, "detach", True)
    activations, gradients = list(held.activations), list(held.gradients)
    for what, found in (("run", activations), ("have a gradient", gradients)):
        if len(found) < len(layers) and (base.uses_gradients or what == "run"):
            raise ValueError(
                f"`target_layers` must all {what} when the model is asked for the target; got {len(found)} of "
                f"{len(layers)} that did. Leave out the others."
            )
    maps = []
    for i in range(len(layers)) if which is None else [which]:
        activation, gradient = activations[i], gradients[i] if i < len(gradients) else None
        if detached:
            activation = activation.cpu().numpy()
            gradient = None if gradient is None else gradient.cpu().numpy()
            maps.append(base.get_cam_image(pictures, layers[i], targets, activation, gradient, eigen_smooth))
            continue
        weights = base.get_cam_weights(pictures, layers[i], targets, activation, gradient)
        # the library forgets to reshape what it multiplies with these weights
        with replaced(base, {"get_cam_weights": lambda *_, weights=weights: weights}):
            reshape = held.reshape_transform or (lambda tensor: tensor)
            maps.append(base.get_cam_image(pictures, layers[i], targets, reshape(activation), None, eigen_smooth))
    return [np.asarray(m) for m in maps]


def _fullgrad(base: Any, pictures: Tensor, eigen_smooth: bool) -> list[NDArray]:
    """|gradient x picture|, then |gradient x bias| of every layer, each summed over its channels.

    The library scales every channel to [0, 1] first, after which no layer has its mass.
    """
    gradients = [gradient.cpu().numpy() for gradient in base.activations_and_grads.gradients]
    if len(gradients) != len(base.bias_data) or pictures.grad is None:
        raise ValueError(
            f"`model` must use each of its {len(base.bias_data)} layers with a bias once for FullGrad; got gradients "
            f"of {len(gradients)}. Take the unused parts out of the model."
        )
    terms = [np.abs((pictures.grad * pictures.detach()).cpu().numpy())]
    terms += [np.abs(bias[None, :, None, None] * g) for bias, g in zip(base.bias_data, gradients, strict=True)]
    if not eigen_smooth:
        return [term.sum(axis=1) for term in terms]
    image, svd = (import_module(f"pytorch_grad_cam.utils.{name}") for name in ("image", "svd_on_activations"))
    full, eighth = base.get_target_width_height(pictures), [n // 8 for n in base.get_target_width_height(pictures)]
    scaled = [image.scale_accross_batch_and_channels(term, full) for term in terms]
    stack = np.concatenate([scaled[0], *(s.sum(axis=1, keepdims=True) for s in scaled[1:])], axis=1)
    return [svd.get_2d_projection(image.scale_accross_batch_and_channels(stack, eighth))]


def checked_pictures(input_tensor: Any) -> Tensor:
    """B x C x H x W."""
    images = check.as_tensor("input_tensor", input_tensor)
    if images.ndim != 4:
        raise ValueError(
            f"`input_tensor` must be a batch of pictures, B x C x H x W; got {check.shape(images)}. "
            "Add a dimension to a single picture with [None]."
        )
    return images
