"""Which reading of the paper's penalty trains? Strength 0.1 is the paper's; the unit of the sum is not given there.

Run: python -m experiments.synthetic.sweep [FOLDER]   (writes sweep.csv there; default results/synthetic)
Small pictures, both networks, every normalisation and strength: accuracy and attention share on the validation split.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

from experiments.synthetic.shapes import Pictures, shapes, split
from experiments.synthetic.training import NORMALISATIONS, STRENGTH, Kind, Normalisation, trained

SIZE, COUNT, EPOCHS = 64, 1000, {"cnn": 20, "mlp": 40}
STRENGTHS = (0.0, STRENGTH / 10, STRENGTH, STRENGTH * 10)


def sweep(
    kind: Kind,
    data: Pictures,
    validation: Pictures,
    *,
    folder: Path,
    epochs: int,
    strengths: Iterable[float] = STRENGTHS,
    normalisations: Iterable[Normalisation] = NORMALISATIONS,
    seed: int = 0,
) -> list[dict[str, object]]:
    """One row per normalisation and strength; models are kept in ``folder``. Strength 0 is the vanilla model."""
    rows = []
    for normalisation in normalisations:
        for strength in strengths:
            found = trained(
                kind, strength > 0, data, validation, folder=folder, seed=seed, epochs=epochs,
                strength=strength, normalisation=normalisation,
            )  # fmt: skip
            setting = {"model": kind, "normalisation": normalisation, "strength": strength, "epochs": epochs}
            rows.append(setting | {"seed": seed, "seconds": found.record["seconds"]} | found.record["validation"])
    return rows


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results/synthetic")
    data, validation, _ = split(shapes(COUNT, size=SIZE))
    rows = []
    for kind in ("cnn", "mlp"):
        rows += sweep(kind, data, validation, folder=folder / "models", epochs=EPOCHS[kind])
    print("| model | normalisation | strength | accuracy | attention |\n|---|---|---|---|---|")
    for row in rows:
        numbers = f"{row['strength']:g} | {row['accuracy']:.3f} | {row['attention']:.3f}"
        print(f"| {row['model']} | {row['normalisation']} | {numbers} |")
    with (folder / "sweep.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
