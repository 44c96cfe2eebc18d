"""Questions asked of every argument at the door, one function for each.

An answer that will not do is one sentence, `` `argument` must ...; got .... ``, and what to do where that is not plain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, isnan
from operator import methodcaller
from typing import Any

import numpy as np
import torch

from usu.types import Array, NDArray


def as_tensor(name: str, value: Array, *, like: torch.Tensor | None = None) -> torch.Tensor:
    """A float tensor sharing memory with ``value`` where possible; moves numpy arrays to the device of ``like``."""
    tensor = any_tensor(name, value, like=like)
    if not tensor.is_floating_point():
        raise TypeError(f"`{name}` must hold floating-point numbers; got {tensor.dtype}.")
    return tensor


def any_tensor(name: str, value: Array, *, like: torch.Tensor | None = None) -> torch.Tensor:
    """As `as_tensor`, for any type of number."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"`{name}` must not be a masked array; got one. Say what its gaps hold with .filled(...).")
    if isinstance(value, np.ndarray):
        native = np.asarray(value, dtype=value.dtype.newbyteorder("="))
        # torch can neither share negative strides nor a buffer it may not write to
        if not native.flags.writeable or any(step < 0 for step in native.strides):
            native = native.copy()
        try:
            tensor = torch.from_numpy(native)
        except TypeError:
            raise TypeError(f"`{name}` must hold numbers torch knows; got {value.dtype}.") from None
        if like is not None:
            tensor = tensor.to(like.device)
    elif isinstance(value, torch.Tensor):
        tensor = value
        if like is not None and tensor.device != like.device:
            raise ValueError(
                f"`{name}` must be on the same device as `coarse` ({like.device}); got {tensor.device}. "
                "Move one of them with .to(...)."
            )
    else:
        raise TypeError(f"`{name}` must be a numpy array or a torch tensor; got {type(value).__name__}.")
    if tensor.numel() == 0:
        raise ValueError(f"`{name}` must not be empty; got shape {shape(tensor)}.")
    return tensor


def labels(
    name: str,
    value: Array,
    *,
    size: Sequence[int] | None = None,
    least: int | None = 0,
    every: bool = False,
    like: torch.Tensor | None = None,
) -> torch.Tensor:
    """One whole number per pixel, as int64: of shape ``size``, from ``least`` on; ``every``: 0 to P - 1, all used."""
    given = any_tensor(name, value, like=like)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"`{name}` must hold integer labels; got {given.dtype}. Convert it, e.g. to int64.")
    if size is not None and tuple(given.shape) != tuple(size):
        wanted = " x ".join(map(str, size))
        raise ValueError(f"`{name}` must give every pixel ({wanted}) one label; got {shape(given)}.")
    found = given.long()
    low, high = (int(v) for v in torch.aminmax(found))
    if least is not None and low < least:
        raise ValueError(f"`{name}` must be labels from {least} on; got {low}.")
    # more labels than pixels cannot all be used, and may be too many to count
    if every and (high >= found.numel() or not bool(torch.bincount(found.flatten()).all())):
        raise ValueError(
            f"`{name}` must have labels 0 to P - 1, each of them used; got {low} to {high}, {len(found.unique())} "
            "different. Call usu.segment.relabel first."
        )
    return found


def like_input(original: Array) -> Callable[[torch.Tensor], Any]:
    """The way back: results leave in the library and dtype of ``original``."""
    dtype: Any = original.dtype
    if isinstance(original, np.ndarray):
        return lambda tensor: tensor.detach().cpu().numpy().astype(dtype, copy=False)
    return methodcaller("to", dtype)


def as_numpy(array: Array) -> NDArray:
    """Out of the graph, on the CPU, sharing memory where it can be; bfloat16, which numpy lacks, becomes float32."""
    if not isinstance(array, torch.Tensor):
        return array
    plain = array.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def shape(tensor: torch.Tensor) -> str:
    """``7 x 7``, as a person writes it."""
    return " x ".join(str(n) for n in tensor.shape) or "()"


def extremes(tensor: torch.Tensor) -> tuple[float, float]:
    """The lowest and the highest number, in one pass; NaN where there is one.

    >>> extremes(torch.tensor([2.0, -1.0]))
    (-1.0, 2.0)
    """
    plain = tensor.detach()
    while torch._C._functorch.is_functorch_wrapped_tensor(plain):  # inside torch.vmap no tensor has a number
        plain = torch._C._functorch.get_unwrapped(plain)
    low, high = torch.aminmax(plain)
    return low.item(), high.item()


def finite(name: str, tensor: torch.Tensor) -> tuple[float, float]:
    """No NaN, no infinity."""
    low, high = extremes(tensor)
    if not (isfinite(low) and isfinite(high)):
        kind = "NaN" if isnan(low) or isnan(high) else "infinity"
        raise ValueError(f"`{name}` must be finite; got {kind}.")
    return low, high


def in_unit_interval(name: str, tensor: torch.Tensor) -> tuple[float, float]:
    """All of [0, 1], nothing else."""
    low, high = extremes(tensor)
    if isnan(low) or isnan(high):
        raise ValueError(f"`{name}` must be finite; got NaN.")
    if low < 0 or high > 1:
        raise ValueError(f"`{name}` must lie in [0, 1]; got values from {low:.4g} to {high:.4g}.")
    return low, high


def non_negative(name: str, tensor: torch.Tensor) -> tuple[float, float]:
    """Finite and nowhere below zero."""
    low, high = finite(name, tensor)
    if low < 0:
        raise ValueError(f"`{name}` must be non-negative; got {low:.4g}.")
    return low, high


def whole_number(name: str, value: int, *, least: int = 0, most: int | None = None) -> int:
    """An int from ``least`` to ``most``."""
    wanted = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be {wanted}; got {value!r}.")
    if value < least or (most is not None and value > most):
        raise ValueError(f"`{name}` must be {wanted}; got {value!r}.")
    return int(value)


def generator(name: str, value: torch.Generator | int) -> torch.Generator:
    """The caller's own generator, or one on the CPU from a seed."""
    if isinstance(value, torch.Generator):
        return value
    # torch takes 64 bits
    return torch.Generator().manual_seed(whole_number(name, value, least=0, most=2**63 - 1))


def real_number(name: str, value: float, *, least: float | None = None, most: float | None = None) -> float:
    """A finite number, from ``least`` to ``most`` where they are given."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}.")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {value}.")
    if (least is not None and number < least) or (most is not None and number > most):
        wanted = f"at least {least:g}" if most is None else f"from {least or 0:g} to {most:g}"
        raise ValueError(f"`{name}` must be {wanted}; got {value}.")
    return number


def positive_number(name: str, value: float) -> float:
    """A finite number above zero, and large enough that one over it is finite."""
    number = real_number(name, value)
    if not number > 0 or 1 / number == float("inf"):
        beside = ", and one over it finite" if number > 0 else ""
        raise ValueError(f"`{name}` must be greater than 0{beside}; got {value}.")
    return number


def choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"`{name}` must be one of {words}; got {value!r}.")
