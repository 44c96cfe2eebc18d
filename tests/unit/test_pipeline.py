from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import usu
from tests.chosen import PLAIN, chosen
from usu import score, segment
from usu.errors import UsuWarning
from usu.forward import engine
from usu.forward.fills import Constant
from usu.operator.interpolate import layered
from usu.pipeline import explain, upsample
from usu.score import posterior

GENERATOR = torch.Generator().manual_seed(0)
IMAGE = torch.rand(3, 16, 16, generator=GENERATOR)
BATCH = torch.rand(3, 3, 16, 16, generator=GENERATOR)
COARSE = torch.rand(4, 4, generator=GENERATOR, dtype=torch.float64) + 0.1
GRID = segment.Tiles()
WEIGHTS = torch.randn(5, 3 * 16 * 16, generator=GENERATOR, dtype=torch.float64)


class Counting:
    """A linear model of five classes that counts the pictures it is shown."""

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.seen, self.fail_at, self.error = 0, fail_at, error

    def __call__(self, batch: Tensor) -> Tensor:
        self.seen += len(batch)
        if self.fail_at is not None and self.seen >= self.fail_at and self.error is not None:
            raise self.error
        return batch.double().flatten(1) @ WEIGHTS.T


class Net(nn.Module):
    """Dropout and batch norm, so that a wrong mode shows; made to fail on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(6, 5)
        self.seen, self.fail_at, self.error = 0, 10**9, RuntimeError("the cable is loose")

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        if self.seen >= self.fail_at:
            raise self.error
        return self.head(self.drop(self.last(self.norm(self.first(x)).relu()).relu().mean((2, 3))))


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Net()


def tiny(**changes: object) -> usu.Settings:
    """The default, small."""
    return chosen("cell", **{**PLAIN, "segmenter": GRID, "parts": 25, **changes})


# ---------------------------------------------------------------- how often the model is asked


@pytest.mark.parametrize("preset", ["cell", "soft"])
@pytest.mark.parametrize("target", [2, None, [0, 1, 4], lambda output: output[:, 3]])
@pytest.mark.parametrize("evaluations", [10, 37])
def test_sampled_scoring_makes_exactly_so_many_evaluations(preset, target, evaluations):
    model = Counting()
    result = upsample(COARSE, IMAGE, model, target, preset=chosen(preset, parts=30), evaluations=evaluations)
    assert (model.seen, result.evaluations) == (evaluations, evaluations)
    assert result.stop_reason is usu.StopReason.EVALUATIONS


@pytest.mark.parametrize("evaluations", [10, 37])
@pytest.mark.parametrize("fit", ["ridge", "kernel_shap"])
@pytest.mark.parametrize("target", [2, None])
def test_also_through_all_depths(fit, target, evaluations):
    model = Counting()
    settings = tiny(parts=9, depth=2, fit=fit, evaluations=evaluations, threshold=0.0, tolerance=0.0)
    result = upsample(COARSE, IMAGE, model, target, preset=settings)
    assert len(result.segments) == 3
    assert (model.seen, result.evaluations) == (evaluations, evaluations)


def test_a_module_is_asked_as_often_counted_by_a_hook(net):
    seen = []
    handle = net.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    result = upsample(COARSE, IMAGE, net, evaluations=37)
    handle.remove()
    assert sum(seen) == result.evaluations == 37


@pytest.mark.parametrize("mode", ["delete", "keep", "both"])
@pytest.mark.parametrize("target", [1, None])
@pytest.mark.parametrize("evaluations", [10, 13, 20, 21, 23, 45])
def test_deleting_never_makes_more(mode, target, evaluations):
    model = Counting()
    first = {"delete": 10, "keep": 10 + (target is None), "both": 20}[mode]
    settings = tiny(scoring="delete", mode=mode, parts=9, depth=2, threshold=0.0, tolerance=0.0)
    if evaluations < first:
        with pytest.raises(ValueError, match=f"`evaluations` must be at least {first} to score each of the 9 segments"):
            upsample(COARSE, IMAGE, model, target, preset=settings, evaluations=evaluations)
        assert model.seen == 0
        return
    result = upsample(COARSE, IMAGE, model, target, preset=settings, evaluations=evaluations)
    assert model.seen == result.evaluations <= evaluations
    # what is left would not score the two halves of one segment, with what every round of "keep" costs besides
    assert evaluations - result.evaluations < {"delete": 2, "keep": 2 + 2, "both": 4 + 2}[mode]
    assert result.stop_reason is usu.StopReason.EVALUATIONS


def test_without_a_limit_deleting_takes_what_it_takes():
    for mode, expected in (("delete", 1 + 9), ("keep", 9 + 1), ("both", 1 + 2 * 9 + 1)):
        model = Counting()
        settings = tiny(scoring="delete", mode=mode, parts=9, evaluations=None)
        assert upsample(COARSE, IMAGE, model, 0, preset=settings).evaluations == model.seen == expected


@pytest.mark.parametrize(
    ("settings", "target", "least"),
    [
        (tiny(), 0, 2),
        (tiny(), None, 3),
        (tiny(depth=2), 0, 6),
        (tiny(depth=2), None, 7),
        (tiny(fit="kernel_shap"), 0, 4),
        (tiny(fit="kernel_shap", depth=1), None, 7),
    ],
)
def test_too_few_evaluations_are_said_in_the_callers_number(settings, target, least):
    model = Counting()
    text = f"^`evaluations` must be at least {least} for sampled scores at this depth; got {least - 1}."
    with pytest.raises(ValueError, match=text):
        upsample(COARSE, IMAGE, model, target, preset=replace(settings, evaluations=least - 1))
    assert model.seen == 0
    result = upsample(COARSE, IMAGE, model, target, preset=replace(settings, evaluations=least))
    assert result.evaluations == model.seen <= least


@pytest.mark.parametrize("target", [1, None, [1, 2], lambda output: output[:, 0]])
def test_fast_costs_one_evaluation(net, target):
    result = upsample(COARSE, IMAGE, net, target, preset="fast")
    assert (net.seen, result.evaluations) == (1, 1)
    if target is None:
        assert result.provenance["target"] == int(net.eval()(IMAGE[None]).argmax())
        named = upsample(COARSE, IMAGE, net, result.provenance["target"], preset="fast")
        assert torch.equal(named.pixel_map, result.pixel_map)


@pytest.mark.parametrize("link", ["logit", "probability"])
def test_fast_reads_its_own_target_through_the_link(net, link):
    top = int(net.eval()(IMAGE[None]).argmax())
    first, second = (upsample(COARSE, IMAGE, net, goal, preset=chosen("fast", link=link)) for goal in (None, top))
    assert torch.equal(first.scores, second.scores)
    assert first.provenance["target"] == top


@pytest.mark.parametrize("preset", ["paper", "fast", "cell", "soft"])
@pytest.mark.parametrize("target", [None, 2, [0, 3]])
def test_every_preset_runs(net, preset, target):
    result = upsample(COARSE, IMAGE, net, target, preset=preset)
    assert result.pixel_map.shape == result.scores.shape == (*((2,) if isinstance(target, list) else ()), 16, 16)
    assert result.mass_error < 1e-12
    assert result.provenance["preset"] == preset
    assert torch.isfinite(result.pixel_map).all()
    assert float(result.scores.min()) >= 0
    assert float(result.scores.max()) <= 1
    assert result.seconds > 0
    assert all(isinstance(labels, np.ndarray) and labels.shape == (16, 16) for labels in result.segments)


def test_progress_is_told():
    told = []
    upsample(COARSE, IMAGE, Counting(), 0, evaluations=300, progress=lambda done, total: told.append((done, total)))
    assert told == [(60 * k, 300) for k in range(1, 6)]


def test_what_follows_the_passes_has_one_thread_and_the_passes_have_theirs(monkeypatch):
    threads = {"passes": set(), "fits": set()}
    plain = posterior._believed

    def model(batch: Tensor) -> Tensor:
        threads["passes"].add(torch.get_num_threads())
        return Counting()(batch)

    def noted(*given, **options):
        threads["fits"].add(torch.get_num_threads())
        return plain(*given, **options)

    monkeypatch.setattr(posterior, "_believed", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        upsample(COARSE, IMAGE, model, 2, preset="soft", evaluations=40)
        assert (threads, torch.get_num_threads()) == ({"passes": {2}, "fits": {1}}, 2)
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------- masses


@pytest.mark.parametrize("preset", ["cell", "paper"])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("sign", ["positive", "mixed", "negative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_keep_their_mass(preset, depth, sign, dtype):
    coarse = {"positive": COARSE, "mixed": COARSE - COARSE.mean(), "negative": -COARSE}[sign].to(dtype)
    image = torch.rand(3, 17, 23, generator=torch.Generator().manual_seed(depth))
    model = lambda batch: torch.stack([batch[:, 0, :9].sum((1, 2)), batch[:, 1].std((1, 2))], 1)  # noqa: E731
    result = upsample(coarse, image, model, 0, preset=chosen(preset, depth=depth, parts=20, segmenter=GRID))
    assert result.pixel_map.dtype == dtype
    rows, columns = (torch.tensor([(2 * i + 1) * 4 // (2 * n) for i in range(n)]) for n in (17, 23))
    worst = 0.0
    for i in range(4):
        for j in range(4):
            inside = result.pixel_map.double()[rows == i][:, columns == j]
            mass = float(coarse[i, j].double()) * inside.numel()
            worst = max(worst, abs(float(inside.sum()) - mass) / abs(mass))
    assert worst < (1e-6 if dtype == torch.float32 else 1e-12)
    assert result.mass_error == pytest.approx(worst, rel=1e-3, abs=1e-15)


@pytest.mark.parametrize("coarse", [COARSE, -COARSE, COARSE - COARSE.mean(), COARSE - 0.5])
@pytest.mark.parametrize("depth", [0, 1])
def test_soft_keeps_the_total(coarse, depth):
    result = upsample(coarse, IMAGE, Counting(), 1, preset=chosen("soft", depth=depth), evaluations=40)
    total, size = float(coarse.sum()) * 16, float(coarse.abs().sum()) * 16
    error = abs(float(result.pixel_map.sum()) - total) / size
    assert error < 1e-12
    assert result.mass_error == pytest.approx(error, abs=1e-15)
    cells = result.pixel_map.reshape(4, 4, 4, 4).sum((1, 3))
    assert (cells - 16 * coarse).abs().max() > 0.1  # the cells do not keep theirs


def test_the_mass_error_is_measured_and_not_assumed(monkeypatch):
    from usu.pipeline import halves

    def leaky(coarse, *rest, **more):
        result = usu.redistribute(coarse, *rest, **more)
        result[..., 0, 0] += 0.01 * 16 * coarse[..., 0, 0]
        return result

    monkeypatch.setattr(halves, "redistributed", leaky)
    assert upsample(COARSE, IMAGE, Counting(), 0, evaluations=10).mass_error == pytest.approx(0.01)
    soft = upsample(COARSE, IMAGE, Counting(), 0, preset="soft", evaluations=10).mass_error
    assert soft == pytest.approx(0.01 * float(COARSE[0, 0] / COARSE.sum()))


@pytest.mark.parametrize("budget", ["iwmr", "hybrid", usu.SoftIWMR(prior="mass"), usu.Hybrid(0.3)])
def test_other_budgets_keep_their_promise(budget):
    result = upsample(COARSE - 0.4, IMAGE, Counting(), 0, preset=chosen(budget=budget), evaluations=20)
    wanted = usu.cell_budgets(COARSE - 0.4, result.scores, budget=budget)
    sums = result.pixel_map.reshape(4, 4, 4, 4).sum((1, 3)).flatten()
    assert torch.allclose(sums, wanted, rtol=1e-12, atol=1e-12)
    assert result.mass_error < 1e-10


@pytest.mark.parametrize("preset", ["cell", "soft", "paper", "fast"])
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("target", [2, None, [1, 2]])
def test_a_map_of_zeros_stays_so_and_costs_nothing(net, preset, depth, target):
    with pytest.warns(UsuWarning, match="zero everywhere"):
        result = upsample(torch.zeros(4, 4), IMAGE, net, target, preset=chosen(preset, depth=depth))
    assert result.pixel_map.abs().max() == 0
    assert result.stop_reason is usu.StopReason.NOTHING_TO_MOVE
    assert result.mass_error == 0
    # only to name the target
    assert result.evaluations == net.seen == (1 if target is None else 0)
    assert result.provenance["target"] == (int(net.eval()(IMAGE[None]).argmax()) if target is None else target)


@pytest.mark.parametrize("preset", ["cell", "soft", "paper"])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_the_map_is_the_operator_on_the_scores(preset, sign):
    """One call by hand: what is handed to the operator, for maps of one sign and of both."""
    coarse = sign * COARSE if sign else COARSE - COARSE.mean()
    result = upsample(coarse, IMAGE, Counting(), 0, preset=chosen(preset, parts=9))
    smooth = usu.interpolate(coarse, (16, 16), "bilinear")
    own = chosen(preset, parts=9)
    settings = {
        "cell": {"base": layered(smooth, [], 2, own.of_coarse).abs(), "max_gain": own.max_gain},
        "soft": {"base": layered(smooth, [], 2, own.of_coarse), "budget": own.budget},
        "paper": {"signed": "literal"},
    }[preset]
    expected = usu.redistribute(coarse, result.scores, temperature=own.temperature_of(16), **settings)
    assert torch.equal(result.pixel_map, expected)
    assert float(result.scores.std()) > 0.1


def test_the_ceiling_is_handed_on():
    run = lambda gain: upsample(  # noqa: E731
        COARSE, IMAGE, Counting(), 0, preset=chosen(evaluations=20, temperature=0.01, max_gain=gain)
    )
    gains = [float((run(gain).pixel_map / COARSE.repeat_interleave(4, 0).repeat_interleave(4, 1)).max())
             for gain in (2.0, None)]  # fmt: skip
    assert gains[0] == pytest.approx(2)
    assert gains[1] > 2.5


def test_gradients_reach_the_coarse_map():
    coarse = COARSE.clone().requires_grad_()
    result = upsample(coarse, IMAGE, Counting(), 0, evaluations=12)
    result.pixel_map.sum().backward()
    assert torch.allclose(coarse.grad, torch.full((4, 4), 16.0, dtype=torch.float64))


# ---------------------------------------------------------------- locality


def holes() -> Tensor:
    coarse = torch.zeros(4, 4, dtype=torch.float64)
    coarse[0, 1], coarse[2, 2], coarse[3, 0] = 2.0, -1.0, 0.5
    return coarse


#: Scores that reach no further than their segments, cells without mass that stay empty: then locality saves something.
LOCAL = {"edges": "segments", "trace": 0.0, "base": "bilinear", "fill": Constant(-7.0)}


def asked_of(settings: usu.Settings, coarse: Tensor, labels: np.ndarray) -> tuple[usu.Upsampled, set[int]]:
    """Run, and find out from the pictures themselves which segments were taken away."""
    gone: set[int] = set()

    def spy(batch: Tensor) -> Tensor:
        for one in batch:
            gone.update(np.unique(labels[(one == -7).all(0).numpy()]).tolist())
        return batch.double().flatten(1) @ WEIGHTS.T

    return upsample(coarse, IMAGE, spy, 0, preset=settings), gone


def test_deleting_leaves_out_what_cannot_matter_and_the_result_is_the_same():
    settings = tiny(scoring="delete", parts=36, evaluations=None, **LOCAL)
    labels = GRID(np.zeros((16, 16, 3)), 36)
    coarse = holes()
    result, gone = asked_of(settings, coarse, labels)
    # by hand: a segment matters if it meets a cell with mass that also holds another segment
    cell = np.arange(16)[:, None] // 4 * 4 + np.arange(16) // 4
    heavy = [k for k in range(16) if coarse.flatten()[k] != 0]
    matters = {p for k in heavy for p in np.unique(labels[cell == k]) if len(np.unique(labels[cell == k])) > 1}
    assert gone == matters
    assert 0 < len(matters) < 36
    assert result.evaluations == 1 + len(matters)

    every = score.delete(engine(Counting(), 0), IMAGE, labels, fill=Constant(-7.0)).values[0]
    # min-max looks at those that matter; the others may have any score at all
    scale = every[sorted(matters)]
    unit = ((every - scale.min()) / (scale.max() - scale.min())).clamp(0, 1)
    base = usu.interpolate(coarse, (16, 16), "bilinear").abs()
    for others in (unit, torch.where(torch.tensor([p in matters for p in range(36)]), unit, 0.123)):
        expected = usu.redistribute(
            coarse, others[torch.from_numpy(labels)], temperature=settings.temperature_of(16), base=base,
            max_gain=settings.max_gain,
        )  # fmt: skip
        assert torch.equal(result.pixel_map, expected)


def test_sampling_spends_its_groups_on_what_matters():
    labels = GRID(np.zeros((16, 16, 3)), 36)
    _, gone = asked_of(tiny(parts=36, evaluations=72, **LOCAL), holes(), labels)
    needed = score.needed(labels, np.arange(16)[:, None] // 4 * 4 + np.arange(16) // 4, holes().flatten())
    assert gone == set(needed.nonzero().flatten().tolist())
    reaching: list[dict[str, object]] = [{"budget": "iwmr"}, {"edges": "picture"}, {"trace": 1e-13}]
    for change in reaching:
        _, gone = asked_of(tiny(parts=36, evaluations=72, **{**LOCAL, **change}), holes(), labels)
        assert gone == set(range(36)), change


def test_a_refined_result_is_the_same_as_with_everything_evaluated(monkeypatch):
    settings = tiny(scoring="delete", parts=9, depth=1, evaluations=None, threshold=0.0, **LOCAL)
    saving = Counting()
    result = upsample(holes(), IMAGE, saving, 0, preset=settings)
    monkeypatch.setattr(
        "usu.pipeline.halves.needed", lambda labels, cells, masses: torch.ones(int(labels.max()) + 1).bool()
    )
    full = Counting()
    expected = upsample(holes(), IMAGE, full, 0, preset=settings)
    assert len(result.segments) == 2
    assert torch.equal(result.pixel_map, expected.pixel_map)
    assert saving.seen < full.seen


def test_segments_as_large_as_cells_are_refined_none_the_less():
    # at depth 0 no cell holds two of them, so no score could change a thing; their parts' scores do
    model = lambda batch: batch[:, 0, :2, :2].sum((1, 2))[:, None]  # noqa: E731
    settings = tiny(scoring="delete", parts=16, depth=1, evaluations=None, temperature=0.15, **{**LOCAL, "fill": 0.0})
    result = upsample(COARSE, torch.ones(3, 16, 16), model, 0, preset=settings)
    assert len(result.segments) == 2
    corner = result.pixel_map[:4, :4]
    assert corner[:2, :2].sum() > 0.6 * corner.sum()


# ---------------------------------------------------------------- batches and several targets


def alike(one: usu.Upsampled, other: usu.Upsampled) -> None:
    assert torch.equal(torch.as_tensor(one.pixel_map), torch.as_tensor(other.pixel_map))
    assert torch.equal(torch.as_tensor(one.scores), torch.as_tensor(other.scores))


MAPS = torch.rand(3, 4, 4, generator=GENERATOR, dtype=torch.float64)
SEVERAL_MAPS = torch.rand(3, 2, 4, 4, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize(
    ("coarse", "target"),
    [
        (MAPS, 1),
        (MAPS, None),
        (MAPS, [0, 4, 2]),
        (MAPS, np.array([0, 4, 2])),
        (MAPS, torch.tensor([[0, 1], [2, 3], [4, 0]])),
        (SEVERAL_MAPS, [[0, 1], (2, 3), [4, 0]]),
        (SEVERAL_MAPS, 3),
        (SEVERAL_MAPS, [3, 1, None]),
        (SEVERAL_MAPS, [[3], [1], [0]]),
        (MAPS, lambda output: output[:, 0] - output[:, 1]),
        (SEVERAL_MAPS, lambda output: output[:, :2]),
        (MAPS, lambda output: output[:, :2]),
        (SEVERAL_MAPS[:, :1], [[0, 1], [2, 3], [4, 0]]),
    ],
    ids=range(13),
)
def test_a_batch_is_its_pictures_one_by_one(coarse, target):
    per_picture = [target] * 3 if callable(target) or target is None or isinstance(target, int) else list(target)
    settings = tiny(evaluations=24, depth=int(coarse is MAPS), parts=9)
    model = Counting()
    batch = upsample(coarse, BATCH, model, target, preset=settings)
    single = [
        upsample(c, x, Counting(), t, preset=settings) for c, x, t in zip(coarse, BATCH, per_picture, strict=True)
    ]
    alike(batch, replace_maps(single))
    assert model.seen == batch.evaluations == sum(s.evaluations for s in single)
    assert batch.stop_reason == tuple(s.stop_reason for s in single)
    assert batch.provenance["target"] == tuple(s.provenance["target"] for s in single)
    assert batch.mass_error == max(s.mass_error for s in single)
    assert len(batch.segments) == 3
    for several, one in zip(batch.segments, single, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(several, one.segments, strict=True))


def replace_maps(single: list[usu.Upsampled]) -> usu.Upsampled:
    maps, scores = (torch.stack([getattr(s, name) for s in single]) for name in ("pixel_map", "scores"))
    return replace(single[0], pixel_map=maps, scores=scores)


def test_a_batch_of_one_keeps_its_dimension():
    batch = upsample(MAPS[:1], BATCH[:1], Counting(), [2], evaluations=10)
    alone = upsample(MAPS[0], BATCH[0], Counting(), 2, evaluations=10)
    assert batch.pixel_map.shape == (1, 16, 16)
    assert torch.equal(batch.pixel_map[0], alone.pixel_map)
    assert batch.provenance["target"] == (2,)


@pytest.mark.parametrize("scoring", ["sampled", "delete", "gradient"])
def test_several_targets_are_read_from_the_same_passes(net, scoring):
    run = lambda coarse, target: upsample(  # noqa: E731
        coarse, IMAGE, net, target, preset=tiny(scoring=scoring, parts=16, evaluations=40, segmenter=segment.Slic())
    )
    one, other, together = run(MAPS[0], 1), run(MAPS[1], 4), run(MAPS[:2], [1, 4])
    assert together.evaluations == one.evaluations == other.evaluations
    assert torch.allclose(together.pixel_map, torch.stack([one.pixel_map, other.pixel_map]), rtol=0, atol=1e-9)
    assert together.provenance["target"] == [1, 4]
    shared = run(MAPS[0], [1, 4])
    assert shared.pixel_map.shape == (2, 16, 16)
    assert torch.allclose(shared.pixel_map[0], one.pixel_map, rtol=0, atol=1e-9)
    assert not torch.allclose(shared.pixel_map[1], one.pixel_map, rtol=0, atol=1e-3)


@pytest.mark.parametrize("coarse", [COARSE, torch.stack([COARSE, COARSE.T, COARSE.flip(0)])])
def test_several_targets_are_the_same_made_a_few_at_a_time(net, coarse, monkeypatch):
    def made():
        return upsample(coarse, IMAGE, net, [0, 1, 2], preset=chosen("soft", parts=6), evaluations=12)

    whole = made()
    monkeypatch.setattr("usu.pipeline.halves.AT_ONCE", 1)
    monkeypatch.setattr("usu.pipeline.certainty.AT_ONCE", 1)
    monkeypatch.setattr(sys.modules["usu.operator.interpolate"], "_AT_ONCE", 1)
    parts = made()
    for name in ("pixel_map", "scores", "stderr"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-12, atol=1e-14)
    assert parts.stability == pytest.approx(whole.stability)


def test_a_callable_target_is_asked_about_the_raw_output():
    difference = lambda output: output["y"][:, 0] - output["y"][:, 3]  # noqa: E731
    raw = lambda batch: {"y": batch.double().flatten(1) @ WEIGHTS.T}  # noqa: E731
    result = upsample(COARSE, IMAGE, raw, difference, preset=tiny(evaluations=20))
    plain = upsample(COARSE, IMAGE, lambda batch: (batch.double().flatten(1) @ (WEIGHTS[0] - WEIGHTS[3]))[:, None], 0,
                     preset=tiny(evaluations=20))  # fmt: skip
    assert torch.allclose(result.pixel_map, plain.pixel_map, rtol=0, atol=1e-9)
    assert result.provenance["target"] == "<lambda>"
    several = upsample(COARSE, IMAGE, Counting(), lambda output: output[:, [3, 1]], preset=tiny(evaluations=20))
    for row, target in zip(several.pixel_map, (3, 1), strict=True):
        alone = upsample(COARSE, IMAGE, Counting(), target, preset=tiny(evaluations=20)).pixel_map
        assert torch.allclose(row, alone, rtol=0, atol=1e-9)


# ---------------------------------------------------------------- arrays in, arrays out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_library_and_dtype_of_the_coarse_map_come_back(dtype):
    array = COARSE.numpy().astype(dtype)
    from_numpy = upsample(array, IMAGE.numpy(), Counting(), 1, evaluations=12)
    from_torch = upsample(torch.from_numpy(array), IMAGE, Counting(), 1, evaluations=12)
    assert isinstance(from_numpy.pixel_map, np.ndarray)
    assert isinstance(from_numpy.scores, np.ndarray)
    assert from_numpy.pixel_map.dtype == from_numpy.scores.dtype == dtype
    assert from_torch.pixel_map.dtype == from_torch.scores.dtype == getattr(torch, dtype)
    assert from_torch.pixel_map.device == COARSE.device
    alike(from_numpy, from_torch)


def test_what_goes_in_is_not_written_to():
    coarse, image, picture = COARSE.clone(), IMAGE.clone(), np.random.default_rng(0).random((16, 16, 3))
    before = picture.copy()
    upsample(coarse, image, Counting(), 0, preset="soft", evaluations=12, picture=picture)
    assert torch.equal(coarse, COARSE)
    assert torch.equal(image, IMAGE)
    assert np.array_equal(picture, before)


def test_segments_follow_the_picture_that_is_shown():
    picture = torch.zeros(16, 16, 3)
    picture[:, 5:] = 1
    settings = tiny(segmenter=segment.Slic(), parts=2, evaluations=8)
    for shown in (picture, picture.numpy()):
        (labels,) = upsample(COARSE, IMAGE, Counting(), 0, preset=settings, picture=shown).segments
        assert np.array_equal(labels == labels[0, 0], picture.numpy()[..., 0] == 0)
    grey = upsample(COARSE, picture.permute(2, 0, 1)[:1], lambda b: b.mean((1, 2, 3))[:, None], 0, preset=settings)
    assert np.array_equal(grey.segments[0], labels)


def test_each_picture_of_a_batch_is_shown_on_its_own():
    pictures = np.zeros((3, 16, 16, 3))
    for i, column in enumerate((4, 8, 12)):
        pictures[i, :, column:] = 1
    settings = tiny(segmenter=segment.Slic(), parts=2, evaluations=8)
    result = upsample(MAPS, BATCH, Counting(), 0, preset=settings, picture=pictures)
    for (labels,), shown in zip(result.segments, pictures, strict=True):
        assert np.array_equal(labels == labels[0, 0], shown[..., 0] == 0)


def test_cells_of_any_shape():
    labels = segment.Slic()(np.random.default_rng(1).random((16, 16, 3)), 12)
    count = int(labels.max()) + 1
    coarse = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 0.3
    for given in (labels, torch.from_numpy(labels)):
        result = upsample(coarse, IMAGE, Counting(), 0, evaluations=30, cells=given)
        sums = np.bincount(labels.ravel(), result.pixel_map.numpy().ravel())
        np.testing.assert_allclose(sums, coarse.numpy() * np.bincount(labels.ravel()), rtol=1e-12)
        assert result.mass_error < 1e-12
        assert result.evaluations == 30
    several = upsample(torch.stack([coarse, -coarse]), IMAGE, Counting(), [0, 1], evaluations=30, cells=labels)
    assert several.pixel_map.shape == (2, 16, 16)
    soft = upsample(coarse, IMAGE, Counting(), 0, preset="soft", evaluations=30, cells=labels)
    assert float(soft.pixel_map.sum()) == pytest.approx(
        float((coarse * torch.from_numpy(np.bincount(labels.ravel()))).sum())
    )
    batch = upsample(torch.stack([coarse] * 3), BATCH, Counting(), 0, evaluations=30, cells=labels)
    assert batch.pixel_map.shape == (3, 16, 16)


# ---------------------------------------------------------------- one clear sentence

V, T = ValueError, TypeError


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"image": torch.rand(16)}, V, "`image` must be C x H x W or B x C x H x W; got 16."),
        ({"image": torch.zeros(3, 16, 16).int()}, T, "`image` must hold floating-point numbers; got torch.int32"),
        ({"image": torch.full((3, 16, 16), torch.nan)}, V, "`image` must be finite; got NaN."),
        ({"coarse": torch.full((4, 4), torch.inf)}, V, "`coarse` must be finite; got infinity."),
        ({"coarse": torch.ones(4)}, V, "`coarse` must be h x w or T x h x w for this `image`; got 4."),
        ({"coarse": torch.ones(17, 4)}, V, "`coarse` must be no finer than `image` (16 x 16); got 17 x 4."),
        ({"image": BATCH, "coarse": MAPS[:2]}, V, "`coarse` must be 3 x h x w or 3 x T x h x w for this `image`;"),
        ({"image": BATCH, "coarse": MAPS, "target": [1, 2]}, V, "`target` must have one entry per picture (3); got 2."),
        ({"image": BATCH, "coarse": MAPS, "target": [[1, 2], [3], 4]}, V, "`target` must have the same form for every"),
        ({"image": BATCH, "coarse": MAPS, "target": [1, 2, -1]}, V, "`target` must be a class index of at least 0"),
        ({"coarse": MAPS, "target": [1, 2]}, V, "`coarse` must hold one map for all targets or one for each of the 2"),
        ({"target": "cat"}, T, "`target` must be a class index, a list of them, a callable or None; got str."),
        ({"target": []}, V, "`target` must name at least one class; got an empty list."),
        ({"model": "resnet"}, T, "`model` must be an nn.Module or a callable on batches; got str."),
        ({"picture": np.zeros((8, 16, 3))}, V, "`picture` must be H x W x 3 with the height and width of `image` "),
        ({"picture": np.zeros((16, 16, 3), np.uint8)}, T, "`picture` must hold floats in [0, 1]; got uint8."),
        ({"cells": torch.zeros(8, 16).long(), "coarse": torch.ones(3)}, V, "`cells` must give every pixel (16 x 16)"),
        ({"cells": torch.full((16, 16), 3), "coarse": torch.ones(3)}, V, "`cells` must be labels from 0 to 2, one"),
        ({"cells": torch.zeros(16, 16), "coarse": torch.ones(3)}, T, "`cells` must hold integer labels; got"),
        ({"preset": "best"}, V, "`preset` must be one of 'paper', 'cell', 'soft', 'fast'; got 'best'."),
        ({"evaluations": 0}, V, "`evaluations` must be a whole number of at least 1; got 0."),
        ({"seed": 10**23}, V, "`seed` must be a whole number from 0 to"),
        ({"finer": torch.ones(8, 8)}, T, "`finer` must be a list of maps; got Tensor."),
        ({"finer": [torch.ones(8, 8), torch.ones(1, 8, 8)]}, V, "`finer` must hold maps of h' x w', one beside every"),
        ({"finer": [torch.full((8, 8), torch.nan)]}, V, "`finer` must be finite; got NaN."),
    ],
    ids=range(25),
)  # fmt: skip
def test_bad_arguments_get_one_clear_sentence_before_the_model_is_asked(change, error, text):
    model = Counting()
    arguments = {"coarse": COARSE, "image": IMAGE, "model": model, "evaluations": 10, **change}
    with pytest.raises(error) as caught:
        upsample(**arguments)
    assert str(caught.value).startswith(text)
    assert model.seen == 0


@pytest.mark.parametrize(
    "change",
    [
        {"scoring": "magic"}, {"evaluations": 3.5}, {"evaluations": None}, {"parts": 0}, {"children": 0}, {"depth": -1},
        {"seed": 0.5}, {"temperature": 0.0}, {"temperature": 1e-320}, {"sharpest": 0.0}, {"base": "nearest"},
        {"base": np.ones((2, 2))},
        {"max_gain": 0.5}, {"budget": "cel"}, {"budget": 3}, {"fill": "black"}, {"link": "odds"}, {"mode": "drop"},
        {"segmenter": "slic"}, {"fit": "lasso"}, {"signed": "odd"}, {"edges": "pixels"}, {"trace": 1e-3},
        {"trace": -1e-13}, {"of_coarse": -0.5}, {"mixing": 0.0}, {"threshold": -0.1}, {"tolerance": -1},
        {"center": "x"}, {"heterogeneity": "sobel"}, {"reach": "far"}, {"potential": 3},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_settings_check_themselves(change):
    (name,) = change
    with pytest.raises((ValueError, TypeError), match=f"^`{name}` must .*; got "):
        tiny(**change)


def test_a_coarse_map_of_a_source_and_a_loaded_model_are_accepted(trained):
    found = usu.gradcam(trained, IMAGE[None], 3, finer=True, relu=False)
    loaded = usu.models.Loaded("net", trained, lambda pixels: None)
    result = upsample(found, IMAGE, loaded, preset=tiny(evaluations=20))
    by_hand = upsample(found.values[0], IMAGE, trained, 3, preset=tiny(evaluations=20), finer=[found.finer[0][0]])
    assert torch.equal(result.pixel_map, by_hand.pixel_map)
    assert result.provenance["target"] == 3
    batch = upsample(usu.gradcam(trained, BATCH, relu=False), BATCH, loaded, preset=tiny(evaluations=20))
    assert batch.pixel_map.shape == (3, 16, 16)


def test_what_only_the_model_can_tell():
    with pytest.raises(ValueError, match=r"`target` must be a class index from 0 to 4, .*; got 5"):
        upsample(COARSE, IMAGE, Counting(), 5, evaluations=10)
    with pytest.raises(ValueError, match="`coarse` must hold one map for all targets or one for each of the 2; got 3"):
        upsample(MAPS, IMAGE, Counting(), lambda output: output[:, :2], evaluations=10)
    with pytest.raises(ValueError, match="`model` must return finite values"):
        upsample(COARSE, IMAGE, lambda batch: torch.full((len(batch), 2), torch.nan), 0, evaluations=10)


# ---------------------------------------------------------------- the model is as it was


def state(model: nn.Module) -> dict[str, object]:
    numpy = np.random.get_state()
    return {
        "training": [module.training for module in model.modules()],
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks), len(m._backward_pre_hooks))
            for m in model.modules()
        ],
        "grad": [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "values": {name: (v.dtype, v.device, v.stride(), v.tolist()) for name, v in model.state_dict().items()},
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "torch": torch.get_rng_state().tolist(),
        "numpy": (numpy[1].tolist(), *numpy[2:]),
        "random": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.fixture
def odd(net: Net) -> Net:
    """A module in the middle of being trained: mixed modes, frozen parts, gradients, a hook, channels last."""
    net.train()
    net.norm.eval()
    net.first.weight.requires_grad_(False)
    net.to(memory_format=torch.channels_last)
    net.head.weight.grad = torch.full_like(net.head.weight, 0.25)
    net.last.register_forward_hook(lambda *_: None)
    return net


def run_upsample(model: nn.Module, scoring: str) -> None:
    upsample(
        COARSE, IMAGE, model, preset=tiny(scoring=scoring, parts=9, depth=1, evaluations=30, segmenter=segment.Slic())
    )


CALLS: dict[str, Callable[[nn.Module], object]] = {
    "sampled": lambda model: run_upsample(model, "sampled"),
    "delete": lambda model: run_upsample(model, "delete"),
    "gradient": lambda model: run_upsample(model, "gradient"),
    "explain": lambda model: explain(model, IMAGE, evaluations=12),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_model_and_the_random_numbers_are_as_before(odd, call):
    before = state(odd)
    CALLS[call](odd)
    assert state(odd) == before


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [RuntimeError("the cable is loose"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
@pytest.mark.parametrize("when", [1, 2, 9])
def test_also_when_the_model_raises_in_the_middle(odd, call, error, when):
    before = state(odd)
    odd.fail_at, odd.error = when, error
    if (call, when) in {("gradient", 2), ("gradient", 9)}:
        odd.fail_at = 1  # it has no more than one pass per depth
    with pytest.raises(type(error)) as caught:
        CALLS[call](odd)
    assert caught.value is error
    assert state(odd) == before


# ---------------------------------------------------------------- explain


@pytest.fixture
def trained(net: Net) -> Net:
    return net.eval()


def test_explain_is_gradcam_made_soft(trained):
    result = explain(trained, IMAGE, evaluations=25, classes=["a", "b", "c", "d", "e"])
    top = int(trained(IMAGE[None]).argmax())
    found = usu.gradcam(trained, IMAGE[None])
    assert result.source.layer == found.layer == "last"
    assert result.source.targets == (top,)
    assert result.label == "abcde"[top]
    np.testing.assert_array_equal(result.coarse, found.values[0].numpy().astype(np.float64))
    heard = [level[0] for level in usu.gradcam(trained, IMAGE[None], finer=True).finer]
    again = upsample(result.coarse, IMAGE, trained, top, preset="soft", evaluations=25, finer=heard)
    assert [level.shape for level in heard] == [(8, 8)]
    np.testing.assert_array_equal(result.pixel_map, again.pixel_map)
    assert result.upsampled.provenance["preset"] == "soft"
    assert result.upsampled.evaluations == 25
    assert result.pixel_map.sum() == pytest.approx(result.coarse.mean() * 256, rel=1e-12)
    assert result.picture.shape == (16, 16, 3)
    assert result.first_map is result.pixel_map
    assert explain(trained, IMAGE[None], evaluations=25).pixel_map.tolist() == result.pixel_map.tolist()
    assert explain(trained, IMAGE, evaluations=25).label == f"class {top}"


def test_gradcams_pass_is_counted_apart(trained):
    result = explain(trained, IMAGE, evaluations=25)
    assert trained.seen == 26
    assert (result.upsampled.evaluations, result.source.evaluations) == (25, 1)


def test_explain_another_class_layer_preset(trained):
    result = explain(trained, IMAGE, 3, layer="first", preset="cell", evaluations=25, classes=["a"])
    assert result.source.layer == "first"
    assert result.source.targets == (3,)
    assert result.label == "class 3"  # there are fewer names than classes
    assert result.coarse.shape == (8, 8)
    sums = result.pixel_map.reshape(8, 2, 8, 2).sum((1, 3))
    np.testing.assert_allclose(sums, 4 * result.coarse, rtol=1e-12, atol=1e-12 * result.coarse.mean())


def test_explain_with_a_map_made_elsewhere():
    model = Counting()
    result = explain(model, IMAGE, source=COARSE, evaluations=20, classes=["a", "b", "c", "d", "e"])
    top = int(Counting()(IMAGE[None]).argmax())
    assert model.seen == 20
    assert (result.source.reason, result.source.targets, result.source.evaluations) == ("made elsewhere", (top,), 0)
    assert result.label == "abcde"[top]
    assert explain(model, IMAGE, 2, source=COARSE.numpy(), evaluations=20).source.targets == (2,)
    assert explain(model, IMAGE, np.int64(2), source=COARSE, evaluations=20).source.targets == (2,)


def test_explain_a_callable_target(trained):
    def margin(output: Tensor) -> Tensor:
        return output[:, 0] - output[:, 1]

    result = explain(trained, IMAGE, margin, evaluations=20)
    assert result.label == result.upsampled.provenance["target"] == "margin"
    assert result.source.targets is None
    json.dumps(result.manifest())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"image": BATCH}, V, "`image` must be one picture, C x H x W; got 3 x 3 x 16 x 16."),
        ({"image": IMAGE[0]}, V, "`image` must be one picture, C x H x W; got 16 x 16."),
        ({"source": "lime"}, V, "`source` must be one of 'gradcam', 'hirescam', 'layercam', 'att"),
        ({"source": MAPS}, V, "`source` must be one coarse map, h x w; got 3 x 4 x 4."),
        ({"source": [[1.0]]}, T, "`source` must be a numpy array or a torch tensor; got list."),
        ({"model": Counting()}, T, "`model` must be an nn.Module, because Grad-CAM needs gradients; got Counting."),
        ({"preset": "best"}, V, "`preset` must be one of"),
        ({"picture": np.zeros((8, 8, 3))}, V, "`picture` must be H x W x 3 with"),
    ],
    ids=range(8),
)  # fmt: skip
def test_bad_questions(trained, change, error, text):
    with pytest.raises(error) as caught:
        explain(**{"model": trained, "image": IMAGE, **change})
    assert str(caught.value).startswith(text)


def test_the_same_seed_gives_the_same_map_and_another_one_does_not(trained):
    run = lambda seed: explain(trained, IMAGE, preset=replace(usu.PRESETS["soft"], seed=seed), evaluations=30)  # noqa: E731
    first, same, other = run(0), run(0), run(1)
    np.testing.assert_array_equal(first.pixel_map, same.pixel_map)
    assert np.abs(first.pixel_map - other.pixel_map).max() > 1e-6
    with torch.random.fork_rng():
        torch.manual_seed(99)  # the global generator has no say
        np.testing.assert_array_equal(run(0).pixel_map, first.pixel_map)


def test_provenance_says_how_it_was_made(trained):
    settings = tiny(seed=7, budget=usu.SoftIWMR(), fill=Constant(0.5), evaluations=12)
    provenance = upsample(COARSE, IMAGE, trained, [1, 2], preset=settings).provenance
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["preset"] == "own settings"
    assert provenance["settings"]["seed"] == 7
    assert provenance["settings"]["evaluations"] == 12
    assert provenance["settings"]["budget"] == repr(usu.SoftIWMR())
    assert provenance["settings"]["fill"] == "Constant(value=0.5)"
    assert provenance["settings"]["segmenter"] == repr(GRID)
    assert provenance["target"] == [1, 2]
    assert provenance["model"].endswith("Net")
    assert provenance["versions"]["torch"] == torch.__version__
    assert provenance["versions"]["numpy"] == np.__version__
    assert {"usu-xai", "python", "system", "at"} <= provenance["versions"].keys()
    assert upsample(COARSE, IMAGE, Counting(), 0, evaluations=12).provenance["model"] == "Counting"
    few = upsample(COARSE, IMAGE, Counting(), 0, evaluations=12, seed=3).provenance
    assert few["preset"] == "cell", "fewer evaluations and another seed are the same preset"
    assert few["settings"] == {**usu.PRESETS["cell"].described(), "evaluations": 12, "seed": 3}
    colder = upsample(COARSE, IMAGE, Counting(), 0, preset=chosen(temperature=0.1), evaluations=12).provenance
    assert colder["preset"] == "cell, other temperature"


def test_results_are_frozen(trained):
    result = explain(trained, IMAGE, evaluations=12)
    with pytest.raises(FrozenInstanceError):
        result.label = "another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        result.upsampled.evaluations = 0  # type: ignore[misc]


def test_a_progress_that_says_enough_ends_the_scores_and_keeps_the_map_as_it_stands():
    coarse, image = torch.rand(4, 4), torch.rand(3, 32, 32)
    soft = replace(usu.PRESETS["soft"], parts=9, base="bilinear")

    def run(progress, evaluations):
        return usu.upsample(
            coarse, image, lambda batch: batch.mean((2, 3)), 1, preset=soft, evaluations=evaluations, progress=progress
        )

    stopped, short, whole = run(lambda done, _: done >= 80, 400), run(None, 120), run(lambda done, _: None, 400)
    assert (stopped.evaluations, stopped.stop_reason) == (120, usu.StopReason.STOPPED)
    assert torch.equal(stopped.pixel_map, short.pixel_map), "as if so many had been asked for"
    assert 0 < stopped.stability <= 1
    assert (whole.evaluations, whole.stop_reason is usu.StopReason.STOPPED) == (400, False)
    last = run(lambda done, total: done == total, 120)
    assert last.stop_reason is not usu.StopReason.STOPPED, "the end is not before the end"


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (lambda good: good.astype(float), "must hold integer labels; got torch.float64"),
        (lambda good: good * 2, "must have labels 0 to P - 1, each of them used; got 0 to"),
        (lambda good: good * 10**15, "must have labels 0 to P - 1, each of them used; got 0 to"),
        (lambda good: good - 1, "must be labels from 0 on; got -1"),
        (lambda good: good[1:], r"must give every pixel \(\d+ x \d+\) one label; got \d+ x \d+"),
        (lambda good: None, "must be a numpy array or a torch tensor; got NoneType"),
    ],
    ids=["floats", "gaps", "huge", "negative", "shape", "nothing"],
)
def test_a_wrong_answer_of_a_segmenter_of_ones_own_is_named(labels, words, depth) -> None:
    def own(picture, parts, *, region=None):
        return labels(GRID(picture, parts, region=region))

    settings = tiny(scoring="delete", segmenter=own, parts=9, depth=depth)
    with pytest.raises((TypeError, ValueError), match=rf"^`segmenter\(\.\.\.\)` {words}"):
        upsample(COARSE, IMAGE, lambda batch: batch.flatten(1), 0, preset=settings)


def test_a_target_that_turns_out_to_be_several_must_fit_the_maps():
    with pytest.raises(ValueError, match="`coarse` must hold one map for all targets or one for each of the 3; got 2"):
        upsample(torch.ones(2, 4, 4), IMAGE, lambda batch: batch.flatten(1), range(3), preset=tiny(scoring="delete"))
