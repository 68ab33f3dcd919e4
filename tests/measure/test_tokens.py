import math

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure import tokens
from horosphere.measure.tokens import attention_distance, expert_load, token_cosine, token_radius

MANIFOLDS = [Euclidean(), Lorentz(c=0.1), Lorentz(c=4.0), Poincare(c=1.0)]


def points_at(m, radii, dim=3):
    direction = torch.nn.functional.normalize(
        torch.randn(len(radii), dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1
    )
    return m.lift(radii[:, None] * direction)


# -- radius -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [3, 4096])
@pytest.mark.parametrize("m", MANIFOLDS)
def test_radius_is_the_distance_from_the_origin(m, rows, monkeypatch):
    monkeypatch.setattr(tokens, "ROWS", rows)
    radii = torch.linspace(0.5, 4, 40, dtype=torch.float64)
    measured = token_radius(points_at(m, radii), m, torch.arange(40, 0, -1))
    np.testing.assert_allclose(measured.radius, radii.numpy(), rtol=1e-9)
    assert measured.correlation == pytest.approx(-1)
    assert [(b.tokens, b.lowest, b.highest) for b in measured.bins] == [(4, 4 * i + 1, 4 * i + 4) for i in range(10)]
    for part, b in zip(radii.flip(0).view(10, 4), measured.bins, strict=True):
        assert (b.mean, b.std) == pytest.approx((float(part.mean()), float(part.std(correction=0))))


def test_tokens_never_seen_say_nothing_about_frequency():
    radii, counts = torch.tensor([1.0, 2.0, 3.0, 50.0, 0.1]).double(), np.array([1, 5, 9, 0, 0])
    measured = token_radius(points_at(Euclidean(), radii), Euclidean(), counts)
    assert measured.correlation == pytest.approx(1)
    assert sum(b.tokens for b in measured.bins) == 3
    assert len(measured.radius) == 5


def test_equal_counts_share_a_bin():
    counts = np.array([1] * 55 + list(range(2, 47)))
    measured = token_radius(torch.randn(100, 2), Euclidean(), counts)
    assert (measured.bins[0].tokens, measured.bins[0].lowest, measured.bins[0].highest) == (55, 1, 1)
    assert sum(b.tokens for b in measured.bins) == 100
    for low, high in zip(measured.bins, measured.bins[1:], strict=False):
        assert low.highest < high.lowest


def test_examples_are_the_extremes_of_tokens_seen_often():
    radii = torch.tensor([3.0, 1.0, 2.0, 0.1, 9.0]).double()
    measured = token_radius(points_at(Lorentz(), radii), Lorentz(), torch.tensor([10, 20, 30, 9, 0]))
    assert measured.examples("abcde", n=2) == (["b", "c"], ["a", "c"])
    assert measured.examples("abcde", n=1, seen=0) == (["d"], ["e"])
    assert measured.examples("abcde", seen=31) == ([], [])
    with pytest.raises(UserError, match="4 labels for 5 tokens"):
        measured.examples("abcd")


def test_counts_that_do_not_fit():
    with pytest.raises(UserError, match=r"3 tokens .* shape \(2,\)"):
        token_radius(torch.randn(3, 2), Euclidean(), np.ones(2))
    for counts in (torch.ones(3), torch.zeros(3), torch.tensor([0, 0, 1])):
        with pytest.raises(UserError, match="same count"):
            token_radius(torch.randn(3, 2), Euclidean(), counts)


# -- attention --------------------------------------------------------------------------------------------------------


def attention(*shape, seed=0):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(torch.ones(shape[-2:]).triu(1).bool(), -torch.inf).softmax(-1)


def test_heads_of_known_reach():
    """Heads that look at themselves, at the token before, and at everything alike: 0, (T - 1)/T, (T - 1)/4."""
    t = 8
    itself = torch.eye(t)
    before = torch.stack([itself[max(i - 1, 0)] for i in range(t)])
    everything = torch.ones(t, t).tril() / torch.arange(1, t + 1)[:, None]
    distances = attention_distance(torch.stack([itself, before, everything]).expand(2, 3, t, t))
    torch.testing.assert_close(distances, torch.tensor([[0, (t - 1) / t, (t - 1) / 4]]))


def test_layers_one_by_one_equal_the_definition():
    layers = [attention(2, 3, 6, 6, seed=seed) for seed in range(4)]
    distances = attention_distance(iter(layers))
    assert distances.shape == (4, 3)
    for row, p in zip(distances, layers, strict=True):
        expected = [
            sum(float(p[b, h, i, j]) * (i - j) for b in range(2) for i in range(6) for j in range(6)) / 12
            for h in range(3)
        ]
        torch.testing.assert_close(row, torch.tensor(expected))


@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_nothing(left):
    """Whatever padding asks, nan included, on either side."""
    p = attention(1, 2, 5, 5)
    real = slice(3, 8) if left else slice(0, 5)
    padded = torch.full((1, 2, 8, 8), torch.nan)
    padded[:, :, real] = 0
    padded[:, :, real, real] = p
    mask = torch.zeros(1, 8, dtype=torch.long)
    mask[:, real] = 1
    torch.testing.assert_close(attention_distance(padded, mask), attention_distance(p))


def test_half_precision_loses_no_more_than_its_weights():
    p = attention(1, 2, 600, 600)
    torch.testing.assert_close(attention_distance(p.bfloat16()), attention_distance(p), rtol=5e-3, atol=0)


def test_weights_that_do_not_fit():
    with pytest.raises(UserError, match="no attention weights"):
        attention_distance([])
    with pytest.raises(UserError, match=r"\(B, H, T, T\)"):
        attention_distance(torch.ones(2, 3, 4, 5))
    with pytest.raises(UserError, match="mask of shape"):
        attention_distance(attention(2, 1, 4, 4), torch.ones(4))
    with pytest.raises(UserError, match="no token"):
        attention_distance(attention(2, 1, 4, 4), torch.zeros(2, 4))


# -- experts ----------------------------------------------------------------------------------------------------------


def test_loads_of_known_balance():
    """Perfect; all on one; two of four share; one below a hundredth of its share, one at it."""
    load = expert_load(torch.tensor([[5, 5, 5, 5], [0, 7, 0, 0], [3, 3, 0, 0], [1990, 1985, 10, 15]]))
    torch.testing.assert_close(load.shares.sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(load.imbalance, torch.tensor([1, 4, 2, 1.99]).double())
    torch.testing.assert_close(load.entropy[:3], torch.tensor([1, 0, 0.5]).double())
    assert load.dead.tolist() == [0, 3, 2, 0]
    assert expert_load(torch.tensor([[1990, 1991, 9, 10]])).dead.tolist() == [1]


def test_load_has_no_scale_and_no_order():
    counts = torch.randint(0, 100, (3, 8), generator=torch.Generator().manual_seed(0))
    one, other = expert_load(counts), expert_load(1000 * counts[:, torch.randperm(8)])
    for name in ("imbalance", "entropy", "dead"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    ("counts", "message"),
    [([[1, 2], [0, 0]], "no tokens"), ([[3, -1]], "negative"), ([[3]], "at least 2 experts"), ([3, 4], "shape")],
)
def test_counts_of_no_experts(counts, message):
    with pytest.raises(UserError, match=message):
        expert_load(torch.tensor(counts))


# -- cosine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_cosine_equals_the_mean_over_pairs(dtype):
    h = (torch.randn(20, 7, generator=torch.Generator().manual_seed(0)) + 0.3).to(dtype)
    pairs = torch.nn.functional.cosine_similarity(h.double()[:, None], h.double()[None], dim=-1)
    assert token_cosine(h) == pytest.approx(float(pairs[~torch.eye(20, dtype=torch.bool)].mean()))


def test_cosine_sees_directions_only():
    aligned = torch.tensor([1.0, -2.0, 3.0]) * torch.tensor([1e-20, 1.0, 1e5])[:, None]
    assert token_cosine(aligned) == pytest.approx(1)
    assert token_cosine(torch.eye(6)) == pytest.approx(0, abs=1e-12)
    assert token_cosine(torch.tensor([[1.0, 0], [-1, 0]])) == pytest.approx(-1)
    assert token_cosine(torch.tensor([[1.0, 0], [1, 0], [0, 0]])) == pytest.approx(1 / 3)
    assert abs(token_cosine(torch.randn(500, 64, generator=torch.Generator().manual_seed(0)))) < 3 / math.sqrt(500 * 64)


@pytest.mark.parametrize("shape", [(1, 4), (4,), (2, 3, 4)])
def test_cosine_needs_two_tokens(shape):
    with pytest.raises(UserError, match="at least 2"):
        token_cosine(torch.ones(shape))
