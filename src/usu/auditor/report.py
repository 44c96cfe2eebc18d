"""What an audit found, as a value, as text and as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from usu.auditor.measures import Trial
from usu.types import GUARANTEES, Guarantee, NDArray

MEANING: Mapping[Guarantee, str] = {
    "D1": "every cell keeps its mass",
    "D1-G": "every cell holds the budget it was given",
    "mass": "the total is kept",
    "D2": "inside a cell a higher score never gets less",
    "D3": "a score gap has the same effect everywhere",
    "D4": "nothing outside a cell matters inside",
    "D4'": "nothing outside a cell changes its shares",
}


@dataclass(frozen=True)
class Finding:
    """One guarantee: promised or not, the worst violation found, and the input that shows it."""

    guarantee: Guarantee
    declared: bool
    #: The worst violation found; None where the question does not apply.
    worst: float | None
    #: Violations up to here are rounding.
    tolerance: float
    #: The input that shows it, and the map that came out.
    trial: Trial | None
    pixel_map: NDArray | None

    @property
    def holds(self) -> bool | None:
        """Whether no violation was found; None where the question does not apply."""
        return None if self.worst is None else bool(self.worst <= self.tolerance)

    @property
    def broken(self) -> bool:
        """Promised and not kept."""
        return self.declared and self.holds is not True

    @property
    def verdict(self) -> str:
        """``holds``, ``violated`` or ``not applicable``."""
        return {True: "holds", False: "violated", None: "not applicable"}[self.holds]


@dataclass(frozen=True)
class Profile:
    """Numbers that are no promise but say what a map will look like."""

    #: Share of mass that ends in another cell, mean over smooth maps like class activation maps, 7 x 7 -> 224 x 224.
    moved_smooth: float
    #: The same over random rectified maps.
    moved_rectified: float
    #: Worst relative error of the total where the sides divide.
    total_error_divisible: float
    #: Share of pairs of pixels of one cell that stand in the wrong order, mean over trials.
    wrong_pairs: float
    #: Squared jumps across cell borders inside one segment, relative to the mean square.
    seam_energy: float
    #: Largest density relative to the cell's own.
    largest_gain: float
    #: Change of the output for another coarse map of the same total; 0 = only the total counts.
    coarse_sensitivity: float


@dataclass(frozen=True)
class AuditReport:
    """Declared versus measured, for one upsampler."""

    name: str
    findings: tuple[Finding, ...]
    profile: Profile
    trials: int
    seed: int

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not any(finding.broken for finding in self.findings)

    def __getitem__(self, guarantee: Guarantee) -> Finding:
        for finding in self.findings:
            if finding.guarantee == guarantee:
                return finding
        raise KeyError(f"`guarantee` must be one of {', '.join(GUARANTEES)}; got {guarantee!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, with the inputs that show the worst cases."""
        findings = {}
        for f in self.findings:
            t = f.trial
            given = t and {"about": t.about, "coarse": t.coarse.tolist(), "scores": t.scores.tolist()}
            told = {name: getattr(f, name) for name in ("declared", "verdict", "worst", "tolerance")}
            findings[f.guarantee] = {**told, "input": given}
        about = {name: getattr(self, name) for name in ("name", "ok", "trials", "seed")}
        return {**about, "findings": findings, "profile": vars(self.profile).copy()}

    def __str__(self) -> str:
        verdict = "every promise kept" if self.ok else "BROKEN PROMISE"
        lines = [f"{self.name}: {verdict} ({self.trials} trials, seed {self.seed})"]
        for f in self.findings:
            worst = "" if f.worst is None else f"{f.worst:.2e}"
            promise = "declared" if f.declared else ""
            where = f"  on {f.trial.about}" if f.trial is not None and f.holds is False else ""
            lines.append(f"  {f.guarantee:<5}{promise:<10}{f.verdict:<16}{worst:<10}{MEANING[f.guarantee]}{where}")
        p = self.profile
        lines += [
            f"  mass moved between cells at 7 x 7 -> 224 x 224: {p.moved_smooth:.1%} of a smooth map, "
            f"{p.moved_rectified:.1%} of a random rectified one",
            f"  total at integer factors kept to {p.total_error_divisible:.1e}; "
            f"pairs in the wrong order: {p.wrong_pairs:.1%}",
            f"  seam energy {p.seam_energy:.3g}; largest gain {p.largest_gain:.3g}; "
            f"sensitivity to the coarse map beyond its total: {p.coarse_sensitivity:.3g}",
        ]
        return "\n".join(lines)

    def figure(self) -> Any:
        """The worst inputs and what became of them (needs the extra ``plot``)."""
        from usu.plot import audit_figure

        return audit_figure(self)
