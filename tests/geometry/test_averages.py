"""Moving averages: weights that sum to 1 - γᵗ, in flat space torch's lerp, elsewhere along geodesics."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, moving_average

MANIFOLDS = [Euclidean(), *(kind(c) for kind in (Lorentz, Poincare) for c in (0.1, 1.0, 4.0))]
MANIFOLDS.append(Product((Lorentz(0.5), 2), (Euclidean(), 1)))


def named(manifold):
    return str(manifold).replace("\n", "")


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=named)
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_weights_sum_to_one_minus_the_decay_to_the_power_of_the_steps(manifold, decay):
    target = manifold.lift(torch.tensor([0.3, -0.4, 1.2], dtype=torch.float64))
    average = torch.zeros_like(target)
    for step in range(1, 6):
        average = moving_average(average, target, decay, manifold)
        assert_close(manifold.lower(average), (1 - decay**step) * manifold.lower(target))


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=named)
def test_the_average_lies_between(manifold):
    x, y = (manifold.random(5, 3, dtype=torch.float64) for _ in range(2))
    mean = moving_average(x, y, 0.75, manifold)
    assert_close(manifold.dist(x, mean), 0.25 * manifold.dist(x, y))
    assert_close(manifold.dist(mean, y), 0.75 * manifold.dist(x, y))


def test_in_flat_space_it_is_the_classic():
    values, average = torch.randn(50, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for value in values:
        average = moving_average(average, value, 0.9, Euclidean())
    weights = 0.1 * 0.9 ** torch.arange(49, -1, -1, dtype=torch.float64)
    assert_close(average, weights @ values)
    assert weights.sum().item() == pytest.approx(1 - 0.9**50)
    x, y = torch.randn(2, 5)
    assert_close(moving_average(x, y, 0.9, Euclidean()), torch.lerp(x, y, 0.1))


def test_as_curvature_goes_to_nothing_it_is_the_flat_one():
    x, y = torch.randn(2, 5, 3, dtype=torch.float64)
    flat = moving_average(x, y, 0.9, Euclidean())
    errors = [(moving_average(x, y, 0.9, Lorentz(c)) - flat).abs().max().item() for c in (1e-4, 1e-5)]
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.01)
