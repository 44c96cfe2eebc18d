"""torchcam: an extractor whose maps come at the picture's resolution. Its objects are used; it is not imported."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.errors import UsuWarning
from usu.forward.calls import Target, logits_of
from usu.integrations._hooks import without_hooks
from usu.integrations._layered import for_display
from usu.pipeline import upsample
from usu.settings import EXPLAIN_DEFAULT, Settings

#: torchcam's: one picture's output -> a scalar tensor.
OutputTarget: TypeAlias = Callable[[Any], Tensor]


def wrap(extractor: Any, *, preset: str | Settings | None = None, evaluations: int | None = None) -> Wrapped:
    """An extractor of ``torchcam.methods``, called as before, with its layers' maps redistributed over the picture.

    ``with wrap(GradCAM(model, "layer4")) as cam: maps = cam(285, model(image))``

    Guarantees:
        ``normalized=False`` and the default preset: every cell keeps the mass of torchcam's own raw map. The
        extractor's hooks are set aside during the scoring passes and are back afterwards, also after an exception.
    """
    wanted = ("model", "target_names", "fuse_cams", "remove_hooks", "_hooks_off")
    if not callable(extractor) or any(not hasattr(extractor, name) for name in wanted):
        raise TypeError(f"`extractor` must be one of torchcam.methods; got {type(extractor).__name__}.")
    return Wrapped(extractor, preset=preset, evaluations=evaluations)


class Wrapped:
    """A torchcam extractor with pixel maps; made by `wrap`. torchcam's metrics take it for one of their own."""

    def __init__(self, extractor: Any, *, preset: str | Settings | None, evaluations: int | None) -> None:
        self.extractor, self.preset, self.evaluations = extractor, preset, evaluations
        self._own = getattr(extractor, "base_cam", extractor)
        self._image: Tensor | None = None
        self._handle = extractor.model.register_forward_pre_hook(self._remember, with_kwargs=True)

    def __call__(
        self, class_idx: int | list[int] | None = None, scores: Any = None, normalized: bool = True, *,
        targets: OutputTarget | list[OutputTarget] | None = None,
        comparison_idx: int | list[int] | list[list[int]] | None = None, retain_graph: bool = False,
        image: Tensor | None = None,
    ) -> list[Tensor]:  # fmt: skip
        """One map (N, H, W) per layer, as of the original, whose arguments these are.

        Args:
            normalized: each picture's map scaled to [0, 1], as torchcam's users expect; a preset that was not named is
                ``"soft"``. False keeps its mass; then it is ``"cell"``, and every cell keeps its own.
            image: the batch; None is what the model was last given.
        """
        images = self._image if image is None else image
        if images is None:
            raise ValueError("`image` must be given, or the model run on it after wrap(); got neither.")
        optional = {"targets": targets, "comparison_idx": comparison_idx, "retain_graph": retain_graph or None}
        optional = {name: value for name, value in optional.items() if value is not None}
        with without_hooks([self._handle]):  # some extractors run the model on pictures of their own
            coarse = self.extractor(class_idx, scores, normalized=False, **optional)
        goals = self._goals(class_idx, scores, targets, comparison_idx, len(images))
        preset = EXPLAIN_DEFAULT if self.preset is None and normalized else self.preset
        maps: list[Tensor] = []
        # switched off, its hooks would still run, and one of them does not mind being switched off
        with without_hooks([*self._own.hook_handles, self._handle]):
            for part in coarse:
                if part.ndim != 3 or len(part) != len(images):
                    raise ValueError(f"`image` must be the batch of the {len(part)} maps; got {check.shape(images)}.")
                for index in (~part.flatten(1).any(1)).nonzero().flatten().tolist():
                    warnings.warn(
                        f"Picture {index}: torchcam's map is zero everywhere, because the layer holds only evidence "
                        "against the target, or none. usu.gradcam(model, images, target, relu=False) shows it.",
                        UsuWarning,
                        stacklevel=2,
                    )
                found = upsample(part, images, self.model, goals, preset=preset, evaluations=self.evaluations)
                maps.append(for_display(found.pixel_map) if normalized else found.pixel_map)
        return maps

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copies ask for these before there is an extractor
            raise AttributeError(name)
        return getattr(self.extractor, name)

    def reset_hooks(self) -> None:
        """Forget the last pass."""
        self._image = None
        self.extractor.reset_hooks()

    def remove_hooks(self) -> None:
        """Leave the model."""
        self._handle.remove()
        self.extractor.remove_hooks()

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *_problem: object) -> None:
        try:
            self.remove_hooks()
        finally:
            self.reset_hooks()

    def __repr__(self) -> str:
        return f"wrap({self.extractor!r})"

    def _remember(self, _module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self._own._hooks_enabled:
            pictures = (value for value in (*given, *named.values()) if isinstance(value, Tensor) and value.ndim == 4)
            found = next(pictures, None)
            self._image = None if found is None else found.detach().clone()

    def _goals(self, class_idx: Any, scores: Any, targets: Any, comparison_idx: Any, count: int) -> list[Target]:
        """One target of ours per picture."""
        if targets is not None:
            return [_of_samples(goal) for goal in ([targets] * count if callable(targets) else targets)]
        if not hasattr(self.extractor, "_reference_indices"):
            return [class_idx] * count if isinstance(class_idx, int) else list(class_idx)
        # FinerCAM: a class against those it is compared with, as they are for the picture itself
        classes, index = self.extractor._target_indices(class_idx, scores.detach())
        others = self.extractor._reference_indices(comparison_idx, scores.detach(), classes, index).tolist()
        return [_contrast(own, other, self.extractor.gamma) for own, other in zip(classes, others, strict=True)]


def _of_samples(target: OutputTarget) -> Target:
    return lambda output: torch.stack([target(sample).reshape(()) for sample in output])


def _contrast(own: int, others: list[int], gamma: float) -> Target:
    def contrast(output: object) -> Tensor:
        logits = logits_of(output)
        return logits[:, own] - gamma * logits[:, others].mean(1)

    return contrast
