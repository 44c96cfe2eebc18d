"""How many rooms one picture walks through: files whose functions are called, and the ways from one into another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from skimage import data

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra demo is not installed")

#: A function that is called counts as a visit of its file, and what was called last as where one comes from.
WALK = """
import json, sys
from pathlib import Path
import usu
home, files, ways, here = str(Path(usu.__file__).parent), set(), set(), None

def visit(frame, event, _):
    global here
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home) and code.co_name != "<module>":
        if here not in (None, code.co_filename):
            ways.add((here, code.co_filename))
        here = code.co_filename
        files.add(here)

from usu.cli import main
sys.setprofile(visit)
try:
    main()
except SystemExit as end:
    assert not end.code
finally:
    sys.setprofile(None)
Path("walk.json").write_text(json.dumps([len(files), len(ways)]))
"""


def test_one_picture_walks_through_few_files(tmp_path: Path) -> None:
    Image.fromarray(data.chelsea()).save(tmp_path / "cat.jpg")
    command = [sys.executable, "-c", WALK, "explain", "cat.jpg", "--out", "found", "--evaluations", "60", "--quiet"]
    subprocess.run(command, cwd=tmp_path, check=True)
    files, ways = json.loads((tmp_path / "walk.json").read_text())
    assert 20 < files <= 30  # 28 when this was written
    assert 60 < ways <= 105  # 102
