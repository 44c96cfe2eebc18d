"""usu.evaluate: the whole of it on a small network."""

from __future__ import annotations

import copy
import errno
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import usu
from tests.unit.bench.test_contenders import MODEL
from usu.bench import PictureFile, Sample, evaluate
from usu.bench.store import Store
from usu.forward.fills import filled
from usu.metrics import METRICS as ALL
from usu.metrics import Metric, by_name
from usu.metrics.maps import Measured
from usu.models import Loaded
from usu.models.pictures import Geometry
from usu.operator.interpolate import guided_filter
from usu.upsamplers import Filter

DICE = torch.Generator().manual_seed(3)
OUTLINE = np.zeros((40, 40), dtype=bool)
OUTLINE[5:20, 8:30] = True
PICTURES = [
    Sample("one", torch.rand(3, 40, 40, generator=DICE), truth=OUTLINE),
    Sample("two", torch.rand(3, 40, 40, generator=DICE)),
]
RIVALS = ["nearest", "bilinear", "cell"]
METRICS = ["half-deletion", "infidelity", "cell-auroc", "mass-error"]


def run(pictures=PICTURES, rivals=RIVALS, metrics=METRICS, model=MODEL, **more):
    return evaluate(rivals, pictures, model, metrics, layer="2", evaluations=40, **more)


def test_one_row_per_picture_upsampler_and_metric():
    table = run()
    assert len(table) == 3 * 4 + 3 * 3  # the second picture has no outline
    assert table.failures == {}
    keys = [row.key for row in table.rows]
    assert len(set(keys)) == len(keys)
    for row in table.rows:
        assert row.evaluations == (40 if row.upsampler == "cell" else 0)
        assert row.metric_evaluations == by_name(row.metric).evaluations
        assert row.seconds >= 0
        assert row.metric_seconds >= 0


class Counted:
    """A model that counts how often it is shown each picture."""

    def __init__(self):
        self.seen = Counter()

    def __call__(self, batch):
        self.seen.update(one.contiguous().numpy().tobytes() for one in batch)
        return MODEL(batch)


def test_eight_upsamplers_and_all_metrics_take_little_more_than_the_pictures_that_differ():
    counted = Counted()
    rivals = ["nearest", "bilinear", "bicubic", "lanczos3", "cell", "soft", "fast", "paper"]
    table = evaluate(rivals, PICTURES[:1], MODEL, ["all"], layer="2", evaluations=60, forward=counted)
    assert len(table) == len(rivals) * len(ALL)
    assert sum(counted.seen.values()) <= 1.2 * len(counted.seen)


def test_the_curves_of_all_upsamplers_share_their_ends():
    counted, image = Counted(), PICTURES[0].image
    run(PICTURES[:1], RIVALS[:2], ["deletion", "insertion", "insertion-deletion", "deletion:blur"], forward=counted)
    for end in (image, filled(image, "mean"), filled(image, "blur")):
        assert counted.seen[end.contiguous().numpy().tobytes()] == 1


def by_key(table):
    return {(row.picture, row.upsampler, row.metric): row for row in table.rows}


def test_what_is_known_of_nearest_and_of_cells():
    found = {key: row.value for key, row in by_key(run()).items()}
    assert found["one", "nearest", "cell-auroc"] == 0.5
    assert found["one", "nearest", "mass-error"] < 1e-12
    assert found["one", "cell", "mass-error"] < 1e-9
    assert found["one", "bilinear", "mass-error"] > 1e-3


def test_numbers_do_not_depend_on_company_or_order():
    whole = {row.key: row.value for row in run().rows}
    part = run(pictures=PICTURES[::-1], rivals=["cell", "nearest"], metrics=METRICS[::-1])
    assert all(row.value == whole[row.key] for row in part.rows)


def test_a_folder_is_gone_on_with(tmp_path):
    asked = []

    def model(batch):
        asked.append(len(batch))
        return MODEL(batch)

    first = run(rivals=RIVALS[:2], forward=model, out=tmp_path)
    asked.clear()
    assert run(rivals=RIVALS[:2], forward=model, out=tmp_path).csv() == first.csv()
    assert asked == []
    more = run(forward=model, out=tmp_path)
    assert asked
    assert more.csv() == run(forward=model).csv()


def test_a_folder_refuses_another_upsampler_or_picture_of_the_same_name(tmp_path):
    fine, again, coarse = (Filter("guided", partial(guided_filter, radius=radius)) for radius in (2, 2, 9))
    run(rivals=[fine, "bilinear"], out=tmp_path)
    run(rivals=[again, "bilinear"], out=tmp_path)  # equal is the same
    with pytest.raises(ValueError, match="another upsampler 'guided'"):
        run(rivals=[coarse, "bilinear"], out=tmp_path)
    one, two = PICTURES
    for changed in (
        replace(one, image=one.image.flip(2)),
        replace(one, truth=~OUTLINE),
        replace(one, target=2),
        replace(one, coarse=np.ones((4, 4))),
    ):
        with pytest.raises(ValueError, match="another picture 'one'"):
            run(pictures=[changed, two], rivals=[fine, "bilinear"], out=tmp_path)
    run(pictures=[two], rivals=[fine, "bilinear"], out=tmp_path)


def constant(number, name="mine"):
    return Metric(name, "higher", 0, 1, True, 0, lambda case: Measured(number))


class Blocky:
    """An upsampler of a user's own, with a parameter that is no dataclass field."""

    name, guarantees = "blocky", frozenset()

    def __init__(self, power):
        self.power = power

    def __call__(self, coarse, picture):
        return usu.interpolate(coarse**self.power, picture.shape[:2], "nearest")


def test_a_folder_refuses_another_model_metric_or_object_of_the_same_name(tmp_path):
    asked = {"rivals": [Blocky(1), "bilinear"], "metrics": ["mass-error", constant(0.25)], "out": tmp_path}
    run(**asked)
    run(**{**asked, "rivals": [Blocky(1), "bilinear"], "metrics": ["mass-error", constant(0.25)]})
    other = copy.deepcopy(MODEL)
    other[0].bias.data += 1e-3
    for change, told in (
        ({"model": other}, "another model"),
        ({"forward": other}, "another forward"),
        ({"rivals": [Blocky(5), "bilinear"]}, "another upsampler 'blocky'"),
        ({"metrics": [constant(0.75)]}, "another metric 'mine'"),
    ):
        with pytest.raises(ValueError, match=told):
            run(**(asked | change))


def test_what_failed_may_be_mended(tmp_path):
    class Mended(Blocky):
        def __call__(self, coarse, picture):
            if self.power < 0:
                raise ValueError("`power` must be positive; got less. Give more.")
            return super().__call__(coarse, picture)

    asked = {"metrics": ["mass-error"], "out": tmp_path}
    assert len(run(rivals=[Mended(-1), "nearest"], **asked)) == 2
    table = run(rivals=[Mended(1), "nearest"], **asked)
    assert table.csv() == run(rivals=[Mended(1), "nearest"], metrics=["mass-error"]).csv()
    with pytest.raises(ValueError, match="another upsampler 'blocky'"):
        run(rivals=[Mended(2)], **asked)


def test_rows_of_another_model_are_refused(tmp_path):
    asked = {"rivals": ["nearest"], "metrics": ["mass-error"], "out": tmp_path}
    run(**asked)
    other = copy.deepcopy(MODEL)
    other[0].bias.data += 1e-3
    with pytest.raises(ValueError, match="another model"):
        run(model=other, **asked)


def test_a_failing_upsampler_or_metric_costs_the_others_nothing(tmp_path):
    class Broken(Blocky):
        name = "broken"

        def __call__(self, coarse, picture):
            raise KeyError("nose")

    def raises(case):
        raise AssertionError

    bad = Metric("bad", "higher", 0, 1, True, 0, raises)
    table = run(rivals=["nearest", Broken(1), "paper", "bilinear", "cell"], metrics=[*METRICS, bad], out=tmp_path)
    assert table.csv() == run().csv()
    assert table.failures["one, broken"] == "KeyError: 'nose'"
    assert "`evaluations` must" in table.failures["two, paper"]  # 40 are too few for fifty segments
    assert table.failures["one, cell, bad"] == "AssertionError: "
    assert len(table.failures) == 2 * (1 + 1 + 3)


def test_the_same_metric_twice_is_one(tmp_path):
    assert run(metrics=["deletion", "deletion"]).csv() == run(metrics=["deletion"]).csv()
    assert run(metrics=["half-deletion:noise"] * 2).metrics == ["half-deletion:noise"]
    everything = run(rivals=["nearest"], pictures=PICTURES[:1], metrics=["half-deletion:noise", "all", "irof"])
    assert everything.metrics == ["half-deletion:noise", *(metric.name for metric in ALL)]
    with pytest.raises(ValueError, match="two called 'mine'"):
        run(metrics=[constant(0.25), constant(0.75)])


def test_a_soft_outline_is_refused():
    table = run(pictures=[replace(PICTURES[0], truth=np.where(OUTLINE, 0.9, 0.1))])
    assert not len(table)
    assert "`truth` must be boolean, or hold 0 and 1" in table.failures["one"]
    small = run(pictures=[replace(PICTURES[0], truth=OUTLINE[:9])])
    assert "`truth` must be as large as its image (40 x 40); got 9 x 40" in small.failures["one"]


def test_a_picture_file_is_known_by_how_it_is_prepared(tmp_path):
    path = tmp_path / "grey.png"
    Image.new("L", (40, 40), 90).save(path)

    def loaded(scale):
        def prepare(pixels):
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / scale, Geometry.whole((40, 40), (40, 40))

        return Loaded("mine", MODEL, prepare)

    known = [PictureFile("grey", path, loaded(scale)).digest() for scale in (255, 255, 127)]
    assert known[0] == known[1] != known[2]


def test_the_seed_reaches_the_scorers():
    first, again, other = (run(metrics=["sparseness"], rivals=["cell"], seed=seed).csv() for seed in (1, 1, 2))
    assert first == again != other
    own = ("own", replace(usu.PRESETS["cell"], evaluations=40))
    first, other = (run(metrics=["sparseness"], rivals=[own], seed=seed).csv() for seed in (1, 2))
    assert first == other, "settings have their own"


def test_a_picture_that_could_not_be_read_may_be_replaced(tmp_path):
    broken = Sample("one", torch.full((3, 40, 40), float("nan")))
    assert set(run(pictures=[broken, PICTURES[1]], out=tmp_path).failures) == {"one"}
    assert run(out=tmp_path).csv() == run().csv()


def test_an_outline_cropped_away_leaves_the_other_numbers():
    nothing = replace(PICTURES[0], truth=np.zeros((40, 40), dtype=bool))
    table = run(pictures=[nothing])
    assert not table.failures
    found = by_key(table)
    assert np.isnan(found["one", "bilinear", "cell-auroc"].value)
    kept = {key: row.value for key, row in by_key(run(pictures=PICTURES[:1])).items() if key[2] != "cell-auroc"}
    assert all(found[key].value == value for key, value in kept.items())


def test_times_are_as_if_nothing_had_been_shared():
    """Infidelity's answers are asked for once, and every map's row says how long that took."""
    slow, passes = by_name("infidelity"), []

    def model(batch):
        passes.append(len(batch))
        time.sleep(2e-3)
        return MODEL(batch)

    rows = run(rivals=RIVALS[:2], forward=model, metrics=["infidelity"], pictures=PICTURES[:1]).rows
    assert len(rows) == 2
    assert sum(passes) == slow.evaluations
    assert all(row.metric_evaluations == slow.evaluations for row in rows)
    assert all(row.metric_seconds >= 2e-3 * len(passes) for row in rows)  # asleep at least that long, each


def test_whoever_listens_to_finer_layers_pays_for_it():
    heard = []

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = MODEL

        def forward(self, batch):
            if torch.is_grad_enabled():
                heard.append(1)
                time.sleep(0.2)
            return self.body(batch)

    # the pass that makes the coarse map hears them, too; a map made elsewhere has no such pass
    for sample, evaluations in ((PICTURES[0], 0), (replace(PICTURES[0], coarse=np.eye(5), target=1), 1)):
        heard.clear()
        table = evaluate(["fast", "cell-constant-scores"], [sample], Slow(), ["mass-error"], layer="body.2")
        assert len(table.rows) == 2, table.failures
        assert len(heard) == 1
        assert all(row.evaluations == evaluations and row.seconds > 0.2 * evaluations for row in table.rows)


def test_a_map_is_measured_as_it_is_explained():
    image = PICTURES[0].image
    explained = usu.explain(MODEL, image, layer="2", preset="cell", evaluations=40)
    (row,) = run(rivals=["cell"], metrics=["sparseness"], pictures=[Sample("a", image)]).rows
    assert row.evaluations == explained.upsampled.evaluations == 40
    assert row.value == pytest.approx(usu.metrics.sparseness(explained.pixel_map), rel=1e-6)


def test_a_picture_that_fails_costs_the_others_nothing(tmp_path):
    broken = Sample("broken", torch.full((3, 40, 40), float("nan")))
    table = run(pictures=[broken, *PICTURES], out=tmp_path)
    assert "must be finite" in table.failures["broken"] or "NaN" in table.failures["broken"]
    assert table.csv() == run().csv()


def test_a_full_disk_ends_the_run_and_keeps_the_units(tmp_path, monkeypatch):
    real, count = Store.keep, []

    def full(self, rows, failures):
        count.append(rows)
        if len(count) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, rows, failures)

    monkeypatch.setattr(Store, "keep", full)
    with pytest.raises(OSError, match="No space left"):
        run(out=tmp_path)
    monkeypatch.undo()
    with Store(tmp_path) as store:
        assert {row.picture for group in store.groups() for row in store.rows(group)} == {"one"}
    assert run(out=tmp_path).csv() == run().csv()


def test_the_model_is_left_as_it_was():
    MODEL.train()
    try:
        run(metrics=["half-deletion"])
        assert all(module.training for module in MODEL.modules())
        assert all(parameter.grad is None for parameter in MODEL.parameters())
    finally:
        MODEL.eval()


def test_images_without_names_and_maps_made_elsewhere():
    table = evaluate(["nearest"], torch.rand(2, 3, 24, 24), MODEL, ["mass-error"], layer="2")
    assert [row.picture for row in table.rows] == ["00000", "00001"]
    own = Sample("x", torch.rand(3, 16, 16), coarse=np.ones((4, 4)))
    (row,) = evaluate(["nearest"], [own], lambda batch: MODEL(batch), ["moved-mass"]).rows
    assert row.value < 1e-12


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"pictures": []}, ValueError, "`pictures` must hold at least one"),
        ({"pictures": 3}, TypeError, "`pictures` must be a list"),
        ({"pictures": ["cat.jpg"]}, TypeError, "`pictures` must hold usu.Sample"),
        ({"pictures": [PICTURES[0], PICTURES[0]]}, ValueError, "got 'one' 2 times"),
        ({"metrics": []}, ValueError, "`metrics` must name at least one"),
        ({"metrics": ["nothing"]}, ValueError, "got 'nothing'"),
        ({"metrics": [3]}, TypeError, "`metrics` must be names"),
        ({"metrics": 3}, TypeError, "`metrics` must be names"),
        ({"rivals": 3}, TypeError, "`upsamplers` must be names"),
        ({"source": "gradcma"}, ValueError, "`source` must be"),
        ({"engine": "cloud"}, ValueError, "`engine` must be"),
        ({"forward": "warp"}, ValueError, "`forward` must be"),
    ],
)
def test_bad_requests_get_one_sentence(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        run(**changes)


def test_a_model_without_gradients_needs_maps():
    table = run(model=lambda batch: MODEL(batch))
    assert set(table.failures) == {"one", "two"}
    assert "must be an nn.Module for the source" in table.failures["one"]


def test_public_names():
    assert usu.evaluate is evaluate
    assert usu.Sample is Sample
