"""How good is a pixel map: every metric with its formula, its range and its cost; `METRICS` has them by name.

What they have in common: ``pixel_map`` is (H, W), higher = more relevant; ``image`` is (C, H, W), as the model takes
it; ``target`` None is the model's top class, for one more evaluation; ``fill`` takes the place of hidden pixels, all
channels together (see `usu.fills`); ``link`` says what of the output g is; ``cells`` is the coarse shape (h, w), or
an integer label per pixel; ``generator`` (or a seed) orders pixels of equal value at random. ``compat="quantus"`` gives
the number of Quantus; `usu.metrics.quantus_compat` says what differs.
"""

from usu.metrics.catalogue import METRICS, Case, Metric, by_name
from usu.metrics.curves import deletion, half_deletion, insertion, irof, monotonicity_correlation, pixel_flipping
from usu.metrics.infidelity import BlockChanges, block_changes, infidelity, infidelity_of
from usu.metrics.localization import area_iou, cell_auroc, concentration, energy_in_mask, iou, pointing_game
from usu.metrics.maps import Measured, quantile_match
from usu.metrics.mass import largest_gain, mass_error, moved_mass, seam_energy, sparseness
from usu.metrics.road import noisy_linear, road

__all__ = [
    "METRICS", "BlockChanges", "Case", "Measured", "Metric", "area_iou", "block_changes", "by_name", "cell_auroc",
    "concentration", "deletion", "energy_in_mask", "half_deletion", "infidelity", "infidelity_of", "insertion", "iou",
    "irof", "largest_gain", "mass_error", "monotonicity_correlation", "moved_mass", "noisy_linear", "pixel_flipping",
    "pointing_game", "quantile_match", "road", "seam_energy", "sparseness",
]  # fmt: skip
