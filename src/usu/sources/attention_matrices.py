"""Attention matrices of any transformer, recorded in the forward pass; the model is not changed for it.

timm calls the fused ``scaled_dot_product_attention``, transformers too unless told otherwise, torchvision goes through
``multi_head_attention_forward``, others write out their softmax. Fused attention does not return its matrix, so it is
computed in steps instead: the same formula, equal to rounding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: Whichever way a model calls it.
_SOFTMAX: frozenset[Callable[..., Any]] = frozenset((torch.softmax, Tensor.softmax, functional.softmax))
_MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)


@contextmanager
def recorded_attention() -> Iterator[list[Tensor]]:
    """Collect the self-attention matrices (..., N, N) of the forward passes inside, in order, as parts of the graph."""
    with _AttentionMode() as mode:
        yield mode.matrices


def open_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention as the fused one defines it, softmax(Q·Kᵀ · scale + bias)·V, and its matrix.

    >>> query, value = torch.zeros(1, 2, 3), torch.tensor([[[0.0], [4.0]]])
    >>> [part.tolist() for part in open_attention(query, query, value)]
    [[[[2.0], [2.0]]], [[[0.5, 0.5], [0.5, 0.5]]]]
    """
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # True takes part
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    matrix = scores.softmax(-1)
    shown = functional.dropout(matrix, dropout_p) if dropout_p else matrix
    return shown @ value, matrix


class _AttentionMode(TorchFunctionMode):
    """Sees every call of a torch function from Python; inside itself it is switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            output, matrix = open_attention(*args, **given)
            self._keep(matrix)
            return output
        if func is functional.multi_head_attention_forward:
            return self._multi_head(_MULTI_HEAD.bind(*args, **given))
        output = func(*args, **given)
        if func in _SOFTMAX and _over_last(output, args, given) and self._keep(output):
            return output.clone()  # what goes on is a copy: it may be worked on in place
        return output

    def _keep(self, matrix: Tensor) -> bool:
        attends = matrix.ndim in (3, 4) and matrix.shape[-1] == matrix.shape[-2] > 1 and matrix.requires_grad
        if attends:
            self.matrices.append(matrix)
        return attends

    def _multi_head(self, call: inspect.BoundArguments) -> tuple[Tensor, Tensor | None]:
        """As torch defines it; what is unusual in a vision transformer is left to torch, and then not recorded."""
        call.apply_defaults()
        asked = call.arguments
        unusual = ("bias_k", "bias_v", "key_padding_mask", "attn_mask", "static_k", "static_v")
        if any(asked[name] is not None for name in unusual) or any(
            asked[name] for name in ("add_zero_attn", "use_separate_proj_weight", "is_causal")
        ):
            return functional.multi_head_attention_forward(*call.args, **call.kwargs)
        heads = asked["num_heads"]
        projections = asked["in_proj_weight"].chunk(3)
        biases = (None,) * 3 if asked["in_proj_bias"] is None else asked["in_proj_bias"].chunk(3)
        query, key, value = (
            _split(functional.linear(asked[name], weight, bias), heads)
            for name, weight, bias in zip(("query", "key", "value"), projections, biases, strict=True)
        )
        output, matrix = open_attention(query, key, value)
        self._keep(matrix)
        # (B, heads, N, d) -> (N, B, heads · d)
        joined = output.permute(2, 0, 1, 3).flatten(2)
        output = functional.linear(joined, asked["out_proj_weight"], asked["out_proj_bias"])
        output = output if asked["query"].ndim == 3 else output[:, 0]
        if not asked["need_weights"]:
            return output, None
        weights = matrix.mean(1) if asked["average_attn_weights"] else matrix
        return output, weights if asked["query"].ndim == 3 else weights[0]


def _split(projected: Tensor, heads: int) -> Tensor:
    """(N, B, E) or (N, E) -> (B, heads, N, E / heads)."""
    tokens, width = projected.shape[0], projected.shape[-1]
    return projected.reshape(tokens, -1, heads, width // heads).permute(1, 2, 0, 3)


def _over_last(output: Tensor, args: Any, given: dict[str, Any]) -> bool:
    dim = given.get("dim", args[1] if len(args) > 1 else None)
    return dim in (-1, output.ndim - 1)
