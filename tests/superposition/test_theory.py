"""Theory of the weak regime is a finite sum, and finite n is what the published slopes show."""

import numpy as np
import pytest

from horosphere.errors import UserError
from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.theory import strong_exponent, weak_asymptote, weak_exponent, weak_loss

WIDTHS = [10, 15, 25, 39, 63, 100]


@pytest.mark.parametrize("law", ["power:1.25", "exponential:4", "linear", "uniform"])
def test_weak_loss_is_the_variance_of_the_features_left_out(law):
    p = frequencies(law, 20, 0.7)
    moments = 4 / 3 * p, p  # of u·v: E v² = 4/3, E v = 1
    for count in range(21):
        np.testing.assert_allclose(
            weak_loss(p, count),
            sum(moments[0][i] - moments[1][i] ** 2 for i in range(count, 20)),
            rtol=1e-12,
            atol=1e-15,
        )
    np.testing.assert_array_equal(weak_loss(p, np.array([3, 20])), [weak_loss(p, 3), 0])


def test_weak_loss_is_what_a_sampled_batch_loses():
    p, random = frequencies("power:1", 8, 2.0), np.random.default_rng(0)
    x = (random.random((200_000, 8)) < p) * random.uniform(0, 2, (200_000, 8))
    assert x[:, 3:].var(0).sum() == pytest.approx(float(weak_loss(p, 3)), rel=0.02)


@pytest.mark.parametrize(("alpha", "expected"), [(1.25, 0.43), (1.5, 0.61), (1.75, 0.80), (2, 1.02)])
def test_exponents_of_a_thousand_features(alpha, expected):
    assert weak_exponent(f"power:{alpha}", 1000, 1.0, WIDTHS) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("alpha", [1.25, 1.5])
def test_the_asymptote_is_reached_slowly(alpha):
    off = [
        weak_exponent(f"power:{alpha}", n, 1.0, WIDTHS) - weak_asymptote(alpha) for n in (10**3, 10**4, 10**5, 10**6)
    ]
    assert off == sorted(off, reverse=True)
    assert abs(off[-1]) < off[0] / 3  # a little below at α = 1.5: at small m the sum is no integral yet


def test_exponents_without_a_model():
    assert [weak_asymptote(a) for a in (0, 1, 1.5)] == [0, 0, 0.5]
    assert [strong_exponent(a) for a in (0, 1.5, 2)] == [1, 1, 2]


@pytest.mark.parametrize("count", [-1, 21, 2.5])
def test_represented_features_are_counted(count):
    with pytest.raises(UserError, match="counted"):
        weak_loss(frequencies("uniform", 20, 1.0), count)


@pytest.mark.parametrize("widths", [[10], [10, 10], [0, 10], [10, 1000]])
def test_widths_without_a_slope(widths):
    with pytest.raises(UserError, match="a slope needs"):
        weak_exponent("uniform", 1000, 1.0, widths)
