import pytest
import torch
from torch.testing import assert_close

from horosphere.superposition.autograd import AutogradGroup
from horosphere.superposition.sampling import Sampler
from horosphere.superposition.toy import READOUTS, Schedule, Toy, decay, initial, loss

SCHEDULE = Schedule(steps=60, batch=64, warmup=5)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("gamma", [-0.5, 0.3])
def test_is_adam_after_decay(readout, gamma):
    """Against torch's own Adam, with the decay written before each of its steps."""
    toy = Toy(n=20, m=4, law="power:1", density=2.0, gamma=gamma, readout=readout, lr=0.02, bias_lr=0.05)
    group = AutogradGroup([toy], SCHEDULE)
    group.advance(12)

    W, b = (tensor.requires_grad_() for tensor in initial(toy))
    optimizer = torch.optim.Adam([{"params": [W]}, {"params": [b]}])
    total = 0.0
    for step in range(12):
        value = loss(Sampler(20, "power:1", 2.0, 0).batches(step, 1, 64).dense(), W, b, readout)
        optimizer.zero_grad()
        value.backward()
        rates = [rate * SCHEDULE.factor(step) for rate in (0.02, 0.05)]
        for part, rate in zip(optimizer.param_groups, rates, strict=True):
            part["lr"] = rate
        with torch.no_grad():
            W.copy_(decay(W, rates[0], gamma))
        optimizer.step()
        total += value.item()
    assert_close(group.state()["W.0"], W.detach(), rtol=1e-4, atol=1e-5)
    assert_close(group.state()["b.0"], b.detach(), rtol=1e-4, atol=1e-5)
    assert group.losses()[0].item() == pytest.approx(total / 12, rel=1e-5)
    assert group.losses()[0].item() == 0  # nothing since last asked


@pytest.mark.parametrize("readout", READOUTS)
def test_learns(readout):
    group = AutogradGroup(
        [Toy(n=20, m=8, law="power:1", gamma=-0.2, readout=readout, lr=0.05)], Schedule(steps=150, batch=128, warmup=5)
    )
    group.advance(10)
    before = group.losses()[0]
    group.advance(140)
    assert group.losses()[0] < before / 2


def test_state_is_a_copy_and_continues_exactly():
    runs = [Toy(n=15, m=m, law="linear", gamma=-0.5, seed=seed) for m in (2, 5) for seed in (0, 1)]
    whole, first, second = (AutogradGroup(runs, SCHEDULE) for _ in range(3))
    whole.advance(9)
    first.advance(4)
    kept = first.state()
    first.advance(1)
    second.load(kept)
    second.advance(5)
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in whole.state().items())
    assert second.step == 9
