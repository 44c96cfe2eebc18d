"""Effects of segments with their uncertainty: differences of complementary groups, a Gaussian prior, closed form.

    y(z) - y(1 - z) = Σ_p (2 z_p - 1) β_p + noise,     β = γ b + τ N(0, K),   γ = τ N(0, ρ),   noise = τ N(0, λ)

z is the group of segments that is shown, 1 - z its complement. Every product of an even number of signs cancels in the
difference; those of odd order are the noise. K says which segments behave alike (near, of one colour, cut from one), b
what the model's layers let expect. τ, λ and ρ come from the marginal likelihood, with a weak belief about λ.

With K = L Lᵀ, S the signs and (S L)ᵀ S L = V w Vᵀ, β = γ b + L V c makes everything diagonal: c has the posterior mean
(q - γ w c_b) / (w + λ) and variance τ² λ / (w + λ), where q = (S L V)ᵀ y and b = L V c_b. One eigendecomposition (P, P)
for each covariance serves all ratios, strengths and targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from usu.operator.interpolate import yardstick

TINY = 1e-300
#: Segments up to which all coordinates are as quick as some.
FEW = 256
#: λ: the variance of the noise over that of an effect, from nearly none to nearly nothing else.
RATIOS = tuple(10.0 ** (k / 4) for k in range(-6, 13))
#: What is believed of λ / P beforehand: about this, and a factor of so much more or less. Few data cannot tell the part
#: of a difference's variance that is not additive from the part that is.
_USUAL, _FACTOR = 0.3, 3.0
#: ρ: the variance of the expected effects over that of the others; 0 expects nothing.
STRENGTHS = (0.0, 1.0, 4.0, 16.0)
#: Reach of the smooth part in place (parts of the side) and colour (of the range of RGB); each segment's own part.
PLACES, COLOUR, OWN = (0.1, 0.3), 0.2, (0.15, 0.5)
#: Models believed less than this change nothing.
_BELIEF = 1e-4


@dataclass(frozen=True, eq=False)
class Posterior:
    """Effects of P segments on T targets: a normal distribution each."""

    #: (T, P) and (T, P, P).
    mean: Tensor
    covariance: Tensor
    #: (T,): standard deviation of one difference that no sum of effects explains.
    noise: Tensor
    #: (T, covariances, ratios, strengths): how much each combination is believed; adds up to 1.
    belief: Tensor

    @property
    def stderr(self) -> Tensor:
        """(T, P): the standard deviation of each effect."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()

    @property
    def stretched(self) -> Tensor:
        """(T, P): the mean with as large a sum of squares as effects are expected to have.

        A mean is shrunk. Effects drawn around it would be shrunk a second time by whoever estimates them: a few strong
        ones among weak ones would look less certain than they are.
        """
        power = self.mean.square().sum(1, keepdim=True)
        unexplained = self.covariance.diagonal(dim1=-2, dim2=-1).sum(1, keepdim=True)
        return self.mean * (1 + unexplained / power.clamp(min=TINY)).sqrt()

    @cached_property
    def _root(self) -> Tensor:
        """(T, P, P): a matrix whose product with its own transpose is the covariance."""
        if self.mean.shape[1] > FEW:  # several times as fast; it fails where some effect is certain
            root, failed = torch.linalg.cholesky_ex(self.covariance)
            if not bool(failed.any()):
                return torch.as_tensor(root)
        values, vectors = torch.linalg.eigh(self.covariance)
        return torch.as_tensor(vectors * values.clamp(min=0).sqrt()[:, None])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, T, P): effects that these data allow."""
        normal = torch.randn(count, *self.mean.shape, generator=generator, dtype=torch.float64)
        return self.mean + torch.einsum("tpr,ntr->ntp", self._root, normal)


def differences(groups: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Signs (m, P) and y(z) - y(1 - z) (m, T) of rows that follow each other as a group and its complement.

    A last row without its complement is left out. If any other has none, all rows are centred instead: the same
    effects, with the even interactions as noise.

    >>> groups = torch.tensor([[True, False], [False, True], [True, True]])
    >>> signs, found = differences(groups, torch.tensor([[5.0], [2.0], [9.0]]))
    >>> signs.tolist(), found.tolist()
    ([[1.0, -1.0]], [[3.0]])
    """
    shown, seen = groups.double(), values.double()
    even = len(shown) // 2 * 2
    first, second = shown[0:even:2], shown[1:even:2]
    if even and bool((first + second == 1).all()):
        return first - second, seen[0:even:2] - seen[1:even:2]
    return shown - shown.mean(0), seen - seen.mean(0)


def kernels(
    segments: Tensor, picture: Tensor, *, lineage: Tensor | None = None, places: Sequence[float] = PLACES,
    own: Sequence[float] = OWN,
) -> Tensor:  # fmt: skip
    """Candidates (k, P, P) for the covariance of effects; an effect is a density times the segment's area.

    K_pq = area_p area_q ((1 - o) exp(-|place_p - place_q|² / 2 l²) exp(-|colour_p - colour_q|² / 2 c²) + o N_pq)

    for every l and o; each with a mean variance of 1. N_pq is the part of the levels on which p and q are one segment:
    1 for p = q, else 0 if there is but one level. An empty segment has the variance of a pixel.

    Args:
        segments: labels (H, W) from 0, or of a signal or a volume.
        picture: (H, W, 3) in [0, 1], or (..., channels), which count as three.
        lineage: (levels, P), of nested partitions: which segment of each level this one was cut from, or is.
        places: l, in parts of the shorter side; `yardstick` says what that is in other dimensions.
        own: o, the part of the variance that a segment shares only with those that were cut from the same one.

    >>> segments, picture = torch.tensor([[0, 1]]), torch.zeros(1, 2, 3)
    >>> kernels(segments, picture, places=[1.0], own=[0.5])[0].log().round(decimals=3)  # log ½ - ½ 1²
    tensor([[ 0.0000, -1.1930],
            [-1.1930,  0.0000]], dtype=torch.float64)
    """
    labels = segments.long()
    area = torch.bincount(labels.flatten()).double().clamp(min=1)
    sides = torch.tensor(labels.shape, dtype=torch.float64) / yardstick(labels.shape)
    where, colour = (centres(labels) * sides).T, segment_sums(picture.movedim(-1, 0), labels) / area
    near, alike = ((points[:, :, None] - points[:, None]).square().sum(0) for points in (where, colour))
    levels = torch.arange(len(area))[None] if lineage is None else lineage
    nested = (levels[:, :, None] == levels[:, None]).sum(0).double() / len(levels)
    alike, found = alike * (3 / len(colour)), []
    for place in places:
        smooth = torch.exp(-0.5 * (near / place**2 + alike / COLOUR**2))
        for part in own:
            density = (1 - part) * smooth + part * nested
            found.append(area[:, None] * density * area)
    together = torch.stack(found)
    return together / together.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]


def centres(segments: Tensor) -> Tensor:
    """(P, d): the mean place of each segment's pixels, in parts of the sides.

    >>> centres(torch.tensor([[0, 0, 1, 1]])).tolist()
    [[0.5, 0.25], [0.5, 0.75]]
    """
    axes = [(torch.arange(n, dtype=torch.float64) + 0.5) / n for n in segments.shape]
    where = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return (segment_sums(where, segments) / torch.bincount(segments.flatten()).clamp(min=1)).T


def segment_sums(field: Tensor, segments: Tensor) -> Tensor:
    """(..., P): the sum of a field (..., H, W) over each segment.

    >>> segment_sums(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0, 1, 1]])).tolist()
    [1.0, 6.0]
    """
    labels, flat = segments.long().flatten(), field.double().flatten(-segments.ndim)
    return flat.new_zeros(*flat.shape[:-1], int(labels.max()) + 1).index_add_(-1, labels, flat)


def fit(
    groups: Tensor,
    values: Tensor,
    *,
    covariances: Tensor | Sequence[Tensor],
    evidence: Tensor | None = None,
    ratios: Sequence[float] = RATIOS,
    strengths: Sequence[float] = STRENGTHS,
    scale: float | None = None,
) -> Posterior:
    """The posterior of effects, averaged over covariances, ratios and strengths as the data believe them.

    Args:
        groups: (n, P) booleans, the segments shown; see `differences`.
        values: (n, T), what the model said.
        covariances: candidates for K, (P, P) each, positive definite; see `kernels`.
        evidence: b, (T, P) or (P,): effects expected up to a common factor; None expects none.
        ratios: candidates for λ; ``[0.0]`` is least squares without shrinkage.
        strengths: candidates for ρ in units of the mean variance; without ``evidence`` it is 0.
        scale: τ; None takes the most likely one.

    Guarantees:
        With the identity and one ratio λ, ridge regression of the differences with penalty λ. With one covariance,
        ratio, strength and scale, more groups never raise a variance.

    >>> groups = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    >>> found = fit(groups, torch.tensor([[3.0], [2.0], [5.0], [0.0]]), covariances=[torch.eye(2)], ratios=[0.0])
    >>> found.mean.round(decimals=6).tolist(), found.noise.round(decimals=6).tolist()
    ([[3.0, 2.0]], [0.0])
    """
    design, seen = differences(groups, values)
    push, power = design.T @ seen, seen.square().sum(0)
    models, belief = _believed(design, push, power, covariances, evidence, ratios, strengths)
    mean = _mean(models, belief)
    covariance, noise = mean.new_zeros(*mean.shape, mean.shape[1]), mean.new_zeros(len(mean))
    for t in range(len(mean)):
        for one, weights in zip(models, belief[t], strict=True):
            if bool(weights.any()):
                spread, variance = one.moments(t, weights, mean[t], scale)
                covariance[t] += spread
                noise[t] += variance
    return Posterior(mean, covariance, noise.sqrt(), belief)


def repeat(
    posterior: Posterior,
    groups: Tensor,
    count: int,
    generator: torch.Generator,
    *,
    covariances: Tensor | Sequence[Tensor],
    evidence: Tensor | None = None,
    times: int = 1,
) -> Tensor:
    """(count, T, P): the means that runs of ``times`` this size would report, as far as these data tell.

    Differences are simulated from the same effects with the posterior's noise, and each run is fitted as the data were;
    all share its groups and one factorisation. The effects are the posterior's `stretched` mean.
    """
    design, _ = differences(groups, torch.zeros(len(groups), 1))
    targets, parts = posterior.mean.shape
    shape = (times, len(design), count, targets)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) * posterior.noise
    told = (design @ posterior.stretched.T)[:, None]
    push = design.T @ (times * told + noise.sum(0)).flatten(1)
    power = (told + noise).square().sum((0, 1)).flatten()
    hoped = None if evidence is None else evidence.double().expand(targets, parts).repeat(count, 1)
    found = _mean(*_believed(design, push, power, covariances, hoped, RATIOS, STRENGTHS, times))
    return found.reshape(count, targets, parts)


def _believed(
    design: Tensor, push: Tensor, power: Tensor, covariances: Tensor | Sequence[Tensor], evidence: Tensor | None,
    ratios: Sequence[float], strengths: Sequence[float], times: int = 1,
) -> tuple[list[Coordinates], Tensor]:  # fmt: skip
    """A model for each covariance, and how much the data believe them: (T, covariances, ratios, strengths)."""
    parts, targets = push.shape
    hoped = torch.zeros(targets, parts) if evidence is None else evidence.double().expand(targets, parts)
    hoped = hoped.double() / hoped.double().square().mean(1, keepdim=True).sqrt().clamp(min=TINY)
    ratio = torch.tensor(tuple(ratios), dtype=torch.float64).clamp(min=TINY)
    rho = torch.tensor(tuple(strengths) if bool(hoped.any()) else (0.0,), dtype=torch.float64)

    units = [one.double() / one.diagonal().double().mean() for one in covariances]
    models = [Coordinates.of(unit, design, push, power, hoped, ratio, rho, times) for unit in units]
    likelihood = torch.stack([one.likelihood for one in models], 1)  # (T, covariances, ratios, strengths)
    before = -0.5 * ((ratio / (_USUAL * parts)).log() / math.log(_FACTOR)).square()
    belief = (likelihood + before[:, None]).flatten(1).softmax(1)
    belief = belief.where(belief > _BELIEF, 0)
    return models, (belief / belief.sum(1, keepdim=True)).reshape(likelihood.shape)


def _mean(models: Sequence[Coordinates], belief: Tensor) -> Tensor:
    return torch.stack([one.mean(belief[:, k]) for k, one in enumerate(models)]).sum(0)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """One covariance in the coordinates that make it and the design diagonal, for all targets, ratios and strengths.

    Of many segments and fewer differences only the coordinates that the data see are kept, at most one for each
    difference. In all others the covariance is as it was, and the mean is the evidence's.
    """

    covariance: Tensor
    #: (T, ratios, strengths): the logarithm of the marginal likelihood.
    likelihood: Tensor
    #: L V, w, q and c_b of the module's equations.
    basis: Tensor
    w: Tensor
    q: Tensor
    hoped: Tensor
    #: (T, P): what of the evidence lies in no coordinate; None where the coordinates are all there are.
    beyond: Tensor | None
    ratio: Tensor
    #: (T, ratios, strengths): the variance of γ over τ², the mean of γ, and τ².
    share: Tensor
    slope: Tensor
    tau: Tensor

    @classmethod
    def of(
        cls, covariance: Tensor, design: Tensor, push: Tensor, power: Tensor, hoped: Tensor, ratio: Tensor, rho: Tensor,
        times: int,
    ) -> Coordinates:  # fmt: skip
        """Of K, the design S (m, P), Sᵀ y, the squares of y, b, and the candidates for λ and ρ.

        A design that was asked ``times`` over has the coordinates of one, each seen so many times.
        """
        rows, parts = times * len(design), design.shape[1]
        some = len(design) < parts and parts > FEW
        if some:
            across = covariance @ design.T  # (P, m)
            w, vectors = torch.linalg.eigh(design @ across)
        else:
            lower = torch.linalg.cholesky(covariance)
            w, vectors = torch.linalg.eigh(lower.T @ (design.T @ design) @ lower)
        w, beyond = w.where(w > w[-1] * len(w) * torch.finfo(w.dtype).eps, 0), None
        if some:
            turned = vectors * w.where(w > 0, torch.inf).rsqrt()
            basis, b = across @ turned, hoped @ design.T @ turned
            beyond = hoped - b @ basis.T
        else:
            basis = lower @ vectors
            b = (vectors.T @ torch.linalg.solve_triangular(lower, hoped.T, upper=False)).T
        w = times * w
        q = (basis.T @ push).T * (w > 0)  # (T, P)
        gain = 1 / (w + ratio[:, None]) * (w > 0)  # (ratios, P)
        along = torch.einsum("tp,rp->tr", b * q, gain)[..., None]  # hᵀ Σ⁻¹ y, (T, ratios, 1); h = S b
        within = torch.einsum("tp,rp->tr", w * b.square(), gain)[..., None]
        share = rho / (1 + rho * within)
        rest = (power[:, None] - torch.einsum("tp,rp->tr", q.square(), gain)).clamp(min=0)[..., None]
        quadratic = (rest / ratio[:, None] - share * along.square()).clamp(min=TINY)
        volume = torch.log1p(w / ratio[:, None]).sum(1) + rows * ratio.log()
        likelihood = -0.5 * (rows * quadratic.log() + volume[:, None] + (1 + rho * within).log())
        slope, tau = share * along, quadratic / rows
        return cls(covariance, likelihood, basis, w, q, b, beyond, ratio, share, slope, tau)

    def mean(self, belief: Tensor) -> Tensor:
        """(T, P): the effects' means under all ratios and strengths, weighted by the belief (T, ratios, strengths)."""
        gain, slope = (self.w > 0) / (self.w + self.ratio[:, None]), (belief * self.slope).sum(-1)
        seen = (belief.sum(-1) @ gain) * self.q - (slope @ gain) * self.w * self.hoped
        whole = slope.sum(1, keepdim=True)
        along = (seen + whole * self.hoped) @ self.basis.T
        return along if self.beyond is None else along + whole * self.beyond

    def moments(self, target: int, belief: Tensor, mean: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
        """What it adds to a target's covariance (P, P) around the mean of all, and to the variance of the noise."""
        some = belief > 0
        weight, basis, b, seen = belief[some], self.basis, self.hoped[target], self.w > 0
        ratio, gamma = self.ratio[some.nonzero()[:, 0]][:, None], self.slope[target][some][:, None]
        tau = self.tau[target][some][:, None] if scale is None else torch.full_like(gamma, scale**2)
        left = torch.where(seen, ratio / (self.w + ratio), 1.0)  # what the data leave open
        centre = torch.where(seen, (self.q[target] - gamma * self.w * b) / (self.w + ratio), 0.0) + gamma * b
        wide = (tau * self.share[target][some][:, None]).sqrt()  # √(γ's part of the variance)
        away, evident = centre @ basis.T - mean, (wide * left * b) @ basis.T
        covariance = basis * (weight @ (tau * left)) @ basis.T
        if self.beyond is not None:
            away, evident = away + gamma * self.beyond[target], evident + wide * self.beyond[target]
            covariance += weight @ tau * (self.covariance - basis @ basis.T)
        covariance += away.T @ (weight[:, None] * away) + evident.T @ (weight[:, None] * evident)
        return covariance, weight @ (tau * ratio)[:, 0]
