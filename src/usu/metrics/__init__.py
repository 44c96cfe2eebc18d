"""How good is a pixel map: one metric per file, each with an independent oracle in its test."""

from usu.metrics.catalogue import METRICS, Case, Metric, by_name
from usu.metrics.cell_auroc import cell_auroc
from usu.metrics.concentration import concentration
from usu.metrics.deletion import deletion
from usu.metrics.energy import energy_in_mask
from usu.metrics.half_deletion import half_deletion
from usu.metrics.imputation import noisy_linear
from usu.metrics.infidelity import BlockChanges, block_changes, infidelity, infidelity_of
from usu.metrics.insertion import insertion
from usu.metrics.iou import area_iou, iou
from usu.metrics.irof import irof
from usu.metrics.largest_gain import largest_gain
from usu.metrics.mass_error import mass_error, moved_mass
from usu.metrics.measurement import Measured
from usu.metrics.monotonicity import monotonicity_correlation
from usu.metrics.pixel_flipping import pixel_flipping
from usu.metrics.pointing_game import pointing_game
from usu.metrics.quantile_match import quantile_match
from usu.metrics.road import road
from usu.metrics.seam_energy import seam_energy
from usu.metrics.sparseness import sparseness

__all__ = [
    "METRICS",
    "BlockChanges",
    "Case",
    "Measured",
    "Metric",
    "area_iou",
    "block_changes",
    "by_name",
    "cell_auroc",
    "concentration",
    "deletion",
    "energy_in_mask",
    "half_deletion",
    "infidelity",
    "infidelity_of",
    "insertion",
    "iou",
    "irof",
    "largest_gain",
    "mass_error",
    "monotonicity_correlation",
    "moved_mass",
    "noisy_linear",
    "pixel_flipping",
    "pointing_game",
    "quantile_match",
    "road",
    "seam_energy",
    "sparseness",
]
