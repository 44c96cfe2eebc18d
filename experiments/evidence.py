"""Today's presets and their rivals on 100 pictures that chose nothing: the tables and sentences of docs/evidence.md.

    python -m experiments.evidence DATA RUN [--workers 2]   # RUN: the store; the same command goes on where it was
    python -m experiments.readme docs/results docs/evidence.md && python docs/figures/evidence.py

With ``--maps cell,cell-permuted-scores`` only these are made again.

The pictures are those of the presets' confirmation. RISE knows no preset, so its 4,000 passes a picture are not made
again: its rows are those of the confirmation.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from experiments.first_table import wide
from experiments.pages import markdown, prose
from experiments.presets.pictures import confirmation
from experiments.presets.rivals import LayerCam, RefineCam
from experiments.renewed import renewed

import usu
from usu.bench import Local, Table, evaluate
from usu.models import load
from usu.types import NDArray

RESULTS = Path(__file__).parents[1] / "docs" / "results"
#: The name of every map in the rows, and as a person calls it.
CALLED = {
    "bilinear": "bilinear", "bilinear-corrected": "bilinear, cells exact", "guided": "guided filter",
    "layercam": "LayerCAM", "refinecam": "RefineCAM", "rise": "RISE", "kernel-shap": "kernel SHAP",
    "scores-alone": "scores alone", "cell-permuted-scores": "`cell`, permuted scores", "paper": "`paper`",
    "fast": "`fast`", "soft": "`soft`", "cell": "`cell`",
}  # fmt: skip
#: The head of every metric; and whether more is better.
METRICS = {
    "insertion-deletion": ("insertion minus deletion ↑", 1), "half-deletion": ("half deletion, mean ↑", 1),
    "half-deletion:noise": ("half deletion, noise ↑", 1), "infidelity": ("infidelity ↓", -1),
    "cell-auroc": ("outline, AUROC ↑", 1), "area-iou": ("outline, area IoU ↑", 1),
}  # fmt: skip
LEVEL = 0.05


class Evidence:
    """The committed rows: by map and metric the values of all pictures, and tests paired by picture."""

    def __init__(self, path: Path) -> None:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.pictures = list(dict.fromkeys(row["picture"] for row in rows))
        self.names = [name for name in CALLED if any(row["upsampler"] == name for row in rows)]
        self._values = {(row["upsampler"], row["picture"]): row for row in rows}
        family = [(one, "bilinear", metric) for one in self.names[1:] for metric in METRICS]
        family += [("soft", one, "insertion-deletion") for one in self.names[1:] if one != "soft"]
        self._p = dict(zip(family, usu.stats.holm([self._tested(*test) for test in family]), strict=True))
        self.tests = len(family)

    def values(self, name: str, metric: str) -> NDArray:
        """NaN where a picture has none."""
        return np.array([float(self._values[name, one][metric] or "nan") for one in self.pictures])

    def mean(self, name: str, metric: str) -> float:
        return float(np.nanmean(self.values(name, metric)))

    def decided(self, one: str, other: str, metric: str) -> int:
        """1: the first is better after correction; -1: worse; 0: nothing is decided."""
        gap = METRICS[metric][1] * np.sign(self.mean(one, metric) - self.mean(other, metric))
        return int(gap) if self._p[one, other, metric] < LEVEL else 0

    def _tested(self, one: str, other: str, metric: str) -> float:
        pairs = np.stack([self.values(one, metric), self.values(other, metric)])
        first, second = pairs[:, np.isfinite(pairs).all(0)]
        return float(usu.stats.wilcoxon(first, second).p)


def parts(found: Evidence) -> dict[str, str]:
    """What the page shows, by its name there."""
    marks = {1: " +", 0: "", -1: " -"}

    def cell(name: str, metric: str) -> str:
        mark = "" if name == "bilinear" else marks[found.decided(name, "bilinear", metric)]
        return f"{found.mean(name, metric):.3f}{mark}"

    rows = [
        [CALLED[name], f"{found.mean(name, 'evaluations'):,.0f}", *(cell(name, metric) for metric in METRICS)]
        for name in found.names
    ]
    return {
        "answer": _answer(found),
        "not reached": _not_reached(found),
        "evidence": markdown(["map", "evaluations", *(head for head, _ in METRICS.values())], rows),
        "evidence tests": prose(
            f"What differs from bilinear is marked (+ better, - worse): Wilcoxon, two-sided, paired by picture, 5 % "
            f"after Holm over {found.tests} tests, of which {len(found.names) - 2} compare `soft` with every other map "
            "by insertion minus deletion."
        ),
    }


def _answer(found: Evidence) -> str:
    metric, halves = "insertion-deletion", ("half-deletion", "half-deletion:noise")
    others = [one for one in found.names if one != "soft"]
    beaten = [one for one in others if found.decided("soft", one, metric) == 1]
    rest = [CALLED[one] for one in others if one not in beaten]
    ahead = f"{len(beaten)} of the {len(others)} other maps" + (f" (not of {', '.join(rest)})" if rest else "")
    cell, bilinear = (sum(found.mean(name, one) for one in halves) for name in ("cell", "bilinear"))

    def times(name: str) -> str:
        return f"{found.mean(name, metric) / found.mean('bilinear', metric):.2f}"

    return prose(
        f"**`soft` has {times('soft')} times bilinear's insertion minus deletion** and is ahead of {ahead} after "
        f"correction. **`cell` keeps every cell's mass and ranks pixels inside the cells**: {cell / bilinear:.1f} "
        f"times bilinear's half deletion. **`fast` costs one more backward pass** and has {times('fast')} times "
        f"bilinear's insertion minus deletion. Measured on {len(found.pictures)} pictures on which nothing was chosen, "
        "with one network (EfficientNet-Lite0) and Grad-CAM."
    )


def _not_reached(found: Evidence) -> str:
    """What somebody would expect of the presets, and is not so."""
    metric, lines = "insertion-deletion", []
    for told, sign in ("is not told from that of", 0), ("is lower than that of", -1):
        names = [CALLED[one] for one in found.names if one != "soft" and found.decided("soft", one, metric) == sign]
        if names:
            lines.append(f"- Insertion minus deletion of `soft` {told} {', '.join(names)}.")
    wanted = (
        ("cell", "bilinear", metric), ("soft", "guided", "cell-auroc"), ("cell", "guided", "cell-auroc"),
        ("fast", "guided", "cell-auroc"), ("soft", "scores-alone", "half-deletion"),
        ("cell", "scores-alone", "half-deletion"), ("paper", "bilinear", metric),
    )  # fmt: skip
    for one, other, measure in wanted:
        ours, theirs = found.mean(one, measure), found.mean(other, measure)
        if ours <= theirs:
            head = METRICS[measure][0].rstrip(" ↑↓")
            lines.append(f"- {CALLED[one]} is not ahead of {CALLED[other]} ({head}): {ours:.3f} against {theirs:.3f}.")
    return prose(*lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--maps", type=lambda text: text.split(","), help="only these anew, commas between")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    loaded, own = load("efficientnet_lite0"), {"layercam": LayerCam(), "refinecam": RefineCam()}
    maps = [own.get(name, name) for name in asked.maps or CALLED if name != "rise"]
    table = evaluate(
        maps, confirmation(asked.data, loaded), loaded.model, [*METRICS],
        layer=loaded.layer, out=asked.run, engine=Local(asked.workers), forward="auto",
        progress=lambda name, done, total: print(f"{done}/{total} {name}", flush=True),
    )  # fmt: skip
    print("\n".join(f"left out: {name}: {reason}" for name, reason in table.failures.items()))
    wanted = {row.picture for row in table.rows} - {*table.failures}
    if asked.maps:
        wanted &= {*Evidence(RESULTS / "evidence.csv").pictures}
    found = Table(tuple(row for row in table.rows if row.picture in wanted), {})
    if asked.maps:
        wide(found, asked.run / "evidence.csv")
        renewed(RESULTS / "evidence.csv", asked.run / "evidence.csv", ("picture", "upsampler"))
        return
    wide(found, RESULTS / "evidence.csv")
    with_rise(RESULTS / "evidence.csv", RESULTS / "presets-confirmed.csv")


def with_rise(path: Path, confirmed: Path) -> None:
    """The rows of RISE added; of the pictures that it has, too: one pet lies outside of its crop."""
    with confirmed.open(encoding="utf-8", newline="") as file:
        rise = [row for row in csv.DictReader(file) if row["upsampler"] == "rise"]
    pictures = {row["picture"] for row in rise}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["picture"] in pictures]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows + rise)


if __name__ == "__main__":
    main()
