"""What every geometry must satisfy, at every curvature, in fp32 and fp64, near the origin and far from it."""

import itertools
import math

import pytest
import torch

from tests.geometry.samples import (
    CURVATURES,
    CURVED,
    DTYPES,
    MANIFOLDS,
    RADII,
    WEIGHTS,
    Case,
    functions_of,
    generic,
    manifold,
)


@pytest.fixture(
    params=[
        Case(*p)
        for name in MANIFOLDS
        for p in itertools.product([name], CURVATURES, DTYPES, RADII.get(name, [2.0, 6.0]))
    ],
    ids=lambda p: f"{p.name}-{p.c}-{str(p.dtype)[6:]}-r{p.radius:g}",
)
def case(request):
    return request.param


def pair(case):
    """x and y in general position, but equal in the last row, and with y at the origin in the one before."""
    x, y = case.points(seed=1), case.points(seed=2)
    y[-1], y[-2] = x[-1], 0
    return x, y


# Maps


def test_exp_reaches_what_log_points_to(case):
    x, y = pair(case)
    case.assert_same_point(
        case.m.exp(x, case.m.log(x, y)), y, 4 * math.exp(case.radius)
    )  # log x y is as long as 2r: its rounding grows by e^r


def test_log_finds_what_exp_followed(case):
    x = case.points()
    v = case.tangents(x)
    case.assert_same_tangent(x, case.m.log(x, case.m.exp(x, v)), v)


def test_maps_at_the_origin_are_the_general_ones_there(case):
    m, x = case.m, case.points()
    o = torch.zeros_like(x)
    v = m.log0(x)
    case.assert_same_point(m.exp0(v), m.exp(o, v))
    case.assert_same_tangent(o, m.log0(x), m.log(o, x))


def test_exp0_and_log0_are_inverse(case):
    x = case.points()
    case.assert_same_point(case.m.exp0(case.m.log0(x)), x)
    v = case.m.log0(x)
    case.assert_same_tangent(torch.zeros_like(v), case.m.log0(case.m.exp0(v)), v)


def test_lower_keeps_the_distance_from_the_origin_and_lift_undoes_it(case):
    x = case.points()
    v = case.m.lower(x)
    case.assert_same_point(case.m.lift(v), x)
    case.assert_same_number(v.norm(dim=-1), case.m.dist0(x))
    case.assert_same_number(case.m.dist0(x), case.m.dist(x, torch.zeros_like(x)))


def test_free_coordinates(case):
    x = case.points()
    case.assert_same_point(case.m.point(case.m.ambient(x)[0]), x)


# Distance


def test_distance_is_symmetric_zero_on_equals_and_never_negative(case):
    x, y = pair(case)
    assert torch.equal(case.m.dist(x, y), case.m.dist(y, x))
    assert (case.m.dist(x, y) >= 0).all()
    assert (case.m.dist(x, x) == 0).all()


def test_triangle_inequality(case):
    x, y = pair(case)
    z = case.points(seed=3)
    assert (case.m.dist(x, z) <= case.m.dist(x, y) + case.m.dist(y, z) + case.tolerance).all()


def test_distance_is_the_length_of_log(case):
    x, y = pair(case)
    case.assert_same_number(case.m.norm(x, case.m.log(x, y)), case.m.dist(x, y))


def test_sqdist_is_the_square(case):
    x, y = pair(case)
    case.assert_same_number(case.m.sqdist(x, y), case.m.dist(x, y).square(), power=2)


def test_pairwise_is_dist_above_the_noise_of_a_matrix_product(case):
    x, y = pair(case)
    exact = case.m.dist(x[:, None], y)
    got = case.m.pairwise(x, y)
    floor = (
        4 * math.cosh(case.radius) * math.sqrt(2 * torch.finfo(case.dtype).eps) * case.unit * 2**0.5
    )  # 2: largest weight of the product
    # an error of floor² in dist², which is worth less and less as dist grows
    assert (
        (got - exact).abs() <= floor * floor / exact.clamp_min(floor) + case.tolerance * (1 + exact / case.unit)
    ).all()
    batched = case.m.pairwise(x.view(2, -1, x.shape[-1]), y.view(2, -1, x.shape[-1]))
    half = len(x) // 2
    assert (batched - torch.stack((got[:half, :half], got[half:, half:]))).abs().max() <= floor


# Metric, transport, geodesics


def test_transport_is_a_linear_isometry_undone_on_the_way_back(case):
    m, (x, y) = case.m, pair(case)
    u, v = case.tangents(x, seed=3), case.tangents(x, seed=4)
    tu, tv = m.transport(u, x, y), m.transport(v, x, y)
    case.assert_same_number(m.inner(y, tu, tv), m.inner(x, u, v), power=2)
    case.assert_same_tangent(y, m.transport(2 * u - 3 * v, x, y), 2 * tu - 3 * tv, 4)
    case.assert_same_tangent(x, m.transport(tu, y, x), u, 4)


def test_transport_takes_the_direction_to_y_into_the_direction_away_from_x(case):
    m, (x, y) = case.m, pair(case)
    case.assert_same_tangent(y, m.transport(m.log(x, y), x, y), -m.log(y, x), 1 + case.radius)


def test_flow_is_exp_and_the_transported_velocity(case):
    m, x = case.m, case.points()
    v = case.tangents(x)
    y, w = m.flow(x, v, 0.7)
    case.assert_same_point(y, m.exp(x, 0.7 * v))
    case.assert_same_tangent(y, w, m.transport(v, x, y), 4)


def test_flow_in_place_is_flow(case):
    m, x = case.m, case.points()
    v = case.tangents(x)
    y, w = m.flow(x, v, 0.7)
    m.flow_(x, v, 0.7)
    case.assert_same_point(x, y)
    case.assert_same_tangent(y, v, w)


def test_flow_there_and_back(case):
    m, x = case.m, case.points()
    v = case.tangents(x)
    z, w = m.flow(*m.flow(x, v, torch.full_like(x[..., :1], 0.7)), -0.7)
    case.assert_same_point(z, x, 4)
    case.assert_same_tangent(x, w, v, 4)


def test_geodesic_has_its_ends_and_constant_speed(case):
    m, (x, y) = case.m, pair(case)
    case.assert_same_point(m.geodesic(x, y, 0.0), x)
    case.assert_same_point(m.geodesic(x, y, 1.0), y, 4 if case.name == "lorentz" else 4 * math.exp(case.radius))
    for t in (0.25, 0.5, 0.8):
        z = m.geodesic(x, y, t)
        case.assert_same_number(m.dist(x, z), t * m.dist(x, y), 4)
        case.assert_same_number(
            m.dist(z, y), (1 - t) * m.dist(x, y), 4 if t < 0.6 or case.name == "lorentz" else 4 * math.exp(case.radius)
        )


def test_a_time_for_each_point(case):
    m, (x, y) = case.m, pair(case)
    t = torch.linspace(0, 1, len(x), dtype=case.dtype)[:, None]
    z = m.geodesic(x, y, t)
    for i in (0, 7, 31):
        case.assert_same_point(z[i], m.geodesic(x[i], y[i], float(t[i])))


def test_rgrad_represents_the_differential(case):
    m, x = case.m, case.points()
    v = case.tangents(x)
    g = m.rgrad(x, torch.randn_like(x))  # any tangent vector; its differential is metric · g
    differential = torch.autograd.grad(m.inner(x, g, w := v.clone().requires_grad_()).sum(), w)[0]
    case.assert_same_number(
        m.inner(x, m.rgrad(x, differential), v) / (1 + m.norm(x, g)), m.inner(x, g, v) / (1 + m.norm(x, g)), 4
    )


def test_inner_of_rgrad_is_the_plain_product(case):
    m, x = case.m, case.points()
    v = case.tangents(x)
    g = torch.randn_like(x) * (
        m.rgrad(x, torch.ones_like(x)) / m.norm(x, m.rgrad(x, torch.ones_like(x)))[:, None]
    ).abs().clamp_max(1)
    size = m.norm(x, m.rgrad(x, g)).clamp_min(case.unit)
    case.assert_same_number(m.inner(x, m.rgrad(x, g), v) / size, (g * v).sum(-1) / size)


def test_component_sqnorm_is_the_squared_length_of_rgrad(case):
    m, x = case.m, case.points()
    g = torch.randn_like(x)
    size = m.component_sqnorm(g, m.rgrad(x, g))
    assert size.shape == (x.shape if m.per_coordinate else (*x.shape[:-1], 1))
    length = m.inner(x, m.rgrad(x, g), m.rgrad(x, g))
    if case.name in CURVED:
        case.assert_same_number((size.squeeze(-1) / length).sqrt(), torch.ones_like(length), power=0)
    elif case.name == "euclidean":
        case.assert_same_number(size.sum(-1), length, power=2)
    else:  # the product keeps each factor's own form
        by_factor = zip(m.factors, m.weights, m.split(x), m.split(g), m.split(size), strict=True)
        assert all(
            torch.allclose(s, (f.component_sqnorm(h, f.rgrad(p, h)) / w).expand_as(s)) for f, w, p, h, s in by_factor
        )


# Centroid and symmetry


def midpoint_factor(case):
    """-c<z, z> is a difference of squares of size cosh²(r): the centroid keeps ε·e^2r, not ε·e^r, along the ray."""
    return 4 * math.exp(case.radius) if case.name != "euclidean" else 1


def test_midpoint_of_copies_is_the_point(case):
    x = case.points()
    copies = x[:, None].expand(-1, 3, -1)
    case.assert_same_point(case.m.midpoint(copies), x, midpoint_factor(case))
    case.assert_same_point(case.m.midpoint(copies, WEIGHTS.to(case.dtype)), x, midpoint_factor(case))
    if case.name in CURVED:
        case.assert_same_point(case.m.add(x, x, 0.5), x, midpoint_factor(case))


def test_midpoint_of_two_is_half_way(case):
    x, y = pair(case)
    half = case.m.geodesic(x, y, 0.5)
    case.assert_same_point(case.m.midpoint(torch.stack((x, y), -2)), half, midpoint_factor(case))
    if case.name in CURVED:
        case.assert_same_point(case.m.add(x, y), half, midpoint_factor(case))


def test_midpoint_ignores_the_scale_of_weights(case):
    x = case.points().view(8, 4, -1)
    w = torch.rand(8, 4, dtype=case.dtype)
    case.assert_same_point(case.m.midpoint(x, 100 * w), case.m.midpoint(x, w), midpoint_factor(case))
    case.assert_same_point(case.m.midpoint(x), case.m.midpoint(x, torch.full_like(w, 7.0)), midpoint_factor(case))


def test_midpoint_moves_with_the_points(case):
    x, by = case.points().view(8, 4, -1), Case(case.name, case.c, case.dtype, 1.0).points(8, seed=4)
    w = torch.rand(8, 4, dtype=case.dtype)
    moved = case.m.midpoint(case.m.translate(x, by[:, None]), w)
    case.assert_same_point(moved, case.m.translate(case.m.midpoint(x, w), by), 4 * midpoint_factor(case))


def test_translate_is_an_isometry(case):
    m, (x, y) = case.m, pair(case)
    by = Case(case.name, case.c, case.dtype, 1.0).points(seed=4)
    case.assert_same_number(m.dist(m.translate(x, by), m.translate(y, by)), m.dist(x, y), 4)


def test_translate_takes_the_origin_to_by_and_is_undone(case):
    m, (x, by) = case.m, pair(case)
    case.assert_same_point(m.translate(torch.zeros_like(x), by), by)
    case.assert_same_point(m.translate(by, -by), torch.zeros_like(by))
    case.assert_same_point(m.translate(m.translate(x, by), -by), x, 4 * math.exp(case.radius))


@pytest.mark.parametrize("name", ["euclidean", *CURVED])
def test_hyperplane_is_where_its_distance_is_zero(name):
    for c, dtype, radius in itertools.product(CURVATURES, DTYPES, RADII.get(name, [2.0, 6.0])):
        case = Case(name, c, dtype, radius)
        m, p = case.m, case.points()
        w, v = case.tangents(p, seed=3), case.tangents(p, seed=4)
        across = v - (m.inner(p, v, w) / m.inner(p, w, w))[:, None] * w
        case.assert_same_number(m.dist_to_hyperplane(m.exp(p, across), p, w), torch.zeros(len(p), dtype=dtype), 2)
        unit = w / m.norm(p, w)[:, None]
        ways = (-1.0, 0.01, 1.5 if name == "sphere" else 2.0)  # to a pole of the great sphere it is π/2
        for t in ways:  # along the normal the distance is the way gone, and its sign the side
            t *= case.unit
            case.assert_same_number(
                m.dist_to_hyperplane(m.exp(p, t * unit), p, w), torch.full((len(p),), t, dtype=dtype), 8
            )


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", ["euclidean", *CURVED])
def test_distance_to_hyperplane_is_the_least_distance_to_its_points(name, c):
    m = manifold(name, c)
    unit = 1 / math.sqrt(c)
    p, w = m.lift(unit * torch.tensor([0.5, -0.8], dtype=torch.float64)), torch.tensor([0.3, 0.7], dtype=torch.float64)
    along = torch.tensor([1.0, 0.0], dtype=torch.float64)
    along = along - m.inner(p, along, w) / m.inner(p, w, w) * w
    along = unit * along / m.norm(p, along)
    line = m.exp(p, torch.linspace(-4, 4, 40001, dtype=torch.float64)[:, None] * along)
    for x in Case(name, c, torch.float64, 1.5).points(8)[:, :2]:
        assert m.dist_to_hyperplane(x, p, w).abs().item() == pytest.approx(
            m.dist(x, line).min().item(), abs=1e-5 * unit
        )


# Curvature


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_curvature_is_a_change_of_units(name, c):
    x, y, v = generic(name, c)
    m, one, root = manifold(name, c), manifold(name, 1.0), math.sqrt(c)
    for key, f in functions_of(name).items():
        if name == "euclidean" and not f.flat_scales:
            continue
        expected = f.call(one, root * x, root * y, root * v) / root**f.power
        torch.testing.assert_close(
            f.call(m, x, y, v), expected, rtol=1e-12, atol=1e-13, msg=lambda s, key=key: f"{key}: {s}"
        )


@pytest.mark.parametrize("name", CURVED)
def test_no_curvature_is_flat_space(name):
    """c -> 0. Coordinates of the ball and the sphere are half of what they become, the metric 4 times."""
    c = 1e-6
    flat, m = manifold("euclidean", c), manifold(name, c)
    half = 1.0 if name == "lorentz" else 0.5
    x, y, v = (0.5 * t for t in generic("euclidean", 1.0))
    for key in (
        "exp",
        "log",
        "flow position",
        "flow velocity",
        "transport",
        "geodesic",
        "dist",
        "sqdist",
        "dist0",
        "pairwise",
    ):
        f = functions_of(name)[key]
        got = f.call(m, half * x, half * y, half * v)
        got = got / half if got.shape == x.shape else got
        torch.testing.assert_close(
            got, f.call(flat, x, y, v), rtol=0, atol=100 * c, msg=lambda s, key=key: f"{key}: {s}"
        )
    for key in ("mean", "midpoint", "translate"):
        f = functions_of(name)[key]
        torch.testing.assert_close(f.call(m, half * x, half * y, v) / half, f.call(flat, x, y, v), rtol=0, atol=100 * c)
    for key in ("lift", "log_volume"):
        f = functions_of(name)[key]
        got = f.call(m, x, y, v)
        torch.testing.assert_close(got / half if key == "lift" else got, f.call(flat, x, y, v), rtol=0, atol=100 * c)
