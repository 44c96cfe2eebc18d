"""Does raw infidelity reward a map for being spiky? Random scores, no model, and the number "improves".

Run: python -m experiments.infidelity_scale docs/results/infidelity-scale.csv docs/infidelity.md
Writes the numbers of every picture, if the CSV file is not there yet, and from them what the page says was measured:
Grad-CAM upsampled bilinearly and by `usu.redistribute` with random scores per segment, as they are and divided by their
maximum, in four ways. Quantus' own number is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import torch
from experiments.pages import filled, markdown, prose
from skimage import data

import usu
from usu.metrics.infidelity import block_changes, infidelity_of
from usu.metrics.quantus_compat import patch_changes
from usu.models import load

PICTURES = ("chelsea", "coffee", "astronaut", "rocket")
SEGMENTS = 100
#: Random scores are drawn anew for each; the geometric mean over them is shown.
SEEDS = range(5)
#: Pixels. Quantus' default of 4 takes 3136 passes per picture and sample; the artefact is the same.
PATCH = 28
SEGMENTER = usu.segment.Slic(smoothing=1.0)
WAYS = ("quantus", "compat", "raw", "optimal")
TITLES = ("Quantus 0.6.0", "ours, `compat`", "ours, `raw`", "ours, scale-optimal")


def random_scores(segments: np.ndarray, seed: int) -> torch.Tensor:
    """One uniform number per segment: nothing of the model, nothing of the picture's content."""
    scores = torch.rand(int(segments.max()) + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scores[torch.from_numpy(segments).long()]


def quantus_numbers(model: torch.nn.Module, image: torch.Tensor, target: int, maps: list[torch.Tensor]) -> list[float]:
    """Quantus' own Infidelity of several maps of one picture, NaN without Quantus."""
    if importlib.util.find_spec("quantus") is None:
        return [float("nan")] * len(maps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import quantus

        metric = quantus.Infidelity(
            perturb_patch_sizes=[PATCH], n_perturb_samples=1, disable_warnings=True, display_progressbar=False
        )
        return metric(
            model, image[None].repeat(len(maps), 1, 1, 1).numpy(), np.full(len(maps), target),
            a_batch=torch.stack(maps)[:, None].float().numpy(), device="cpu", channel_first=True,
        )  # fmt: skip


def measure(loaded, name: str) -> list[dict[str, object]]:
    """One row per map of the picture and way of scaling it."""
    image, _ = loaded.prepare(getattr(data, name)())
    source = usu.gradcam(loaded.model, image[None], layer=loaded.layer)
    coarse, target = source.values[0].double(), int(source.targets[0])
    shown = ((image * 128 + 127) / 255).clamp(0, 1).permute(1, 2, 0).numpy()
    segments = SEGMENTER(shown, SEGMENTS)
    size = tuple(image.shape[-2:])
    maps = {"bilinear": usu.interpolate(coarse, size, "bilinear")}
    for seed in SEEDS:
        maps[f"random scores {seed}"] = usu.redistribute(coarse, random_scores(segments, seed))
    rows = [
        {"picture": name, "map": of, "scaled": scaled, "field": field / (field.max() if scaled == "max" else 1)}
        for of, field in maps.items()
        for scaled in ("as it is", "max")
    ]
    # the model is asked once; every map is compared with its answers
    patches = patch_changes(image, loaded.model, target, patch_sizes=(PATCH,))
    blocks = block_changes(image, loaded.model, target)
    of_quantus = [row for row in rows if row["map"] in ("bilinear", "random scores 0")]
    theirs = quantus_numbers(loaded.model, image, target, [row["field"] for row in of_quantus])
    for row, value in zip(of_quantus, theirs, strict=True):
        row["quantus"] = value
    for row in rows:
        field = row.pop("field")
        ((u, v),) = patches.pairs(field)
        row["compat"] = float((u - v).square().mean())
        row["raw"] = infidelity_of(field, blocks, scaling="raw")
        row["optimal"] = infidelity_of(field, blocks)
        row["peak over mean"] = float(field.max() / field.mean())
    return rows


def typical(rows: list[dict[str, object]], of: str, scaled: str, way: str) -> float:
    """Geometric mean over pictures and seeds."""
    values = [row[way] for row in rows if row["map"].startswith(of) and row["scaled"] == scaled and way in row]
    return float(np.exp(np.log(values).mean()))


def read(path: Path) -> list[dict[str, object]]:
    """The rows of the CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        texts = ("picture", "map", "scaled")
        return [{k: v if k in texts else float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def table(rows: list[dict[str, object]]) -> str:
    """Geometric means, and the ratio between the two maps."""
    lines = []
    for scaled, words in (("as it is", ""), ("max", ", divided by its maximum")):
        numbers = {of: [typical(rows, of, scaled, way) for way in WAYS] for of in ("bilinear", "random scores")}
        for of, values in numbers.items():
            lines.append([f"{of}{words}", *(f"{value:.3g}" for value in values)])
        ratios = [before / after for before, after in zip(*numbers.values(), strict=True)]
        lines.append([f'"improvement"{words}', *(f"**{ratio:.3g} x**" for ratio in ratios)])
    return markdown(["map", *TITLES], lines)


def improvements(rows: list[dict[str, object]], way: str, scaled: str) -> list[float]:
    """How many times smaller the number of random scores is than bilinear's, picture by picture and seed by seed."""
    plain = {row["picture"]: row[way] for row in rows if row["map"] == "bilinear" and row["scaled"] == scaled}
    others = [row for row in rows if row["map"] != "bilinear" and row["scaled"] == scaled]
    return [plain[row["picture"]] / row[way] for row in others]


def parts(rows: list[dict[str, object]]) -> dict[str, str]:
    """What the page says was measured, by the name of its place."""

    def spread(way: str, scaled: str) -> str:
        found = improvements(rows, way, scaled)
        return f"{min(found):.2g} and {float(f'{max(found):.2g}'):g}"

    better = typical(rows, "bilinear", "max", "raw") / typical(rows, "random scores", "max", "raw")
    about = f"{round(better, -1):.0f}"
    plain, spiky = (typical(rows, of, "max", "peak over mean") for of in ("bilinear", "random scores"))
    return {
        "infidelity answer": prose(
            "**A map gets a better raw number by getting smaller.** Random scores, which know nothing, "
            f'"improve" it about {about} times once maps are divided by their maximum. '
            "We measure infidelity so that the unit does not matter."
        ),
        "scale": table(rows),
        "infidelity why": prose(
            f'- Random scores "improve" the raw number **about {about} times**, between {spread("raw", "max")} times '
            f"from one picture and seed to the next (by Quantus' definition between {spread('compat', 'max')}). "
            "They know nothing.",
            f"- The whole effect is the division. The maximum of the bilinear map is {plain:.1f} times its mean, "
            f"that of a map with random scores {spiky:.0f} times. After the division it is {spiky / plain:.0f} times "
            "smaller, and the number goes by the square.",
            "- Without the division there is nothing to see: the total is the same, and the raw numbers differ by a "
            f"few per cent on average (on single pictures and seeds between {spread('raw', 'as it is')} times, by "
            f"Quantus' definition between {spread('compat', 'as it is')} times). The normalisation is rewarded, not "
            "the map.",
            "- The scale-optimal number is the same in both halves of the table: random scores are no better than "
            "bilinear.",
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.infidelity_scale")
    parser.add_argument("csv", type=Path, help="where the numbers are, or go")
    parser.add_argument("page", type=Path, help="where they are shown")
    asked = parser.parse_args()
    if not asked.csv.is_file():
        loaded = load()
        with asked.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["picture", "map", "scaled", *WAYS, "peak over mean"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for name in PICTURES for row in measure(loaded, name))
    asked.page.write_text(filled(asked.page.read_text(encoding="utf-8"), parts(read(asked.csv))), encoding="utf-8")


if __name__ == "__main__":
    main()
