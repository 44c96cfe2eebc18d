"""Picture -> nested partitions. One segmenter per file, all called as `segmenter(picture, parts, region=...)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usu.segment.felzenszwalb import Felzenszwalb as Felzenszwalb
    from usu.segment.given import Given as Given
    from usu.segment.given import from_labels as from_labels
    from usu.segment.given import from_masks as from_masks
    from usu.segment.hierarchy import split as split
    from usu.segment.segmenter import Segmenter as Segmenter
    from usu.segment.segmenter import adjacency as adjacency
    from usu.segment.segmenter import between as between
    from usu.segment.segmenter import boundary as boundary
    from usu.segment.segmenter import connected as connected
    from usu.segment.segmenter import interior as interior
    from usu.segment.segmenter import merge_to as merge_to
    from usu.segment.segmenter import parents as parents
    from usu.segment.segmenter import refines as refines
    from usu.segment.segmenter import relabel as relabel
    from usu.segment.slic import Slic as Slic
    from usu.segment.tiles import Tiles as Tiles
    from usu.segment.watershed import Watershed as Watershed

#: The names by the file they come from, loaded when they are first asked for.
_FROM = {
    "felzenszwalb": "Felzenszwalb",
    "given": "Given from_labels from_masks",
    "hierarchy": "split",
    "segmenter": "Segmenter adjacency between boundary connected interior merge_to parents refines relabel",
    "slic": "Slic",
    "tiles": "Tiles",
    "watershed": "Watershed",
}
__all__ = sorted(" ".join(_FROM.values()).split())


def __getattr__(name: str) -> Any:
    for file, names in _FROM.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(f"usu.segment.{file}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
