"""Twenty visitors at once on the embedded network: everybody gets their own result, nobody waits much longer."""

from __future__ import annotations

import pytest

from tests.soak.visitors import run


@pytest.mark.soak
def test_twenty_visitors_for_five_minutes() -> None:
    figures = run(visitors=20, seconds=300)
    assert figures.strangers == 0
    assert figures.refused == 0
    assert figures.longest <= 2 * figures.mean
    assert figures.growth_mb < 400
