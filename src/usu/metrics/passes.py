"""What every metric that asks the model does first: check the map, fix the target, prepare the random numbers."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Model, engine
from usu.forward.outputs import Link, Target
from usu.types import Array


def checked_map(pixel_map: Array, size: tuple[int, ...] | None = None) -> Tensor:
    """One map (H, W) in float64 on the CPU, finite, as large as the picture."""
    field = check.as_tensor("pixel_map", pixel_map).detach().cpu().double()
    if field.ndim != 2 or field.numel() == 0:
        raise ValueError(
            f"`pixel_map` must be one map, H x W; got {check.shape(field)}. Measure the maps of a batch one by one."
        )
    if size is not None and tuple(field.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(
            f"`pixel_map` must be as large as the picture ({wanted}); got {check.shape(field)}. Upsample it first."
        )
    check.finite("pixel_map", field)
    return field


def asked(model: Model, target: Target, image: Array, link: Link) -> tuple[Engine, Tensor, int]:
    """The engine with its target fixed, the picture where the model is, and the evaluations this took (0 or 1)."""
    question = engine(model, target, link=link)
    picture = question.place(image)
    if question.target is None:
        return question.aim(picture).engine, picture, 1
    if isinstance(question.target, tuple) and len(question.target) > 1:
        raise ValueError(
            f"`target` must be one class for a metric; got {len(question.target)}. Measure each target's map by itself."
        )
    return question, picture, 0


def dice(generator: torch.Generator | int) -> torch.Generator:
    """A generator on the CPU from a seed, or the caller's own."""
    if isinstance(generator, torch.Generator):
        return generator
    if isinstance(generator, bool) or not isinstance(generator, int) or generator < 0:
        raise TypeError(
            f"`generator` must be a torch.Generator or a seed of at least 0; got {generator!r}. 0 is the default."
        )
    return torch.Generator().manual_seed(generator)


def seeded(seed: int, purpose: str) -> torch.Generator:
    """A generator for one purpose, whatever was drawn for others before."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def ranking(pixel_map: Tensor, generator: torch.Generator) -> Tensor:
    """Pixel indices (H·W,), the most relevant first; pixels of equal value come in a random order.

    Without the shuffle a constant map would be read from the top left, and score as if it meant something.

    >>> ranking(torch.tensor([[0.1, 0.7], [0.5, 0.3]]), torch.Generator().manual_seed(0)).tolist()
    [1, 2, 3, 0]
    """
    shuffled = torch.randperm(pixel_map.numel(), generator=generator, device=generator.device).cpu()
    return shuffled[pixel_map.flatten()[shuffled].argsort(descending=True, stable=True)]
