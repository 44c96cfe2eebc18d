"""Random groups of segments and a linear fit: a fixed number of evaluations, whatever the number of segments."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from usu import _checks as check
from usu.forward import Engine, Progress
from usu.forward.fills import Fill
from usu.score.groups import Scores, segmented
from usu.types import Array


def sampled(
    engine: Engine,
    image: Array,
    segments: Array,
    *,
    evaluations: int = 300,
    fill: Fill = "blur",
    fit: Literal["ridge", "kernel_shap"] = "ridge",
    strength: float = 0.3,
    keep_probability: float = 0.5,
    which: Array | None = None,
    seed: int | torch.Generator = 0,
    reference: Tensor | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Fit g(picture showing only the group z) ≈ β_0 + Σ_p β_p z_p over random groups z; β_p is the effect of S_p.

    What is not named here is as in `delete`.

    Args:
        evaluations: passes this call makes, exactly.
        fit: ``"ridge"``: each segment is shown with ``keep_probability``, groups come in antithetic pairs (the
            complement, at 1/2), least squares with an intercept. ``"kernel_shap"``: group sizes drawn from the
            Shapley kernel, paired with complements, and Σ β = g(picture) - g(everything filled) holds exactly.
        strength: of the ridge penalty, λ = strength · P · (variance of z): the part of g's variance that is not
            additive, over the part that is. 0 is plain (minimum-norm) least squares.
        keep_probability: how likely a segment is shown (``"ridge"`` only).
        which: labels (or booleans) of the segments to vary; the others stay shown and come back as NaN.
        seed: a whole number, or a torch generator to draw from. The global generator is not used.
        reference: as in `delete`; the pass it saves goes to one more group.

    Guarantees:
        Exactly ``evaluations`` passes. An additive model's effects are recovered exactly (strength 0, more
        evaluations than segments). Standard errors are those of the fit, given the groups.

    >>> from usu.forward import engine
    >>> total = engine(lambda batch: batch.sum((1, 2, 3))[:, None], target=0)
    >>> picture, segments = torch.tensor([[[1.0, 2.0, 4.0]]]), torch.tensor([[0, 1, 1]])
    >>> sampled(total, picture, segments, fill=0, evaluations=8, strength=0).values.round(decimals=6)
    tensor([[1., 6.]], dtype=torch.float64)
    """
    check.choice("fit", fit, ("ridge", "kernel_shap"))
    check.real_number("strength", strength, least=0)
    if not 0 < check.real_number("keep_probability", keep_probability) < 1:
        raise ValueError(f"`keep_probability` must lie between 0 and 1; got {keep_probability}.")
    parts = segmented(engine, image, segments, fill, which)
    asked = parts.asked
    shapley = fit == "kernel_shap"
    looks = reference is None and (shapley or engine.target is None)
    groups = check.whole_number("evaluations", evaluations, least=2 + looks + shapley) - looks - shapley
    if looks:
        engine, reference = engine.aim(parts.image)

    generator = check.generator("seed", seed)
    if shapley:
        nothing = torch.zeros(1, len(asked), dtype=torch.bool)
        drawn = torch.cat([shapley_groups(groups, len(asked), generator), nothing])
    else:
        drawn = antithetic_groups(groups, len(asked), keep_probability, generator)

    values = parts.values_of_groups(engine, drawn, progress)
    result = parts.start.repeat(values.shape[1], 1)
    errors = result.clone()
    if len(asked):
        shown = drawn[:groups].double()
        if shapley and reference is not None:
            effects, stderr = _fit_to_total(
                shown, values[:-1] - values[-1], reference.cpu().double() - values[-1], strength
            )
        else:
            effects, stderr = _ridge(shown - shown.mean(0), values - values.mean(0), strength, intercept=1)
        result[:, asked], errors[:, asked] = effects.T, stderr.T
    return Scores(result, errors, evaluations)


def _fit_to_total(shown: Tensor, values: Tensor, total: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Least squares under Σ β = total: equal shares plus deviations that cancel.

    Rows of z without their mean do not change Σ z γ while Σ γ = 0, and no fit on them can leave that plane.
    """
    share = total / shown.shape[1]
    rest = values - shown.sum(1, keepdim=True) * share
    deviations, stderr = _ridge(shown - shown.mean(1, keepdim=True), rest, strength, intercept=0)
    return share + deviations, stderr


def _ridge(design: Tensor, values: Tensor, strength: float, *, intercept: int) -> tuple[Tensor, Tensor]:
    """Effects (P, T) and their standard errors: β = (ZᵀZ + λ)⁻¹ Zᵀ y, cov β = σ² (ZᵀZ + λ)⁻¹ ZᵀZ (ZᵀZ + λ)⁻¹."""
    rows, columns = design.shape
    u, s, vt = torch.linalg.svd(design, full_matrices=False)
    penalty = strength * columns * design.square().mean()
    alive = s > s.max().clamp(min=1e-300) * max(rows, columns) * torch.finfo(s.dtype).eps
    inverse = (s / (s**2 + penalty).clamp(min=1e-300)) * alive
    effects = vt.T @ (inverse[:, None] * (u.T @ values))
    freedom = rows - intercept - float((s * inverse).sum())
    if freedom < 1e-6:
        return effects, torch.full_like(effects, torch.inf)
    variance = (values - design @ effects).square().sum(0) / freedom
    return effects, (vt.T.square() @ inverse.square()).sqrt()[:, None] * variance.sqrt()


def antithetic_groups(count: int, segments: int, probability: float, generator: torch.Generator) -> Tensor:
    """(count, segments) booleans: u < p, and 1 - u < p for the same u; at 1/2 the second is the complement."""
    u = torch.rand((count + 1) // 2, segments, generator=generator, dtype=torch.float64, device=generator.device).cpu()
    return torch.stack([u < probability, u > 1 - probability], 1).flatten(0, 1)[:count]


def shapley_groups(count: int, segments: int, generator: torch.Generator) -> Tensor:
    """(count, segments) booleans: sizes k with probability ∝ 1 / (k (P - k)), members at random, complements next.

    With the sizes drawn from the kernel, every group has the same weight in the fit.
    """
    pairs = (count + 1) // 2
    if segments < 2:
        return torch.ones(count, segments, dtype=torch.bool)
    sizes = torch.arange(1, segments, dtype=torch.float64, device=generator.device)
    size = 1 + torch.multinomial(1 / (sizes * (segments - sizes)), pairs, replacement=True, generator=generator)
    order = torch.rand(pairs, segments, generator=generator, device=generator.device).argsort(1).argsort(1)
    group = (order < size[:, None]).cpu()
    return torch.stack([group, ~group], 1).flatten(0, 1)[:count]
