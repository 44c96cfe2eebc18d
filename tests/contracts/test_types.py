"""What a type checker knows of the public names: a user's file passes, and one with mistakes does not.

`make dist` asks mypy and pyright about the same file and the installed wheel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.source import ROOT

WRONG = """
import torch
import usu


def why(model: torch.nn.Module, image: torch.Tensor) -> None:
    found = usu.explain(model, image, 3, evaluations="many")
    found.heatmap
    wrong: str = usu.upsample(usu.gradcam(model, image[None]), image, model).mass_error
    usu.Settings(part=30)
"""


def test_a_users_file_passes_and_mistakes_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    mistaken = tmp_path / "mistaken.py"
    mistaken.write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--config-file", os.devnull]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "user")]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(ROOT / ".ci" / "dist_types.py"), str(mistaken)],
        cwd=tmp_path, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert "dist_types.py" not in done.stdout, done.stdout
    lines = [int(number) for number in re.findall(r"mistaken\.py:(\d+): error", done.stdout)]
    assert sorted(set(lines)) == [7, 8, 9, 10], done.stdout + done.stderr
