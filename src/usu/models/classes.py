"""Class names, and from a name to an index."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

#: Names shown when a name fits several classes.
_SHOWN = 8


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The 1000 ImageNet classes, each with its synonyms: ``"tench, Tinca tinca"``."""
    text = resources.files("usu.models").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def resolve_target(target: str | int, classes: Sequence[str] | None) -> int:
    """The index of a class given by index or by name.

    A name may be any part of a class name, in any case, as long as it fits one class; a whole name wins over a whole
    synonym, that over a whole word, that over a part of a word.

    >>> resolve_target("fox", ["red fox, Vulpes vulpes", "foxhound"])
    0
    >>> resolve_target("1", ["cat", "dog"])
    1
    """
    if isinstance(target, bool) or not isinstance(target, (str, int)):
        raise TypeError(f"`target` must be a class index or name; got {type(target).__name__}. Pass an int or a str.")
    if isinstance(target, int) or re.fullmatch(r"\s*[+-]?\d+\s*", target):
        return _index(int(target), classes)
    if classes is None:
        raise ValueError(
            f"`target` must be a class index, because this model has no class names; got {target!r}. Pass a number."
        )
    wanted = _plain(target)
    if not wanted:
        raise ValueError("`target` must be a class index or name; got an empty text. Leave it out for the top class.")
    names = [_plain(name) for name in classes]
    word = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
    ways: tuple[Callable[[str], bool], ...] = (
        lambda name: name == wanted,
        lambda name: wanted in name.split(", "),
        lambda name: word.search(name) is not None,
        lambda name: wanted in name,
    )
    for fits in ways:
        found = [index for index, name in enumerate(names) if fits(name)]
        if len(found) == 1:
            return found[0]
        if found:
            listed = "; ".join(f"{index} ({classes[index]})" for index in found[:_SHOWN])
            more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise ValueError(f"`target` must fit one class; got {target!r}, which fits {listed}{more}. Pass the index.")
    parts = {part: index for index, name in enumerate(names) for part in name.split(", ")}
    close = difflib.get_close_matches(wanted, parts, n=5, cutoff=0.5)
    hint = f"Close are: {'; '.join(f'{parts[part]} ({part})' for part in close)}." if close else "Pass the index."
    raise ValueError(f"`target` must name a class of the model; got {target!r}, which fits none. {hint}")


def _index(index: int, classes: Sequence[str] | None) -> int:
    if index < 0 or (classes is not None and index >= len(classes)):
        last = "up" if classes is None else f"to {len(classes) - 1}"
        raise ValueError(f"`target` must be a class index from 0 {last}; got {index}. Pass the name if you know it.")
    return index


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())
