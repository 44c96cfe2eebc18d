from __future__ import annotations

import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from usu.errors import UsuError
from usu.forward import Engine, engine
from usu.forward.calls import logits_of

PICTURE = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Dropout and batch norm, so that a wrong mode shows; a part that is already in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)
        self.norm.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(self.conv(x)).relu().mean((2, 3))))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def repeat(rows: slice) -> Tensor:
    return PICTURE.expand(rows.stop - rows.start, -1, -1, -1)


def state(model: nn.Module) -> tuple[object, ...]:
    return (
        [module.training for module in model.modules()],
        [(p.grad is None, p.requires_grad, p.device, p.stride(), p.detach().sum().item()) for p in model.parameters()],
        [b.sum().item() for b in model.buffers()],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),
    )


# ---------------------------------------------------------------- reading outputs


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: y,
        lambda y: (y, torch.zeros(1)),
        lambda y: ["label", y],
        lambda y: OrderedDict(hidden=torch.zeros(len(y), 9), logits=y),
        lambda y: {"prediction": y},
        lambda y: y[:, :, None, None],
        lambda y: y.numpy(),
    ],
)
def test_every_kind_of_output_is_read(net, wrap):
    net.eval()
    plain = engine(net, 3, chunk=2).evaluate(PICTURE, 3, repeat)
    wrapped = engine(lambda x: wrap(net(x)), 3, chunk=2).evaluate(PICTURE, 3, repeat)
    assert torch.allclose(plain, wrapped, atol=1e-6)
    assert plain.shape == (3, 1)
    assert plain.dtype == torch.float64


def test_a_model_output_of_transformers(net):
    outputs = pytest.importorskip("transformers.modeling_outputs")
    net.eval()
    model = lambda x: outputs.ImageClassifierOutput(loss=torch.zeros(7), logits=net(x))  # noqa: E731
    assert torch.equal(
        engine(model, [0, 4], channels_last=False).aim(PICTURE).values,
        engine(net, [0, 4], channels_last=False).aim(PICTURE).values,
    )


def test_a_vector_of_outputs_is_one_class():
    assert engine(lambda x: x.sum((1, 2, 3)), 0).aim(PICTURE).values.item() == pytest.approx(PICTURE.sum().item())


def test_outputs_that_cannot_be_read():
    with pytest.raises(TypeError, match=r"`model` must return a tensor.*got str"):
        logits_of("cat")
    with pytest.raises(ValueError, match=r"N x classes; got 2 x 5 x 4 x 4.*callable `target`"):
        logits_of(torch.zeros(2, 5, 4, 4))
    with pytest.raises(ValueError, match="one row per picture; got 1 x 1 for 3 pictures"):
        engine(lambda x: x.mean((0, 2, 3))[None], 0).evaluate(PICTURE, 3, repeat)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite(bad):
    model = lambda x: torch.full((len(x), 2), bad)  # noqa: E731
    with pytest.raises(ValueError, match="`model` must return finite values"):
        engine(model, 0).evaluate(PICTURE, 2, repeat)
    with pytest.raises(ValueError, match="`model` must return finite values"):
        engine(model, 0).aim(PICTURE)
    # another class may well be impossible
    assert engine(lambda x: torch.tensor([[1.0, -torch.inf]]), 0).aim(PICTURE).values.item() == 1


# ---------------------------------------------------------------- targets and links


def test_targets(net):
    net.eval()
    with torch.no_grad():
        logits = net(PICTURE[None])[0].double()
    close = {"atol": 1e-6, "rtol": 0}
    assert torch.allclose(engine(net, 2).aim(PICTURE).values, logits[[2]], **close)
    assert torch.allclose(engine(net, [4, 0, 4]).aim(PICTURE).values, logits[[4, 0, 4]], **close)
    assert torch.allclose(engine(net, np.int64(1)).aim(PICTURE).values, logits[[1]], **close)
    assert torch.allclose(engine(net, lambda out: out[:, 1] - out[:, 0]).aim(PICTURE).values, logits[1:2] - logits[0])
    top = engine(net).aim(PICTURE)
    assert top.engine.target == (int(logits.argmax()),)
    assert torch.allclose(top.values[0], logits.max(), **close)


def test_links(net):
    net.eval()
    with torch.no_grad():
        logits = net(PICTURE[None])[0].double()
    expect = {"log_probability": logits.log_softmax(0), "probability": logits.softmax(0)}
    for link, values in expect.items():
        assert torch.allclose(engine(net, [0, 3], link=link).aim(PICTURE).values, values[[0, 3]], atol=1e-6)
    squared = engine(net, 3, link=lambda z: z**2).aim(PICTURE).values
    assert torch.allclose(squared, logits[[3]] ** 2, atol=1e-6)


def test_bad_targets_and_links(net):
    with pytest.raises(ValueError, match="from 0 to 4, because the model has 5 classes; got 5"):
        engine(net, 5).aim(PICTURE)
    with pytest.raises(ValueError, match="at least 0; got -1"):
        engine(net, -1)
    with pytest.raises(ValueError, match="at least one class"):
        engine(net, [])
    with pytest.raises(TypeError, match="class index, a list of them, a callable or None; got str"):
        engine(net, "cat")
    with pytest.raises(ValueError, match="`link` must be one of"):
        engine(net, 0, link="odds")
    with pytest.raises(ValueError, match="`link` must be 'logit' with a callable `target`"):
        engine(net, lambda out: out[:, 0], link="probability")
    with pytest.raises(ValueError, match="`link` must keep one column per class"):
        engine(net, 0, link=lambda z: z.sum(1)).aim(PICTURE)
    with pytest.raises(ValueError, match="`target` must return one row per picture"):
        engine(net, lambda out: out.sum()).aim(PICTURE)
    with pytest.raises(ValueError, match="`target` must be known before"):
        engine(net).evaluate(PICTURE, 2, repeat)
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module or a callable"):
        engine("net.onnx")
    with pytest.raises(ValueError, match="`chunk` must be a whole number"):
        engine(net, chunk=0)
    with pytest.raises(ValueError, match="`device` must be where the model is"):
        engine(net, device="meta")
    with pytest.raises(ValueError, match=r"C x H x W, .*; got 1 x 3 x 8 x 8"):
        engine(net).aim(PICTURE[None])


# ---------------------------------------------------------------- chunks, memory, counting


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_chunks_change_nothing_and_order_is_kept(chunk):
    sizes, seen = [], []

    def model(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return x.sum((1, 2, 3))[:, None]

    def build(rows: slice) -> Tensor:
        return torch.arange(rows.start, rows.stop, dtype=torch.float32)[:, None, None, None].expand(-1, 1, 1, 1)

    values = engine(model, 0, chunk=chunk).evaluate(
        PICTURE, 7, build, progress=lambda done, total: seen.append((done, total))
    )
    assert values[:, 0].tolist() == list(range(7))
    assert sum(sizes) == 7
    assert max(sizes) == min(chunk, 7)
    assert seen[-1] == (7, 7)
    assert [done for done, _ in seen] == np.cumsum(sizes).tolist()


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory. Tried"), MemoryError(), torch.OutOfMemoryError("x")]
)
def test_running_out_of_memory_halves_the_chunk(error):
    passed = []

    def model(x: Tensor) -> Tensor:
        if len(x) > 3:
            raise error
        passed.append(len(x))
        return x[:, :1, 0, 0]

    build = lambda rows: torch.arange(rows.start, rows.stop).float()[:, None, None, None]  # noqa: E731
    values = engine(model, 0, chunk=16).evaluate(PICTURE, 11, build)
    assert values[:, 0].tolist() == list(range(11))
    assert passed == [2, 2, 2, 2, 2, 1]


def test_one_picture_that_does_not_fit():
    def model(x: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(MemoryError, match=r"`image` must .*; got 3 x 8 x 8.*smaller picture"):
        engine(model, 0).evaluate(PICTURE, 4, repeat)


def test_other_errors_are_not_hidden(net):
    calls = []

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        engine(model, 0).evaluate(PICTURE, 4, repeat)
    assert calls == [4]


def test_default_chunks_follow_the_size_of_the_picture():
    sizes = []

    def model(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return x.mean((1, 2, 3))[:, None]

    ask = engine(model, 0)
    for side, largest in ((224, 4), (300, 2), (448, 1), (1000, 1), (32, 20)):
        sizes.clear()
        image = torch.zeros(3, side, side)
        ask.evaluate(image, 20, lambda rows, image=image: image.expand(rows.stop - rows.start, -1, -1, -1))
        assert max(sizes) == largest


# ---------------------------------------------------------------- the model is left as it was


def test_evaluation_mode_inside_and_everything_restored_after(net):
    before = state(net)
    modes = []
    net.head.register_forward_pre_hook(lambda module, inputs: modes.append([m.training for m in net.modules()]))
    before = state(net)
    values = engine(net, 0).evaluate(PICTURE, 3, repeat)
    engine(net).aim(PICTURE)
    engine(net, 0).slope(PICTURE)
    assert not np.any(modes)
    assert len(modes) == 3
    assert before == state(net)
    assert values.unique().numel() == 1, "dropout was active"


@pytest.mark.parametrize("method", ["aim", "evaluate", "slope"])
def test_everything_is_restored_when_the_model_raises(net, method):
    def fail(module: nn.Module, inputs: object) -> None:
        raise KeyError("in the middle")

    net.head.register_forward_pre_hook(fail)
    before = state(net)
    ask = engine(net, 0)
    with pytest.raises(KeyError, match="in the middle"):
        ask.evaluate(PICTURE, 3, repeat) if method == "evaluate" else getattr(ask, method)(PICTURE)
    assert before == state(net)


def test_a_train_method_that_does_more_than_set_a_flag_is_not_called(net):
    def train(mode: bool = True) -> None:
        raise AssertionError("weights would be merged here")

    net.train = train
    engine(net).aim(PICTURE)


def test_evaluations_are_counted_where_they_are_spent_and_held_to_their_limit(net):
    ask = engine(net, [1, 2], chunk=3, limit=9)
    aimed = ask.aim(PICTURE)
    aimed.engine.evaluate(PICTURE, 5, repeat)
    assert (ask.meter.spent, ask.meter.left) == (6, 3), "engines made of one share its meter"
    with pytest.raises(UsuError, match="10 evaluations were planned where 9 are allowed"):
        ask.evaluate(PICTURE, 4, repeat)
    assert ask.slope(PICTURE)[0].engine.meter.spent == 7
    assert engine(net, 1).meter.left is None

    def breaks(batch: Tensor) -> Tensor:
        if done.meter.spent >= 4:
            raise RuntimeError("the cable is loose")
        return batch.sum((1, 2, 3))[:, None]

    done = engine(breaks, 0, chunk=2)
    with pytest.raises(RuntimeError, match="cable"):
        done.evaluate(PICTURE, 10, repeat)
    assert done.meter.spent == 4, "only what came back is counted"


def test_results_can_be_used_in_autograd(net):
    scale = torch.ones(1, dtype=torch.float64, requires_grad=True)
    (engine(net, 0).evaluate(PICTURE, 2, repeat) * scale).sum().backward()
    assert scale.grad is not None


# ---------------------------------------------------------------- memory format, dtype


def test_channels_last_where_it_helps_and_only_for_the_batch(net):
    strides = []
    net.conv.register_forward_pre_hook(lambda module, inputs: strides.append(inputs[0].stride()[1]))
    before = state(net)
    automatic = engine(net, 0).evaluate(PICTURE, 2, repeat)
    plain = engine(net, 0, channels_last=False).evaluate(PICTURE, 2, repeat)
    assert strides == [1, 64]
    assert torch.allclose(automatic, plain, atol=1e-6)
    assert before == state(net)
    assert engine(nn.Linear(3, 2), 0).channels_last is False
    assert engine(lambda x: x, 0).channels_last is False


def test_a_model_with_view_still_works():
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return y.view(len(y), -1)

    model = Viewing()
    passes = []
    model.conv.register_forward_hook(lambda *_: passes.append(1))
    expected = engine(model, 5, channels_last=False, chunk=1).evaluate(PICTURE, 4, repeat)
    passes.clear()
    aimed = engine(model, 5, chunk=1).aim(PICTURE)
    assert torch.allclose(engine(model, 5, chunk=1).evaluate(PICTURE, 4, repeat), expected)
    assert aimed.engine.channels_last is False
    assert len(passes) == 2 + 5, "the failed order is tried once, not for every chunk"
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        engine(model, 5, channels_last=True).aim(PICTURE)


def test_double_models(net):
    net.double()
    assert engine(net, 0).aim(PICTURE).values.dtype == torch.float64


# ---------------------------------------------------------------- derivatives


def test_slope_is_the_derivative(net):
    net.eval()
    known, slopes = engine(net, [1, 2]).slope(PICTURE)
    step = torch.zeros_like(PICTURE)
    step[1, 4, 4] = 1e-2
    shifted = engine(net, [1, 2]).aim(PICTURE + step).values
    assert slopes.shape == (2, 3, 8, 8)
    assert torch.allclose((shifted - known.values) / 1e-2, slopes[:, 1, 4, 4].double(), atol=1e-3)
    assert all(p.grad is None for p in net.parameters())


def test_slope_in_unfriendly_surroundings(net):
    model = nn.Sequential(nn.ReLU(inplace=True), net)
    expected = engine(net, 1).slope(PICTURE)[1]
    with torch.inference_mode():
        for order in (True, False):
            assert torch.allclose(engine(model, 1, channels_last=order).slope(PICTURE)[1], expected, atol=1e-6)
    with pytest.raises(ValueError, match="`model` must be differentiable"):
        engine(lambda x: net(x).detach(), 1).slope(PICTURE)


def test_an_engine_is_a_value(net):
    ask = engine(net, 1)
    assert isinstance(ask, Engine)
    with pytest.raises(AttributeError):
        ask.target = (2,)  # type: ignore[misc]


@pytest.mark.parametrize(("side", "most"), [(8, 64), (32, 64), (64, 49), (224, 4), (2000, 1)])
def test_chunks_are_as_large_as_is_quickest_on_a_cpu(side, most):
    sizes, image = [], torch.zeros(3, side, side)

    def build(rows):
        sizes.append(rows.stop - rows.start)
        return image.expand(sizes[-1], *image.shape)

    engine(lambda batch: torch.zeros(len(batch), 1), 0).evaluate(image, 130, build)
    assert max(sizes) == most


def test_what_a_failed_pass_did_not_spend_may_be_spent_again():
    calls = []

    def flaky(batch):
        calls.append(len(batch))
        if len(calls) == 2:
            raise RuntimeError("once")
        return batch.sum((1, 2, 3))[:, None]

    asked = engine(flaky, 0, limit=10, chunk=4)
    picture = torch.zeros(1, 2, 2)
    with pytest.raises(RuntimeError, match="once"):
        asked.evaluate(picture, 6, lambda rows: torch.zeros(rows.stop - rows.start, 1, 2, 2))
    assert (asked.meter.spent, asked.meter.left) == (4, 6)
    asked.evaluate(picture, 6, lambda rows: torch.zeros(rows.stop - rows.start, 1, 2, 2))
    assert (asked.meter.spent, asked.meter.left) == (10, 0)
