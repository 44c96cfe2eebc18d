"""What comes out, with its provenance: frozen, and able to write itself to a folder."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch

from usu.models.preparation import Geometry, place
from usu.refine import StopReason
from usu.sources import CoarseMap
from usu.types import ArrayT, NDArray


@dataclass(frozen=True, eq=False)
class Upsampled(Generic[ArrayT]):
    """A pixel map and how it was made.

    For a batch, ``pixel_map`` and ``scores`` are stacked; ``segments``, ``depth_scores`` and ``stop_reason`` have one
    entry per picture; ``evaluations`` and ``seconds`` are sums and ``mass_error`` is the worst.
    """

    #: (H, W); (T, H, W) for several targets; with a leading B for a batch. Library, dtype and device of the coarse map.
    pixel_map: ArrayT
    #: The standard deviation of each pixel's value, like ``pixel_map``; None where the scores have no posterior.
    stderr: ArrayT | None
    #: The expected IoU of the 5 % highest pixels with those of a run with another seed; None where nobody knows. One
    #: for each picture of a batch.
    stability: float | tuple[float | None, ...] | None
    #: The score field the mass followed, like ``pixel_map``, in [0, 1].
    scores: ArrayT
    #: Label maps, the coarsest first.
    segments: tuple[Any, ...]
    #: Score fields (T, H, W) after each depth; the last is ``scores``.
    depth_scores: tuple[Any, ...]
    #: Pictures passed through the model.
    evaluations: int
    stop_reason: StopReason | tuple[StopReason, ...]
    #: Largest relative error of what the budget promises: cell masses, cell budgets, or the total.
    mass_error: float
    seconds: float
    #: Versions, settings, seed, model, targets.
    provenance: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Explanation:
    """One picture explained: the coarse map of a source, upsampled; see `usu.explain`."""

    source: CoarseMap
    #: The coarse map, (h, w) or (T, h, w).
    coarse: NDArray
    upsampled: Upsampled[NDArray]
    #: The picture as the model sees it, H x W x 3 in [0, 1].
    picture: NDArray
    #: The class explained, as a person reads it.
    label: str
    #: The file's own picture and how the model's input sits in it, where there is one.
    original: NDArray | None = None
    geometry: Geometry | None = None
    #: What was asked for, as the caller likes to remember it; written into the manifest.
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pixel_map(self) -> NDArray:
        """The result, at the resolution of the model's input."""
        return self.upsampled.pixel_map

    @property
    def first_map(self) -> NDArray:
        """The map of the first target, for pictures of one map."""
        return self.pixel_map if self.pixel_map.ndim == 2 else self.pixel_map[0]

    def on_original(self) -> tuple[NDArray, NDArray]:
        """The file's own picture and the first map placed on it; outside of what the model saw the map is NaN."""
        if self.original is None or self.geometry is None:
            return self.picture, self.first_map
        return self.original, place(self.first_map, self.geometry)

    def figure(self) -> Any:
        """Picture, coarse map, bilinear, USU, segments and scores per depth (needs the extra ``plot``)."""
        from usu.plot import explanation_figure

        return explanation_figure(self)

    def save(self, directory: str | Path) -> Path:
        """Write maps, overlay, panel and, last, the manifest into a new folder; all of them or nothing."""
        from usu.saving import save_explanation

        return save_explanation(self, Path(directory))

    def manifest(self) -> dict[str, Any]:
        """Everything but the maps, as plain values."""
        reason = self.upsampled.stop_reason
        return {
            "label": self.label,
            "targets": list(self.source.targets) if self.source.targets is not None else None,
            "source": {
                "layer": self.source.layer,
                "reason": self.source.reason,
                "evaluations": self.source.evaluations,
                "notes": list(self.source.notes),
            },
            "evaluations": self.upsampled.evaluations,
            "stability": self.upsampled.stability,
            "seconds": round(self.upsampled.seconds, 3),
            "mass_error": self.upsampled.mass_error,
            "stop_reason": reason.name if isinstance(reason, StopReason) else [r.name for r in reason],
            **self.upsampled.provenance,
            "request": dict(self.request),
        }


@cache
def _own_version() -> str:
    from importlib.metadata import version

    return version("usu-xai")


def versions() -> dict[str, str]:
    """What ran."""
    return {
        "usu-xai": _own_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
