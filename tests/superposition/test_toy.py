import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.superposition.toy import READOUTS, Schedule, Toy, decay, grid, initial, loss, preactivation

TOY = Toy(n=20, m=6, law="power:1")


def test_widths_share_their_columns_and_everything_else_is_shared():
    W, b = initial(TOY)
    wider, same_b = initial(replace(TOY, m=9, gamma=-1.0, law="uniform", density=2.0))
    assert_close(W * math.sqrt(6), wider[:, :6] * math.sqrt(9))
    assert torch.equal(b, same_b)
    assert torch.equal(W, initial(replace(TOY, bias="zero"))[0])
    assert not initial(replace(TOY, bias="zero"))[1].any()
    for seed in (1, 2**32):  # also beyond the 32 bits that torch's generator looks at
        other_W, other_b = initial(replace(TOY, seed=seed))
        assert not torch.equal(W, other_W)
        assert not torch.equal(b, other_b)


def test_initial_scale():
    W, b = initial(Toy(n=4000, m=16, law="uniform"))
    assert W.square().sum(1).mean().item() == pytest.approx(1, rel=0.02)
    assert b.std().item() == pytest.approx(1, rel=0.05)
    assert abs((W[:, 0] * b).mean().item()) < 0.02  # random numbers of their own


def test_loss_is_the_written_sum():
    W, b = initial(TOY)
    x = torch.rand(5, 20)
    by_hand = (
        sum((max(float(x[s] @ W @ W[i] + b[i]), 0.0) - float(x[s, i])) ** 2 for s in range(5) for i in range(20)) / 5
    )
    assert loss(x, W, b).item() == pytest.approx(by_hand, rel=1e-5)


def test_lorentz_readout_is_the_dot_with_a_negative_time():
    W, b = (t.double() for t in initial(TOY))
    h = torch.randn(4, 6, dtype=torch.float64)
    signature = torch.diag(torch.tensor([-1.0, 1, 1, 1, 1, 1], dtype=torch.float64))
    assert_close(preactivation(h, W, b, "lorentz"), h @ signature @ W.T + b)


def test_distance_readout_is_flat_near_the_origin_and_grows_slower():
    W, b = (t.double() for t in initial(TOY))
    h = torch.randn(4, 6, dtype=torch.float64)
    assert_close(preactivation(1e-4 * h, W, b, "distance") - b, 1e-4 * h @ W.T, rtol=1e-2, atol=2e-7)
    zero = torch.zeros_like(b)
    assert (preactivation(3 * h, W, zero, "distance").abs() <= (3 * h @ W.T).abs()).all()


@pytest.mark.parametrize("readout", READOUTS)
def test_no_input_gives_the_bias(readout):
    W, b = initial(TOY)
    assert_close(preactivation(torch.zeros(6), W, b, readout), b)


def test_decay_shrinks_and_growth_pulls_to_the_sphere():
    W = torch.randn(7, 4, dtype=torch.float64)
    W[2] = 0
    assert_close(decay(W, 0.1, 0.5), W * 0.95)
    grown = decay(W, 0.1, -0.5)
    for i in range(7):
        length = W[i].norm()
        expected = W[i] + 0.1 * -0.5 * W[i] * (1 - 1 / length) if length > 0 else W[i]
        assert_close(grown[i], expected)
    for _ in range(500):
        W = decay(W, 0.1, -0.5)
    assert_close(W.norm(dim=1), torch.tensor([1.0, 1, 0, 1, 1, 1, 1], dtype=torch.float64))


def test_schedule():
    schedule = Schedule(steps=100, warmup=10, final=0.05)
    factors = [schedule.factor(step) for step in range(100)]
    assert factors[:10] == pytest.approx([k / 10 for k in range(1, 11)])
    assert factors[10] == 1
    assert all(a > b for a, b in pairwise(factors[10:]))
    assert factors[55] == pytest.approx(0.525)
    assert factors[99] == pytest.approx(0.05, abs=1e-3)


def test_grids_have_the_published_sizes():
    sizes = {name: (len(grid(name)[0]), len(grid(name, seeds=2)[0])) for name in ("a", "b", "c")}
    assert sizes == {"a": (1020, 2040), "b": (540, 1080), "c": (48, 96)}
    runs, schedule = grid("c")
    assert (schedule.steps, schedule.batch, runs[0].n) == (40_000, 8192, 10240)
    assert {(toy.m, toy.bias_lr) for toy in runs} == {(2**k, 2 / 2**k) for k in range(3, 11)}
    assert len(set(grid("a", seeds=2)[0])) == 2040


@pytest.mark.parametrize(
    "make",
    [
        lambda: Toy(n=0, m=1, law="uniform"),
        lambda: Toy(n=3, m=2, law="uniform", bias="one"),
        lambda: Toy(n=3, m=2, law="uniform", readout="cosine"),
        lambda: Toy(n=3, m=1, law="uniform", readout="lorentz"),
        lambda: Toy(n=3, m=2, law="uniform", lr=0.0),
        lambda: Toy(n=3, m=2, law="uniform", gamma=math.nan),
        lambda: Toy(n=3, m=2, law="uniform", seed=-1),
        lambda: Schedule(steps=10, warmup=10),
        lambda: Schedule(batch=0),
        lambda: grid("d"),
    ],
)
def test_mistakes_are_one_line(make):
    with pytest.raises(UserError) as caught:
        make()
    assert "\n" not in str(caught.value)
