"""Coarse maps from attention: which patches the tokens that the head reads have looked at, through all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from usu import _checks as check
from usu.sources.attention_matrices import recorded_attention
from usu.sources.coarse import CoarseMap, Goal, Target, Targets, checked, chunks, finite, score_of
from usu.sources.grids import LayerGrid
from usu.sources.layers import Recording, recorded
from usu.types import Array


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


def attention_rollout(model: nn.Module, images: Array, target: Target = None, *, chunk: int = 16) -> CoarseMap:
    """Attention rollout: Π over layers of (mean over heads of A_l + I) / 2, in the rows that the target reads.

    It shows where the model looked, not what spoke for a class: the map is the same for every target. The rows are
    those of the last layer through which the target can be changed: the class token's, also the distillation token's,
    or, where a model averages its patches, the mean of all of theirs.

    Args:
        model: an ``nn.Module`` with self-attention over all its patches (timm, transformers, torchvision or your own).
        target: as in `usu.gradcam`; recorded in the result, and used to find the tokens that are read. The rest is as
            there, too.

    Guarantees:
        Non-negative, and no more than 1 in all: what is missing is the share of class and register tokens. One forward
        pass per picture and a backward pass no further than the last attention.

    >>> import usu
    >>> class Tokens(nn.Module):  # patches of 2 x 2, attention by likeness, the last token is read
    ...     def forward(self, x):
    ...         tokens = nn.functional.avg_pool2d(x, 2).flatten(1)[..., None]
    ...         return (torch.softmax(1e3 * tokens @ tokens.mT, -1) @ tokens)[:, -1]
    >>> picture = torch.zeros(1, 1, 4, 4)
    >>> picture[..., 2:, :] = 1  # the lower patches are alike
    >>> usu.attention_rollout(Tokens(), picture, 0).values.tolist()
    [[[0.0, 0.0], [0.25, 0.75]]]
    """
    return _from_attention("Attention rollout", model, images, target, chunk, gradients=False)


def gradient_attention(model: nn.Module, images: Array, target: Target = None, *, chunk: int = 16) -> CoarseMap:
    """Gradient x attention, rolled out: R ← R + Ā·R, Ā = mean over heads of relu(d(target)/d(A_l) · A_l).

    The generic rule of Chefer, Gur and Wolf (2021), in the rows that the target reads. Unlike `attention_rollout` it
    depends on the target. Arguments are those of `attention_rollout`.

    Guarantees:
        Non-negative. One forward and one backward pass per picture. No scaling: the units are those of the target.

    >>> class Tokens(nn.Module):  # the samples of a signal, attention by likeness, the last one is read
    ...     def forward(self, x):
    ...         return (torch.softmax(1e3 * x.mT @ x, -1) @ x.mT)[:, -1]
    >>> gradient_attention(Tokens(), torch.tensor([[[0.0, 1.0, 1.0]]]), 0).values.tolist()  # A = 1/2, and so its effect
    [[0.0, 0.5, 0.5]]
    """
    return _from_attention("Gradient x attention", model, images, target, chunk, gradients=True)


def _from_attention(
    method: str, model: nn.Module, images: Array, target: Target, chunk: int, *, gradients: bool
) -> CoarseMap:
    batch, targets = checked(method, model, images, target, chunk)
    with chunks(model, batch, targets, chunk) as parts:
        maps, layers, reasons, found = zip(
            *(_one_pass(model, leaf, wanted, gradients=gradients) for leaf, wanted in parts), strict=True
        )
    goals = tuple(goal for some in found for goal in some)
    made = CoarseMap(
        values=finite(torch.cat(maps)),
        layer=f"{layers[0]} attention layers" if layers[0] > 1 else "1 attention layer",
        reason=reasons[0],
        targets=None if callable(targets) else tuple(goal.number for goal in goals),
        evaluations=len(batch),
        goals=goals,
    )
    which = ", ".join(str(i) for i, empty in enumerate(made.empty) if empty)
    note = f"Picture {which}: no attention speaks for the target, the map is zero everywhere."
    return replace(made, notes=(note,) if which else ())


def _one_pass(
    model: nn.Module, leaf: Tensor, targets: Targets, *, gradients: bool
) -> tuple[Tensor, int, str, list[Goal]]:
    """The map, the number of attention layers, why these rows, and the classes."""
    with recorded(model, leaf, every=False) as seen, recorded_attention() as matrices:
        output = model(seen.entry)
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
    where = f"{' x '.join(map(str, grid.size))} tokens"
    if slope is None or not bool(slope.count_nonzero()):
        raise ValueError(
            "`target` must depend on the model's last attention; got no gradient there. "
            "Check the head, or take a source that looks at a layer of your choice."
        )
    rows = slope.abs().sum((0, 1, 3)).nonzero().flatten()
    in_front = int((rows < grid.prefix).sum())
    if in_front == len(rows):
        name = "class token" if in_front == 1 else f"{in_front} tokens in front"
        return rows, f"the rows of the {name}, which the target reads ({where})"
    return rows, f"the mean of {len(rows)} rows, which the target reads ({where})"


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
