"""Damaged picture files: one sentence each, never a traceback."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from skimage import data

from usu.errors import UnreadablePictureError
from usu.models.pictures import read

PICTURES = 300
FORMATS = ("png", "jpeg", "webp", "tiff", "gif", "bmp")
MODEL = """
import numpy as np
import torch
from torch import nn


def small():
    layers = nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU()
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    size = lambda pixels: torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float()[None] / 255
    return net.eval(), lambda pixels: nn.functional.interpolate(size(pixels), (32, 32))[0]
"""


def damaged(dice: random.Random) -> tuple[str, bytes]:
    """A picture file that was cut, or has bytes changed or set to zero."""
    kind, file = dice.choice(FORMATS), BytesIO()
    Image.fromarray(data.chelsea()[:48, :64]).save(file, kind)
    content = bytearray(file.getvalue())
    how = dice.choice(("cut", "flipped", "zeroed", "head"))
    if how == "cut":
        content = content[: dice.randrange(len(content))]
    elif how == "zeroed":
        start = dice.randrange(len(content))
        stop = min(len(content), start + dice.randrange(1, 400))
        content[start:stop] = bytes(stop - start)
    else:
        reach = len(content) if how == "flipped" else min(64, len(content))
        for _ in range(dice.randrange(1, 20)):
            content[dice.randrange(reach)] ^= 1 << dice.randrange(8)
    return kind, bytes(content)


@pytest.mark.soak
def test_a_damaged_picture_is_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    dice, refused = random.Random(0), {}
    for number in range(PICTURES):
        kind, content = damaged(dice)
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(content)
        try:
            picture = read(path)
            assert picture.pixels.ndim == 3
            assert picture.pixels.shape[2] == 3
        except UnreadablePictureError as error:
            refused[path] = str(error)
    assert all(str(path) in sentence and "\n" not in sentence for path, sentence in refused.items())
    assert PICTURES / 5 < len(refused) < PICTURES


@pytest.mark.soak
def test_the_command_names_every_damaged_picture_and_explains_the_others(tmp_path: Path) -> None:
    dice = random.Random(1)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pictures").mkdir()
    for number in range(PICTURES):
        kind, content = damaged(dice)
        (tmp_path / "pictures" / f"{number}.{kind}").write_bytes(content)
    asked = ("explain", "pictures", "--model", "model.py:small", "--layer", "2", "--preset", "fast", "--out", "out")
    line = [sys.executable, "-m", "usu.cli", *asked]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    explained = set(re.findall(r"^pictures/(\d+)\.", done.stdout, re.MULTILINE))
    refused = set(re.findall(r"^usu: The picture pictures/(\d+)\.", done.stderr, re.MULTILINE))
    assert explained | refused == {str(number) for number in range(PICTURES)}
    assert not explained & refused
