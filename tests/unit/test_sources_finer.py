from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import usu
from tests.small_nets import Tokens, Tower, counted, seeded
from usu.forward import engine
from usu.sources import layers
from usu.sources.cams import everywhere
from usu.sources.finer import finer_maps, module_of

PICTURE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
#: The last layers of the two resolutions above 4 x 4; the convolution before the norm is not the last of its own.
NAMES = ("norm", "fine")


@pytest.fixture
def tower() -> Tower:
    return seeded(Tower)


@pytest.fixture(autouse=True)
def _two_levels(monkeypatch) -> None:
    """However many are in use, two show more of what one could get wrong."""
    monkeypatch.setattr(layers, "LEVELS", 2)


def by_layercam(net: nn.Module, target: object, picture: Tensor = PICTURE) -> list[Tensor]:
    return [usu.layercam(net, picture[None], target, layer=name).values for name in NAMES]


# ---------------------------------------------------------------- what they are


@pytest.mark.parametrize("target", [0, 4, None, lambda output: output[:, 1] - output[:, 2]])
def test_they_are_layercam_at_the_last_layer_of_each_finer_resolution(tower, target):
    found = finer_maps(engine(tower, target), tower, PICTURE, 16)
    assert [tuple(one.shape) for one in found.maps] == [(1, 8, 8), (1, 16, 16)]
    for one, expected in zip(found.maps, by_layercam(tower, target), strict=True):
        assert one.dtype == torch.float64
        assert torch.equal(one, expected.double())
        assert one.max() > 0
    if target is None:
        assert found.engine.target == (int(tower(PICTURE[None]).argmax()),)


def test_several_targets_are_one_by_one(tower):
    with counted(tower) as seen:
        found = finer_maps(engine(tower, [3, 0, 1]), tower, PICTURE, 16)
    assert seen == [1]
    assert found.engine.target == (3, 0, 1)
    for i, target in enumerate((3, 0, 1)):
        for one, expected in zip(found.maps, by_layercam(tower, target), strict=True):
            assert torch.allclose(one[i], expected[0].double(), rtol=1e-5, atol=1e-9)
    together = finer_maps(engine(tower, lambda output: output[:, [3, 0, 1]]), tower, PICTURE, 16)
    assert all(torch.equal(a, b) for a, b in zip(together.maps, found.maps, strict=True))


def test_they_are_read_through_the_link(tower):
    plain, linked = (
        finer_maps(engine(tower, 2, link=link), tower, PICTURE, 16).maps for link in ("logit", "probability")
    )
    probability = by_layercam(tower, lambda output: output.double().softmax(1)[:, 2])
    assert all(torch.allclose(a, b.double(), rtol=1e-4, atol=1e-9) for a, b in zip(linked, probability, strict=True))
    assert not torch.allclose(plain[0], linked[0], rtol=0.1)


@pytest.mark.parametrize(
    ("cells", "sizes"), [(4, [4, 8]), (15, [4, 8]), (16, [8, 16]), (64, [16, 32]), (256, [32]), (1024, [])]
)
def test_only_the_next_resolutions_above_the_cells_are_heard(tower, monkeypatch, cells, sizes):
    found = finer_maps(engine(tower, 0), tower, PICTURE, cells)
    assert [one.shape[-1] for one in found.maps] == sizes
    for levels in (0, 1, 3):
        monkeypatch.setattr(layers, "LEVELS", levels)
        maps = finer_maps(engine(tower, 0), tower, PICTURE, cells).maps
        assert [one.shape[-1] for one in maps] == [n for n in (4, 8, 16, 32) if n * n > cells][:levels]


def test_the_way_back_ends_at_the_finest_of_them(tower):
    class OneWay(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            raise AssertionError("nobody asked for this gradient")

    handle = tower.fine.register_forward_pre_hook(lambda _module, inputs: (OneWay.apply(inputs[0]),))
    assert len(finer_maps(engine(tower, 0), tower, PICTURE, 16).maps) == 2
    with pytest.raises(AssertionError, match="nobody asked"):  # or the test could not fail
        finer_maps(engine(tower, 0), tower, PICTURE, 64)
    handle.remove()


def test_a_layer_the_target_does_not_look_at_says_zero(tower):
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower, self.other = tower, nn.Conv2d(3, 2, 4, stride=4)

        def forward(self, x: Tensor) -> Tensor:
            logits = self.tower(x)
            self.other(x)  # the last layer of 8 x 8, for nothing
            return logits

    found = finer_maps(engine(Aside(), 0), Aside(), PICTURE, 16)
    assert found.maps[0].shape == (1, 8, 8)
    assert not found.maps[0].any()
    assert found.maps[1].any()


def test_gradcam_hears_the_same_in_its_own_pass(tower):
    pictures = torch.stack([PICTURE, PICTURE.flip(2), 1 - PICTURE])
    with counted(tower) as seen:
        found = usu.gradcam(tower, pictures, [0, 3, 4], finer=True, chunk=2)
    assert seen == [2, 1]
    assert [tuple(one.shape) for one in found.finer] == [(3, 8, 8), (3, 16, 16)]
    for i, (picture, target) in enumerate(zip(pictures, (0, 3, 4), strict=True)):
        for one, expected in zip(found.finer, by_layercam(tower, target, picture), strict=True):
            assert torch.allclose(one[i], expected[0].double(), rtol=1e-4, atol=1e-9)
    plain = usu.gradcam(tower, pictures, [0, 3, 4], chunk=2)
    assert plain.finer == ()
    assert torch.equal(plain.values, found.values)


@pytest.mark.parametrize("source", [usu.gradcam, usu.hirescam, usu.layercam])
def test_a_layer_that_was_asked_for_has_its_own_finer_ones(tower, source):
    found = source(tower, PICTURE[None], 1, layer="middle", finer=True)
    assert found.values.shape == (1, 8, 8)
    assert [one.shape[-1] for one in found.finer] == [16, 32]
    fine = usu.layercam(tower, PICTURE[None], 1, layer="fine").values.double()
    assert torch.allclose(found.finer[0], fine, rtol=1e-5, atol=1e-9)


class Strided(nn.Module):
    """Grids of 16, 8 and 4; the last stage begins as in He's ResNet, with 1 x 1 convolutions of stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.middle = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.last, self.aside = nn.Conv2d(6, 8, 1, stride=2), nn.Conv2d(6, 8, 1, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.fine(x).relu())
        return self.head((self.last(x) + self.aside(x)).relu().mean((2, 3)))


def test_places_that_nobody_reads_take_the_gradient_of_their_neighbours():
    net = seeded(Strided)
    kept: list[Tensor] = []
    net.middle.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    logit = net(PICTURE[None])[0, 2]
    slope, activation = torch.autograd.grad(logit, kept[0])[0][0].double(), kept[0][0].detach().double()
    assert slope[..., ::2, ::2].abs().sum() == slope.abs().sum() > 0, "or the network has no such pattern"
    wanted = torch.zeros(8, 8, dtype=torch.float64)
    for row in range(8):
        for column in range(8):
            # the mean of the nearest that are read: one, two or four of them; at the end there is none beyond
            rows = {row - row % 2, min(row + row % 2, 6)}
            columns = {column - column % 2, min(column + column % 2, 6)}
            around = torch.stack([slope[:, r, c] for r in rows for c in columns]).mean(0)
            wanted[row, column] = (around.relu() * activation[:, row, column]).sum().relu()
    found = finer_maps(engine(net, 2), net, PICTURE, 16).maps[0][0]
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-9)
    assert torch.allclose(usu.gradcam(net, PICTURE[None], 2, finer=True).finer[0][0], wanted, rtol=1e-5, atol=1e-9)
    assert found[1::2, 1::2].any()


@pytest.mark.parametrize(
    ("rows", "columns", "size"),
    [
        (slice(None), slice(None), 14 * 15),
        (slice(8, 9), slice(8, 9), 1),  # one place: a multiple of 8, but not all of these are read
        (slice(0, 1), slice(0, 1), 1),
        (slice(1, None, 2), slice(1, None, 2), 49),
        (slice(0), slice(0), 0),
        (slice(None, None, 2), slice(None, None, 3), 14 * 15),
        (slice(None), slice(None, None, 2), 14 * 15),
    ],
)
def test_a_lattice_has_all_of_its_places(rows, columns, size):
    gradient = torch.zeros(2, 3, 14, 15)
    gradient[1, 2, rows, columns] = -1.0
    found = everywhere(gradient)
    assert found.count_nonzero() == size
    assert torch.equal(found[gradient != 0], gradient[gradient != 0]), "what is read stays"
    assert found.min() >= -1
    assert found.max() <= 0


# ---------------------------------------------------------------- which models have any


@pytest.mark.parametrize(("depth", "middle"), [(4, "blocks.1"), (5, "blocks.2"), (6, "blocks.2")])
def test_of_a_transformer_the_middle_block_is_heard(depth, middle):
    net = seeded(lambda: Tokens(depth))
    expected = usu.layercam(net, PICTURE[None], 2, layer=middle).values.double()
    assert expected.max() > 0
    with counted(net) as seen:
        found = finer_maps(engine(net, 2), net, PICTURE, 16)
    assert seen == [1]
    assert len(found.maps) == 1
    assert torch.equal(found.maps[0], expected)
    assert torch.equal(usu.gradcam(net, PICTURE[None], 2, finer=True).finer[0], expected)
    assert finer_maps(engine(net, 2), net, PICTURE, 17).maps == (), "the tokens are coarser than the map"


def test_a_transformer_of_few_blocks_has_no_middle():
    net = seeded(Tokens)
    with counted(net) as seen:
        found = finer_maps(engine(net), net, PICTURE, 16)
    assert found.maps == ()
    assert seen == [1]
    assert found.engine.target == (int(net(PICTURE[None]).argmax()),)
    assert [one.shape[-1] for one in finer_maps(engine(net), net, PICTURE, 9).maps] == [
        4
    ]  # or nothing was heard at all


def test_a_compiled_model_is_heard_through_what_was_compiled(tower):
    compiled = torch.compile(tower, backend="eager")
    assert module_of(compiled) is tower
    found = finer_maps(engine(compiled, 1), tower, PICTURE, 16)
    assert all(torch.equal(a, b.double()) for a, b in zip(found.maps, by_layercam(tower, 1), strict=True))


def test_which_models_can_be_listened_to(tower):
    assert module_of(tower) is tower
    assert module_of(lambda batch: tower(batch)) is None
    assert module_of(tower.forward) is None
    with torch.inference_mode():
        frozen = Tower()
    assert module_of(frozen) is None, "its weights let no gradient pass"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_half_precision(tower, dtype):
    exact = finer_maps(engine(tower, 2), tower, PICTURE, 16).maps
    rounded = finer_maps(engine(tower.to(dtype), 2), tower, PICTURE, 16).maps
    for one, other in zip(exact, rounded, strict=True):
        assert other.dtype == torch.float64
        assert torch.allclose(one, other, rtol=0.1, atol=0.05 * float(one.max()))


def test_weights_without_gradients_and_a_caller_without_them(tower):
    expected = finer_maps(engine(tower, 2), tower, PICTURE, 16).maps
    tower.requires_grad_(False)
    with torch.no_grad():
        quiet = finer_maps(engine(tower, 2), tower, PICTURE, 16).maps
    with torch.inference_mode():
        quieter = finer_maps(engine(tower, 2), tower, PICTURE.clone(), 16).maps
    for one, two, three in zip(expected, quiet, quieter, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_an_output_without_gradient_has_none(tower):
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = tower

        def forward(self, x: Tensor) -> Tensor:
            return self.tower(x).detach()

    assert finer_maps(engine(Cut(), 0), Cut(), PICTURE, 16).maps == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_takes_no_hooks(tower):
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rest = nn.Conv2d(3, 3, 1), torch.jit.script(nn.Sequential(nn.Conv2d(3, 2, 8, stride=8)))

        def forward(self, x: Tensor) -> Tensor:
            return self.rest(self.first(x)).mean((2, 3))

    net = Around()
    assert [one.shape[-1] for one in finer_maps(engine(net, 0), net, PICTURE, 16).maps] == [32]


def test_gradients_that_are_no_numbers_are_said_to_be_so(tower):
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = tower

        def forward(self, x: Tensor) -> Tensor:
            return (self.tower(x) * 0).sqrt()  # 0, with an infinite slope

    with pytest.raises(ValueError, match=r"^`model` must .*; got NaN"):
        finer_maps(engine(Steep(), 0), Steep(), PICTURE, 16)


# ---------------------------------------------------------------- the model is as it was


def state(model: nn.Module) -> dict[str, object]:
    numpy = np.random.get_state()
    return {
        "training": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "grad": [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "values": {name: v.tolist() for name, v in model.state_dict().items()},
        "torch": torch.get_rng_state().tolist(),
        "numpy": (numpy[1].tolist(), *numpy[2:]),
        "random": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_and_the_random_numbers_are_as_before(tower, fails):
    tower.train()
    tower.norm.eval()
    tower.stem.weight.requires_grad_(False)
    tower.head.weight.grad = torch.full_like(tower.head.weight, 0.25)
    tower.last.register_forward_hook(lambda *_: None)
    tower.fails = fails
    before, picture = state(tower), PICTURE.clone()
    if fails:
        with pytest.raises(RuntimeError, match="the cable is loose"):
            finer_maps(engine(tower), tower, picture, 16)
    else:
        first, second = (finer_maps(engine(tower), tower, picture, 16).maps[0] for _ in range(2))
        assert torch.equal(first, second), "dropout was on"
    assert state(tower) == before
    assert torch.equal(picture, PICTURE)
    assert not picture.requires_grad
