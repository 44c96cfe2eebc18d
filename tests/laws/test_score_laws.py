"""What holds for scores whatever the picture: additivity, linearity, and the savings that D4 allows."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import usu
from usu.forward import engine
from usu.score import delete, gradient, needed, sampled

seeds = st.integers(0, 2**31 - 1)


@given(seed=seeds, sides=st.tuples(st.integers(1, 5), st.integers(1, 5)), labels=st.integers(1, 8))
def test_unneeded_scores_change_nothing(seed, sides, labels):
    """D4: their cells have no mass, or nobody to share it with."""
    g = torch.Generator().manual_seed(seed)
    h, w = sides
    coarse = torch.randint(-1, 2, (h, w), generator=g).double()
    rows = torch.randint(0, labels, (h, w), generator=g)
    # blocks of one label, with a few stray pixels
    segments = rows.repeat_interleave(3, 0).repeat_interleave(3, 1)
    stray = torch.rand(segments.shape, generator=g) < 0.1
    segments = torch.where(stray, torch.randint(0, labels, segments.shape, generator=g), segments)
    cells = torch.arange(h * w).reshape(h, w).repeat_interleave(3, 0).repeat_interleave(3, 1)
    keep = needed(segments, cells, coarse)
    scores = torch.rand(int(segments.max()) + 1, generator=g, dtype=torch.float64)
    other = torch.where(keep, scores, torch.rand(scores.shape, generator=g, dtype=torch.float64))
    before = usu.redistribute(coarse, scores[segments], budget="cell")
    after = usu.redistribute(coarse, other[segments], budget="cell")
    torch.testing.assert_close(before, after, rtol=1e-14, atol=0)


@given(seed=seeds, labels=st.integers(2, 8))
def test_every_needed_segment_can_matter(seed, labels):
    """The other half: without it `needed` could say yes to everything, or the law above hold for nothing."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 2, (3, 3), generator=g).double()
    segments = torch.randint(0, labels, (3, 3), generator=g).repeat_interleave(3, 0).repeat_interleave(3, 1)
    segments[1, 1] = labels - 1
    cells = torch.arange(9).reshape(3, 3).repeat_interleave(3, 0).repeat_interleave(3, 1)
    keep = needed(segments, cells, coarse)
    flat = torch.full((int(segments.max()) + 1,), 0.5, dtype=torch.float64)
    for p in range(len(flat)):
        raised = flat.clone()
        raised[p] = 1.0
        same = torch.allclose(
            usu.redistribute(coarse, flat[segments]), usu.redistribute(coarse, raised[segments]), rtol=1e-12, atol=0
        )
        assert same != bool(keep[p])


@given(seed=seeds, labels=st.integers(1, 9), fill=st.sampled_from(["blur", "mean", "noise", 0.3]))
@settings(max_examples=30)
def test_every_way_of_scoring_agrees_on_a_linear_model(seed, labels, fill):
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(2, 6, 6, generator=g, dtype=torch.float64)
    segments = torch.randint(0, labels, (6, 6), generator=g)
    weights = torch.randn(2, 6, 6, 2, generator=g, dtype=torch.float64)
    ask = engine(lambda batch: torch.einsum("nchw,chwt->nt", batch, weights), [0, 1])
    expected = delete(ask, image, segments, fill=fill)
    others = [
        delete(ask, image, segments, fill=fill, mode="keep"),
        delete(ask, image, segments, fill=fill, mode="both"),
        gradient(ask, image, segments, fill=fill),
        sampled(ask, image, segments, fill=fill, strength=0, evaluations=80, seed=seed),
        sampled(ask, image, segments, fill=fill, strength=0, evaluations=80, seed=seed, fit="kernel_shap"),
    ]
    for scores in others:
        assert torch.allclose(scores.values, expected.values, atol=1e-9)


@given(seed=seeds, fit=st.sampled_from(["ridge", "kernel_shap"]), factor=st.floats(-3, 3))
@settings(max_examples=30)
def test_sampled_effects_are_linear_in_the_model(seed, fit, factor):
    """Scores of f + factor · g are the scores of f plus factor times those of g: all from the same passes."""
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(1, 4, 4, generator=g, dtype=torch.float64)
    segments = torch.arange(16).reshape(4, 4) // 2

    def model(batch: Tensor) -> Tensor:
        first, second = batch.amax((1, 2, 3)), batch.square().sum((1, 2, 3)).sin()
        return torch.stack([first, second, first + factor * second], 1)

    values = sampled(engine(model, [0, 1, 2]), image, segments, fill=0, fit=fit, evaluations=30, seed=seed).values
    assert torch.allclose(values[2], values[0] + factor * values[1], atol=1e-9)
