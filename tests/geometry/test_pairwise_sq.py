"""`pairwise_sq` is `pairwise` squared, with its gradient, in every geometry."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import geometry

NAMES = ("euclidean", "lorentz", "poincare", "sphere", "lorentz:2+sphere:2+euclidean:2")


def points(manifold, count, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    return manifold.random(count, 6, std=spread, generator=generator, dtype=torch.float64).detach().requires_grad_()


@pytest.mark.parametrize("spread", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_pairwise(name, spread):
    manifold = geometry(name, 6, 0.3, learn=True).double()
    spread = min(spread, 1.0) if "sphere" in name else spread
    x, y = points(manifold, 5, spread, 0), points(manifold, 7, spread, 1)
    weights = torch.rand(5, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = [x, y, *manifold.parameters()]
    got, exact = manifold.pairwise_sq(x, y), manifold.pairwise(x, y).square()
    assert_close(got.double(), exact, rtol=1e-5, atol=1e-6 * float(exact.detach().max()))
    slopes, expected = (torch.autograd.grad((d * weights).sum(), inputs) for d in (got, exact))
    for i, (slope, right) in enumerate(zip(slopes, expected, strict=True)):
        rtol = 1e-4 if i < 2 else 1e-2  # near points hardly know their curvature
        assert_close(slope, right, rtol=rtol, atol=1e-5 * float(right.abs().max()))


@pytest.mark.parametrize("name", NAMES)
def test_equal_points_have_a_finite_gradient(name):
    manifold = geometry(name, 6, 0.3)
    x = points(manifold, 4, 0.5, 0)
    (slope,) = torch.autograd.grad(manifold.pairwise_sq(x, x).sum(), x)
    assert slope.isfinite().all()


def test_near_points_keep_their_distance():
    """What a product in float32 would lose."""
    manifold = geometry("lorentz", 6)
    x = points(manifold, 1, 1.0, 0).detach()
    y = manifold.exp(x, 1e-5 * torch.ones_like(x))
    assert_close(manifold.pairwise_sq(x, y).double()[0], manifold.sqdist(x, y), rtol=1e-3, atol=0)


def test_far_points_have_a_distance():
    """u is e^88 at most, and a float32; its square would not be."""
    manifold = geometry("lorentz", 6, 4.0)
    x = manifold.exp0(torch.tensor([[14.0, 0, 0, 0, 0, 0], [-14.0, 0, 0, 0, 0, 0]], dtype=torch.float64))
    x.requires_grad_()
    squares = manifold.pairwise_sq(x, x)
    assert_close(squares[0, 1].double(), torch.tensor(28.0**2, dtype=torch.float64), rtol=1e-5, atol=0)
    (slope,) = torch.autograd.grad(squares[0, 1], x)
    assert_close(slope, torch.autograd.grad(manifold.sqdist(x[0], x[1]), x)[0], rtol=1e-5, atol=0)
