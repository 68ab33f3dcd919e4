"""The oracle agrees with itself: laws that hold whatever the formula, to 60 digits."""

import random

import pytest

from tests.reference import (
    EuclideanRef,
    LorentzRef,
    PoincareRef,
    add,
    dot,
    halfspace_dist,
    halfspace_to_lorentz,
    klein_dist,
    klein_to_lorentz,
    length,
    lorentz_to_halfspace,
    lorentz_to_klein,
    lorentz_to_poincare,
    mp,
    poincare_to_lorentz,
    scale,
    sub,
    to_float,
    to_mp,
)

D = 3
all_curvatures = pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
all_manifolds = pytest.mark.parametrize("manifold", [LorentzRef, PoincareRef, EuclideanRef])


def vectors(n, seed=0, size=1.0):
    rng = random.Random(seed)
    return [to_mp([rng.gauss(0, size) for _ in range(D)]) for _ in range(n)]


def points(m, n, seed=1):
    return [m.exp0(v) for v in vectors(n, seed)]


def tangents(m, x, n, seed):
    """Of norm about 1 at x.

    Near the edge of the ball plain Gaussian components would reach hundreds away, further than 200 digits can see.
    """
    return [scale(1 / m.norm(x, unit(0)), v) for v in vectors(n, seed)]


def close(a, b, digits=60):
    a, b = (v if isinstance(v, list) else [v] for v in (a, b))
    return length(sub(a, b)) <= mp.mpf(10) ** -digits * max(1, length(b))


def unit(i):
    return to_mp([float(i == j) for j in range(D)])


def origin():
    return to_mp([0.0] * D)


def derivative(f):
    """f'(0) by a central difference: with 200 digits, good to 100."""
    step = mp.mpf(10) ** -60
    return (f(step) - f(-step)) / (2 * step)


def test_floats_are_taken_exactly():
    assert to_mp([0.1])[0] * 2**55 == 3602879701896397  # 0.1 in fp64, with its rounding
    assert to_float(to_mp([0.1, -2.5])) == [0.1, -2.5]


@all_curvatures
@all_manifolds
def test_exp_and_log_are_inverse(manifold, c):
    m = manifold(c)
    x, y = points(m, 2)
    (v,) = tangents(m, x, 1, seed=2)
    (v0,) = vectors(1, seed=2)
    assert close(m.exp(x, m.log(x, y)), y)
    assert close(m.log(x, m.exp(x, v)), v)
    assert close(m.exp0(m.log0(y)), y)
    assert close(m.exp0(v0), m.exp(origin(), v0))
    assert close(m.dist(x, m.exp(x, v)), m.norm(x, v))
    assert close(m.norm(x, m.log(x, y)), m.dist(x, y))
    assert m.log(x, x) == origin()
    assert m.exp(x, origin()) == x
    assert m.dist(x, x) == 0


@all_curvatures
@all_manifolds
def test_inner_is_the_metric_of_dist(manifold, c):
    """dist(x, x + h v)²/h² -> <v, v>: ties the tangent vectors' coordinates to the points' own."""
    m = manifold(c)
    (x,) = points(m, 1)
    (v,) = tangents(m, x, 1, seed=3)
    h = mp.mpf(10) ** -30
    assert close(m.dist(x, add(x, scale(h, v))) / h, m.norm(x, v), digits=25)


@all_curvatures
@all_manifolds
def test_transport_is_an_isometry_along_the_geodesic(manifold, c):
    m = manifold(c)
    x, y = points(m, 2)
    u, v = tangents(m, x, 2, seed=4)
    assert close(m.inner(y, m.transport(u, x, y), m.transport(v, x, y)), m.inner(x, u, v))
    assert close(m.transport(m.log(x, y), x, y), scale(-1, m.log(y, x)))
    assert close(m.transport(m.transport(v, x, y), y, x), v)
    middle = m.geodesic(x, y, 0.5)
    assert close(m.transport(m.transport(v, x, middle), middle, y), m.transport(v, x, y))
    assert close(m.transport(v, x, x), v)


@all_curvatures
def test_transport_does_not_turn(c):
    """Schild's ladder: from x through the middle of exp_x(hv) and y, and as far again, lies exp_y(h PT v) up to h³."""
    for m in (LorentzRef(c), PoincareRef(c)):
        (x,) = points(m, 1)
        v, w = tangents(m, x, 2, seed=5)
        h = mp.mpf(10) ** -20
        y = m.exp(x, scale(h, w))
        middle = m.geodesic(m.exp(x, scale(h, v)), y, 0.5)
        rung = m.log(y, m.geodesic(x, middle, 2))
        assert close(
            scale(1 / h, rung), m.transport(v, x, y), digits=35
        )  # off by h²; a transport that turns on the way would be off by h


@all_curvatures
@all_manifolds
def test_geodesic_has_constant_speed(manifold, c):
    m = manifold(c)
    x, y = points(m, 2)
    for t in (0.25, 1.5):
        z = m.geodesic(x, y, t)
        assert close(m.dist(x, z), t * m.dist(x, y))
        assert close(m.exp(x, scale(t, m.log(x, y))), z)


@all_curvatures
@all_manifolds
def test_midpoint(manifold, c):
    m = manifold(c)
    x, y, z = points(m, 3)
    assert close(m.midpoint([x, y], [2, 2]), m.geodesic(x, y, 0.5))
    weights, by = [0.5, 3.0, 1.0], vectors(1, seed=6, size=0.2)[0]
    moved = m.midpoint([m.translate(p, by) for p in (x, y, z)], weights)
    assert close(m.translate(m.midpoint([x, y, z], weights), by), moved)


@all_curvatures
@all_manifolds
def test_rgrad_represents_the_differential(manifold, c):
    """<rgrad, e_i> = ∂f/∂x_i; and for f = dist(., y)²/2 the gradient is -log_x(y)."""
    m = manifold(c)
    x, y = points(m, 2)
    g = [derivative(lambda h, i=i: m.dist(add(x, scale(h, unit(i))), y) ** 2 / 2) for i in range(D)]
    grad = m.rgrad(x, g)
    assert all(close(m.inner(x, grad, unit(i)), g[i]) for i in range(D))
    assert close(grad, scale(-1, m.log(x, y)))


@all_curvatures
@all_manifolds
def test_hyperplane_distance_is_signed_and_shortest(manifold, c):
    m = manifold(c)
    p, x = points(m, 2)
    w, u = tangents(m, p, 2, seed=7)
    on_plane = m.exp(p, sub(u, scale(m.inner(p, u, w) / m.inner(p, w, w), w)))
    assert close(m.hyperplane_distance(on_plane, p, w), mp.zero)
    normal = m.transport(w, p, on_plane)  # the plane is totally geodesic: its normal stays normal
    for s in (-0.7, 0.7):
        assert close(m.hyperplane_distance(m.exp(on_plane, scale(s / m.norm(p, w), normal)), p, w), mp.mpf(s))
    assert m.hyperplane_distance(x, p, w) * m.inner(p, m.log(p, x), w) > 0
    assert abs(m.hyperplane_distance(x, p, w)) <= m.dist(x, p)


@all_curvatures
@all_manifolds
def test_translate_is_the_isometry_without_rotation(manifold, c):
    m = manifold(c)
    x, y, by = points(m, 3)
    assert close(m.translate(origin(), by), by)
    assert close(m.dist(m.translate(x, by), m.translate(y, by)), m.dist(x, y))
    assert close(m.translate(x, by), m.exp(by, m.transport(m.log0(x), origin(), by)))


@all_curvatures
def test_exterior_angle_is_the_law_of_cosines(c):
    for m in (LorentzRef(c), PoincareRef(c)):
        x, y = points(m, 2)
        to_origin, to_y, across = (m.sqrt_c * m.dist(p, q) for p, q in ((x, origin()), (x, y), (y, origin())))
        interior = mp.acos(
            (mp.cosh(to_origin) * mp.cosh(to_y) - mp.cosh(across)) / (mp.sinh(to_origin) * mp.sinh(to_y))
        )
        assert close(m.exterior_angle(x, y), mp.pi - interior)
        assert close(m.exterior_angle(x, m.geodesic(origin(), x, 2)), mp.zero, digits=50)
        assert close(m.exterior_angle(x, m.geodesic(origin(), x, 0.5)), mp.pi, digits=50)


@all_curvatures
def test_models_are_isometric(c):
    L, B = LorentzRef(c), PoincareRef(c)
    x, y, z = points(L, 3)
    p, q, s = (lorentz_to_poincare(a, c) for a in (x, y, z))
    assert close(poincare_to_lorentz(p, c), x)
    assert close(klein_to_lorentz(lorentz_to_klein(x, c), c), x)
    assert close(halfspace_to_lorentz(lorentz_to_halfspace(x, c), c), x)
    for distance in (
        B.dist(p, q),
        klein_dist(lorentz_to_klein(x, c), lorentz_to_klein(y, c), c),
        halfspace_dist(lorentz_to_halfspace(x, c), lorentz_to_halfspace(y, c), c),
    ):
        assert close(distance, L.dist(x, y))
    assert close(B.half_aperture(p), L.half_aperture(x))
    assert close(B.exterior_angle(p, q), L.exterior_angle(x, y))
    assert close(B.translate(p, q), lorentz_to_poincare(L.translate(x, y), c))
    assert close(B.wrapped_normal_log_density(p, q, 0.5), L.wrapped_normal_log_density(x, y, 0.5))
    assert close(B.hyperplane_distance(p, q, B.log(q, s)), L.hyperplane_distance(x, y, L.log(y, z)))


@all_curvatures
def test_density_integrates_to_one(c):
    """A sum over a grid around a mean off the origin.

    The grid is one of the ball (volume λ² dx), and one of asinh(√c x_i)/√c on the hyperboloid (volume dx/(√c x_t)).
    """
    std, v, n = 0.4, to_mp([0.2, -0.1]), 12
    L, B = LorentzRef(c), PoincareRef(c)

    def total(m, half_width, place, volume):
        step = half_width / n
        grid = [place(to_mp([step * i, step * j])) for i in range(-n, n + 1) for j in range(-n, n + 1)]
        return step**2 * mp.fsum(
            mp.exp(m.wrapped_normal_log_density(x, m.exp0(v), std)) * volume(x) for x in grid if volume(x) > 0
        )

    def stretch(a):
        return [mp.sinh(L.sqrt_c * p) / L.sqrt_c for p in a]

    def stretched_volume(x):
        return mp.sqrt((1 + c * x[0] ** 2) * (1 + c * x[1] ** 2)) / (L.sqrt_c * L.time(x))

    def ball_volume(x):
        return B.lam(x) ** 2 if c * dot(x, x) < 0.999 else 0

    assert close(total(L, 2.0, stretch, stretched_volume), mp.one, digits=3)
    assert close(total(B, min(float(1 / B.sqrt_c), 1.2), lambda x: x, ball_volume), mp.one, digits=3)


def test_far_and_near_points_keep_their_digits():
    """Radius 40, 1e-20 apart: the worst that the header promises."""
    for m in (LorentzRef(1), PoincareRef(1)):
        x = m.exp0(to_mp([40.0, 0.0, 0.0]) if isinstance(m, LorentzRef) else to_mp([20.0, 0.0, 0.0]))
        v = scale(mp.mpf(10) ** -20 / m.norm(x, unit(1)), unit(1))
        assert close(m.dist(x, m.exp(x, v)) * 10**20, mp.one)
        assert close(scale(10**20, m.log(x, m.exp(x, v))), scale(10**20, v))
