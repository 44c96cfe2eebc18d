"""The notebooks run from start to end in a real kernel, show their pictures, and are committed without outputs."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from tests.contracts.source import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
#: A torchvision that was built for another torch: as in this folder's conftest, but in the kernel.
STARTUP = """
import torch
try:
    import torchvision
except RuntimeError:
    _operators = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _operators.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
except ImportError:
    pass
torch.set_num_threads(1)
"""


def test_there_are_three() -> None:
    assert NOTEBOOKS == ["first-steps", "from-grad-cam-and-captum", "your-own-model"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_outputs_are_committed(name: str) -> None:
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
        else:
            assert max(len(line.rstrip("\n")) for line in cell["source"]) <= 130


@pytest.mark.parametrize(
    ("name", "pictures", "needs"),
    [
        ("first-steps", 5, ["efficientnet_lite_pytorch", "matplotlib"]),
        ("your-own-model", 4, ["timm", "transformers"]),
        ("from-grad-cam-and-captum", 3, ["efficientnet_lite_pytorch", "pytorch_grad_cam", "captum"]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_it_runs_and_shows_its_pictures(
    name: str, pictures: int, needs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torchvision: object
) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for package in needs:
        pytest.importorskip(package)
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-start.py").write_text(STARTUP)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.output_type == "error"] == []
    shown = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(shown) == pictures
    for data in shown:
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert min(image.size) > 150
