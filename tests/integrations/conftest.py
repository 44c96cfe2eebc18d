"""torchvision built for another torch cannot register its operators; only their names are needed here."""

from __future__ import annotations

import importlib.util
import warnings
from types import ModuleType

import pytest
import torch

#: Kept alive: the operators vanish with the library object.
_LIBRARIES: list[torch.library.Library] = []


@pytest.fixture(scope="session")
def torchvision() -> ModuleType:
    """torchvision, importable also beside a torch it was not built for. timm and grad-cam need it too."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision
        except RuntimeError:
            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _LIBRARIES.append(library)
            import torchvision
    return torchvision


@pytest.fixture(scope="session")
def timm(torchvision) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("timm")


@pytest.fixture(scope="session")
def transformers(torchvision) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def libraries(torchvision, timm, transformers) -> dict[str, ModuleType]:
    return {"torchvision": torchvision, "timm": timm, "transformers": transformers}


@pytest.fixture(scope="session")
def pytorch_grad_cam(torchvision) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pytorch_grad_cam")


@pytest.fixture(scope="session")
def quantus(torchvision) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("quantus")
