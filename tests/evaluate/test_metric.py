"""A metric: means and spreads as numpy has them, and an order that makes sense."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere.evaluate.metric import Metric, spread

VALUES = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 6)), min_size=1, max_size=6)
HIGH, LOW = Metric("top1", "top-1", 3, "high"), Metric("loss", "loss", 3, "low")


@given(VALUES)
def test_a_cell_is_the_mean_and_the_standard_deviation_of_a_sample(values):
    mean, _, deviation = HIGH.cell(values).partition(" ± ")
    assert float(mean) == pytest.approx(np.mean(values), abs=5.1e-4)
    assert bool(deviation) == (len(values) > 1)
    if deviation:
        assert float(deviation) == pytest.approx(np.std(values, ddof=1), abs=5.1e-4)
        assert spread(values) == pytest.approx(np.std(values, ddof=1), abs=1e-9)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_which_way_is_better(a, b):
    assert HIGH.ahead(a, b) == -HIGH.ahead(b, a) == LOW.ahead(b, a)
    assert (HIGH.ahead(a, b) > 0) == (a > b) == (LOW.ahead(a, b) < 0)


@given(VALUES, VALUES)
def test_nobody_beats_who_beats_them(ours, theirs):
    for metric in (HIGH, LOW):
        assert not (metric.beats(ours, theirs) and metric.beats(theirs, ours))
        assert not metric.beats(ours, ours)
    assert HIGH.beats(ours, theirs) == LOW.beats(theirs, ours)


@given(VALUES, VALUES)
def test_a_win_is_one_beyond_the_spreads_and_not_one_within(ours, theirs):
    gap = np.mean(ours) - np.mean(theirs)
    spreads = sum(np.std(values, ddof=1) if len(values) > 1 else 0 for values in (ours, theirs))
    if abs(gap - spreads) > 1e-6 and abs(gap - 0.0005) > 1e-6:
        assert HIGH.beats(ours, theirs) == (gap > spreads and gap > 0.0005)  # three digits are shown


def test_both_spreads_count():
    assert HIGH.beats([0.9, 0.9], [0.5, 0.6])
    assert not HIGH.beats([0.9, 0.9], [0.5, 1.1])
    assert not HIGH.beats([0.5, 1.1], [0.4, 0.4])
    assert HIGH.beats([0.5], [0.499])  # what is shown tells them apart
    assert not HIGH.beats([0.5], [0.4999])


def test_what_is_shown():
    assert (HIGH.head, LOW.head) == ("top-1 ↑", "loss ↓")
    assert HIGH.show(0.12345) == "0.123"
    assert Metric("rank", "mean rank", 1, "low", note="1 is perfect").show(2.04) == "2.0  (1 is perfect)"
