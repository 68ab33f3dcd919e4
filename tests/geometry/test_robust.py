"""Whatever the points: a number, never negative, with a finite gradient. fp32, radii 0 … 40 in units of 1/√c."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.geometry import Lorentz, Poincare
from tests.geometry.samples import CURVATURES, FUNCTIONS, directions

ANY_POINTS = [
    "log0",
    "lower",
    "log",
    "geodesic",
    "dist",
    "sqdist",
    "pairwise",
    "dist0",
    "mean",
    "midpoint",
    "add",
    "translate",
    "ambient",
]
ANGLES = ["half_aperture", "exterior_angle"]
TANGENTS = [
    "exp",
    "flow position",
    "flow velocity",
    "transport",
    "norm",
    "dist_to_hyperplane",
]  # a tangent vector keeps ε·e^r: none left at 16
NEVER_NEGATIVE = {"dist", "sqdist", "pairwise", "dist0", "norm", "half_aperture", "exterior_angle"}
KINDS = ["random", "equal", "opposite", "one ray", "nearly equal", "origin", "across"]

radius = st.one_of(st.floats(0, 40), st.sampled_from([0.0, 1e-30, 1e-19, 1e-12, 1e-6, 1.0, 22.0, 40.0]))
near = st.floats(0, 10)
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def pair(m, kind, r, s, seed):
    """x at radius r, y at radius s, as `kind` says.   2 x (2, 4) fp32"""
    u = directions(2, 4, seed)
    w = {
        "random": directions(2, 4, seed + 1),
        "opposite": -u,
        "across": u.roll(1, -1) * torch.tensor([1.0, -1.0, 1.0, -1.0]),
    }.get(kind, u)
    unit = 1 / math.sqrt(m.c)
    x, y = m.lift((r * unit * u).float()), m.lift((s * unit * w).float())
    if kind == "equal":
        y = x.clone()
    if kind == "nearly equal":
        y = x * (1 + 1e-7)
    if kind == "origin":
        y = torch.zeros_like(x)
    if isinstance(m, Poincare):
        y = m._inside(y)
    return x, y


def check(m, names, x, y, v):
    for name in names:
        leaves = [t.clone().requires_grad_() for t in (x, y, v)]
        out = FUNCTIONS[name].call(m, *leaves)
        assert out.isfinite().all(), f"{name}: {out}"
        assert name not in NEVER_NEGATIVE or (out >= 0).all(), f"{name}: {out}"
        if name in ("sqdist", "ambient"):
            out = out / (1 + out.detach().abs())  # the sum of squares may overflow where each does not
        for leaf, g in zip("xyv", torch.autograd.grad(out.sum(), leaves, allow_unused=True), strict=True):
            assert g is None or g.isfinite().all(), f"gradient of {name} in {leaf}: {g}"


@quick
@given(st.sampled_from(CURVATURES), st.sampled_from(KINDS), radius, radius, st.integers(0, 99))
def test_hyperboloid(c, kind, r, s, seed):
    m = Lorentz(c)
    x, y = pair(m, kind, r, s, seed)
    check(m, [*ANY_POINTS, *ANGLES], x, y, y)


@quick
@given(st.sampled_from(CURVATURES), st.sampled_from(KINDS), radius, radius, st.integers(0, 99))
def test_ball(c, kind, r, s, seed):
    m = Poincare(c)
    x, y = pair(m, kind, r, s, seed)
    check(m, [*ANY_POINTS, *ANGLES], x, y, y)


@quick
@given(
    st.sampled_from([Lorentz, Poincare]),
    st.sampled_from(CURVATURES),
    st.sampled_from(KINDS),
    near,
    near,
    st.integers(0, 99),
)
def test_tangent_vectors(manifold, c, kind, r, s, seed):
    m = manifold(c)
    x, y = pair(m, kind, r, s, seed)
    v = m.transport(directions(2, 4, seed + 2).float() / math.sqrt(c), torch.zeros_like(x), x)
    check(m, TANGENTS, x, y, v)
    check(m, [t for t in TANGENTS if t != "dist_to_hyperplane"], x, y, torch.zeros_like(v))


@quick
@given(
    st.sampled_from(CURVATURES),
    st.sampled_from(["random", "opposite", "one ray", "origin", "across"]),
    radius,
    radius,
    st.integers(0, 99),
)
def test_distance_is_right_to_four_digits_at_any_radius(c, kind, r, s, seed):
    """Against fp64 on the stored points, for pairs that storage tells apart."""
    m = Lorentz(c)
    x, y = pair(m, kind, r, s, seed)
    exact = m.dist(x.double(), y.double())
    clear = exact * math.sqrt(c) > 1e-3 * (1 + 1e-3 * math.exp(max(0.0, min(r, s) - 8)))
    assert torch.allclose(m.dist(x, y).double()[clear], exact[clear], rtol=1e-4, atol=0)
