import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure import Radius, depth_correlation, radius, radius_by_group

MANIFOLDS = [Euclidean(), Lorentz(c=0.1), Lorentz(c=4.0), Poincare(c=1.0)]
RADII = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)


def points_at(m, radii, dim=3):
    direction = torch.randn(len(radii), dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return m.lift(radii[:, None] * direction / direction.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("m", MANIFOLDS)
def test_radius_of_lifted_vectors_is_their_length(m):
    r = radius(points_at(m, RADII), m)
    assert (r.mean, r.std, r.min, r.median, r.max) == pytest.approx((3.0, 3.5**0.5, 1.0, 2.5, 6.0))


def test_one_point_has_no_spread():
    assert radius(torch.tensor([[3.0, 4.0]]), Euclidean()) == Radius(mean=5, std=0, min=5, median=5, max=5)


@pytest.mark.parametrize("m", MANIFOLDS)
def test_mean_of_each_group(m):
    assert radius_by_group(points_at(m, RADII), m, np.array([5, 0, 0, 5])) == pytest.approx({0: 2.5, 5: 3.5})


@pytest.mark.parametrize("m", MANIFOLDS)
def test_correlation_sees_order_only(m):
    points = points_at(m, RADII)
    assert depth_correlation(points, m, torch.tensor([0, 1, 5, 9])) == pytest.approx(1)
    assert depth_correlation(points, m, torch.tensor([9, 5, 1, 0])) == pytest.approx(-1)


def test_correlation_needs_two_depths():
    with pytest.raises(UserError, match="same depth"):
        depth_correlation(torch.randn(3, 2), Euclidean(), np.zeros(3))


def test_labels_that_do_not_fit():
    with pytest.raises(UserError, match=r"3 points .* shape \(2,\)"):
        radius_by_group(torch.randn(3, 2), Euclidean(), np.zeros(2))


def test_no_points():
    with pytest.raises(UserError, match="no points"):
        radius(torch.zeros(0, 2), Euclidean())
