"""The order of rows: every row once a pass, a new order each pass, and any stretch of it at any time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere.data.order import SORTED, alike, evenly, held_out, shuffled

COUNTS, SEEDS = st.integers(1, 40), st.integers(0, 2**32 - 1)


@given(COUNTS, SEEDS, st.integers(0, 1000))
def test_every_pass_has_every_row_once(count, seed, epoch):
    order = shuffled(count, epoch * count, (epoch + 1) * count, seed)
    assert sorted(order) == list(range(count))


@given(COUNTS, SEEDS, st.lists(st.integers(0, 150), min_size=3, max_size=3).map(sorted))
def test_a_stretch_is_the_same_however_it_is_cut(count, seed, cuts):
    first, middle, last = cuts
    whole = shuffled(count, first, last, seed)
    assert whole.shape == (last - first,)
    assert whole.dtype == np.int64
    parts = [shuffled(count, first, middle, seed), shuffled(count, middle, last, seed)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(shuffled(count, 0, last, seed)[first:], whole)


def test_who_writes_into_a_batch_does_not_change_the_next():
    before = shuffled(9, 0, 9, seed=1).copy()
    shuffled(9, 0, 9, seed=1)[:] = -1
    assert np.array_equal(shuffled(9, 0, 9, seed=1), before)


def test_passes_and_seeds_differ():
    count = 200
    stream = shuffled(count, 0, 3 * count, seed=5).reshape(3, count)
    orders = [*stream, *(shuffled(count, 0, count, seed) for seed in (6, 7))]
    for i, a in enumerate(orders):
        for b in orders[:i]:
            assert (a == b).mean() < 0.05  # 1 in 200 by chance
            assert abs(np.corrcoef(a, b)[0, 1]) < 0.35  # five sigma


def test_each_row_is_as_often_at_each_place():
    count, passes = 8, 4000
    stream = shuffled(count, 0, count * passes, seed=3).reshape(passes, count)
    table = np.stack([(stream == row).sum(0) for row in range(count)])
    chi = ((table - passes / count) ** 2 / (passes / count)).sum()
    assert chi < 49 + 5 * np.sqrt(2 * 49)  # χ² of (8 - 1)² degrees of freedom, five sigma


@given(COUNTS, st.integers(1, 9), SEEDS)
def test_rows_of_like_length_are_those_of_the_stream(count, batch, seed):
    """In another order only, within so many steps."""
    lengths = np.random.default_rng(0).integers(1, 30, count)
    for pool in range(2):
        steps = range(pool * SORTED, (pool + 1) * SORTED)
        rows = np.concatenate([alike(lengths, step, batch, seed) for step in steps])
        assert sorted(rows) == sorted(shuffled(count, steps.start * batch, steps.stop * batch, seed))


def test_batches_of_like_length_have_little_padding_and_no_order():
    lengths = np.random.default_rng(0).integers(1, 100, 2000)
    batches = np.stack([lengths[alike(lengths, step, 50, seed=0)] for step in range(50 * SORTED)])
    assert batches.sum() > 0.75 * 50 * batches.max(1).sum()  # half of what is read, as rows come
    means = batches.mean(1).reshape(50, SORTED).mean(0)
    assert means.max() - means.min() < 20  # short ones do not come first; in order they are 75 apart


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 101])
def test_a_tenth_is_held_out_and_nothing_is_lost(count):
    learned, held = held_out(count)
    assert sorted([*learned, *held]) == list(range(count))
    assert len(held) == (max(1, count // 10) if count > 1 else 0)
    assert np.array_equal(held, held_out(count)[1])


@pytest.mark.parametrize("most", [1, 2, 7, 20, 99])
def test_some_rows_from_the_first_to_the_last(most):
    rows = np.arange(100, 120)
    some = evenly(rows, most)
    assert len(some) == len(set(some)) == min(most, 20)
    assert some[0] == 100
    assert most == 1 or some[-1] == 119
