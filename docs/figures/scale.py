"""The figure of docs/cost.md: python docs/figures/scale.py"""

from __future__ import annotations

import csv

from style import BLUE, GREEN, GREY, INK, ORANGE, RESULTS, chart, save, tidy

LOOKS = {
    "redistribute": (GREY, "v"), "explain pixels and save": (BLUE, "o"), "classes": (ORANGE, "s"),
    "segments": (GREEN, "^"), "batch": (INK, "D"),
}  # fmt: skip
NAMES = {"explain pixels and save": "pixels of a picture, to 108 million", "redistribute": "the operator alone",
         "classes": "classes, to 500", "segments": "segments, to 2,000", "batch": "pictures, to 256"}  # fmt: skip


def main() -> None:
    """Time and memory over the size, each as a part of the largest."""
    with (RESULTS / "scale.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    canvas = chart(8.5, 3.2)
    left, right = canvas.add_subplot(1, 2, 1), canvas.add_subplot(1, 2, 2)
    for kind, (colour, marker) in LOOKS.items():
        own = [row for row in rows if row["kind"] == kind and float(row["size"])]
        power = 2 if kind in ("redistribute", "explain pixels and save") else 1
        sizes = [(float(row["size"]) / float(own[-1]["size"])) ** power for row in own]
        style = {"color": colour, "marker": marker, "markersize": 4, "label": NAMES[kind]}
        left.plot(sizes, [float(row["seconds"]) for row in own], **style)
        right.plot(sizes, [float(row["megabytes"]) / 1024 for row in own], **style)
    left.plot([0.01, 1], [0.5, 50], color=INK, linewidth=0.8, linestyle=":")
    left.annotate("in proportion", (0.0105, 0.22), fontsize=7)
    left.set(xscale="log", yscale="log", xlabel="part of the largest size", ylabel="seconds, one thread")
    right.set(xscale="log", ylim=(0, None), xlabel="part of the largest size", ylabel="peak memory, GB")
    right.legend(frameon=False, fontsize=7)
    for axes in (left, right):
        tidy(axes)
    save(canvas, "scale")


if __name__ == "__main__":
    main()
