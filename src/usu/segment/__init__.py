"""Picture -> nested partitions. One segmenter per file, all called as `segmenter(picture, parts, region=...)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usu.segment.felzenszwalb import Felzenszwalb  # noqa: I001 (the names of a file in one line)
    from usu.segment.given import Given, from_labels, from_masks
    from usu.segment.hierarchy import split
    from usu.segment.segmenter import (
        Segmenter, Slic, adjacency, boundary, connected, interior, merge_to, parents, refines, relabel,
    )  # fmt: skip
    from usu.segment.tiles import Tiles
    from usu.segment.watershed import Watershed

__all__ = [
    "Felzenszwalb", "Given", "Segmenter", "Slic", "Tiles", "Watershed", "adjacency", "boundary", "connected",
    "from_labels", "from_masks", "interior", "merge_to", "parents", "refines", "relabel", "split",
]  # fmt: skip

#: Names that are not in `segmenter.py`, by the file they come from; all are loaded when they are first asked for.
_FROM = {
    "Felzenszwalb": "felzenszwalb", "Tiles": "tiles", "Watershed": "watershed", "split": "hierarchy",
    "Given": "given", "from_labels": "given", "from_masks": "given",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"usu.segment.{_FROM.get(name, 'segmenter')}"), name)
    return found
