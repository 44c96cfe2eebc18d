"""The maps of pytorch-grad-cam's layers before it rectifies, scales and resizes them, and the targets it used.

The library runs its own forward and backward pass and picks its own targets. Its `compute_cam_per_layer`, which has the
layers' maps in hand and scales them, is replaced for the time of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from usu import _checks as check
from usu.errors import MissingExtraError
from usu.forward import undisturbed
from usu.integrations._hooks import patched, restored, without_hooks
from usu.types import NDArray


def is_a(cam: object, name: str) -> bool:
    """Is it one of the library's ``name``? Older versions do not know all of them."""
    try:
        kind = getattr(import_module("pytorch_grad_cam"), name, None)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pytorch_grad_cam":
            raise
        raise MissingExtraError("grad-cam", "pytorch-grad-cam", "Wrapping a CAM of pytorch-grad-cam") from None
    return kind is not None and isinstance(cam, kind)


def members(cam: Any) -> list[Any]:
    """The CAMs that do the work: several for RefineCAM, the inner one for FinerCAM, else the CAM itself."""
    if is_a(cam, "RefineCAM"):
        return list(cam.base_cam_per_layer)
    if is_a(cam, "FinerCAM"):
        return [cam.base_cam]
    if isinstance(cam, import_module("pytorch_grad_cam.base_cam").BaseCAM):
        return [cam]
    raise TypeError(f"`cam` must be a CAM of pytorch-grad-cam that looks at layers; got {type(cam).__name__}.")


def is_fullgrad(base: Any) -> bool:
    """FullGrad takes all layers with a bias and adds them up."""
    return hasattr(base, "bias_data")


def handles_of(bases: Sequence[Any]) -> list[RemovableHandle]:
    """The CAMs' hooks on the model."""
    return [handle for base in bases for handle in base.activations_and_grads.handles]


def layer_maps(
    cam: Any, images: Tensor, targets: Any, aug_smooth: bool, eigen_smooth: bool, finer: dict[str, Any]
) -> tuple[list[NDArray], list[Any]]:
    """One signed map (B, h, w) per layer in the library's own units; one target per picture as the library has them.

    ``finer``: what only FinerCAM takes, None where it was not given. One pass of the library, one per augmentation, and
    one per layer where layers cannot share it.
    """
    bases = members(cam)
    finer = {name: value for name, value in finer.items() if value is not None}
    for name in finer:
        if not is_a(cam, "FinerCAM") or targets is not None:
            got = type(cam).__name__ + (" with targets" if targets is not None else "")
            raise ValueError(f"`{name}` must only be given for FinerCAM without `targets`; got it for {got}.")
    goals = _one_per_picture(targets, len(images))
    if not all(base.activations_and_grads.handles for base in bases):
        got = f"a {type(cam).__name__} without: its `with` block has ended, or it found no layers"
        raise ValueError(f"`cam` must have its hooks on the model; got {got}.")

    def run(pictures: Tensor, goals: Any) -> tuple[list[NDArray], Any]:
        maps: list[NDArray] = []
        for base in bases:
            forward = partial(cam.forward, **finer) if is_a(cam, "FinerCAM") else base.forward
            with without_hooks(handles_of([other for other in bases if other is not base])):
                found, goals = _pass(partial(forward, eigen_smooth=eigen_smooth), base, pictures, goals)
            maps += found
        return maps, goals

    model, device = bases[0].model, bases[0].device
    # a caller's no_grad() or inference_mode() must not reach in here
    with torch.inference_mode(False), torch.enable_grad(), undisturbed(model), restored(model):
        pictures = images.detach().to(device).clone()
        if images.dtype == torch.bfloat16:
            model.register_forward_hook(_in_float)
        try:
            if aug_smooth:  # all augmentations for the targets of the picture itself
                goals = run(pictures, None)[1] if goals is None else goals
                maps = _augmented(lambda changed: run(changed, goals)[0], bases[0].tta_transforms, pictures)
            else:
                maps, goals = run(pictures, goals)
        except (TypeError, RuntimeError) as error:
            if images.dtype != torch.bfloat16 or "BFloat16" not in str(error):
                raise
            raise TypeError(f"`input_tensor` must not be bfloat16 for {type(cam).__name__}; got it.") from error
    for found in maps:
        if found.ndim != 3 or len(found) != len(images):
            got = f"{' x '.join(map(str, found.shape))} from {type(cam).__name__}"
            raise ValueError(f"`cam` must give one map h x w per picture; got {got}. Is reshape_transform missing?")
    return maps, list(goals)


def _in_float(_module: Any, _given: Any, output: Any) -> Any:
    """The library makes numpy arrays of the model's output, and numpy has no bfloat16."""
    return output.float() if isinstance(output, Tensor) and output.dtype == torch.bfloat16 else output


def _one_per_picture(targets: Any, count: int) -> list[Any] | None:
    """One callable per picture: the library stops silently at the shorter of targets and pictures."""
    if targets is None:
        return None
    if not isinstance(targets, (list, tuple)):
        raise TypeError(f"`targets` must be a list with one target per picture, or None; got {type(targets).__name__}.")
    if len(targets) != count:
        raise ValueError(f"`targets` must have one entry per picture ({count}); got {len(targets)}.")
    of_class = import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
    made = [of_class(int(t)) if isinstance(t, (int, np.integer)) and not isinstance(t, bool) else t for t in targets]
    for target in made:
        if not callable(target):
            kind = type(target).__name__
            raise TypeError(f"`targets` must be callables on one picture's output, or class indices; got {kind}.")
    return made


def for_scoring(target: Any) -> int | Callable[[Any], Tensor]:
    """The library's target, which sees one picture's output, as one of ours, which sees a batch's."""
    model_targets = import_module("pytorch_grad_cam.utils.model_targets")
    category = target.category if type(target) is model_targets.ClassifierOutputTarget else None
    if isinstance(category, (int, np.integer)) and category >= 0:
        return int(category)

    def rows(output: Any) -> Tensor:
        values = [torch.as_tensor(target(row)) for row in output]
        for value in values:
            if value.numel() != 1:
                kind = type(target).__name__
                raise ValueError(f"`targets` must return one number per picture; got {check.shape(value)} from {kind}.")
        return torch.stack([value.reshape(()) for value in values])

    rows.__name__ = getattr(target, "__name__", type(target).__name__)
    return rows


def _augmented(run: Callable[[Tensor], list[NDArray]], transforms: Any, pictures: Tensor) -> list[NDArray]:
    """The mean over the augmentations, each turned back."""
    turned = []
    for transform in transforms:
        maps = [torch.from_numpy(m)[:, None] for m in run(transform.augment_image(pictures))]
        turned.append([transform.deaugment_mask(m)[:, 0].double().numpy() for m in maps])
        if any(a.shape != b.shape for a, b in zip(turned[0], turned[-1], strict=True)):
            raise ValueError("`tta_transforms` must keep the size of the layers' maps; got one that changes it.")
    return [(sum(same) / len(turned)).astype(np.float32) for same in zip(*turned, strict=True)]


def _pass(forward: Callable[[Tensor, Any], Any], base: Any, pictures: Tensor, targets: Any) -> tuple[list[Any], Any]:
    """The library's own pass, stopped where it would scale the maps."""
    twice = not getattr(base, "detach", True)
    # second derivatives free their graph layer by layer, so such a method looks at one layer per pass
    rounds = [slice(i, i + 1) for i in range(len(base.target_layers))] if twice else [slice(None)]
    maps: list[NDArray] = []
    held = base.activations_and_grads
    # FullGrad's layers are convolutions also in a transformer: there is nothing to reshape
    reshape = None if is_fullgrad(base) else held.reshape_transform
    for which in rounds:

        def instead(input_tensor: Tensor, goals: Any, eigen_smooth: bool, which: slice = which) -> None:
            nonlocal targets
            targets = goals
            # ScoreCAM would store the activations of every pass it makes from here on
            with without_hooks(handles_of([base])):
                maps.extend(_raw(base, input_tensor, goals, eigen_smooth, which))

        try:
            with (
                patched(base, {"compute_cam_per_layer": instead, "aggregate_multi_layers": lambda _: None}),
                patched(held, {"reshape_transform": reshape}),
                _differentiable_twice() if twice else nullcontext(),
            ):
                forward(_with_gradient(base, pictures), targets)
        finally:
            # what is kept here would keep the whole graph, until the next call or for ever
            held.activations, held.gradients = [], []
            if isinstance(getattr(base, "outputs", None), Tensor):
                base.outputs = base.outputs.detach()
    return maps, targets


def _with_gradient(base: Any, pictures: Tensor) -> Tensor:
    """Pictures with a gradient of their own where layers are frozen, or the library finds none at the target layer."""
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


def _raw(base: Any, pictures: Tensor, targets: Any, eigen_smooth: bool, which: slice) -> list[NDArray]:
    """What `compute_cam_per_layer` would have rectified, scaled and resized."""
    if is_fullgrad(base):
        return _fullgrad(base, pictures, eigen_smooth)
    held, layers = base.activations_and_grads, base.target_layers
    activations, gradients = list(held.activations), list(held.gradients)
    for what, found in (("run", activations), ("have a gradient", gradients)):
        if len(found) < len(layers) and (base.uses_gradients or what == "run"):
            got = f"{len(found)} of {len(layers)}"
            raise ValueError(f"`target_layers` must all {what} in the pass for the target; got {got}.")
    gradients += [None] * (len(layers) - len(gradients))
    maps = []
    for layer, activation, gradient in list(zip(layers, activations, gradients, strict=False))[which]:
        if getattr(base, "detach", True):
            inside, slope = check.as_numpy(activation), None if gradient is None else check.as_numpy(gradient)
            maps.append(base.get_cam_image(pictures, layer, targets, inside, slope, eigen_smooth))
            continue
        weights = base.get_cam_weights(pictures, layer, targets, activation, gradient)
        # the library forgets to reshape what it multiplies with these weights
        with patched(base, {"get_cam_weights": lambda *_, weights=weights: weights}):
            inside = activation if held.reshape_transform is None else held.reshape_transform(activation)
            maps.append(base.get_cam_image(pictures, layer, targets, inside, None, eigen_smooth))
    return [np.asarray(m) for m in maps]


def _fullgrad(base: Any, pictures: Tensor, eigen_smooth: bool) -> list[NDArray]:
    """|gradient x picture|, then |gradient x bias| of every layer, each summed over its channels.

    The library scales every channel to [0, 1] first, after which no layer has its mass.
    """
    gradients = [check.as_numpy(gradient) for gradient in base.activations_and_grads.gradients]
    if len(gradients) != len(base.bias_data) or pictures.grad is None:
        wanted = f"each of its {len(base.bias_data)} layers with a bias once for FullGrad"
        raise ValueError(f"`model` must use {wanted}; got gradients of {len(gradients)}.")
    terms = [np.abs(check.as_numpy(pictures.grad * pictures.detach()))]
    terms += [np.abs(bias[None, :, None, None] * g) for bias, g in zip(base.bias_data, gradients, strict=True)]
    if not eigen_smooth:
        return [term.sum(axis=1) for term in terms]
    image, svd = (import_module(f"pytorch_grad_cam.utils.{name}") for name in ("image", "svd_on_activations"))
    full = base.get_target_width_height(pictures)
    scaled = [image.scale_accross_batch_and_channels(term, full) for term in terms]
    stack = np.concatenate([scaled[0], *(s.sum(axis=1, keepdims=True) for s in scaled[1:])], axis=1)
    return [svd.get_2d_projection(image.scale_accross_batch_and_channels(stack, [n // 8 for n in full]))]
