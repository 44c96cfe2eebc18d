"""The auditor: honest about the built-in upsamplers, and not to be fooled by planted offenders."""

from __future__ import annotations

import json

import numpy as np
import pytest

import usu
from usu.types import GUARANTEES, Upsampler
from usu.upsamplers import BUILT_IN, by_name

ALL = {upsampler.name: upsampler for upsampler in BUILT_IN}


@pytest.mark.parametrize("name", ALL)
def test_every_declared_guarantee_is_kept(name: str) -> None:
    report = usu.audit(ALL[name])
    assert report.ok, str(report)
    for finding in report.findings:
        assert finding.declared == (finding.guarantee in ALL[name].guarantees)


def test_usu_passes_all_seven() -> None:
    report = usu.audit(by_name("usu"), trials=50, seed=7)
    assert [f.verdict for f in report.findings] == ["holds"] * 7


class Offender:
    """USU with something planted in it; it declares what USU declares."""

    guarantees = by_name("usu").guarantees

    def __init__(self, name: str) -> None:
        self.name = name

    def budgets(self, coarse: np.ndarray, picture: np.ndarray) -> np.ndarray:
        return usu.cell_budgets(coarse, picture)

    def __call__(self, coarse: np.ndarray, picture: np.ndarray) -> np.ndarray:
        match self.name:
            case "leaks":  # 0.1 % of every cell goes to the next one
                return usu.redistribute(0.999 * coarse + 0.001 * np.roll(coarse, 1, axis=1), picture)
            case "swaps":
                result = usu.redistribute(coarse, picture)
                result[0, [0, 1]] = result[0, [1, 0]]
                return result
            case "power":
                return usu.redistribute(coarse, picture, potential=usu.potentials.power(2))
            case "neighbour":  # shares a cell by scores that a neighbour cell has a say in
                return usu.redistribute(coarse, 0.99 * picture + 0.01 * np.roll(picture, -1, axis=1))
        raise AssertionError(self.name)


@pytest.mark.parametrize(
    ("offender", "caught", "innocent"),
    [("leaks", "D1", "D2"), ("swaps", "D2", "D1"), ("power", "D3", "D1"), ("neighbour", "D4", "D1")],
)
def test_planted_offenders_are_caught(offender: str, caught: str, innocent: str) -> None:
    report = usu.audit(Offender(offender))
    assert not report.ok
    assert report[caught].broken, str(report)
    assert not report[innocent].broken, str(report)
    assert "BROKEN PROMISE" in str(report)
    if caught != "D3":
        trial = report[caught].trial
        assert trial is not None
        assert trial.about in str(report)


def test_the_input_that_shows_it_shows_it() -> None:
    finding = usu.audit(by_name("bilinear"))["D1"]
    trial = finding.trial
    result = usu.interpolate(trial.coarse, trial.scores.shape, "bilinear")
    np.testing.assert_array_equal(result, finding.pixel_map)
    assert np.abs(trial.sums(result) - trial.masses).max() > 1e-3


def test_bilinear_moves_mass_between_cells_and_keeps_the_total_at_integer_factors() -> None:
    report = usu.audit(by_name("bilinear"))
    assert 0.025 < report.profile.moved_smooth < 0.125
    assert 0.125 < report.profile.moved_rectified < 0.325
    assert report.profile.total_error_divisible < 1e-12
    assert not report["D1"].holds
    assert not report["D2"].holds
    assert report["D3"].holds is None
    assert not report["D4"].holds


def test_area_iwmr_uses_only_the_total_of_the_coarse_map() -> None:
    assert usu.audit(by_name("usu-iwmr-area")).profile.coarse_sensitivity < 1e-12
    assert usu.audit(by_name("usu-iwmr-mass")).profile.coarse_sensitivity > 0.1


def test_a_bare_function_is_audited_too() -> None:
    def repeat(coarse: np.ndarray, picture: np.ndarray) -> np.ndarray:
        return usu.redistribute(coarse, np.full_like(picture, 0.5))

    report = usu.audit(repeat)
    assert report.name == "repeat"
    assert report.ok
    assert report["D1"].holds
    assert not any(f.declared for f in report.findings)


def test_report_as_dictionary_survives_json() -> None:
    report = usu.audit(by_name("bicubic"), trials=5)
    data = json.loads(json.dumps(report.to_dict()))
    assert set(data["findings"]) == set(GUARANTEES)
    assert data["findings"]["D1"]["verdict"] == "violated"
    assert np.array(data["findings"]["D1"]["input"]["coarse"]).shape == report["D1"].trial.coarse.shape


def test_reports_are_reproducible() -> None:
    first, second = (usu.audit(by_name("usu"), trials=6, seed=3).to_dict() for _ in range(2))
    assert first == second


def test_figures() -> None:
    broken = usu.audit(Offender("leaks"), trials=5).figure()
    assert len(broken.axes) >= 6
    assert usu.audit(by_name("usu"), trials=5).figure().axes


@pytest.mark.parametrize(
    ("upsampler", "kind", "sentence"),
    [
        (3, TypeError, r"^`upsampler` must be callable as \(coarse, picture\) -> pixel map; got int\. Wrap it\.$"),
        (lambda c, p: c, ValueError, r"^`upsampler` must return a map of the picture's size \(56, 56\); got \(7, 7\)"),
        (lambda c, p: p * np.nan, ValueError, r"^`upsampler` must return finite values; got NaN or infinity"),
    ],
)
def test_bad_upsamplers(upsampler: object, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        usu.audit(upsampler)


def test_no_trials() -> None:
    with pytest.raises(ValueError, match=r"^`trials` must be at least 1; got 0\. The default is 25\.$"):
        usu.audit(by_name("nearest"), trials=0)


def test_built_ins_are_upsamplers() -> None:
    assert all(isinstance(upsampler, Upsampler) for upsampler in BUILT_IN)
    assert len(ALL) == len(BUILT_IN)
