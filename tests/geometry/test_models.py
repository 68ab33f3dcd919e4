"""The models of hyperbolic space are one space: maps, cones, and both manifolds side by side."""

import itertools
import math

import pytest
import torch

from horosphere.geometry import (
    Euclidean,
    Lorentz,
    Poincare,
    exterior_angle,
    half_aperture,
    halfspace_to_lorentz,
    halfspace_to_poincare,
    klein_to_lorentz,
    klein_to_poincare,
    lorentz_to_halfspace,
    lorentz_to_klein,
    lorentz_to_poincare,
    poincare_to_halfspace,
    poincare_to_klein,
    poincare_to_lorentz,
)
from tests.geometry.samples import CURVATURES, DTYPES, HYPERBOLIC, WEIGHTS, Case, generic, manifold
from tests.reference import halfspace_dist, klein_dist, to_mp


@pytest.fixture(params=list(itertools.product(CURVATURES, DTYPES)), ids=lambda p: f"{p[0]}-{str(p[1])[6:]}")
def case(request):
    return Case("lorentz", *request.param, radius=3.0)


KLEIN = math.exp(3.0)  # its gap to the edge is 1/cosh², the ball's 1/cosh: it keeps ε·e^2r


def test_maps_undo_each_other(case):
    x, c = case.points(), case.c
    case.assert_same_point(poincare_to_lorentz(lorentz_to_poincare(x, c), c), x)
    case.assert_same_point(halfspace_to_lorentz(lorentz_to_halfspace(x, c), c), x)
    case.assert_same_point(klein_to_lorentz(lorentz_to_klein(x, c), c), x, KLEIN)


def test_maps_agree_on_every_path(case):
    x, c = case.points(), case.c
    ball, p = Case("poincare", case.c, case.dtype, case.radius), lorentz_to_poincare(x, case.c)
    ball.assert_same_point(klein_to_poincare(lorentz_to_klein(x, c), c), p, KLEIN)
    ball.assert_same_point(halfspace_to_poincare(lorentz_to_halfspace(x, c), c), p)
    ball.assert_same_point(halfspace_to_poincare(poincare_to_halfspace(p, c), c), p)
    ball.assert_same_point(klein_to_poincare(poincare_to_klein(p, c), c), p, KLEIN)
    case.assert_same_point(klein_to_lorentz(poincare_to_klein(p, c), c), x, KLEIN)
    case.assert_same_point(halfspace_to_lorentz(poincare_to_halfspace(p, c), c), x)


def test_maps_keep_distances(case):
    x, y, c = case.points(10, seed=1), case.points(10, seed=2), case.c
    exact = Lorentz(c).dist(x, y)
    ball = Poincare(c)
    case.assert_same_number(ball.dist(lorentz_to_poincare(x, c), lorentz_to_poincare(y, c)), exact)
    for to, dist, slack in ((lorentz_to_klein, klein_dist, KLEIN), (lorentz_to_halfspace, halfspace_dist, 1)):
        there = [float(dist(to_mp(p), to_mp(q), c)) for p, q in zip(to(x, c), to(y, c), strict=True)]
        case.assert_same_number(torch.tensor(there, dtype=case.dtype), exact, slack)


def test_the_origin_is_the_origin_of_every_model():
    o = torch.zeros(3)
    assert torch.equal(lorentz_to_poincare(o, 2.0), o)
    assert torch.equal(lorentz_to_klein(o, 2.0), o)
    assert torch.equal(lorentz_to_halfspace(o, 2.0), torch.tensor([0.0, 0.0, 1.0]))


def test_gradient_of_the_halfspace_map_far_down():
    """t + z_d once vanished in the branch that was not taken, and the gradient with it."""
    x = torch.tensor([1.0, 2.0, -1e6], requires_grad=True)
    lorentz_to_halfspace(x, 1.0).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("c", CURVATURES)
def test_both_manifolds_do_the_same(c):
    L, P = Lorentz(c), Poincare(c)
    x, y, v = generic("lorentz", c)
    p, q = lorentz_to_poincare(x, c), lorentz_to_poincare(y, c)
    u = P.log(p, lorentz_to_poincare(L.exp(x, v), c))  # v, seen in the ball

    def same(a, b):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)

    same(P.exp(p, u), lorentz_to_poincare(L.exp(x, v), c))
    same(P.exp(q, P.transport(u, p, q)), lorentz_to_poincare(L.exp(y, L.transport(v, x, y)), c))
    same(P.geodesic(p, q, 0.3), lorentz_to_poincare(L.geodesic(x, y, 0.3), c))
    same(P.translate(p, q), lorentz_to_poincare(L.translate(x, y), c))
    same(P.midpoint(p, WEIGHTS.new_ones(len(p))), lorentz_to_poincare(L.midpoint(x), c))
    same(P.add(p, q, 0.3), lorentz_to_poincare(L.add(x, y, 0.3), c))
    same(P.lift(v), lorentz_to_poincare(L.lift(v), c))
    same(P.dist(p, q), L.dist(x, y))
    same(P.pairwise(p, q), L.pairwise(x, y))
    same(P.norm(p, u), L.norm(x, v))
    same(P.dist_to_hyperplane(q, p, u), L.dist_to_hyperplane(y, x, v))
    same(P.ambient(p)[0], x)
    same(P.ambient(p)[1], L.time(x))
    same(half_aperture(p, P), half_aperture(x, L))
    same(exterior_angle(p, q, P), exterior_angle(x, y, L))


# The edge of the ball


def test_the_ball_says_how_far_it_reaches():
    for dtype, reach in ((torch.float32, 15.2), (torch.float64, 35.4), (torch.bfloat16, 4.2)):
        for c in CURVATURES:
            m = Poincare(c)
            assert m.max_radius(dtype) * math.sqrt(c) == pytest.approx(reach, abs=0.05)
            x = m.lift(torch.tensor([1e3, -2e3, 5e2], dtype=dtype))
            assert m.dist0(x.double()).item() == pytest.approx(m.max_radius(dtype), rel=0.05)
            assert m.dist(x, -x).isfinite()
            assert all(
                t.isfinite().all()
                for t in (m.log(x, -x), m.log0(x), m.ambient(x)[0], m.geodesic(x, -x, 0.5), m.translate(x, x))
            )


def test_ball_log_reaches_across_the_ball():
    """artanh of a Möbius sum saturates at 17 in fp32; this pair is 26 apart."""
    m = Poincare()
    x = m.lift(torch.tensor([13.0, 0.0], dtype=torch.float32))
    exact = m.dist(x.double(), -x.double()).float()
    assert exact > 25
    torch.testing.assert_close(m.norm(x, m.log(x, -x)), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(m.dist_to_hyperplane(x, -x, torch.tensor([1.0, 0.0])), exact, rtol=1e-5, atol=0)


# Cones


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", ["euclidean", *HYPERBOLIC])
def test_along_the_ray_a_cone_looks_outwards(name, c):
    for dtype in DTYPES:
        case = Case(name, c, dtype, 3.0)
        v = case.m.lower(case.points())[2:]
        x = case.m.lift(v)
        beyond, before, behind = (exterior_angle(x, case.m.lift(s * v), case.m) for s in (1.5, 0.5, -1.0))
        limit = 16 * torch.finfo(dtype).eps * math.exp(4.5)
        assert beyond.max() <= limit
        assert (before - math.pi).abs().max() <= limit
        assert (behind - math.pi).abs().max() <= limit
        assert (exterior_angle(x, torch.zeros_like(x), case.m) - math.pi).abs().max() <= limit


@pytest.mark.parametrize("name", ["euclidean", *HYPERBOLIC])
def test_cones_where_they_are_undefined(name):
    m, x = manifold(name, 1.0), generic(name)[0]
    assert (exterior_angle(x, x, m) == 0).all()
    assert (exterior_angle(torch.zeros_like(x), x, m) == 0).all()
    assert (half_aperture(torch.zeros_like(x), m) == math.pi / 2).all()


@pytest.mark.parametrize("name", HYPERBOLIC)
def test_a_cone_contains_the_cones_of_its_points(name):
    """What the aperture is chosen for: entailment is transitive."""
    case = Case(name, 1.0, torch.float64, 3.0)
    m, x = case.m, case.points(400, seed=1)[200:]
    y, z = case.points(400, seed=2)[200:], case.points(400, seed=3)[200:]
    y, z = (m.lift(m.lower(x) * 1.3 + 0.02 * m.lower(y)), m.lift(m.lower(x) * 1.8 + 0.02 * m.lower(z)))
    inside = (exterior_angle(x, y, m) <= half_aperture(x, m)) & (exterior_angle(y, z, m) <= half_aperture(y, m))
    assert inside.sum() > 10
    assert (exterior_angle(x, z, m) <= half_aperture(x, m) + 1e-9)[inside].all()


def test_cones_far_out_in_fp32():
    x = Lorentz().lift(torch.tensor([[20.0, 30.0], [25.0, 25.0], [0.0, 39.0]]))
    y = Lorentz().lift(torch.tensor([[30.0, 20.0], [10.0, -35.0], [39.0, 0.0]]))
    x.requires_grad_()
    angle = exterior_angle(x, y, Lorentz())
    assert ((angle > math.pi / 2) & (angle <= math.pi + 1e-6)).all()
    assert torch.autograd.grad(angle.sum() + half_aperture(x, Lorentz()).sum(), x)[0].isfinite().all()


def test_a_point_has_one_angle_also_when_the_curvature_is_learned():
    for m in (Lorentz(learn=True), Poincare(learn=True), Euclidean()):
        x = torch.tensor([0.3, 0.4])
        assert (
            half_aperture(x, m).shape
            == exterior_angle(x, x / 2, m).shape
            == m.dist(x, x).shape
            == m.log_volume(x).shape
            == ()
        )


# A peer, where it is right


@pytest.mark.parametrize("c", CURVATURES)
def test_geoopt_agrees(c):
    geoopt = pytest.importorskip("geoopt")
    ball, P = geoopt.PoincareBall(c=c), Poincare(c)
    x, y, v = generic("poincare", c, radius=1.0)

    def same(a, b):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)

    same(P.dist(x, y), ball.dist(x, y))
    same(P.exp(x, v), ball.expmap(x, v))
    same(P.log(x, y), ball.logmap(x, y))
    same(P.transport(v, x, y), ball.transp(x, y, v))
    same(P.translate(y, x), ball.mobius_add(x, y))
    same(P.rgrad(x, v), ball.egrad2rgrad(x, v))
    same(P.dist_to_hyperplane(x, y, v), ball.dist2plane(x, y, v, signed=True))

    hyperboloid, L = geoopt.Lorentz(k=1.0), Lorentz()  # its k is not a curvature in every formula: k = 1 is safe
    x, y, v = generic("lorentz", 1.0, radius=1.0)

    def full(x):
        return torch.cat((L.time(x), x), -1)

    same(L.dist(x, y), hyperboloid.dist(full(x), full(y)))
    same(
        L.exp(x, v), hyperboloid.expmap(full(x), torch.cat(((x * v).sum(-1, keepdim=True) / L.time(x), v), -1))[..., 1:]
    )
    same(L.log(x, y), hyperboloid.logmap(full(x), full(y))[..., 1:])
