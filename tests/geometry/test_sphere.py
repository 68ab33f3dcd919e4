"""The sphere near its antipode, where no other geometry here has to go."""

import math

import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Product, Sphere, WrappedNormal
from horosphere.optim import RiemannianAdam, RiemannianSGD
from tests.geometry.samples import CURVATURES, DTYPES, directions
from tests.reference import SphereRef, to_mp

ANGLES = [1e-6, 1e-4, 1e-2, 1.0, 2.0, 3.0, math.pi - 1e-2, math.pi - 1e-4, math.pi - 1e-6]


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("angle", ANGLES)
def test_distances_keep_six_digits_from_the_point_to_its_antipode(c, angle):
    m, oracle = Sphere(c), SphereRef(c)
    x = m.lift(torch.linspace(0, 2.5, 24, dtype=torch.float64)[:, None] * directions(24) / math.sqrt(c))
    v = m.transport(angle / math.sqrt(c) / 2 * directions(24, seed=1), torch.zeros_like(x), x)
    x, y = x.float(), m.exp(x, v).float()
    for p, q, got in zip(x, y, m.dist(x, y), strict=True):
        exact = oracle.dist(to_mp(p), to_mp(q))
        if exact > 1e-7:  # nearer points may be stored as one
            assert abs(got.item() / float(exact) - 1) < 1e-6


def antipodes(m, dtype=torch.float32):
    """Pairs that are opposite as well as floats tell: on the ray of the origin, and across."""
    x = m.lift(torch.linspace(0, 3.1, 12, dtype=torch.float64)[:, None] * directions(12) / math.sqrt(m.c))
    across = math.pi / 2 / math.sqrt(m.c) * m.transport(directions(12, seed=1), torch.zeros_like(x), x)
    return m.point(x.to(dtype)), m.point(m.exp(x, across).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", CURVATURES)
def test_nothing_is_lost_at_antipodes(c, dtype):
    m = Sphere(c)
    x, y = (t.clone().requires_grad_() for t in antipodes(m, dtype))
    end = m.exp0(torch.full((6,), 0.5 * math.pi / math.sqrt(6 * c), dtype=dtype))  # of the chart
    for call in (
        lambda: m.dist(x, y),
        lambda: m.sqdist(x, y),
        lambda: m.pairwise(x, y),
        lambda: m.pairwise_sq(x, y),
        lambda: m.log(x, y),
        lambda: m.transport(m.log(x, y), x, y),
        lambda: m.midpoint(torch.stack((x, y), -2)),
        lambda: m.geodesic(x, y, 0.5),
        lambda: m.translate(x, y),
        lambda: m.dist(x, end.expand_as(x)),
        lambda: m.dist_to_hyperplane(x, y, torch.ones_like(y)),
    ):
        out = call()
        assert out.isfinite().all()
        assert all(
            g.isfinite().all() for g in torch.autograd.grad(out.sum(), (x, y), allow_unused=True) if g is not None
        )
    assert_close(m.dist(x, y), torch.full((12,), math.pi / math.sqrt(c), dtype=dtype), rtol=1e-6, atol=0)
    assert_close(m.norm(x, m.log(x, y)), m.dist(x, y), rtol=1e-4, atol=0)


@pytest.mark.parametrize("c", [1e-12, 1.0, 1e12])
def test_a_great_sphere_at_the_antipode_has_a_gradient(c):
    """Its normal is short there in the coordinates of the chart: powers of it are no floats."""
    m = Sphere(c)
    end = m.exp0(torch.full((3,), 0.5 * math.pi / math.sqrt(3 * c))).requires_grad_()
    x = m.lift(directions(5, 3).float() / math.sqrt(c)).requires_grad_()
    w = (1e-6 / math.sqrt(c) * directions(5, 3, seed=1).float()).requires_grad_()
    above = m.dist_to_hyperplane(x, end, w)
    assert above.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(above.sum(), (x, end, w)))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_sphere_of_no_dimensions_has_one_point(device):
    m, x = Sphere(1.0), torch.zeros(5, 0, device=device)
    points = m.exp0(x), m.exp(x, x), m.log(x, x), m.add(x, x), m.translate(x, x), m.point(x), m.of_vector(m.vector(x))
    assert all(point.shape == (5, 0) for point in points)
    assert m.dist(x, x).shape == (5,)
    assert m.midpoint(x).shape == (0,)


def test_an_exact_antipode_has_a_finite_log_of_the_right_length():
    m, x = Sphere(1.0), torch.tensor([[1.0, 0.0]])
    assert m.dist(x, -x) == pytest.approx(math.pi)
    assert m.norm(x, m.log(x, -x)).item() == pytest.approx(math.pi)


def test_a_way_around_the_sphere_ends_where_it_began():
    m = Sphere(0.25)
    x = m.lift(torch.randn(9, 4, dtype=torch.float64))
    v = m.transport(directions(9, 4), torch.zeros_like(x), x)
    v = 2 * math.pi / 0.5 * v / m.norm(x, v)[:, None]
    assert m.dist(m.exp(x, v), x).max() < 1e-7
    half = m.exp(x, v / 2)
    assert_close(m.dist(half, x), torch.full((9,), math.pi / 0.5, dtype=torch.float64))


def test_points_that_cancel_have_the_origin_for_their_middle():
    m, x = Sphere(1.0), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert m.midpoint(x).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("kind", [RiemannianSGD, RiemannianAdam])
def test_riemannian_optimizers_walk_on_it(kind, c):
    """To a point near the antipode, which is found across the end of the chart too."""
    m = Sphere(c)
    target = m.exp0(torch.tensor([0.0, 1.55 / math.sqrt(c)], dtype=torch.float64))
    x = torch.nn.Parameter(m.exp0(torch.tensor([0.3, -0.2], dtype=torch.float64) / math.sqrt(c)))
    optimizer = kind([{"params": [x], "manifold": m}], lr=0.1 / (c if kind is RiemannianSGD else math.sqrt(c)))
    for _ in range(300):
        for group in optimizer.param_groups:
            group["lr"] *= 0.99
        optimizer.zero_grad()
        (m.sqdist(x, target) * (c if kind is RiemannianSGD else 1.0)).backward()
        optimizer.step()
    assert math.sqrt(c) * m.dist(x.detach(), target) < 0.05


def test_a_product_of_all_three_curvatures():
    product = Product((Lorentz(1.0), 2), (Sphere(1.0), 2), (Euclidean(), 1))
    x, y = product.random(2, 7, 5, dtype=torch.float64)
    parts = [m.dist(a, b) for m, a, b in zip(product.factors, product.split(x), product.split(y), strict=True)]
    assert_close(product.dist(x, y), torch.stack(parts).square().sum(0).sqrt())
    assert_close(product.exp(x, product.log(x, y)), y)


def test_the_mean_of_a_wrapped_normal_is_where_it_was_put():
    m = Sphere(1.0)
    mean = m.lift(torch.tensor([2.0, -1.0], dtype=torch.float64))
    drawn = WrappedNormal(m, mean, 0.3).sample(4000, generator=torch.Generator().manual_seed(0))
    assert m.dist(m.midpoint(drawn), mean) < 0.03


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_end_of_the_chart_fits_the_dtype(dtype):
    m = Sphere(1e-4)
    end = m.lift(torch.tensor([314.15926, 0.0], dtype=dtype))
    assert end.isfinite().all()
    assert m.dist(end, -end).isfinite()
    far = m.point(torch.full((2,), torch.finfo(dtype).max / 4, dtype=dtype))
    assert far.isfinite().all()
    assert (far > 0).all()  # it is not the origin
    opposite = torch.tensor([1.0, 0.3], dtype=dtype)
    assert Sphere(1.0).add(opposite, -opposite).isfinite().all()


def test_a_learned_curvature_has_a_gradient():
    m = Sphere(1.0, learn=True)
    m.dist(torch.tensor([[0.3, 0.1]]), torch.tensor([[-0.4, 2.0]])).sum().backward()
    assert m.log_ratio.grad.isfinite().all()
    assert m.log_ratio.grad.abs() > 0
