"""Hot paths are no busier than the committed figures say; ``python -m tests.busy`` makes them anew."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.busy import FIGURES, busy, paths

#: Other versions of Python and torch differ a little. What has become much less busy needs new figures.
MOST, LEAST = 1.3, 0.5
KNOWN = json.loads(FIGURES.read_text(encoding="utf-8"))


def beyond(found: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """What is out of bounds, in words."""
    return [
        f"{what}: {found[what]} where {known[what]} are committed"
        for what in known
        if not LEAST * known[what] <= found[what] <= MOST * known[what]
    ]


def test_every_hot_path_has_figures() -> None:
    assert [*paths()] == [*KNOWN]


@pytest.mark.parametrize("name", KNOWN)
def test_a_hot_path_is_no_busier_than_it_was(name: str) -> None:
    assert beyond(busy(paths()[name]), KNOWN[name]) == []


@pytest.mark.parametrize("name", KNOWN)
def test_a_hot_path_that_is_twice_as_busy_is_seen(name: str) -> None:
    work = paths()[name]
    assert len(beyond(busy(lambda: (work(), work())), KNOWN[name])) == 3
