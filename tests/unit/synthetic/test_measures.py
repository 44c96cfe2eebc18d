"""The rows of the study, and its four errors against naive sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.synthetic.measures import BETTER, ERRORS, METRICS, embedded, measured, of_grid, samples, true_map
from experiments.synthetic.methods import methods
from experiments.synthetic.shapes import Pictures, shapes

from usu.metrics import Case

SIZE = 32


def model(batch: torch.Tensor) -> torch.Tensor:
    light = batch.flatten(1).sum(1)
    return torch.stack([light, 2 * light, 3 * light], 1)


@pytest.fixture(scope="module")
def pictures() -> Pictures:
    return shapes(3, size=SIZE)


@pytest.fixture(scope="module")
def coarse(pictures) -> dict[int, torch.Tensor]:
    noise = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    truth = pictures.truths.double().reshape(3, 4, 8, 4, 8).mean((2, 4))
    return {4: truth + 0.2 * noise, 2: truth.reshape(3, 2, 2, 2, 2).mean((2, 4))}


def case(pixel_map: np.ndarray, truth: np.ndarray, coarse: np.ndarray) -> Case:
    return Case(pixel_map, torch.zeros(1, *truth.shape), model, 0, coarse, truth)


def test_the_true_map_has_the_mass_of_the_coarse_map(pictures, coarse) -> None:
    truth, values = pictures.truths[0].numpy(), coarse[4][0].numpy()
    known = true_map(truth, values)
    assert known.sum() == pytest.approx(values.sum() * 64, rel=1e-12)
    assert (known[~truth] == 0).all()
    assert np.ptp(known[truth]) == 0


def test_errors_against_loops(pictures, coarse) -> None:
    truth, values = pictures.truths[1].numpy(), coarse[4][1].numpy()
    pixel_map = np.random.default_rng(0).random((SIZE, SIZE))
    total = values.sum() * 64
    wanted = dict.fromkeys(("alpha-error", "beta-error", "mass-excess", "mass-deficit"), 0.0)
    for row in range(4):
        for column in range(4):
            surplus = 0.0
            for y in range(8 * row, 8 * row + 8):
                for x in range(8 * column, 8 * column + 8):
                    d = pixel_map[y, x] - truth[y, x] * total / truth.sum()
                    wanted["alpha-error"] += max(0, d) / total
                    wanted["beta-error"] += max(0, -d) / total
                    surplus += d
            wanted["mass-excess"] += max(0, surplus) / total
            wanted["mass-deficit"] += max(0, -surplus) / total
    found = {metric.name: metric.measure(case(pixel_map, truth, values)).value for metric in ERRORS}
    assert found == pytest.approx(wanted, rel=1e-9)
    # the paper's bounds
    assert found["alpha-error"] >= found["mass-excess"]
    assert found["beta-error"] >= found["mass-deficit"]


def test_the_truth_itself_has_no_error_and_no_mass_no_answer(pictures, coarse) -> None:
    truth, values = pictures.truths[0].numpy(), coarse[4][0].numpy()
    for metric in ERRORS:
        assert metric.measure(case(true_map(truth, values), truth, values)).value == pytest.approx(0, abs=1e-12)
        assert np.isnan(metric.measure(case(np.zeros((SIZE, SIZE)), truth, 0 * values)).value)
    with pytest.raises(ValueError, match="`case` must have a truth"):
        ERRORS[0].measure(Case(truth * 1.0, torch.zeros(1, SIZE, SIZE), model, 0, values))


def test_one_row_per_picture_grid_method_and_metric(pictures, coarse, tmp_path) -> None:
    rivals = methods(["interpolations", "redistributions"], evaluations=40)
    table = measured(model, pictures, coarse, rivals, out=tmp_path)
    assert len(table) == 3 * 2 * len(rivals) * len(METRICS)
    four = of_grid(table, 4)
    assert len(four) == len(table) // 2
    assert sorted({row.picture for row in four.rows}) == ["circle-0000@4", "square-0002@4", "triangle-0001@4"]
    assert [row.target for row in four.rows if row.upsampler == "usu" and row.metric == "iou"] == [0, 1, 2]
    assert max(four.values("mass-error")["usu"]) < 1e-9
    assert min(four.values("mass-error")["bilinear"]) > 0.01
    assert set(BETTER) == set(table.metrics)
    # a second call finds its rows, and refuses those of another model
    again = measured(model, pictures, coarse, rivals, out=tmp_path)
    assert again.csv() == table.csv()
    with pytest.raises(ValueError, match="made with another model"):
        measured(lambda batch: 2 * model(batch), pictures, coarse, rivals, out=tmp_path)


def test_what_cannot_be_measured_is_said(pictures, coarse) -> None:
    with pytest.raises(ValueError, match="must be one map of 4 x 4 per picture"):
        samples(pictures, {4: coarse[2]})

    def broken(batch: torch.Tensor) -> torch.Tensor:
        raise ValueError("`batch` must be liked; got another. Try again.")

    with pytest.raises(RuntimeError, match=r"measurements failed; the first is circle-0000@2, .*`batch` must be liked"):
        measured(broken, pictures, {2: coarse[2]}, methods(["redistributions"], evaluations=40))


def test_the_embedded_network_loses_mass_under_bilinear_and_none_under_usu() -> None:
    table = embedded(("chelsea",), evaluations=60)
    assert table is not None
    moved = {name: float(values[0]) for name, values in table.values("moved-mass").items()}
    assert list(moved) == ["bilinear", "bicubic", "lanczos3", "usu", "iwmr"]
    assert moved["usu"] < 1e-12 < 0.05 < moved["bilinear"]
    assert all(row.evaluations <= 60 for row in table.rows)
