"""A folder back to a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from usu.models.pictures import Geometry
from usu.refine import StopReason
from usu.results.folder import saved_manifest, unit_of
from usu.results.result import Explanation, Upsampled
from usu.sources.cams import CoarseMap
from usu.sources.layers import Goal
from usu.types import NDArray

#: What is in a manifest beside the provenance of the map.
_BESIDE = {
    "schema", "label", "labels", "probabilities", "targets", "source", "instead", "evaluations", "stability", "seconds",
    "mass_error", "stop_reason", "geometry", "request", "maps",
}  # fmt: skip


def load(folder: str | Path) -> Explanation:
    """What ``Explanation.save(folder)`` wrote.

    Guarantees:
        Every array, name and number is equal to the saved one's to the last bit, on the CPU. Not saved: the posterior
        behind ``stderr`` (``effects``).

    Raises:
        UsuError: in one sentence, if the folder holds no result, a damaged one, or one of another schema.

    >>> import tempfile
    >>> load(tempfile.gettempdir() + "/no-result-here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    usu.errors.UsuError: ...no-result-here holds no result of usu: it has no manifest.json.
    """
    manifest = saved_manifest(Path(folder))
    with np.load(Path(folder) / "maps.npz", allow_pickle=False) as file:
        arrays = dict(file)
    return _explanation(manifest, arrays)


def _explanation(manifest: dict[str, Any], arrays: dict[str, NDArray]) -> Explanation:
    about, place, signed = manifest["source"], manifest["geometry"], arrays.get("source_signed")
    reason, kind = manifest["stop_reason"], getattr(torch, about["dtype"])
    return Explanation(
        source=CoarseMap(
            values=torch.from_numpy(arrays["source_values"]).to(kind),
            layer=about["layer"],
            reason=about["reason"],
            targets=None if manifest["targets"] is None else tuple(manifest["targets"]),
            evaluations=about["evaluations"],
            notes=tuple(about["notes"]),
            finer=tuple(torch.from_numpy(level) for level in _numbered(arrays, "source_finer")),
            signed=None if signed is None else torch.from_numpy(signed).to(kind),
            goals=tuple(Goal(*goal) for goal in about["goals"]),
        ),
        coarse=arrays["coarse"],
        upsampled=Upsampled(
            pixel_map=arrays["pixel_map"],
            stderr=arrays.get("stderr"),
            stability=manifest["stability"],
            scores=arrays["scores"],
            effects=None,
            segments=tuple(_numbered(arrays, "segments")),
            depth_scores=tuple(torch.from_numpy(field) for field in _numbered(arrays, "scores")),
            evaluations=manifest["evaluations"],
            stop_reason=StopReason[reason] if isinstance(reason, str) else tuple(StopReason[r] for r in reason),
            mass_error=manifest["mass_error"],
            seconds=manifest["seconds"],
            provenance={name: value for name, value in manifest.items() if name not in _BESIDE},
            picture=arrays["picture"],
        ),
        picture=arrays["picture"],
        labels=tuple(manifest["labels"]),
        original=unit_of(arrays["original"]) if "original" in arrays else None,
        geometry=None if place is None else Geometry(*(tuple(place[name]) for name in ("picture", "box", "input"))),
        request=manifest["request"],
        instead=manifest["instead"],
        source_name=about["name"],
    )


def _numbered(arrays: dict[str, NDArray], name: str) -> list[NDArray]:
    count = sum(key.removeprefix(f"{name}_").isdigit() for key in arrays if key.startswith(f"{name}_"))
    return [arrays[f"{name}_{number}"] for number in range(count)]
