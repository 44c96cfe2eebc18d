"""How many segments can 300 evaluations tell apart? Two seeds should agree on the scores.

Run: python -m experiments.score_stability [PICTURE ...]   (three photographs of scikit-image if none is named)
Prints the correlation of the score fields of two seeds, per number of segments.
"""

from __future__ import annotations

import sys

import numpy as np
from skimage import data

import usu
from usu.models import load
from usu.models.pictures import read

EVALUATIONS = 300
PARTS = (60, 100, 200)
SEGMENTER = usu.segment.Slic(smoothing=1.0)


def main() -> None:
    loaded = load()
    named = {path: read(path).pixels for path in sys.argv[1:]}
    pictures = named or {name: getattr(data, name)() for name in ("chelsea", "coffee", "astronaut")}
    print("picture," + ",".join(f"{parts} segments" for parts in PARTS))
    table = []
    for name, pixels in pictures.items():
        image, _ = loaded.prepare(pixels)
        shown = ((image * 128 + 127) / 255).clamp(0, 1).permute(1, 2, 0).numpy()
        engine = usu.forward.engine(loaded.model).aim(image).engine
        row = []
        for parts in PARTS:
            segments = SEGMENTER(shown, parts)
            fields = [
                usu.score.sampled(engine, image, segments, evaluations=EVALUATIONS, seed=seed).values[0, segments]
                for seed in (0, 1)
            ]
            row.append(float(np.corrcoef(*(field.flatten() for field in fields))[0, 1]))
        table.append(row)
        print(name + "," + ",".join(f"{value:.2f}" for value in row), flush=True)
    print("mean," + ",".join(f"{value:.2f}" for value in np.mean(table, axis=0)))


if __name__ == "__main__":
    main()
