"""Every function against 200-digit mpmath, and the digits the specification promises."""

import itertools
import math

import pytest
import torch

from horosphere.geometry import Lorentz, WrappedNormal, exterior_angle, half_aperture, maps
from tests import reference
from tests.geometry.samples import CURVATURES, DTYPES, RADII, WEIGHTS, Case, directions, special
from tests.reference import EuclideanRef, LorentzRef, PoincareRef, SphereRef, mp, to_mp

ORACLES = {"euclidean": EuclideanRef, "lorentz": LorentzRef, "poincare": PoincareRef, "sphere": SphereRef}

# The error of a point is its distance from the exact one; of a tangent vector at `where`, the length of the difference;
# of a number, the difference.
POINTS = {
    "exp0": (lambda m, x, y, v: m.exp0(v), lambda o, x, y, v: o.exp0(v)),
    "exp": (lambda m, x, y, v: m.exp(x, v), lambda o, x, y, v: o.exp(x, v)),
    "geodesic": (lambda m, x, y, v: m.geodesic(x, y, 0.3), lambda o, x, y, v: o.geodesic(x, y, 0.3)),
    "translate": (lambda m, x, y, v: m.translate(x, y), lambda o, x, y, v: o.translate(x, y)),
    "midpoint": (
        lambda m, x, y, v: m.midpoint(torch.stack((x, y, x), -2), WEIGHTS.to(x)),
        lambda o, x, y, v: o.midpoint([x, y, x], WEIGHTS.tolist()),
    ),
}
TANGENTS = {
    "log0": (lambda m, x, y, v: m.log0(x), lambda o, x, y, v: o.log0(x), "origin"),
    "log": (lambda m, x, y, v: m.log(x, y), lambda o, x, y, v: o.log(x, y), "x"),
    "transport": (lambda m, x, y, v: m.transport(v, x, y), lambda o, x, y, v: o.transport(v, x, y), "y"),
    "rgrad": (lambda m, x, y, v: m.rgrad(x, v), lambda o, x, y, v: o.rgrad(x, v), "x"),
}
NUMBERS = {
    "dist": (lambda m, x, y, v: m.dist(x, y), lambda o, x, y, v: o.dist(x, y)),
    "sqdist": (lambda m, x, y, v: m.sqdist(x, y), lambda o, x, y, v: o.dist(x, y) ** 2),
    "inner": (lambda m, x, y, v: m.inner(x, v, v), lambda o, x, y, v: o.inner(x, v, v)),
    "norm": (lambda m, x, y, v: m.norm(x, v), lambda o, x, y, v: o.norm(x, v)),
    "hyperplane": (
        lambda m, x, y, v: m.dist_to_hyperplane(y, x, v + (v == 0)),
        lambda o, x, y, v: o.hyperplane_distance(y, x, nonzero(v)),
    ),
    "half_aperture": (lambda m, x, y, v: half_aperture(x, m), lambda o, x, y, v: o.half_aperture(x)),
    "exterior_angle": (lambda m, x, y, v: exterior_angle(x, y, m), lambda o, x, y, v: angle(o, x, y)),
    "density": (
        lambda m, x, y, v: WrappedNormal(m, x, 0.5).log_prob(y),
        lambda o, x, y, v: o.wrapped_normal_log_density(y, x, 0.5),
    ),
}


CONES = {"half_aperture", "exterior_angle"}  # of hyperbolic and flat space


def nonzero(v):
    return [p + (p == 0) for p in v]


def angle(oracle, x, y):
    """0 where it is undefined, as the package says."""
    return mp.zero if x == y or reference.is_zero(x) else oracle.exterior_angle(x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "fp64"])
@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("name", "radius"), [(name, r) for name in ORACLES for r in RADII.get(name, [1.5, 5.0])])
def test_every_function_is_the_textbook_one(name, c, dtype, radius):
    """Rounding the input alone costs ε·e^r; a difference of two cosh² (centroid), or radius 2r (translate), e^2r."""
    case, oracle = Case(name, c, dtype, radius), ORACLES[name](c)
    x, y = case.points(8, seed=1), case.points(8, seed=2)
    v = case.tangents(x)
    sx, sy, sv = special(name, c, dtype)
    x, y, v = torch.cat((x, sx)), torch.cat((y, sy)), torch.cat((v, sv))
    rows = [tuple(map(to_mp, row)) for row in zip(x, y, v, strict=True)]
    origin = [mp.zero] * x.shape[-1]
    limit = case.tolerance

    for key, (call, exact) in POINTS.items():
        out = call(case.m, x, y, v)
        assert out.dtype == dtype
        for row, got in zip(rows, out, strict=True):
            error = oracle.dist(exact(oracle, *row), to_mp(got))
            assert error <= limit * (math.exp(radius) if key in ("midpoint", "translate") else 1), (
                f"{key}: {float(error):.1e} off"
            )
    for key, (call, exact, where) in TANGENTS.items():
        out = call(case.m, x, y, v)
        for row, got in zip(rows, out, strict=True):
            truth, at = exact(oracle, *row), {"origin": origin, "x": row[0], "y": row[1]}[where]
            error = oracle.norm(at, reference.sub(truth, to_mp(got))) / (1 + oracle.norm(at, truth))
            assert error <= limit * max(1.0, case.unit**-1), f"{key}: {float(error):.1e} off"
    for key, (call, exact) in NUMBERS.items():
        if name == "sphere" and key in CONES:
            continue
        out = call(case.m, x, y, v)
        for row, got in zip(rows, out, strict=True):
            truth = exact(oracle, *row)
            error = abs(truth - got.item()) / (1 + abs(truth))
            slack = 8 if key == "density" else 1  # r²/(2 std²) at std = 1/2
            assert error <= slack * limit * max(1.0, case.unit**-1), (
                f"{key}: {float(error):.1e} off at {[[float(e) for e in p] for p in row]}"
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "fp64"])
@pytest.mark.parametrize("c", CURVATURES)
def test_maps_between_models_are_the_textbook_ones(c, dtype):
    case = Case("lorentz", c, dtype, 3.0)
    x = case.points(8)
    for there, back in (("poincare", "lorentz"), ("klein", "lorentz"), ("halfspace", "lorentz")):
        to, fro = getattr(maps, f"lorentz_to_{there}"), getattr(maps, f"{there}_to_{back}")
        to_exact, fro_exact = getattr(reference, f"lorentz_to_{there}"), getattr(reference, f"{there}_to_{back}")
        for p in x:
            q = to(p, c)
            lifted, oracle = fro(q, c), LorentzRef(c)
            assert oracle.dist(fro_exact(to_exact(to_mp(p), c), c), to_mp(p)) < 1e-50
            assert oracle.dist(fro_exact(to_mp(q), c), to_mp(p)) <= case.tolerance * math.exp(
                3 if there == "klein" else 0
            )
            assert oracle.dist(fro_exact(to_mp(q), c), to_mp(lifted)) <= case.tolerance * math.exp(
                3 if there == "klein" else 0
            )


# Digits


def pairs(kind, radius, n, seed=0):
    """Stored fp32 points of the unit hyperboloid: far apart, on one ray, or a step of 1e-3 … 1e-1 apart."""
    u, m = directions(n, seed=seed), Lorentz()
    x = m.lift(radius * u)
    if kind == "far":
        y = m.lift(radius * directions(n, seed=seed + 1))
    elif kind == "ancestor":
        y = m.lift(radius * torch.linspace(0.1, 0.99, n, dtype=torch.float64)[:, None] * u)
    else:
        step = torch.logspace(-3, -1, n, dtype=torch.float64)[:, None] * directions(n, seed=seed + 1)
        y = m.exp(x, m.transport(step, torch.zeros_like(x), x))
    return x.float(), y.float()


def digits(got, exact):
    """Correct decimal digits, at most 9."""
    return torch.tensor(
        [min(9.0, -math.log10(max(abs(g / float(e) - 1), 1e-9))) for g, e in zip(got.tolist(), exact, strict=True)]
    )


PROMISED = [
    (0.01, 7.0, 6.6),
    (1, 7.0, 6.6),
    (3, 7.0, 6.6),
    (5, 6.7, 6.1),
    (8, 5.5, 4.8),
    (10, 4.6, 4.0),
]  # radius, median, 5th percentile


@pytest.mark.parametrize("kind", ["near", "far", "ancestor"])
@pytest.mark.parametrize(("radius", "median", "worst"), PROMISED)
def test_digits_of_distance(kind, radius, median, worst):
    """Against the exact distance of the stored points: what storing them cost is not the formula's."""
    x, y = pairs(kind, radius, 120)
    apart = [i for i in range(len(x)) if not torch.equal(x[i], y[i])]
    exact = [LorentzRef(1).dist(to_mp(x[i]), to_mp(y[i])) for i in apart]
    d = digits(Lorentz().dist(x, y)[apart], exact)
    assert d.median() >= median
    assert d.quantile(0.05) >= worst


@pytest.mark.parametrize("c", CURVATURES)
def test_digits_of_the_round_trip(c):
    """fp32, from √c r = 1e-6 to 40."""
    v = (torch.logspace(-6, math.log10(40), 400, dtype=torch.float64)[:, None] * directions(400) / math.sqrt(c)).float()
    m = Lorentz(c)
    error = (m.log0(m.exp0(v)).double() - v).norm(dim=-1) / v.double().norm(dim=-1)
    assert (-error.log10()).min() >= 6.5


@pytest.mark.parametrize(("kind", "radius"), list(itertools.product(["near", "far", "ancestor"], [8, 10])))
def test_digits_of_the_gradient(kind, radius):
    """The Riemannian gradient of dist is -log/dist. The error, a length, stays below ε·cosh(r)/separation."""
    x, y = pairs(kind, radius, 60)
    x.requires_grad_()
    m, oracle = Lorentz(), LorentzRef(1)
    (g,) = torch.autograd.grad(m.dist(x, y).sum(), x)
    errors, limits = [], []
    for p, q, h in zip(x.detach(), y, g, strict=True):
        p, q = to_mp(p), to_mp(q)
        dist = oracle.dist(p, q)
        exact = reference.scale(-1 / dist, oracle.log(p, q))
        errors.append(float(oracle.norm(p, reference.sub(oracle.rgrad(p, to_mp(h)), exact))))
        limits.append(torch.finfo(torch.float32).eps * math.cosh(radius) / min(1.0, float(dist)))
    assert torch.tensor(errors).median() <= 1e-3 * math.exp(radius - 8)
    assert (torch.tensor(errors) <= 8 * torch.tensor(limits)).all()
