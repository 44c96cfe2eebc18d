"""The maps of pytorch-grad-cam's layers before it rectifies, scales and resizes them, and the targets it used.

The library runs its own forward and backward pass and picks its own targets. Its `compute_cam_per_layer`, which has the
layers' maps in hand and scales them, is replaced for the time of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from usu import _checks as check
from usu.errors import MissingExtraError
from usu.forward import undisturbed
from usu.integrations._hooks import restored, without_hooks
from usu.types import NDArray


def package() -> Any:
    """``pytorch_grad_cam``."""
    try:
        return import_module("pytorch_grad_cam")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pytorch_grad_cam":
            raise
        raise MissingExtraError("grad-cam", "pytorch-grad-cam", "Wrapping a CAM of pytorch-grad-cam") from None


def is_a(cam: object, name: str) -> bool:
    """Is it one of the library's ``name``? Older versions do not know all of them."""
    return isinstance(cam, getattr(package(), name, ()))


def members(cam: Any) -> list[Any]:
    """The CAMs that do the work: several for RefineCAM, the inner one for FinerCAM, else the CAM itself."""
    if is_a(cam, "RefineCAM"):
        return list(cam.base_cam_per_layer)
    if is_a(cam, "FinerCAM"):
        return [cam.base_cam]
    if isinstance(cam, package().base_cam.BaseCAM):
        return [cam]
    raise TypeError(f"`cam` must be a CAM of pytorch-grad-cam that looks at layers; got {type(cam).__name__}.")


def layer_maps(
    cam: Any, images: Tensor, targets: Any, aug_smooth: bool, eigen_smooth: bool, finer: dict[str, Any]
) -> tuple[list[NDArray], list[Any]]:
    """One signed map (B, h, w) per layer in the library's own units; one target per picture as the library has them.

    ``finer``: what only FinerCAM takes, None where it was not given. One pass of the library, one per augmentation, and
    one per layer where layers cannot share it.
    """
    bases, finer_cam = members(cam), is_a(cam, "FinerCAM")
    finer = {name: value for name, value in finer.items() if value is not None}
    if finer and (not finer_cam or targets is not None):
        got = type(cam).__name__ + (" with targets" if targets is not None else "")
        raise ValueError(f"`{next(iter(finer))}` must only be given for FinerCAM without `targets`; got it for {got}.")
    goals = _one_per_picture(targets, len(images))
    if not all(base.activations_and_grads.handles for base in bases):
        got = f"a {type(cam).__name__} without: its `with` block has ended, or it found no layers"
        raise ValueError(f"`cam` must have its hooks on the model; got {got}.")

    def run(pictures: Tensor, goals: Any) -> tuple[list[NDArray], Any]:
        maps: list[NDArray] = []
        for base in bases:
            forward = partial((cam if finer_cam else base).forward, eigen_smooth=eigen_smooth, **finer)
            others = [handle for other in bases if other is not base for handle in other.activations_and_grads.handles]
            with without_hooks(others):
                found, goals = _pass(forward, base, pictures, goals)
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
    of_class = package().utils.model_targets.ClassifierOutputTarget
    made = [of_class(int(t)) if isinstance(t, (int, np.integer)) and not isinstance(t, bool) else t for t in targets]
    for target in made:
        if not callable(target):
            kind = type(target).__name__
            raise TypeError(f"`targets` must be callables on one picture's output, or class indices; got {kind}.")
    return made


def for_scoring(target: Any) -> int | Callable[[Any], Tensor]:
    """The library's target, which sees one picture's output, as one of ours, which sees a batch's."""
    kind = type(target)
    category = target.category if kind is package().utils.model_targets.ClassifierOutputTarget else None
    if isinstance(category, (int, np.integer)) and category >= 0:
        return int(category)

    def rows(output: Any) -> Tensor:
        values = [torch.as_tensor(target(row)) for row in output]
        for value in values:
            if value.numel() != 1:
                got = f"{check.shape(value)} from {kind.__name__}"
                raise ValueError(f"`targets` must return one number per picture; got {got}.")
        return torch.stack([value.reshape(()) for value in values])

    rows.__name__ = getattr(target, "__name__", kind.__name__)
    return rows


def _augmented(run: Callable[[Tensor], list[NDArray]], transforms: Any, pictures: Tensor) -> list[NDArray]:
    """The mean over the augmentations, each turned back."""
    turned = []
    for transform in transforms:
        maps = [torch.from_numpy(m)[:, None] for m in run(transform.augment_image(pictures))]
        turned.append([transform.deaugment_mask(m)[:, 0].double().numpy() for m in maps])
        if any(a.shape != b.shape for a, b in zip(turned[0], turned[-1], strict=True)):
            raise ValueError("`tta_transforms` must keep the size of the layers' maps; got one that changes it.")
    return [np.mean(same, axis=0).astype(np.float32) for same in zip(*turned, strict=True)]


def _pass(forward: Callable[[Tensor, Any], Any], base: Any, pictures: Tensor, targets: Any) -> tuple[list[Any], Any]:
    """The library's own pass, stopped where it would scale the maps."""
    twice = not getattr(base, "detach", True)
    # second derivatives free their graph layer by layer, so such a method looks at one layer per pass
    rounds = [slice(i, i + 1) for i in range(len(base.target_layers))] if twice else [slice(None)]
    maps: list[NDArray] = []
    held, fullgrad = base.activations_and_grads, is_a(base, "FullGrad")
    # FullGrad's layers are convolutions also in a transformer: there is nothing to reshape
    reshape = None if fullgrad else held.reshape_transform
    order: list[int] = []
    handles = [layer.register_forward_hook(lambda one, *_: order.append(id(one))) for layer in base.target_layers]
    frozen = not all(parameter.requires_grad for parameter in base.model.parameters())
    if frozen and base.uses_gradients and not base.compute_input_gradient:
        # the gradient then comes from the picture; a copy goes in, because a first layer may work in place
        pictures = pictures.detach().requires_grad_().clone()
    for which in rounds:

        def instead(input_tensor: Tensor, goals: Any, eigen_smooth: bool, which: slice = which) -> None:
            nonlocal targets
            targets = goals
            # ScoreCAM would store the activations of every pass it makes from here on
            with without_hooks(held.handles):
                if fullgrad:
                    maps.extend(_fullgrad(base, input_tensor, eigen_smooth, order))
                else:
                    maps.extend(_raw(base, input_tensor, goals, eigen_smooth, which))

        try:
            with (
                patch.multiple(base, compute_cam_per_layer=instead, aggregate_multi_layers=lambda _: None),
                patch.object(held, "reshape_transform", reshape),
                # the fused attention kernels have no second derivative; the plain one has
                sdpa_kernel(SDPBackend.MATH) if twice else nullcontext(),
            ):
                forward(pictures, targets)
        finally:
            for handle in handles:
                handle.remove()
            # what is kept here would keep the whole graph, until the next call or for ever
            held.activations, held.gradients = [], []
            if isinstance(getattr(base, "outputs", None), Tensor):
                base.outputs = base.outputs.detach()
    return maps, targets


def _raw(base: Any, pictures: Tensor, targets: Any, eigen_smooth: bool, which: slice) -> list[NDArray]:
    """What `compute_cam_per_layer` would have rectified, scaled and resized."""
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
        with patch.object(base, "get_cam_weights", lambda *_, weights=weights: weights):
            inside = activation if held.reshape_transform is None else held.reshape_transform(activation)
            maps.append(base.get_cam_image(pictures, layer, targets, inside, None, eigen_smooth))
    return [np.asarray(m) for m in maps]


def _fullgrad(base: Any, pictures: Tensor, eigen_smooth: bool, order: list[int]) -> list[NDArray]:
    """|gradient x picture|, then |gradient x bias| of every layer as they ran, each summed over its channels.

    The library scales every channel to [0, 1] first, after which no layer has its mass. It has the biases in the order
    in which layers were made, and the gradients in the ``order`` in which they ran.
    """
    gradients = [check.as_numpy(gradient) for gradient in base.activations_and_grads.gradients]
    if len(gradients) != len(order) or pictures.grad is None:  # a layer counts as often as it ran
        wanted = f"all of its {len(order)} layers with a bias that run for FullGrad"
        raise ValueError(f"`model` must use {wanted}; got gradients of {len(gradients)}.")
    terms = [np.abs(check.as_numpy(pictures.grad * pictures.detach()))]
    biases = {id(layer): bias for layer, bias in zip(base.target_layers, base.bias_data, strict=True)}
    terms += [np.abs(biases[layer][None, :, None, None] * g) for layer, g in zip(order, gradients, strict=True)]
    if not eigen_smooth:
        return [term.sum(axis=1) for term in terms]
    utils, full = package().utils, base.get_target_width_height(pictures)
    scaled = [utils.image.scale_accross_batch_and_channels(term, full) for term in terms]
    stack = np.concatenate([scaled[0], *(s.sum(axis=1, keepdims=True) for s in scaled[1:])], axis=1)
    small = utils.image.scale_accross_batch_and_channels(stack, [n // 8 for n in full])
    return [utils.svd_on_activations.get_2d_projection(small)]
