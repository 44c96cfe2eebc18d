"""Coarse maps from attention: which patches the tokens that the head reads have looked at, through all layers.

The matrices are recorded in the forward pass; the model is not changed for it. timm calls the fused
``scaled_dot_product_attention``, transformers too unless told otherwise, torchvision goes through
``multi_head_attention_forward``, others write out their softmax. Fused attention does not return its matrix, so it is
computed in steps instead: the same formula, equal to rounding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from usu import _checks as check
from usu.sources.layers import Goal, Targets, score_of
from usu.sources.recording import LayerGrid, Recording, recorded

#: Whichever way a model calls it.
_SOFTMAX: frozenset[Callable[..., Any]] = frozenset((torch.softmax, Tensor.softmax, functional.softmax))
_MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)


def rolled_out(attentions: Sequence[Tensor]) -> Tensor:
    """Attention rollout of matrices (B, heads, N, N), first layer first: Π_l (mean over heads of A_l + I) / 2.

    >>> looks_right = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    >>> rolled_out([looks_right, looks_right]).tolist()  # half of it stays, twice
    [[[0.25, 0.75], [0.0, 1.0]]]
    """
    rollout = torch.eye(attentions[0].shape[-1], device=attentions[0].device, dtype=attentions[0].dtype)
    identity = rollout
    for matrix in attentions:
        rollout = (matrix.mean(1) + identity) / 2 @ rollout
    return rollout


def relevance(attentions: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """The generic rule of Chefer et al. 2021: R ← R + Ā·R with Ā = mean over heads of relu(G · A), R = I at first.

    The identity is taken off at the end: what a token has of itself was not brought by attention.

    >>> attention, gradient = torch.tensor([[[[0.5, 0.5], [0.0, 1.0]]]]), torch.tensor([[[[0.0, 4.0], [0.0, -1.0]]]])
    >>> relevance([attention], [gradient]).tolist()
    [[[0.0, 2.0], [0.0, 0.0]]]
    """
    identity = torch.eye(attentions[0].shape[-1], device=attentions[0].device, dtype=attentions[0].dtype)
    found = identity
    for matrix, gradient in zip(attentions, gradients, strict=True):
        if gradient is not None:
            found = found + (gradient * matrix).relu().mean(1) @ found
    return (found - identity).expand(len(attentions[0]), -1, -1)


def attention_pass(
    model: nn.Module, leaf: Tensor, targets: Targets, *, gradients: bool
) -> tuple[Tensor, int, str, list[Goal]]:
    """The map, the number of attention layers, why these rows, and the classes."""
    with recorded(model, leaf, every=False) as seen, RecordedAttention() as attention:
        output = model(seen.entry)
    matrices = attention.matrices
    score, goals = score_of(output, targets, len(leaf))
    grid = _over_the_picture(matrices, seen)
    # only as far back as needed: the rows that are read show in the last layer
    slopes = torch.autograd.grad(score, matrices if gradients else matrices[-1:], allow_unused=True)
    attentions = [_by_head(matrix.detach(), len(leaf)) for matrix in matrices]
    slopes_by_head = [None if slope is None else _by_head(slope, len(leaf)) for slope in slopes]
    rows, reason = _read_rows(slopes_by_head[-1], grid)
    result = relevance(attentions, slopes_by_head) if gradients else rolled_out(attentions)
    places = result[:, rows].mean(1)[:, grid.prefix :]
    return places.reshape(len(leaf), *grid.size), len(attentions), reason, goals


def _by_head(matrix: Tensor, batch: int) -> Tensor:
    """(B, heads, N, N), in float32 at least: a product of many layers needs the digits."""
    by_head = matrix if matrix.ndim == 4 else matrix.reshape(batch, -1, *matrix.shape[-2:])
    return by_head.to(torch.promote_types(matrix.dtype, torch.float32))


def _read_rows(slope: Tensor | None, grid: LayerGrid) -> tuple[Tensor, str]:
    """Tokens of the last layer through which the target can be changed, and their name."""
    if slope is None or not bool(slope.count_nonzero()):
        raise ValueError(
            "`target` must depend on the model's last attention; got no gradient there. "
            "Check the head, or take a source that looks at a layer of your choice."
        )
    rows = slope.abs().sum((0, 1, 3)).nonzero().flatten()
    name = f"the mean of {len(rows)} rows"
    if bool((rows < grid.prefix).all()):
        name = f"the rows of the {'class token' if len(rows) == 1 else f'{len(rows)} tokens in front'}"
    return rows, f"{name}, which the target reads ({' x '.join(map(str, grid.size))} tokens)"


def _over_the_picture(matrices: Sequence[Tensor], seen: Recording) -> LayerGrid:
    """How the N tokens of all the matrices lie over the picture."""
    batch = len(seen.images)
    forms = sorted({tuple(matrix.shape) for matrix in matrices})
    advice = "Take a source that reads a layer instead, such as gradcam or layercam."
    if not forms:
        raise ValueError(
            "`model` must attend over its patches through torch (a softmax, scaled_dot_product_attention or "
            f"nn.MultiheadAttention); got no attention in the forward pass. {advice}"
        )
    tokens = forms[0][-1]
    grid = seen.grid((batch, tokens, 1), guess=True)
    whole = all(form[0] == batch if len(form) == 4 else form[0] % batch == 0 for form in forms)
    if grid is None or not whole or any(form[-1] != tokens for form in forms):
        got = ", ".join(" x ".join(map(str, form)) for form in forms[:4])
        raise ValueError(
            f"`model` must attend over all patches of the picture in every layer; got attention of {got} for {batch} "
            f"pictures of {check.shape(seen.images[0, 0])} (windows, or tokens that are merged on the way). {advice}"
        )
    return grid


def open_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
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


class RecordedAttention(TorchFunctionMode):
    """The self-attention matrices (..., N, N) of the forward passes inside, in order, as parts of the graph.

    It sees every call of a torch function from Python; inside itself it is switched off.
    """

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
        if func in _SOFTMAX:
            dim = given.get("dim", args[1] if len(args) > 1 else None)
            if dim in (-1, output.ndim - 1) and self._keep(output):
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
        projections = asked["in_proj_weight"].chunk(3)
        biases = (None,) * 3 if asked["in_proj_bias"] is None else asked["in_proj_bias"].chunk(3)
        query, key, value = (  # (N, B, heads · d) or (N, heads · d) -> (B, heads, N, d)
            functional.linear(asked[name], weight, bias)
            .reshape(len(asked[name]), -1, asked["num_heads"], len(weight) // asked["num_heads"])
            .permute(1, 2, 0, 3)
            for name, weight, bias in zip(("query", "key", "value"), projections, biases, strict=True)
        )
        output, matrix = open_attention(query, key, value)
        self._keep(matrix)
        # (B, heads, N, d) -> (N, B, heads · d)
        joined = output.permute(2, 0, 1, 3).flatten(2)
        output = functional.linear(joined, asked["out_proj_weight"], asked["out_proj_bias"])
        weights = matrix.mean(1) if asked["average_attn_weights"] else matrix
        if asked["query"].ndim == 2:
            output, weights = output[:, 0], weights[0]
        return output, weights if asked["need_weights"] else None
