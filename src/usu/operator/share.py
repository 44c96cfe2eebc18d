"""The softmax of every cell, with derivatives of any order and in either direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from usu.operator.cells import Partition


class _Share(torch.autograd.Function):
    """`Partition.share` with its derivatives: with w the shares, dÃ = w dM + M w rate (dF - Σ w dF).

    Both are made of differentiable steps, one of them the function itself, so there are derivatives of any order.
    """

    @staticmethod
    def forward(field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, mild: bool) -> Tensor:
        return cells.share(field, mass, rate, mild=mild)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        field, mass, rate, ctx.cells, ctx.mild = inputs
        ctx.rate = None if isinstance(rate, Tensor) else rate
        tensors = (field, mass, rate) if isinstance(rate, Tensor) else (field, mass)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def _parts(ctx: Any) -> tuple[Tensor, Tensor, float | Tensor]:
        """The shares, the mass and the rate at each pixel."""
        field, mass, *rest = ctx.saved_tensors
        rate = rest[0] if rest else ctx.rate
        weight = _Share.apply(field, torch.ones_like(mass), rate, ctx.cells, ctx.mild)  # type: ignore[no-untyped-call]
        spread = ctx.cells.spread
        return weight, spread(mass.to(field.dtype)), spread(rest[0].to(field.dtype)) if rest else ctx.rate

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, mass, rate = _Share._parts(ctx)
        pulled = ctx.cells.total(gradient * weight)
        to_field = weight * (gradient - ctx.cells.spread(pulled.to(weight.dtype))) * rate * mass
        return to_field, pulled, None, None, None

    @staticmethod
    def jvp(ctx: Any, field: Tensor | None, mass: Tensor | None, *_: object) -> Tensor:
        weight, masses, rate = _Share._parts(ctx)
        result = torch.zeros_like(weight)
        if mass is not None:
            result = result + weight * ctx.cells.spread(mass.to(weight.dtype))
        if field is not None:
            mean = ctx.cells.total(weight * field).to(weight.dtype)
            result = result + weight * (field - ctx.cells.spread(mean)) * rate * masses
        return result

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, field: Tensor, mass: Tensor, rate: Any, cells: Partition, mild: bool
    ) -> tuple[Tensor, int]:
        """One more leading dimension is a larger batch."""

        def fold(tensor: Any, dim: int | None) -> Any:
            if not isinstance(tensor, Tensor):
                return tensor
            moved = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            return moved.flatten(0, 1)

        folded = (fold(tensor, dim) for tensor, dim in zip((field, mass, rate), in_dims, strict=False))
        result = _Share.apply(*folded, cells, mild)  # type: ignore[no-untyped-call]
        return result.unflatten(0, (info.batch_size, -1)), 0


def share(
    field: Tensor, mass: Tensor, rate: float | Tensor, cells: Partition, *, mild: bool = False, vmapped: bool = False
) -> Tensor:
    """`Partition.share`, through autograd where a derivative is asked for or `torch.vmap` is at work."""
    if (
        vmapped
        or (torch.is_grad_enabled() and (field.requires_grad or mass.requires_grad))
        or any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in (field, mass))
    ):
        return _Share.apply(field, mass, rate, cells, mild)  # type: ignore[no-any-return, no-untyped-call]
    return cells.share(field.detach(), mass.detach(), rate, mild=mild)
