"""Attention as a source: the matrices overheard, the two rules by loops, and models with a known answer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from usu.sources import attention_rollout, gradient_attention
from usu.sources.attention import RecordedAttention, open_attention, relevance, rolled_out


def naive_rollout(attentions):
    """Abnar and Zuidema with loops."""
    rollout = None
    for matrix in attentions:
        heads, tokens = matrix.shape[0], matrix.shape[1]
        layer = torch.zeros(tokens, tokens, dtype=matrix.dtype)
        for i in range(tokens):
            for j in range(tokens):
                layer[i, j] = sum(matrix[h, i, j] for h in range(heads)) / heads + (1.0 if i == j else 0.0)
            layer[i] /= layer[i].sum()
        rollout = layer if rollout is None else layer @ rollout
    return rollout


def naive_relevance(attentions, gradients):
    """Chefer, Gur and Wolf with loops; what a token has of itself is left out."""
    tokens = attentions[0].shape[1]
    found = torch.eye(tokens, dtype=attentions[0].dtype)
    for matrix, gradient in zip(attentions, gradients, strict=True):
        layer = torch.zeros(tokens, tokens, dtype=matrix.dtype)
        for i in range(tokens):
            for j in range(tokens):
                products = [max(float(matrix[h, i, j] * gradient[h, i, j]), 0.0) for h in range(len(matrix))]
                layer[i, j] = sum(products) / len(products)
        found = found + layer @ found
    return found - torch.eye(tokens, dtype=found.dtype)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 6), st.integers(0, 10**6))
def test_the_rules_are_the_papers(layers, heads, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(2, heads, tokens, tokens, generator=generator, dtype=torch.float64)  # noqa: E731
    attentions, gradients = [draw().softmax(-1) for _ in range(layers)], [draw() for _ in range(layers)]
    rollout, relevant = rolled_out(attentions), relevance(attentions, gradients)
    for picture in range(2):
        ours = [matrix[picture] for matrix in attentions]
        torch.testing.assert_close(rollout[picture], naive_rollout(ours))
        torch.testing.assert_close(relevant[picture], naive_relevance(ours, [g[picture] for g in gradients]))
    torch.testing.assert_close(rollout.sum(-1), torch.ones(2, tokens, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["plain", "bool", "bias", "causal", "scale", "grouped"])
def test_open_attention_is_the_fused_one(kind):
    torch.manual_seed(0)
    heads = 2 if kind == "grouped" else 4
    query, key, value = (torch.randn(2, n, 5, 3) for n in (4, heads, heads))
    settings = {
        "plain": {},
        "bool": {"attn_mask": torch.rand(5, 5) > 0.4},
        "bias": {"attn_mask": torch.randn(4, 5, 5)},
        "causal": {"is_causal": True},
        "scale": {"scale": 0.3},
        "grouped": {"enable_gqa": True},
    }[kind]
    if kind == "bool":
        settings["attn_mask"].fill_diagonal_(True)
    output, matrix = open_attention(query, key, value, **settings)
    torch.testing.assert_close(output, functional.scaled_dot_product_attention(query, key, value, **settings))
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 4, 5))


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_is_torchs(needs, average, batched, bias):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=batched, bias=bias).eval()
    x = torch.randn((3, 5, 8) if batched else (5, 8), requires_grad=True)
    expected, weights = module(x, x, x, need_weights=True, average_attn_weights=False)
    with RecordedAttention() as seen:
        output, told = module(x, x, x, need_weights=needs, average_attn_weights=average)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(seen.matrices[0] if batched else seen.matrices[0][0], weights)
    if needs:
        torch.testing.assert_close(told, weights.mean(-3) if average else weights)
    else:
        assert told is None


def test_what_torch_must_do_itself_is_still_right():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, keep_out = torch.randn(3, 5, 8, requires_grad=True), torch.zeros(3, 5, dtype=torch.bool)
    keep_out[:, 4] = True
    expected = module(x, x, x, key_padding_mask=keep_out)[0]
    with RecordedAttention() as seen:
        torch.testing.assert_close(module(x, x, x, key_padding_mask=keep_out)[0], expected)
    assert seen.matrices == []


def test_a_softmax_is_overheard_in_every_spelling_and_only_where_it_attends():
    x, row = torch.randn(2, 3, 4, 4, requires_grad=True), torch.randn(2, 5, requires_grad=True)
    with RecordedAttention() as seen:
        for matrix in (x.softmax(-1), x.softmax(dim=3), torch.softmax(x, -1), functional.softmax(x, dim=-1)):
            matrix.mul_(0)  # what goes on may be worked on in place
        nn.Softmax(-1)(x)
        x.softmax(1), row.softmax(-1), x[..., :2].softmax(-1), x.detach().softmax(-1)
    assert len(seen.matrices) == 5
    for matrix in seen.matrices:
        assert torch.equal(matrix, x.softmax(-1))


class Written(nn.Module):
    """Attention that is given, not learned: 2 x 2 patches of 4 pixels behind ``prefix`` tokens; ``reads`` tokens."""

    def __init__(self, logits: torch.Tensor, reads: slice, prefix: int = 1) -> None:
        super().__init__()
        self.logits, self.reads, self.prefix = nn.Parameter(logits), reads, prefix

    def forward(self, x):
        tokens = functional.avg_pool2d(x, 4).flatten(2).mT
        tokens = torch.cat([tokens.new_zeros(len(x), self.prefix, tokens.shape[-1]), tokens], 1)
        for layer in self.logits:
            tokens = tokens + layer.expand(len(x), -1, -1).softmax(-1) @ tokens
        return tokens[:, self.reads].mean(1)


def looking_at(*places: int) -> torch.Tensor:
    """Logits (5, 5): token i looks at places[i] and nowhere else."""
    return torch.full((5, 5), -1e9).scatter(1, torch.tensor(places)[:, None], 1e9)


def test_a_known_answer():
    """The class token looks at patch 2, which looked at patch 3 before."""
    logits = torch.stack([looking_at(0, 1, 2, 4, 4), looking_at(3, 1, 2, 3, 4)])
    picture = torch.ones(1, 2, 8, 8)
    found = attention_rollout(Written(logits, slice(0, 1)), picture, 0)
    # half of what came by looking stays with patch 2 (token 3), half came from patch 3 (token 4)
    assert found.values.tolist() == [[[0.0, 0.0], [0.25, 0.25]]]
    assert found.layer == "2 attention layers"
    assert found.reason == "the rows of the class token, which the target reads (2 x 2 tokens)"
    relevant = gradient_attention(Written(logits, slice(0, 1)), picture, 0).values[0]
    assert relevant[0].tolist() == [0.0, 0.0]
    assert (relevant[1] > 0).all()


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        (slice(0, 1), "the rows of the class token, which the target reads (2 x 2 tokens)"),
        (slice(1, 5), "the mean of 4 rows, which the target reads (2 x 2 tokens)"),
        (slice(0, 5), "the mean of 5 rows, which the target reads (2 x 2 tokens)"),
    ],
)
def test_the_rows_are_those_that_are_read(reads, reason):
    torch.manual_seed(0)
    logits, pictures = torch.randn(3, 5, 5), torch.randn(2, 2, 8, 8)
    found = attention_rollout(Written(logits, reads), pictures, 1)
    expected = naive_rollout([layer.softmax(-1)[None] for layer in logits])[reads].mean(0)[1:].reshape(2, 2)
    torch.testing.assert_close(found.values, expected.expand(2, 2, 2))
    assert found.reason == reason


def test_two_tokens_in_front():
    torch.manual_seed(0)
    found = attention_rollout(Written(torch.randn(1, 6, 6), slice(0, 2), prefix=2), torch.randn(1, 2, 8, 8), 1)
    assert found.reason == "the rows of the 2 tokens in front, which the target reads (2 x 2 tokens)"
    assert found.layer == "1 attention layer"


def test_gradient_attention_by_hand():
    torch.manual_seed(0)
    model, pictures = Written(torch.randn(2, 5, 5), slice(0, 1)), torch.randn(3, 2, 8, 8)
    found = gradient_attention(model, pictures, [0, 1, 0])
    for picture, target, ours in zip(pictures, (0, 1, 0), found.values, strict=True):
        attentions = [layer.detach().softmax(-1).requires_grad_() for layer in model.logits]
        tokens = functional.avg_pool2d(picture, 4).flatten(1).T
        tokens = torch.cat([torch.zeros(1, 2), tokens])
        for matrix in attentions:
            tokens = tokens + matrix @ tokens
        gradients = torch.autograd.grad(tokens[0, target], attentions)
        expected = naive_relevance([a.detach()[None] for a in attentions], [g[None] for g in gradients])
        torch.testing.assert_close(ours, expected[0, 1:].reshape(2, 2))
    assert found.targets == (0, 1, 0)
    rollout = attention_rollout(model, pictures, [0, 1, 0]).values
    assert torch.equal(rollout, attention_rollout(model, pictures, [1, 0, 1]).values), "it knows no classes"


def test_no_evidence_is_said():
    found = gradient_attention(Written(torch.zeros(1, 5, 5), slice(0, 1)), -torch.ones(2, 2, 8, 8), 0)
    assert not found.values.any()
    assert found.notes == ("Picture 0, 1: no attention speaks for the target, the map is zero everywhere.",)


class Windows(nn.Module):
    def forward(self, x):
        tokens = functional.avg_pool2d(x, 4).flatten(2).mT.reshape(len(x) * 4, 4, -1)
        return functional.scaled_dot_product_attention(tokens[:, None], tokens[:, None], tokens[:, None]).reshape(
            len(x), 16, -1
        )[:, 0]


def test_models_without_attention_over_the_picture():
    picture = torch.randn(3, 2, 16, 16)
    with pytest.raises(ValueError, match=r"`model` must attend over its patches through torch .* got no attention"):
        attention_rollout(nn.Sequential(nn.Conv2d(2, 2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()), picture, 0)
    with pytest.raises(ValueError, match=r"attend over all patches .* got attention of 12 x 1 x 4 x 4 for 3 pictures"):
        attention_rollout(Windows(), picture, 0)
    with pytest.raises(ValueError, match=r"`target` must .*; got no gradient there"):
        attention_rollout(Written(torch.zeros(1, 5, 5), slice(0, 1)), torch.ones(1, 2, 8, 8), lambda y: y.sum(1) * 0)
    with pytest.raises(TypeError, match=r"`model` must be an nn.Module, because Attention rollout needs gradients"):
        attention_rollout(lambda batch: batch, picture)
