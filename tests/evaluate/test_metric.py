"""A metric: means and spreads as numpy has them, and an order that makes sense."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

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


PAIRS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2, max_size=6).map(
    lambda pairs: tuple([round(x, 6) for x in side] for side in zip(*pairs, strict=True))
)


@given(PAIRS)
def test_nobody_beats_who_beats_them(pairs):
    ours, theirs = pairs
    for metric in (HIGH, LOW):
        assert not (metric.beats(ours, theirs) and metric.beats(theirs, ours))
        assert not metric.beats(ours, ours)
    assert HIGH.beats(ours, theirs) == LOW.beats(theirs, ours)


@given(PAIRS)
def test_a_lead_is_the_paired_interval_of_scipy(pairs):
    ours, theirs = (np.array(side) for side in pairs)
    lead = HIGH.lead(list(ours), list(theirs))
    if np.ptp(ours - theirs) > 1e-5:  # scipy warns of differences that are all alike
        low, high = ttest_rel(ours, theirs).confidence_interval(0.95)
        assert (lead.mean - lead.half, lead.mean + lead.half) == pytest.approx((low, high), rel=1e-6, abs=1e-6)
    if abs(lead.mean - lead.half) > 1e-6 and abs(lead.mean - 0.0005) > 1e-6:
        assert HIGH.beats(list(ours), list(theirs)) == (lead.mean > lead.half and lead.mean > 0.0005)  # three digits


def test_pairs_count_not_spreads():
    """Seeds that are hard for both are no doubt about who is ahead."""
    assert HIGH.beats([0.1, 0.5, 0.9], [0.05, 0.46, 0.84])
    assert not HIGH.beats([0.1, 0.5, 0.9], [0.84, 0.05, 0.46])
    assert not HIGH.beats([0.9], [0.1])  # one pair says nothing
    assert not HIGH.beats([0.9], [0.1])
    with pytest.raises(ValueError, match="zip"):
        HIGH.lead([0.9, 0.8], [0.1])


def test_pairs_with_a_failed_training_are_left_out_and_failures_have_no_merit():
    lost = float("nan")
    assert HIGH.lead([1.0, lost, 3.0, 5.0], [0.5, 9.0, 2.0, lost]) == HIGH.lead([1.0, 3.0], [0.5, 2.0])
    assert HIGH.lead([lost], [1.0]).half == np.inf
    assert not HIGH.beats([lost, lost], [1.0, 1.0])
    assert (HIGH.cell([lost, lost]), HIGH.cell([0.5, lost])) == ("failed", "0.500")
    assert HIGH.merit([lost]) == LOW.merit([lost]) == -np.inf
    assert (HIGH.merit([1.0, lost]), LOW.merit([1.0])) == (1.0, -1.0)


def test_how_often_the_rule_is_fooled_is_five_in_a_hundred():
    random = np.random.default_rng(0)
    for seeds in (2, 3, 5):
        fooled = [HIGH.beats(*random.normal(size=(2, seeds)).tolist()) for _ in range(2000)]
        assert 0.01 < np.mean(fooled) < 0.04  # 2.5 % either way


def test_what_is_shown():
    assert (HIGH.head, LOW.head) == ("top-1 ↑", "loss ↓")
    assert HIGH.show(0.12345) == "0.123"
    assert Metric("rank", "mean rank", 1, "low", note="1 is perfect").show(2.04) == "2.0  (1 is perfect)"
