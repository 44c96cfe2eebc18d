"""A grid: scores are asked for once, rows know what they depend on, the report says what was measured."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest
import torch
from torch import nn

import usu
from tests.unit.bench.test_contenders import MODEL
from usu.bench import Network, Sample, Store, evaluate
from usu.bench.report import paper, write_report
from usu.bench.scene import Remembered
from usu.forward.digest import described, is_known
from usu.forward.onnx import OnnxModel

DICE = torch.Generator().manual_seed(3)
PICTURES = [Sample(name, torch.rand(3, 40, 40, generator=DICE)) for name in ("one", "two", "three", "four")]
GRID = {"small": Network(MODEL, layer="2"), "again": Network(MODEL, layer="2", limit=1, datasets=("first",))}


def flat(model, image, target, layer):
    return usu.CoarseMap(torch.ones(1, 3, 3), "", "flat", (target,), 0)


def sloping(model, image, target, layer):
    return usu.CoarseMap(torch.arange(9.0).reshape(1, 3, 3), "", "sloping", (target,), 0)


def run(**more):
    asked = {"source": {"gradcam": "gradcam", "flat": flat}, "evaluations": 30} | more
    metrics = ["half-deletion", "infidelity-raw", "infidelity", "seed-iou", "seed-correlation"]
    return evaluate(["bilinear", "cell", "soft"], {"first": PICTURES[:3], "cub": PICTURES[3:]}, GRID, metrics, **asked)


def test_every_combination_has_its_rows():
    table = run()
    groups = {(row.dataset, row.model, row.source) for row in table.rows}
    assert groups == {
        (dataset, model, source)
        for dataset, model in (("first", "small"), ("cub", "small"), ("first", "again"))
        for source in ("gradcam", "flat")
    }
    assert len(table) == (3 + 1 + 1) * 2 * 3 * 5
    assert table.csv().startswith("dataset,model,source,picture,")
    alone = run(source={"flat": flat})
    whole = {row.key: row.value for row in table.rows}
    assert all(row.value == whole[row.key] or np.isnan(row.value) for row in alone.rows), "whatever else is measured"


def test_seeds_are_compared_where_something_is_drawn():
    found = {(row.upsampler, row.metric): row.value for row in run().rows if row.picture == "one"}
    assert np.isnan(found["bilinear", "seed-iou"])
    assert 0 <= found["soft", "seed-iou"] <= 1
    assert -1 < found["soft", "seed-correlation"] < 1


def test_scores_of_one_picture_serve_every_source():
    asked = []

    def counted(batch):
        asked.append(len(batch))
        return MODEL(batch)

    spent = []
    for sources in ({"flat": flat}, {"flat": flat, "sloping": sloping, "again": flat}):
        asked.clear()
        table = evaluate(
            ["cell", "soft"], PICTURES[:1], Network(MODEL, counted, "2"), ["mass-error"], source=sources, evaluations=30
        )
        assert {row.evaluations for row in table.rows} == {30}, "as if nothing had been shared"
        spent.append(sum(asked))
    # one of the thirty is the pass that hears the finer layers; it asks the module itself
    assert spent == [29, 29]


def test_a_session_is_asked_in_one_thread():
    session = OnnxModel(None, "image", "logits", np.float32, None, workers=4)
    assert Network(MODEL, session).passes(PICTURES[0]).workers == 1


def test_a_batch_is_remembered_whole():
    seen = []
    model = Remembered(lambda batch: (seen.append(len(batch)), batch.mean((1, 2, 3)))[1])
    batch = torch.rand(3, 1, 2, 2)
    assert torch.equal(model(batch), model(batch.clone()))
    model(batch[:2])
    assert seen == [3, 2]
    assert model.memory.lent > 0


def helper(x):
    return x * 2


class Helped(nn.Module):
    def forward(self, x):
        return helper(self.inner(x))

    def inner(self, x):
        return x


def test_a_network_is_the_functions_it_calls(monkeypatch):
    known = described(Helped())
    assert known == described(Helped())
    monkeypatch.setitem(globals(), "helper", lambda x: x * 3)
    changed = described(Helped())
    assert changed != known
    monkeypatch.undo()
    monkeypatch.setattr(Helped, "inner", lambda self, x: -x)
    assert described(Helped()) != known


def test_weights_in_a_list_or_behind_a_private_name_are_seen():
    def model(tensor):
        kept = [tensor]
        return lambda batch: batch * kept[0]

    class Holder:
        def __init__(self, tensor):
            self._tensor, self._count = tensor, 0

        def __call__(self, batch):
            return batch * self._tensor

    for make in (model, Holder):
        assert described(make(torch.ones(2))) == described(make(torch.ones(2)))
        assert described(make(torch.ones(2))) != described(make(torch.zeros(2)))


def test_what_nobody_can_see_into_needs_a_fingerprint(tmp_path):
    class Remote:
        def __init__(self):
            self.session = threading.Lock()  # stands for a connection, a session, a handle

        def __call__(self, batch):
            return MODEL(batch)

    assert not is_known(described(Remote()))
    coarse = [Sample("one", PICTURES[0].image, target=1, coarse=np.ones((3, 3)))]

    def asked(model):
        return evaluate(["nearest"], coarse, model, ["half-deletion"], out=tmp_path)

    assert len(asked(Remote())) == 1
    with pytest.raises(ValueError, match=r"Give its class a fingerprint\(\)"):
        asked(Remote())
    Remote.fingerprint = types.MethodType(lambda self: "the one", Remote)
    assert is_known(described(Remote()))


def test_an_emptied_store_accepts_nothing_of_another_seed(tmp_path):
    run(out=tmp_path)
    with Store(tmp_path, write=True) as store:
        store.base.execute("DELETE FROM ingredients")
    with pytest.raises(ValueError, match="made with another"):
        run(out=tmp_path, seed=1)
    assert run(out=tmp_path).csv() == run().csv()


def test_a_flipped_bit_is_told_and_its_unit_computed_anew(tmp_path):
    whole = run(out=tmp_path).csv()
    path = tmp_path / "store.sqlite"
    content = path.read_bytes()
    place = content.rindex(b"infidelity")
    path.write_bytes(content[:place] + b"j" + content[place + 1 :])
    with pytest.warns(usu.errors.UsuWarning, match="computed anew"):
        assert run(out=tmp_path).csv() == whole


def test_the_report_says_what_was_measured(tmp_path):
    run(out=tmp_path)
    with Store(tmp_path) as store:
        paths = {path.name for path in write_report(store, tmp_path)}
    assert {"report.html", "report.md", "report-frontier-small.svg", "table.parquet"} <= paths
    text = (tmp_path / "report.md").read_text()
    assert text.index("- **soft**: half-deletion +0 -0 of 2, d_z ") < text.index("## Measured"), "the verdicts first"
    assert "| cub | small | 1 | 1 |" in text
    assert "**paper: raw infidelity, CUB-200" in text
    assert "**measured: infidelity-raw, cub, small**" in text
    lines = text.splitlines()
    (heads,) = {line for line in lines if line.startswith("| source | bilinear |") and "cell" in line}
    assert heads == "| source | bilinear | cell | soft |"
    assert all("(" in cell for line in lines if line.startswith("| gradcam |") for cell in line.split("|")[2:-1])
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "<script>" in page


def test_the_papers_numbers_are_the_papers():
    found = {tuple(line.values())[:6]: float(line["value"]) for line in paper()}
    assert len(found) == 441
    assert found["main", "imagenet", "VGG16", "", "USU", "infidelity"] == 1.14e5
    assert found["cross-method", "cub", "mean of three", "FinerCAM", "USU-IWMR", "infidelity"] == 0.691
    assert found["full", "cub", "ViT-B-16", "", "USU-Hybrid", "sparseness"] == 0.69
    assert found["effect", "cifar10", "ViT-B-16", "", "USU", "infidelity"] == 2.14


def test_samples_with_their_own_maps_have_one_source():
    own = [Sample("x", PICTURES[0].image, coarse=np.ones((3, 3)))]
    with pytest.raises(ValueError, match="`source` must be one"):
        evaluate(["nearest"], own, MODEL, ["mass-error"], source=["gradcam", "hirescam"])
