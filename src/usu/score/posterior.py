"""Effects of segments with their uncertainty: differences of complementary groups, a Gaussian prior, closed form.

    y(z) - y(1 - z) = Σ_p (2 z_p - 1) β_p + noise,     β = γ b + τ N(0, K),   γ = τ N(0, ρ),   noise = τ N(0, λ)

z is the group of segments that is shown, 1 - z its complement. Every interaction of an even number of segments cancels
in the difference; those of odd order are the noise. K says which segments behave alike (near, of one colour), b what
the model's layers let expect. τ, λ and ρ come from the marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from usu.operator.interpolate import yardstick
from usu.score.coordinates import FEW, TINY, Coordinates

#: λ: the variance of the noise over that of an effect, from nearly none to nearly nothing else.
RATIOS = tuple(10.0 ** (k / 4) for k in range(-6, 13))
#: What is believed of λ / P beforehand: about this, and a factor of so much more or less. It is the part of a
#: difference's variance that is not additive over the part that is; few data cannot tell the two apart.
_USUAL, _FACTOR = 0.3, 3.0
#: ρ: the variance of the expected effects over that of the others; 0 expects nothing.
STRENGTHS = (0.0, 1.0, 4.0, 16.0)
#: Reach of the smooth part in place (parts of the side) and colour (of the range of RGB); each segment's own part.
PLACES, COLOURS, OWN = (0.1, 0.3), (0.2,), (0.15, 0.5)
#: Models believed less than this change nothing.
_BELIEF = 1e-4


@dataclass(frozen=True, eq=False)
class Posterior:
    """Effects of P segments on T targets: a normal distribution each."""

    #: (T, P).
    mean: Tensor
    #: (T, P, P).
    covariance: Tensor
    #: (T,): standard deviation of one difference that no sum of effects explains.
    noise: Tensor
    #: (T, covariances, ratios, strengths): how much each combination is believed; adds up to 1.
    belief: Tensor

    @property
    def stderr(self) -> Tensor:
        """(T, P): the standard deviation of each effect."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()

    @cached_property
    def _root(self) -> Tensor:
        """(T, P, P): a matrix whose product with its own transpose is the covariance."""
        root: Tensor
        if self.mean.shape[1] > FEW:  # several times as fast; it fails where some effect is certain
            root, failed = torch.linalg.cholesky_ex(self.covariance)
            if not bool(failed.any()):
                return root
        values, vectors = torch.linalg.eigh(self.covariance)
        root = vectors * values.clamp(min=0).sqrt()[:, None]
        return root

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, T, P): effects that these data allow."""
        normal = torch.randn(count, *self.mean.shape, generator=generator, dtype=torch.float64)
        return self.mean + torch.einsum("tpr,ntr->ntp", self._root, normal)


def differences(groups: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Signs (m, P) and y(z) - y(1 - z) (m, T) of rows that follow each other as a group and its complement.

    A last row without its complement is left out. If any other row has none, all rows are centred instead, z - mean z
    and y - mean y: the same effects, with the even interactions as noise.

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
    segments: Tensor,
    picture: Tensor,
    *,
    places: Sequence[float] = PLACES,
    colours: Sequence[float] = COLOURS,
    own: Sequence[float] = OWN,
) -> Tensor:
    """Candidates (k, P, P) for the covariance of effects; an effect is a density times the segment's area.

    K_pq = area_p area_q ((1 - o) exp(-|place_p - place_q|² / 2 l²) exp(-|colour_p - colour_q|² / 2 c²) + o [p = q])

    for every l, c and o; each with a mean variance of 1. An empty segment has the variance of a pixel.

    Args:
        segments: (H, W) labels from 0; of a signal (L,), of a volume (D, H, W).
        picture: (H, W, 3) in [0, 1], or (..., channels).
        places: l, in parts of the shorter side; `yardstick` says what that is in other dimensions.
        colours: c, as a distance in RGB; other numbers of channels count as three.
        own: o, the part of the variance that a segment shares with no other.

    >>> segments, picture = torch.tensor([[0, 1]]), torch.zeros(1, 2, 3)
    >>> kernels(segments, picture, places=[1.0], own=[0.5])[0].log().round(decimals=3)  # log ½ - ½ 1²
    tensor([[ 0.0000, -1.1930],
            [-1.1930,  0.0000]], dtype=torch.float64)
    """
    labels = segments.long()
    area = torch.bincount(labels.flatten()).double().clamp(min=1)
    sides = torch.tensor(labels.shape, dtype=torch.float64) / yardstick(labels.shape)
    near = _distances((centres(labels) * sides).T)
    colour = torch.as_tensor(picture).movedim(-1, 0)
    alike = _distances(segment_sums(colour, labels) / area) * (3 / len(colour))
    found = []
    for place in places:
        for hue in colours:
            smooth = torch.exp(-0.5 * (near / place**2 + alike / hue**2))
            for part in own:
                density = (1 - part) * smooth + part * torch.eye(len(area), dtype=torch.float64)
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
    """(..., P): the sum of a field (..., H, W) over each segment; of a base measure, the effects it lets expect.

    >>> segment_sums(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0, 1, 1]])).tolist()
    [1.0, 6.0]
    """
    labels = segments.long().flatten()
    flat = field.double().flatten(-segments.ndim)
    count = int(labels.max()) + 1
    return flat.new_zeros(*flat.shape[:-1], count).index_add_(-1, labels, flat)


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
    """The posterior of the effects, averaged over covariances, ratios and strengths as the data believe them.

    With K = L Lᵀ, S the signs and (S L)ᵀ S L = V w Vᵀ, β = γ b + L V c makes everything diagonal: c has the posterior
    mean (q - γ w c_b) / (w + λ) and variance τ² λ / (w + λ), where q = (S L V)ᵀ y and b = L V c_b. One
    eigendecomposition (P, P) for each covariance serves all ratios, strengths and targets.

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
    models, belief = _believed(*differences(groups, values), covariances, evidence, ratios, strengths)
    mean = _mean(models, belief)
    targets, parts = mean.shape
    covariance, noise = torch.zeros(targets, parts, parts).double(), torch.zeros(targets).double()
    for t in range(targets):
        for one, weights in zip(models, belief[t], strict=True):
            some = weights > 0
            weight, basis = weights[some], one.basis
            if not len(weight):
                continue
            at = one.at(t, some, scale)
            noise[t] += weight @ at.noise
            away, open_ = at.centre @ basis.T - mean[t], at.evident @ basis.T
            covariance[t] += basis * (weight @ at.spread) @ basis.T
            if one.beyond is not None:
                away, open_ = away + at.slope[:, None] * one.beyond[t], open_ + at.open[:, None] * one.beyond[t]
                covariance[t] += weight @ at.scale * (one.covariance - basis @ basis.T)
            covariance[t] += away.T @ (weight[:, None] * away) + open_.T @ (weight[:, None] * open_)
    return Posterior(mean, covariance, noise.sqrt(), belief)


def repeat(
    posterior: Posterior,
    groups: Tensor,
    count: int,
    generator: torch.Generator,
    *,
    covariances: Tensor | Sequence[Tensor],
    evidence: Tensor | None = None,
) -> Tensor:
    """(count, T, P): the means that further runs of the same size would report, as far as these data tell.

    Effects are drawn from the posterior, differences are simulated from them with the posterior's noise, and each is
    fitted as the data were; all share the factorisation of one fit. The expected IoU of this run's map with theirs is
    its stability.

    >>> groups = torch.tensor([[True, False], [False, True], [True, True], [False, False]]).repeat(20, 1)
    >>> values = groups.double() @ torch.tensor([[3.0], [2.0]]).double()
    >>> found = fit(groups, values, covariances=[torch.eye(2)])
    >>> repeat(found, groups, 5, torch.Generator().manual_seed(0), covariances=[torch.eye(2)]).shape
    torch.Size([5, 1, 2])
    """
    design, _ = differences(groups, torch.zeros(len(groups), 1))
    targets, parts = posterior.mean.shape
    effects = posterior.draw(count, generator)
    noise = torch.randn(len(design), count, targets, generator=generator, dtype=torch.float64) * posterior.noise
    seen = torch.einsum("mp,ntp->mnt", design, effects) + noise
    hoped = None if evidence is None else evidence.double().expand(targets, parts).repeat(count, 1)
    found = _mean(*_believed(design, seen.flatten(1), covariances, hoped, RATIOS, STRENGTHS))
    return found.reshape(count, targets, parts)


def _believed(
    design: Tensor,
    seen: Tensor,
    covariances: Tensor | Sequence[Tensor],
    evidence: Tensor | None,
    ratios: Sequence[float],
    strengths: Sequence[float],
) -> tuple[list[Coordinates], Tensor]:
    """A model for each covariance, and how much the data believe them: (T, covariances, ratios, strengths)."""
    parts, targets = design.shape[1], seen.shape[1]
    hoped = torch.zeros(targets, parts) if evidence is None else evidence.double().expand(targets, parts)
    hoped = hoped.double() / hoped.double().square().mean(1, keepdim=True).sqrt().clamp(min=TINY)
    ratio = torch.tensor(tuple(ratios), dtype=torch.float64).clamp(min=TINY)
    rho = torch.tensor(tuple(strengths) if bool(hoped.any()) else (0.0,), dtype=torch.float64)
    push, power = design.T @ seen, seen.square().sum(0)

    models = []
    for covariance in covariances:
        unit = covariance.double() / covariance.diagonal().double().mean()
        models.append(Coordinates.of(unit, design, push, power, hoped, ratio, rho))
    likelihood = torch.stack([one.likelihood for one in models], 1)  # (T, covariances, ratios, strengths)
    before = -0.5 * ((ratio / (_USUAL * parts)).log() / math.log(_FACTOR)).square()
    belief = (likelihood + before[:, None]).flatten(1).softmax(1)
    belief = belief.where(belief > _BELIEF, 0)
    return models, (belief / belief.sum(1, keepdim=True)).reshape(likelihood.shape)


def _mean(models: Sequence[Coordinates], belief: Tensor) -> Tensor:
    """(T, P): the effects' means."""
    return torch.stack([one.mean(belief[:, k]) for k, one in enumerate(models)]).sum(0)


def tops(maps: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """(n, pixels) booleans: exactly the part ``share`` of highest pixels of each map; equal ones are drawn by lot.

    >>> tops(torch.tensor([[[1.0, 3.0], [2.0, 0.0]]]), 0.5, torch.Generator().manual_seed(0)).tolist()
    [[False, True, True, False]]
    """
    flat = maps.flatten(1)
    count = max(1, round(share * flat.shape[1]))
    lots = torch.randperm(flat.shape[1], generator=generator).to(flat.device)
    order = flat[:, lots].argsort(dim=1, descending=True, stable=True)[:, :count]
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, lots[order], True)


def iou_with_first(maps: Tensor, *, share: float = 0.05) -> float:
    """The mean IoU of the highest pixels of the first map (n, H, W) with those of each other one.

    >>> maps = torch.tensor([[[3.0, 2.0, 1.0, 0.0]], [[3.0, 1.0, 2.0, 0.0]], [[3.0, 2.0, 0.0, 0.0]]])
    >>> round(iou_with_first(maps, share=0.5), 6)  # one of three, and both
    0.666667
    """
    chosen = tops(maps, share, torch.Generator().manual_seed(0)).double()
    both = chosen[1:] @ chosen[0]
    return float((both / (2 * chosen[0].sum() - both)).mean())


def _distances(points: Tensor) -> Tensor:
    """(P, P): squared distances between columns of (dimensions, P)."""
    return (points[:, :, None] - points[:, None, :]).square().sum(0)
