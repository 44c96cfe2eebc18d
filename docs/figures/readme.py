"""The README's picture, light and dark: python docs/figures/readme.py

It is made by the README's own line, `usu.explain(net, picture)`, on two pictures that come with scikit-image.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skimage import data

import usu
from usu.plot import overlay, scale_of, shares
from usu.plot.panels import blank

HERE = Path(__file__).parent
TITLES = ("the picture", "Grad-CAM: 7 x 7 numbers", "resized (bilinear)", "usu: redistributed")
#: Text and background.
STYLES = {"readme.png": ("#111111", "#ffffff"), "readme-dark.png": ("#e6edf3", "#0d1117")}


def main() -> None:
    """Explain both and draw them."""
    net = usu.models.load()
    draw([usu.explain(net, getattr(data, name)()) for name in ("chelsea", "rocket")])


def draw(explained: Sequence[usu.Explanation]) -> None:
    """A row for each: the picture, its coarse map, what everybody does with it and what we do, on one scale."""
    for file, (ink, paper) in STYLES.items():
        canvas = blank((11.2, 2.85 * len(explained) + 0.35), paper)
        grid = canvas.subplots(len(explained), 4, squeeze=False)
        for row, one in zip(grid, explained, strict=True):
            size = one.picture.shape[:2]
            smooth, blocks = (usu.interpolate(one.coarse, size, mode) for mode in ("bilinear", "nearest"))
            scale = scale_of([shares(smooth), shares(one.pixel_map)])
            shown = [
                one.picture,
                scale.colours(shares(blocks)),
                *(overlay(one.picture, field, scale=scale) for field in (smooth, one.pixel_map)),
            ]
            for axes, pixels in zip(row, shown, strict=True):
                axes.imshow(pixels)
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set_visible(False)
            row[0].set_ylabel(f"“{one.label}”", fontsize=14, color=ink)
        for axes, title in zip(grid[0], TITLES, strict=True):
            axes.set_title(title, fontsize=14, color=ink, fontweight="bold" if title.startswith("usu") else "normal")
        canvas.savefig(HERE / file, dpi=110, facecolor=paper)


if __name__ == "__main__":
    main()
