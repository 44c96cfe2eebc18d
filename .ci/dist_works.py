"""What the library can do with nothing but its required packages; run by .ci/dist in a fresh environment."""

from __future__ import annotations

import importlib.util

import numpy as np
import torch

import usu

assert "site-packages" in (usu.__file__ or ""), usu.__file__
absent = [name for name in ("matplotlib", "onnxruntime", "captum", "timm") if importlib.util.find_spec(name)]
assert not absent, f"these came along: {absent}"
pixel_map = usu.redistribute(np.array([[1.0, 3.0]]), np.array([[0.0, 1.0, 0.5, 0.5]]))
np.testing.assert_allclose(pixel_map.sum(), 8.0)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
found = usu.explain(net, torch.rand(3, 64, 64), 1, evaluations=40)
assert found.pixel_map.shape == (64, 64)
assert found.evaluations == 40
refused = ""
try:
    found.overlay()
except usu.errors.MissingExtraError as error:
    refused = str(error)
assert "usu-xai[plot]" in refused
print(f"usu-xai {usu.__version__} works alone with torch {torch.__version__}")
