"""The auditor: honest about the built-in upsamplers, and not to be fooled by planted offenders."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import usu
from usu.auditor import AuditReport
from usu.types import GUARANTEES
from usu.upsamplers import BUILT_IN, Upsampler, by_name


@cache
def report_of(name: str) -> AuditReport:
    """One measurement for all tests; reports are values."""
    return usu.audit(by_name(name))


@pytest.mark.parametrize("up", BUILT_IN, ids=lambda u: u.name)
def test_every_declared_guarantee_is_kept(up: Upsampler) -> None:
    assert isinstance(up, Upsampler)
    report = report_of(up.name)
    assert report.ok, str(report)
    assert {f.guarantee for f in report.findings if f.declared} == up.guarantees
    if up.name == "usu":
        assert [f.verdict for f in report.findings] == ["holds"] * 7


class Offender:
    """USU with something planted in it; it declares what USU declares."""

    guarantees = by_name("usu").guarantees
    needs_scores = True

    def __init__(self, name: str) -> None:
        self.name = name

    def budgets(self, coarse: np.ndarray, picture: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return usu.cell_budgets(coarse, scores)

    def __call__(self, coarse: np.ndarray, picture: np.ndarray, scores: np.ndarray) -> np.ndarray:
        match self.name:
            case "leaks":  # 0.1 % of every cell goes to the next one
                return usu.redistribute(0.999 * coarse + 0.001 * np.roll(coarse, 1, axis=1), scores)
            case "swaps":
                result = usu.redistribute(coarse, scores)
                result[0, [0, 1]] = result[0, [1, 0]]
                return result
            case "power":
                return usu.redistribute(coarse, scores, potential=usu.potentials.power(2))
            case "neighbour":  # shares a cell by scores that a neighbour cell has a say in
                return usu.redistribute(coarse, 0.99 * scores + 0.01 * np.roll(scores, -1, axis=1))
        raise AssertionError(self.name)


@pytest.mark.parametrize(
    ("offender", "caught", "innocent"),
    [("leaks", "D1", "D2"), ("swaps", "D2", "D1"), ("power", "D3", "D1"), ("neighbour", "D4", "D1")],
)
def test_planted_offenders_are_caught(offender: str, caught: str, innocent: str) -> None:
    report = usu.audit(Offender(offender), trials=15)
    assert not report.ok
    assert report[caught].broken, str(report)
    assert not report[innocent].broken, str(report)
    assert "BROKEN PROMISE" in str(report)
    if caught != "D3":
        trial = report[caught].trial
        assert trial is not None
        assert trial.about in str(report)
    if offender == "leaks":
        assert len(report.figure().axes) >= 6


def test_the_input_that_shows_it_shows_it() -> None:
    finding = report_of("bilinear")["D1"]
    trial = finding.trial
    result = usu.interpolate(trial.coarse, trial.scores.shape, "bilinear")
    np.testing.assert_array_equal(result, finding.pixel_map)
    sums = np.bincount(trial.labels.ravel(), result.ravel())
    assert np.abs(sums - trial.masses).max() > 1e-3


def test_bilinear_moves_mass_between_cells_and_keeps_the_total_at_integer_factors() -> None:
    report = report_of("bilinear")
    assert 0.025 < report.profile.moved_smooth < 0.125
    assert 0.125 < report.profile.moved_rectified < 0.325
    assert report.profile.total_error_divisible < 1e-12
    assert [report[g].holds for g in ("D1", "D2", "D3", "D4")] == [False, False, None, False]


def test_area_iwmr_uses_only_the_total_of_the_coarse_map() -> None:
    assert report_of("usu-iwmr-area").profile.coarse_sensitivity < 1e-12
    assert report_of("usu-iwmr-mass").profile.coarse_sensitivity > 0.1


def test_bare_functions_of_two_or_three_arguments_are_audited_too() -> None:
    def repeat(coarse: np.ndarray, picture: np.ndarray) -> np.ndarray:
        return usu.redistribute(coarse, np.full_like(picture, 0.5))

    def by_score(coarse: np.ndarray, picture: np.ndarray, scores: np.ndarray | None = None) -> np.ndarray:
        return usu.redistribute(coarse, scores)

    plain, driven = usu.audit(repeat, trials=3), usu.audit(by_score, trials=3)
    assert (plain.name, driven.name) == ("repeat", "by_score")
    assert plain.ok
    assert not any(f.declared for f in plain.findings)
    assert (plain["D1"].holds, plain["D3"].holds) == (True, None)
    assert (driven["D1"].holds, driven["D3"].holds) == (True, True)


def test_pairs_in_the_wrong_order_are_all_of_a_map_that_is_turned_round() -> None:
    def turned(coarse: np.ndarray, picture: np.ndarray, scores: np.ndarray | None = None) -> np.ndarray:
        return usu.redistribute(coarse, 1 - scores)

    right, wrong = usu.audit(by_name("usu"), trials=3), usu.audit(turned, trials=3)
    assert right.profile.wrong_pairs == 0
    assert wrong.profile.wrong_pairs > 0.3, "all pairs, where there is mass to order and not the same score"


def test_report_as_dictionary_survives_json_and_comes_out_again() -> None:
    first, second = (usu.audit(by_name("bicubic"), trials=5, seed=3) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    data = json.loads(json.dumps(first.to_dict()))
    assert set(data["findings"]) == set(GUARANTEES)
    assert data["findings"]["D1"]["verdict"] == "violated"
    assert np.array(data["findings"]["D1"]["input"]["coarse"]).shape == first["D1"].trial.coarse.shape
    assert first.figure().axes


@pytest.mark.parametrize(
    ("upsampler", "kind", "sentence"),
    [
        (3, TypeError, r"`upsampler` .*\(coarse, picture, scores=None\).*; got int"),
        (lambda image: image, TypeError, r"`upsampler` .*\(coarse, picture, scores=None\).*; got .*\(image\)"),
        (lambda a, b, c, d: a, TypeError, r"`upsampler` .*\(coarse, picture, scores=None\).*; got .*\(a, b, c, d\)"),
        (lambda c, p: c, ValueError, r"`upsampler` .*\(56, 56\); got \(7, 7\)"),
        (lambda c, p: p * np.nan, ValueError, r"`upsampler` .*; got NaN or infinity"),
    ],
)
def test_bad_upsamplers(upsampler: object, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        usu.audit(upsampler)


def test_no_trials() -> None:
    with pytest.raises(ValueError, match=r"`trials` .*; got 0"):
        usu.audit(by_name("nearest"), trials=0)
