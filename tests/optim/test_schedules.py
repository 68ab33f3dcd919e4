"""The learning rate: torch's own schedulers where they agree, and what must hold everywhere."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from horosphere.optim.schedules import cosine, share_of_peak

SHARES = st.floats(0, 1)


def by_torch(steps, rise, final):
    """A linear warm-up, then a cosine."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    up = LinearLR(optimizer, start_factor=1 / rise, total_iters=rise - 1)
    down = CosineAnnealingLR(optimizer, T_max=steps - rise, eta_min=final)
    schedule = SequentialLR(optimizer, [up, down], milestones=[rise - 1])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("steps", "rise"), [(10, 2), (50, 5), (100, 30), (7, 6)])
def test_it_is_torchs(steps, rise, final):
    theirs = pytest.approx(by_torch(steps, rise, final), abs=1e-12)
    assert [share_of_peak(step, steps, rise, final) for step in range(steps)] == theirs
    assert [share_of_peak(step, steps, rise / steps, final) for step in range(steps)] == theirs


@given(st.integers(1, 300), st.floats(0, 400), SHARES, st.sampled_from(["cosine", "constant", "step"]))
def test_it_rises_then_falls_and_stays_between_nothing_and_the_peak(steps, warmup, final, form):
    rise = warmup if warmup >= 1 else warmup * steps
    rates = [share_of_peak(step, steps, warmup, final, form) for step in range(steps)]
    assert all(0 < rate <= 1 + 1e-12 or (final == 0 and abs(rate) < 1e-12) for rate in rates)
    before = sum(step + 1 < rise for step in range(steps))
    assert all(a < b for a, b in pairwise(rates[:before]))
    if form == "constant":
        assert set(rates[before:]) <= {1.0}
    else:
        assert all(a >= b - 1e-12 for a, b in pairwise(rates[before:]))
        if steps - rise >= 1:
            assert rates[-1] == pytest.approx(final, abs=1e-9)


@given(st.integers(20, 300), SHARES, SHARES)
def test_no_step_jumps(steps, warmup, final):
    """No change between two steps exceeds that of the steeper part: 1/rise, or π/2 of the fall's mean."""
    rise = warmup if warmup >= 1 else warmup * steps
    steepest = max(1 / max(rise, 1), (1 - final) * 1.5708 / max(1.0, steps - rise))
    rates = [share_of_peak(step, steps, warmup, final) for step in range(steps)]
    assert all(abs(a - b) <= steepest + 1e-9 for a, b in pairwise(rates))


@given(SHARES, SHARES)
def test_the_cosine_is_symmetric_about_its_middle(done, final):
    assert cosine(done, final) + cosine(1 - done, final) == pytest.approx(1 + final)
    assert (cosine(0, final), cosine(1, final)) == pytest.approx((1, final))
