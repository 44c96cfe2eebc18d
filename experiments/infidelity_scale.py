"""Does raw infidelity reward a map for being spiky? Random scores, no model, and the number "improves".

Run: python -m experiments.infidelity_scale docs/results/infidelity-scale.csv
Writes the numbers of every picture and prints them as a Markdown table: Grad-CAM upsampled bilinearly and by
`usu.redistribute` with random scores per segment, as they are and divided by their maximum, measured in four ways.
Quantus' own number is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import warnings
from pathlib import Path

import numpy as np
import torch
from experiments.pages import markdown
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.infidelity_scale")
    parser.add_argument("csv", type=Path, help="where the numbers go")
    path = parser.parse_args().csv
    loaded = load()
    rows = [row for name in PICTURES for row in measure(loaded, name)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["picture", "map", "scaled", *WAYS, "peak over mean"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))
    spikes = [typical(rows, of, "max", "peak over mean") for of in ("bilinear", "random scores")]
    print(f"\nmaximum over mean: bilinear {spikes[0]:.1f}, random scores {spikes[1]:.1f}")
    for way in ("raw", "compat"):
        for scaled in ("as it is", "max"):
            found = improvements(rows, way, scaled)
            print(f"{way}, {scaled}: {min(found):.2g} to {max(found):.2g} times, picture by picture and seed by seed")


if __name__ == "__main__":
    main()
