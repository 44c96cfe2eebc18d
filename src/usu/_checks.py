"""Questions asked of every argument at the door, each answered in one sentence.

The form: `` `argument` must ...; got .... What to do. ``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from usu.types import Array, NDArray


def as_tensor(name: str, value: Array, *, like: torch.Tensor | None = None) -> torch.Tensor:
    """A float tensor sharing memory with ``value`` where possible; moves numpy arrays to the device of ``like``."""
    tensor = any_tensor(name, value, like=like)
    if not tensor.is_floating_point():
        raise TypeError(
            f"`{name}` must hold floating-point numbers; got {tensor.dtype}. Convert it first, e.g. to float32."
        )
    return tensor


def any_tensor(name: str, value: Array, *, like: torch.Tensor | None = None) -> torch.Tensor:
    """As `as_tensor`, for any type of number."""
    if isinstance(value, np.ndarray):
        native = np.asarray(value, dtype=value.dtype.newbyteorder("="))
        # torch can neither share negative strides nor a buffer it may not write to
        if not native.flags.writeable or any(step < 0 for step in native.strides):
            native = native.copy()
        try:
            tensor = torch.from_numpy(native)
        except TypeError:
            raise TypeError(
                f"`{name}` must hold numbers torch knows; got {value.dtype}. Convert it first, e.g. to float64."
            ) from None
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
        raise TypeError(
            f"`{name}` must be a numpy array or a torch tensor; got {type(value).__name__}. "
            "Wrap it in numpy.asarray(...)."
        )
    if tensor.numel() == 0:
        raise ValueError(f"`{name}` must not be empty; got shape {shape(tensor)}. Pass at least one value.")
    return tensor


def like_input(original: Array) -> Callable[[torch.Tensor], Any]:
    """The way back: results leave in the library and dtype of ``original``."""
    if isinstance(original, np.ndarray):
        dtype = original.dtype
        return lambda tensor: tensor.detach().cpu().numpy().astype(dtype, copy=False)
    dtype_out = original.dtype
    return lambda tensor: tensor.to(dtype_out)


def as_numpy(array: Array) -> NDArray:
    """Out of the graph, on the CPU; the memory is shared where it can be."""
    return array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array


def shape(tensor: torch.Tensor) -> str:
    """``7 x 7``, as a person writes it."""
    return " x ".join(str(n) for n in tensor.shape) or "()"


def finite(name: str, tensor: torch.Tensor) -> None:
    """No NaN, no infinity."""
    low, high = (float(v) for v in torch.aminmax(tensor.detach()))
    if not (np.isfinite(low) and np.isfinite(high)):
        kind = "NaN" if np.isnan(low) or np.isnan(high) else "infinity"
        raise ValueError(
            f"`{name}` must be finite; got {kind}. Look for a division by zero or an overflow where it was made."
        )


def in_unit_interval(name: str, tensor: torch.Tensor) -> None:
    """All of [0, 1], nothing else. One pass: a NaN comes out of aminmax as NaN."""
    low, high = (float(v) for v in torch.aminmax(tensor.detach()))
    if np.isnan(low) or np.isnan(high):
        raise ValueError(f"`{name}` must be finite; got NaN. Look for a division by zero where the scores were made.")
    if low < 0 or high > 1:
        raise ValueError(
            f"`{name}` must lie in [0, 1]; got values from {low:.4g} to {high:.4g}. Rescale them, e.g. by min-max."
        )


def non_negative(name: str, tensor: torch.Tensor) -> None:
    """Finite and nowhere below zero."""
    finite(name, tensor)
    low = float(tensor.detach().min())
    if low < 0:
        raise ValueError(f"`{name}` must be non-negative; got {low:.4g}. Clip it, or take its absolute value.")


def positive_number(name: str, value: float) -> float:
    """A finite number above zero."""
    number = real_number(name, value)
    if not number > 0:
        raise ValueError(f"`{name}` must be greater than 0; got {value}. Typical values are 0.05 to 1.")
    return number


def real_number(name: str, value: float) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}. Pass a float.")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {value}. Pass an ordinary number.")
    return number


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"`{name}` must be one of {words}; got {value!r}. Check the spelling.")
