"""Faster runtimes give the numbers of torch, or step back and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.errors import MissingExtraError, UsuError
from usu.forward import runtime as module
from usu.forward.runtime import runtime

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2))
BATCH = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tower() -> Tower:
    return seeded(Tower)


def answers(model: object) -> Tensor:
    with torch.no_grad():
        return model(BATCH)  # type: ignore[operator]


def test_the_export_gives_the_same_answers_for_any_batch_and_is_made_once(tower, cache, monkeypatch):
    tower.train()
    found = runtime(tower, IMAGE, "auto")
    assert (found.name, found.note) == ("onnx", "")
    assert tower.training
    torch.testing.assert_close(answers(found.model), answers(tower.eval()), rtol=1e-4, atol=1e-5)
    assert len(list(cache.glob("*.onnx"))) == 1
    assert runtime(tower, IMAGE, "auto").model is found.model
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("the file is there"))
    assert runtime(seeded(Tower), IMAGE, "onnx").name == "onnx", "equal weights share their export"


def test_other_weights_are_another_model(tower):
    first = runtime(tower, IMAGE, "auto")
    with torch.no_grad():
        for weight in tower.parameters():
            weight.mul_(1.7)
    second = runtime(tower, IMAGE, "auto")
    assert second.name == "onnx"
    assert second.model is not first.model
    torch.testing.assert_close(answers(second.model), answers(tower.eval()), rtol=1e-4, atol=1e-4)


def test_another_answer_is_not_taken(tower, monkeypatch):
    monkeypatch.setattr(module, "_exported", lambda *_, **__: lambda batch: torch.zeros(len(batch), 5))
    stepped_back = runtime(tower, IMAGE, "auto")
    assert stepped_back.name == "torch"
    assert stepped_back.model is tower
    assert "another answer" in stepped_back.note
    with pytest.raises(UsuError, match="another answer"):
        runtime(tower, IMAGE, "onnx")


def test_a_broken_file_in_the_cache_is_made_anew(tower, cache):
    runtime(tower, IMAGE, "auto")
    (file,) = cache.glob("*.onnx")
    file.write_bytes(b"junk")
    assert runtime(seeded(Tower), IMAGE, "onnx").name == "onnx"
    assert not list(cache.glob(".*"))


def test_what_cannot_be_exported_stays_with_torch(tower, monkeypatch):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tower

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.net(x)}

    assert "dict" in runtime(Wrapped(), IMAGE, "auto").note
    assert runtime(lambda batch: batch, IMAGE, "auto").name == "callable"
    assert runtime(tower, IMAGE, "torch").model is tower
    with pytest.raises(ValueError, match="`engine` must be one of"):
        runtime(tower, IMAGE, "gpu")  # type: ignore[arg-type]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "usu-xai[onnx]" in runtime(seeded(Tower).double(), IMAGE, "auto").note
    with pytest.raises(MissingExtraError, match="onnx"):
        runtime(seeded(Tower).double(), IMAGE, "onnx")


@pytest.mark.parametrize("target", [2, None, [0, 3], lambda output: output[:, 1] - output[:, 2]])
def test_upsample_gives_the_same_map_and_names_its_engine(tower, target):
    coarse = torch.rand(4, 4, dtype=torch.float64)
    plain, fast = (
        usu.upsample(coarse, IMAGE, tower, target, preset=chosen(parts=12), evaluations=40, engine=engine)
        for engine in ("torch", "auto")
    )
    assert (plain.provenance["engine"], fast.provenance["engine"]) == ("torch", "onnx")
    assert plain.evaluations == fast.evaluations == 40
    assert plain.provenance["target"] == fast.provenance["target"]
    torch.testing.assert_close(fast.pixel_map, plain.pixel_map, rtol=1e-2, atol=1e-4)
    assert fast.provenance["preset"] == "cell, other parts", "the engine is no part of a preset"


def test_a_model_that_knows_its_batch_by_len_runs_in_batches_of_one_size():
    """Tracing makes a constant of ``len(batch)``, so an export for any number would fail, or be wrong."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.token = seeded(Tower), nn.Parameter(torch.ones(1, 1))

        def forward(self, batch: Tensor) -> Tensor:
            return torch.cat([self.net(batch), self.token.expand(len(batch), -1)], 1)

    model = Counting().eval()
    found = runtime(model, IMAGE, "auto")
    batch = torch.rand(7, *IMAGE.shape)
    assert found.name == "onnx", found.note
    torch.testing.assert_close(found.model(batch), model(batch).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dims", [1, 3])
def test_signals_and_volumes_are_exported_too(dims):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    net = seeded(lambda: nn.Sequential(conv(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4**dims, 3)))
    found = runtime(net, torch.rand(2, *[6] * dims), "auto")
    assert (found.name, found.note) == ("onnx", "")
    batch = torch.rand(5, 2, *[6] * dims)
    with torch.no_grad():
        torch.testing.assert_close(found.model(batch), net(batch), rtol=1e-4, atol=1e-5)
