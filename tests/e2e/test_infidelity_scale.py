"""The script behind the page on infidelity, with the real network on one of its pictures."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from experiments import infidelity_scale

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "infidelity-scale.csv"


def test_random_scores_improve_the_raw_number_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infidelity_scale, "SEEDS", range(2))
    monkeypatch.setattr(infidelity_scale, "quantus_numbers", lambda *given: [1.0] * len(given[-1]))
    rows = infidelity_scale.measure(infidelity_scale.load(), "chelsea")
    assert len(rows) == 2 * 3
    for way in ("raw", "compat"):
        assert min(infidelity_scale.improvements(rows, way, "max")) > 10
        assert max(infidelity_scale.improvements(rows, way, "as it is")) < 3
    found = {scaled: infidelity_scale.improvements(rows, "optimal", scaled) for scaled in ("as it is", "max")}
    assert found["max"] == pytest.approx(found["as it is"], rel=1e-9)
    assert 0.5 < min(found["max"]) <= max(found["max"]) < 1.5
    with COMMITTED.open(newline="", encoding="utf-8") as file:
        known = {(row["picture"], row["map"], row["scaled"]): row for row in csv.DictReader(file)}
    for row in rows:
        same = known[row["picture"], row["map"], row["scaled"]]
        for way in ("raw", "compat", "optimal"):
            assert row[way] == pytest.approx(float(same[way]), rel=1e-3)
