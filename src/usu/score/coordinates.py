"""The coordinates in which a prior covariance and a design are both diagonal: there `posterior` computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TINY = 1e-300
#: Segments up to which all coordinates are as quick as some.
FEW = 256


class At(NamedTuple):
    """The posterior of one target under some ratios and strengths, in a model's coordinates."""

    centre: Tensor
    spread: Tensor
    #: √(γ's part of the variance), along the coordinates; and beyond them.
    evident: Tensor
    open: Tensor
    #: γ, τ² and the variance of the noise.
    slope: Tensor
    scale: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False)
class Coordinates:
    """One covariance in the coordinates that make it diagonal, for all targets, ratios and strengths.

    Of many segments and fewer differences only the coordinates that the data see are kept, at most one for each
    difference. In all others the covariance is as it was, and the mean is the evidence's.
    """

    covariance: Tensor
    likelihood: Tensor
    basis: Tensor
    w: Tensor
    q: Tensor
    hoped: Tensor
    #: (T, P): what of the evidence lies in no coordinate; None where the coordinates are all there are.
    beyond: Tensor | None
    ratio: Tensor
    share: Tensor
    slope: Tensor
    tau: Tensor

    @classmethod
    def of(
        cls, covariance: Tensor, design: Tensor, push: Tensor, power: Tensor, hoped: Tensor, ratio: Tensor, rho: Tensor
    ) -> Coordinates:
        """Of K, the design (m, P) and what was seen through it; see `usu.score.posterior.fit`."""
        rows, parts = design.shape
        some = rows < parts and parts > FEW
        if some:
            across = covariance @ design.T  # (P, m)
            w, vectors = torch.linalg.eigh(design @ across)
        else:
            lower = torch.linalg.cholesky(covariance)
            w, vectors = torch.linalg.eigh(lower.T @ (design.T @ design) @ lower)
        w = w.where(w > w[-1] * len(w) * torch.finfo(w.dtype).eps, 0)
        beyond = None
        if some:
            turned = vectors * w.where(w > 0, torch.inf).rsqrt()
            basis, b = across @ turned, hoped @ design.T @ turned
            beyond = hoped - b @ basis.T
        else:
            basis = lower @ vectors
            b = (vectors.T @ torch.linalg.solve_triangular(lower, hoped.T, upper=False)).T
        q = (basis.T @ push).T * (w > 0)  # (T, P)
        gain = 1 / (w + ratio[:, None])  # (ratios, P)
        gain = gain * (w > 0)
        along = torch.einsum("tp,rp->tr", b * q, gain)[..., None]  # hᵀ Σ⁻¹ y, (T, ratios, 1); h = S b
        within = torch.einsum("tp,rp->tr", w * b.square(), gain)[..., None]
        share = rho / (1 + rho * within)  # the variance of γ once the data are seen, over τ²
        rest = (power[:, None] - torch.einsum("tp,rp->tr", q.square(), gain)).clamp(min=0)[..., None]
        quadratic = (rest / ratio[:, None] - share * along.square()).clamp(min=TINY)
        volume = torch.log1p(w / ratio[:, None]).sum(1) + rows * ratio.log()
        likelihood = -0.5 * (rows * quadratic.log() + volume[:, None] + (1 + rho * within).log())
        return cls(
            covariance, likelihood, basis, w, q, b, beyond, ratio, share, share * along, quadratic / rows
        )  # fmt: skip

    def mean(self, belief: Tensor) -> Tensor:
        """(T, P): the effects' means under all ratios and strengths, weighted by the belief (T, ratios, strengths)."""
        gain, slope = (self.w > 0) / (self.w + self.ratio[:, None]), (belief * self.slope).sum(-1)
        seen = (belief.sum(-1) @ gain) * self.q - (slope @ gain) * self.w * self.hoped
        whole = slope.sum(1, keepdim=True)
        along = (seen + whole * self.hoped) @ self.basis.T
        return along if self.beyond is None else along + whole * self.beyond

    def at(self, target: int, some: Tensor, scale: float | None) -> At:
        """Of the chosen ratios and strengths."""
        which, _ = some.nonzero(as_tuple=True)
        ratio, gamma = self.ratio[which][:, None], self.slope[target][some][:, None]
        tau = self.tau[target][some][:, None] if scale is None else torch.full_like(gamma, scale**2)
        b, seen = self.hoped[target], self.w > 0
        left = torch.where(seen, ratio / (self.w + ratio), 1.0)  # what the data leave open
        centre = torch.where(seen, (self.q[target] - gamma * self.w * b) / (self.w + ratio), 0.0) + gamma * b
        open_ = (tau * self.share[target][some][:, None]).sqrt()
        return At(
            centre, tau * left, open_ * left * b, open_[:, 0], gamma[:, 0], tau[:, 0], (tau * ratio)[:, 0]
        )  # fmt: skip
