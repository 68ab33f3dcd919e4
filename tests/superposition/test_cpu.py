import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.superposition.autograd import AutogradGroup
from horosphere.superposition.sampling import Sampler
from horosphere.superposition.toy import PRODUCTS, Schedule, Toy, decay, initial, loss

pytest.importorskip("numba", reason="the compiled kernels need numba")
from horosphere.superposition import cpu
from horosphere.superposition.cpu import CompiledGroup

SCHEDULE = Schedule(steps=60, batch=128, warmup=5)
SHIFTS = {"half of the outputs are on": 0.0, "few are": -1.5, "none can be": -50.0, "all are": 50.0}


def fast_gradient(W, b, batches, readout):
    """Loss, dW (n, m), db of the compiled kernels in the dtype of W"""
    plan = cpu._sort(batches.n, batches.rows, batches.starts, batches.features, batches.values)
    columns = W.T.contiguous().numpy()
    dW, db = np.empty_like(columns), np.empty_like(b.numpy())
    batch = cpu.Batch(plan.starts, plan.local, plan.values.astype(columns.dtype), plan.distinct, batches.size)
    room = cpu._room(columns, len(plan.distinct))
    value = cpu._gradient(columns, b.numpy(), batch, PRODUCTS[readout], dW, db, room)
    return torch.tensor(value, dtype=W.dtype), torch.from_numpy(dW.T.copy()), torch.from_numpy(db)


@pytest.mark.parametrize("readout", PRODUCTS)
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
@pytest.mark.parametrize(
    ("n", "m", "law", "density", "batch"),
    [
        (70, 7, "power:1", 1.0, 96),
        (150, 40, "uniform", 1.0, 96),
        (70, 3, "power:1", 4.8, 96),
        (6, 4, "power:1", 2.45, 96),  # the first is always on
        (300, 5, "linear", 0.001, 96),  # no sample has an active feature, most likely
        (700, 30, "uniform", 1.0, 1500),  # several tiles
    ],
)
def test_gradient_is_that_of_the_dense_loss(n, m, law, density, batch, shift, readout):
    """In fp64, with products dense and sparse"""
    W, b = (tensor.double() for tensor in initial(Toy(n=n, m=m, law=law)))
    W[n // 2] = 0
    b += shift
    batches = Sampler(n, law, density, 3).batches(5, 1, batch)
    compiled = fast_gradient(W, b, batches, readout)
    value = loss(batches.dense().double(), W.requires_grad_(), b.requires_grad_(), readout)
    expected = (value, *torch.autograd.grad(value, (W, b)))
    for fast, slow in zip(compiled, expected, strict=True):
        assert_close(fast, slow.detach(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("gamma", [-0.7, 0.0, 0.4])
def test_decay_is_the_written_one(gamma):
    W = torch.randn(30, 6, dtype=torch.float64)
    W[4] = 0
    columns = W.T.contiguous().numpy()
    cpu._decay(columns, 0.1, gamma)
    assert_close(torch.from_numpy(columns.T.copy()), decay(W, 0.1, gamma))


def test_losses_are_those_since_last_asked():
    runs = [Toy(n=40, m=m, law="power:1") for m in (3, 6)]
    fast, slow = CompiledGroup(runs, SCHEDULE), AutogradGroup(runs, SCHEDULE)
    for steps in (4, 1, 3):
        fast.advance(steps)
        slow.advance(steps)
        asked = fast.losses()
        assert_close(asked, slow.losses().to(asked.dtype), rtol=1e-4, atol=1e-5)
        assert (asked > 0).all()


def test_group_equals_autograd():
    runs = [
        Toy(n=90, m=m, law=law, density=density, gamma=gamma, bias=bias, readout=readout, seed=seed, bias_lr=rate)
        for m, law, density, gamma, bias, readout, seed, rate in (
            (4, "power:1", 1.0, -0.5, "normal", "dot", 0, None),
            (17, "power:1", 1.0, 0.3, "zero", "dot", 0, 0.05),
            (9, "uniform", 2.0, 0.0, "normal", "lorentz", 1, None),
            (40, "power:1", 5.0, -1.0, "normal", "dot", 0, None),
        )
    ]
    fast, slow = CompiledGroup(runs, SCHEDULE), AutogradGroup(runs, SCHEDULE)
    for group in (fast, slow):
        group.advance(20)
    expected = slow.state()
    for name, tensor in fast.state().items():
        assert_close(tensor, expected[name], rtol=2e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert_close(fast.losses(), slow.losses(), rtol=1e-5, atol=0)
    assert fast.step == 20


RUNS = [
    Toy(n=300, m=m, law=law, gamma=gamma, seed=seed)
    for law in ("power:1", "uniform")
    for seed in (0, 1)
    for gamma in (-0.5, 0.3)
    for m in (3, 20)
]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_threads_company_and_pieces_change_nothing():
    """Bit by bit"""
    schedule = Schedule(steps=60, batch=1000, warmup=5)  # enough distinct features for several tiles
    whole = CompiledGroup(RUNS, schedule, jobs=1)
    whole.advance(40)
    pieces = CompiledGroup(RUNS, schedule, jobs=3)
    for steps in (1, 16, 5, 18):
        pieces.advance(steps)
    assert same(whole.state(), pieces.state())
    alone = CompiledGroup(RUNS[5:6], schedule)
    alone.advance(40)
    assert all(
        torch.equal(alone.state()[f"{name}.0"], whole.state()[f"{name}.5"]) for name in ("W", "b", "W_mean", "b_square")
    )


def test_state_continues_exactly():
    whole, first, second = (CompiledGroup(RUNS[:3], SCHEDULE) for _ in range(3))
    whole.advance(25)
    first.advance(10)
    kept = first.state()
    first.advance(3)
    second.load(kept)
    second.advance(15)
    assert same(whole.state(), second.state())


def test_gamma_and_width_see_the_same_batches():
    """With W = 0 the loss is that of the batch alone."""
    runs = [Toy(n=40, m=m, law="power:1", gamma=gamma, bias="zero") for m, gamma in ((2, 0.0), (7, -1.0))]
    group = CompiledGroup(runs, SCHEDULE)
    group.load({name: tensor if name == "step" else torch.zeros_like(tensor) for name, tensor in group.state().items()})
    group.advance(1)
    losses = group.losses()
    x = Sampler(40, "power:1", 1.0, 0).batches(0, 1, 128).dense()
    assert losses[0] == losses[1]
    assert losses[0].item() == pytest.approx(x.square().sum(1).mean().item(), rel=1e-6)


def test_memory_grows_with_the_runs():
    assert cpu.memory(RUNS[:1], SCHEDULE) < cpu.memory(RUNS[:2], SCHEDULE) < cpu.memory(RUNS, SCHEDULE)
