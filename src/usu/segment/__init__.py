"""Picture -> nested partitions. One segmenter per file, all called as `segmenter(picture, parts, region=...)`."""

from usu.segment.felzenszwalb import Felzenszwalb
from usu.segment.geometry import (
    adjacency,
    between,
    boundary,
    connected,
    interior,
    merge_to,
    parents,
    refines,
    relabel,
)
from usu.segment.given import Given, from_labels, from_masks
from usu.segment.hierarchy import split
from usu.segment.segmenter import Segmenter
from usu.segment.slic import Slic
from usu.segment.tiles import Tiles
from usu.segment.watershed import Watershed

__all__ = [
    "Felzenszwalb",
    "Given",
    "Segmenter",
    "Slic",
    "Tiles",
    "Watershed",
    "adjacency",
    "between",
    "boundary",
    "connected",
    "from_labels",
    "from_masks",
    "interior",
    "merge_to",
    "parents",
    "refines",
    "relabel",
    "split",
]
