"""Every built-in way to upsample, as a value with a name and the guarantees it declares.

The law tests run over the declarations, the auditor measures them, docs/desiderata.md shows them. Who declares D1-G
also tells the budgets it holds to: ``budgets(coarse, picture, scores=None)``, (..., K).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from usu import _checks as check
from usu.operator import potentials
from usu.operator.interpolate import Mode, guided_filter, interpolate, own_sign, size_of
from usu.operator.potentials import Potential
from usu.operator.redistribute import Budget, Hybrid, SoftIWMR, SoftPrior, cell_budgets, redistribute
from usu.types import GUARANTEES, Array, ArrayT, Guarantee
from usu.upsamplers.filters import joint_bilateral, mass_corrected, segment_pooled


@runtime_checkable
class Upsampler(Protocol):
    """Coarse map, picture and scores in, pixel map out.

    ``picture`` is H x W (x 3) in [0, 1] and fixes the size; ``scores`` is H x W in [0, 1].
    """

    @property
    def name(self) -> str:
        """A short name for tables."""

    @property
    def guarantees(self) -> frozenset[Guarantee]:
        """What it promises."""

    @property
    def needs_scores(self) -> bool:
        """Whether it reads scores."""

    def __call__(self, coarse: ArrayT, picture: Array, scores: Array | None = None) -> ArrayT:
        """Upsample ``coarse`` (..., h, w) to the size of ``picture``."""


@dataclass(frozen=True)
class Filter:
    """A function of coarse map and picture as an upsampler; its settings are given with `functools.partial`.

    >>> flat = Filter("flat", lambda coarse, picture: np.full(picture.shape[:2], coarse.mean()))
    >>> flat(np.array([[1.0, 3.0]]), np.zeros((1, 2, 3))).tolist()
    [[2.0, 2.0]]
    """

    name: str
    function: Callable[[Any, Array], Any]
    guarantees: frozenset[Guarantee] = frozenset()
    needs_scores: ClassVar[bool] = False

    def __call__(self, coarse: ArrayT, picture: Array, scores: Array | None = None) -> ArrayT:
        """Upsample ``coarse`` to the size of ``picture``."""
        return self.function(coarse, picture)  # type: ignore[no-any-return]

    def budgets(self, coarse: ArrayT, picture: Array, scores: Array | None = None) -> ArrayT:
        """The mass of every cell, (..., K), where it declares D1-G."""
        return cell_budgets(coarse, np.zeros(size_of(picture, coarse)))


def kernel(coarse: ArrayT, picture: Array, *, mode: Mode) -> ArrayT:
    """`usu.interpolate` to the size of ``picture``."""
    return interpolate(coarse, size_of(picture, coarse), mode)


def corrected(coarse: ArrayT, picture: Array, *, function: Callable[[Any, Array], Any]) -> ArrayT:
    """Another filter's map, with every cell's mass restored; what it sees across borders stays in its shares."""
    return mass_corrected(function(coarse, picture), coarse)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Redistribution:
    """`usu.redistribute` with its settings, from which its guarantees follow; of ``picture`` only the size counts.

    >>> "D1" in Redistribution().guarantees, "D1" in Redistribution(budget="iwmr").guarantees
    (True, False)
    """

    name: str = "usu"
    temperature: float = 0.1
    potential: Potential | None = None
    budget: Budget = "cell"
    bilinear_base: bool = False
    signed: Literal["flip", "literal"] = "flip"
    max_gain: float | None = None
    needs_scores: ClassVar[bool] = True

    @property
    def guarantees(self) -> frozenset[Guarantee]:
        """What these settings promise; see `for_one_sign` for what is promised only to maps of one sign."""
        if isinstance(self.budget, SoftPrior):
            return frozenset({"mass"})
        # a bilinear base looks across borders, and outweighs scores
        cell, alone = self.budget == "cell", not self.bilinear_base
        straight = (self.potential is None or self.potential.slope is not None) and self.max_gain is None
        held: dict[Guarantee, bool] = {
            "mass": True, "D1": cell, "D1-G": True, "D2": alone and self.signed == "flip", "D3": alone and straight,
            "D4": alone and cell, "D4'": alone,
        }  # fmt: skip
        return frozenset(name for name, holds in held.items() if holds)

    @property
    def for_one_sign(self) -> frozenset[Guarantee]:
        """What holds only for maps of one sign: by area every cell gets both, and the sum of two softmaxes is none."""
        soft = self.budget.soft if isinstance(self.budget, Hybrid) else self.budget
        by_area = soft in ("iwmr", "hybrid") or (isinstance(soft, SoftIWMR) and soft.prior == "area")
        return self.guarantees & {"D3", "D4'"} if by_area else frozenset()

    def __call__(self, coarse: ArrayT, picture: Array, scores: Array | None = None) -> ArrayT:
        """Upsample ``coarse`` to the size of ``picture``."""
        size, base = size_of(picture, coarse), None
        scores = self._scores(scores, size)
        if self.bilinear_base:
            smooth = interpolate(coarse, size, "bilinear")
            # the soft prior tells the signs apart itself; there are no cells whose sign could be meant
            base = smooth if isinstance(self.budget, SoftPrior) else own_sign(smooth, coarse)
        return redistribute(
            coarse, scores, temperature=self.temperature, potential=self.potential, budget=self.budget, base=base,
            signed=self.signed, max_gain=self.max_gain,
        )  # fmt: skip

    def budgets(self, coarse: ArrayT, picture: Array, scores: Array | None = None) -> ArrayT:
        """The mass every cell receives, (..., K). Not for `SoftPrior`, which knows no cells."""
        found = self._scores(scores, size_of(picture, coarse))
        return cell_budgets(coarse, found, budget=self.budget, signed=self.signed)

    def _scores(self, scores: Array | None, size: tuple[int, int]) -> Array:
        if scores is None or tuple(scores.shape) != size:
            got = scores if scores is None else check.shape(check.any_tensor("scores", scores))
            raise ValueError(
                f"`scores` must be given for {self.name}, {size[0]} x {size[1]} like the picture, in [0, 1]; got {got}."
            )
        return scores


_BILINEAR = partial(kernel, mode="bilinear")
_MASS: frozenset[Guarantee] = frozenset({"D1", "D1-G", "mass"})
BUILT_IN: tuple[Upsampler, ...] = (
    # redistribution with equal scores: D2 holds in its weak form, as all pixels of a cell are equal
    Filter("nearest", partial(kernel, mode="nearest"), _MASS | {"D2", "D4", "D4'"}),
    # kernels that cross cell borders; bilinear keeps the total, but only where the grid divides the picture
    Filter("bilinear", _BILINEAR),
    Filter("bicubic", partial(kernel, mode="bicubic")),
    Filter("lanczos3", partial(kernel, mode="lanczos3")),
    Filter("bilinear-corrected", partial(corrected, function=_BILINEAR), _MASS),
    Filter("guided", guided_filter),
    Filter("guided-corrected", partial(corrected, function=guided_filter), _MASS),
    Filter("joint-bilateral", joint_bilateral),
    Filter("segment-pooled", segment_pooled),
    Redistribution("usu"),
    Redistribution("usu-literal", signed="literal"),
    Redistribution("usu-bilinear-base", bilinear_base=True),
    Redistribution("usu-max-gain", max_gain=6.0),
    Redistribution("usu-power", potential=potentials.power(2.0)),
    Redistribution("usu-log-odds", potential=potentials.log_odds(1.0)),
    Redistribution("usu-iwmr-area", budget=SoftIWMR(prior="area")),
    Redistribution("usu-iwmr-mass", budget=SoftIWMR(prior="mass")),
    Redistribution("usu-hybrid", budget=Hybrid(0.5)),
    Redistribution("usu-soft-prior", budget=SoftPrior(), bilinear_base=True),
)


def by_name(name: str) -> Upsampler:
    """The built-in upsampler of that name.

    >>> sorted(by_name("nearest").guarantees)
    ['D1', 'D1-G', 'D2', 'D4', "D4'", 'mass']
    """
    known = {upsampler.name: upsampler for upsampler in BUILT_IN}
    check.choice("name", name, tuple(known))
    return known[name]


def guarantee_table() -> str:
    """What every built-in upsampler declares, as the Markdown table of docs/desiderata.md.

    >>> print(guarantee_table().splitlines()[2])
    | `nearest` | yes | yes | yes | yes |  | yes | yes |
    """
    rows = [["upsampler", *GUARANTEES]]
    rows += [[f"`{u.name}`", *("yes" if g in u.guarantees else "" for g in GUARANTEES)] for u in BUILT_IN]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
