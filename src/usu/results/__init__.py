"""What comes out, with its provenance: frozen, able to show itself and to write itself to a folder."""

from usu.results.contrast import Contrast, contrast
from usu.results.files import versions, written
from usu.results.folder import save_explanation, saved_manifest
from usu.results.loading import load
from usu.results.region import Region, region_of
from usu.results.result import Explanation, Upsampled

__all__ = [
    "Contrast", "Explanation", "Region", "Upsampled", "contrast", "load", "region_of", "save_explanation",
    "saved_manifest", "versions", "written",
]  # fmt: skip
