"""The README's picture: python docs/figures/readme.py"""

from __future__ import annotations

from pathlib import Path

from skimage import data

import usu
from usu.models import load
from usu.plot import Panel, figure


def main() -> None:
    """One photograph, its Grad-CAM map, what everybody does with it and what we do."""
    loaded = load()
    panels = []
    for name in ("chelsea", "coffee"):
        image, _ = loaded.prepare(getattr(data, name)())
        picture = ((image * 128 + 127) / 255).clamp(0, 1).permute(1, 2, 0).numpy()
        found = usu.explain(loaded.model, image, layer=loaded.layer, picture=picture, classes=loaded.classes)
        panels += [
            Panel(found.label, picture=picture),
            Panel("Grad-CAM, 7 x 7", found.coarse),
            Panel("bilinear", usu.interpolate(found.coarse, (224, 224), "bilinear"), picture),
            Panel("usu (preset soft, 300 evaluations)", found.pixel_map, picture),
        ]
    figure(panels).savefig(Path(__file__).with_name("readme.png"), dpi=80)


if __name__ == "__main__":
    main()
