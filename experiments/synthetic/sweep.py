"""Which reading of the paper's penalty trains? Strength 0.1 is the paper's; the unit of the sum is not given there.

Small pictures, both networks, every normalisation and strength: accuracy and attention share on the validation split.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.synthetic.shapes import shapes, split
from experiments.synthetic.training import NORMALISATIONS, STRENGTH, Kind, Normalisation, trained

STRENGTHS = (0.0, STRENGTH / 10, STRENGTH, STRENGTH * 10)


def sweep(
    kind: Kind,
    *,
    size: int,
    count: int,
    epochs: int,
    folder: Path,
    strengths: Iterable[float] = STRENGTHS,
    normalisations: Iterable[Normalisation] = NORMALISATIONS,
    seed: int = 0,
) -> list[dict[str, object]]:
    """One row per normalisation and strength; models are kept in ``folder``. Strength 0 is the vanilla model."""
    data, validation, _ = split(shapes(count, size=size, seed=seed))
    rows = []
    for normalisation in normalisations:
        for strength in strengths:
            found = trained(
                kind, strength > 0, data, validation, folder=folder, seed=seed, epochs=epochs,
                strength=strength, normalisation=normalisation,
            )  # fmt: skip
            setting = {"model": kind, "normalisation": normalisation, "strength": strength, "epochs": epochs}
            rows.append(setting | {"side": size, "pictures": len(data), "seed": seed} | found.record["validation"])
    return rows
