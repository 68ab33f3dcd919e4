"""How far floats carry: large and small coordinates, curvatures and weights, as docs/geometry.md says it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from tests.geometry.samples import (
    DTYPES,
    EVERY_FUNCTION,
    FUNCTIONS,
    HYPERBOLIC,
    MANIFOLDS,
    Case,
    directions,
    functions_of,
    generic,
    manifold,
)
from tests.reference import LorentzRef, mp, to_mp

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
LARGEST = {torch.float32: 37.0, torch.float64: 306.0}  # log10 of coordinates
REACH = {torch.float32: 43.0, torch.float64: 353.0}  # √c r, to which all functions hold; |x| = 2e18 and 1e153
FAR = {torch.float32: math.sinh(88), torch.float64: math.sinh(709)}  # |x| of which the sum of coordinates is a float


def gradients(out, *leaves):
    """Of the sum; a function of flat space may be a constant."""
    return torch.autograd.grad(out.sum() + 0 * sum(leaf.sum() for leaf in leaves), leaves)


# Distances have no end


def across(u):
    return u.roll(1, -1) * torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=u.dtype)


KINDS = {
    "random": lambda u, seed: directions(1, 4, seed + 100)[0],
    "opposite": lambda u, seed: -u,
    "across": lambda u, seed: across(u),
    "axis": None,  # a ray that storage does not bend
}


@quick
@given(
    st.sampled_from(DTYPES),
    st.sampled_from([1e-30, 0.1, 1.0, 1e30]),
    st.sampled_from(list(KINDS)),
    st.floats(-0.2, 1),
    st.floats(-0.2, 1),
    st.integers(0, 99),
)
def test_distance_is_right_wherever_points_can_be_stored(dtype, c, kind, size, other, seed):
    """Against exact arithmetic on the stored points; the gradient is finite and of length 1."""
    u = torch.eye(4, dtype=torch.float64)[0] if kind == "axis" else directions(1, 4, seed)[0]
    w = u if kind == "axis" else KINDS[kind](u, seed)
    unit = min(1.0, c**-0.5)  # √c|x| must be a float too
    other = 10 ** (other * (3 if kind == "axis" else LARGEST[dtype]))  # farther out rounding bends the ray
    x, y = (10 ** (size * LARGEST[dtype]) * unit * u).to(dtype), (other * unit * w).to(dtype)
    m = Lorentz(c)
    x.requires_grad_()
    got = m.dist(x, y)
    exact = LorentzRef(c).dist(to_mp(x.detach()), to_mp(y))
    assert abs(got.item() - exact) <= 64 * torch.finfo(dtype).eps * exact
    (g,) = torch.autograd.grad(got, x)
    assert g.isfinite().all()
    if exact > 0:
        with mp.workdps(1500):  # lengths far out are differences of squares
            oracle, p = LorentzRef(c), to_mp(x.detach())
            assert float(oracle.norm(p, oracle.rgrad(p, to_mp(g)))) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", [1e-30, 1.0, 1e30])
def test_distance_from_the_origin_has_no_end_either(dtype, c):
    m, far = Lorentz(c), FAR[dtype] * min(1.0, c**-0.5)
    x = (far * directions(5)).to(dtype).requires_grad_()
    expected = math.asinh(math.sqrt(c) * far) / math.sqrt(c)
    assert m.dist0(x).tolist() == pytest.approx([expected] * 5, rel=1e-5)
    assert m.dist(x, -x).tolist() == pytest.approx([2 * expected] * 5, rel=1e-5)
    assert m.dist(x, torch.zeros_like(x)).tolist() == pytest.approx([expected] * 5, rel=1e-5)
    for out in (m.dist0(x), m.dist(x, -x.detach()), m.dist(x, torch.zeros_like(x))):
        (g,) = gradients(out, x)
        assert g.isfinite().all()
        assert (g * x).sum(-1).tolist() == pytest.approx([1 / math.sqrt(c)] * 5, rel=1e-3)  # along the ray


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_points_far_out_are_at_distance_0(dtype):
    x = (FAR[dtype] * directions(5)).to(dtype).requires_grad_()
    out = Lorentz().dist(x, x.detach())
    assert (out == 0).all()
    assert (gradients(out, x)[0] == 0).all()


def test_distances_of_a_product_are_those_of_its_factors():
    """Squares of factors' distances are not formed."""
    m = Product((Lorentz(), 4), (Euclidean(), 2), weights=(2.0, 0.5))
    x = torch.cat((1e30 * directions(5, 4).float(), 1e18 * directions(5, 2, seed=1).float()), -1).requires_grad_()
    curved, flat = m.split(x)
    out = m.dist(x, -x.detach())
    expected = torch.hypot(2**0.5 * Lorentz().dist(curved, -curved), 0.5**0.5 * Euclidean().dist(flat, -flat))
    torch.testing.assert_close(out, expected)
    assert gradients(out, x)[0].isfinite().all()


def test_small_distances_at_a_small_curvature():
    """u = cosh(√c dist) - 1 is below the smallest float here."""
    for kind in (Lorentz, Poincare):
        m, x = kind(1e-30), torch.tensor([[3e-6, 4e-6]])
        scale = 2 if kind is Poincare else 1  # the ball's metric is 4|dx|² at the origin
        assert m.dist(x, 3 * x).item() == pytest.approx(scale * 1e-5, rel=1e-5)


# All functions, to the reach that the documentation gives


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "function"), [(n, f) for n, f in EVERY_FUNCTION if n in ("lorentz", "euclidean")])
def test_values_and_gradients_are_finite_to_the_reach(name, function, dtype):
    m, size = manifold(name, 1.0), math.sinh(REACH[dtype])
    u = directions(6)
    pairs = [(u, directions(6, seed=2)), (u, -u), (u, u / 2), (u, torch.zeros_like(u)), (u / size, u)]
    for p, q in pairs:
        x, y = ((size * t).to(dtype).requires_grad_() for t in (p, q))
        v = directions(6, seed=3).to(dtype).requires_grad_()
        out = FUNCTIONS[function].call(m, x, y, v)
        if function == "translate" and name == "lorentz":
            continue  # the point may lie at twice the radius, which cannot be stored
        assert out.isfinite().all()
        if function not in ("sqdist", "inner", "component_sqnorm"):  # whose sum may overflow where none of them does
            for g in gradients(out, x, y, v):
                assert g.isfinite().all()


def test_gradients_of_squared_distance_and_logarithm_far_out():
    """From √c r = 35 on they were wrong in fp32, by a factor of 40: a slope vanished, a product overflowed."""
    m = Lorentz()
    for radius in (5.0, 20.0, 36.0, 43.0):
        x = (math.sinh(radius) * directions(6)).requires_grad_()
        y = math.sinh(radius) * directions(6, seed=2)
        for f in (m.sqdist, lambda x, y: m.log0(x)):
            exact = torch.autograd.grad(f(x, y).sum(), x)[0]
            rough = x.detach().float().requires_grad_()
            got = torch.autograd.grad(f(rough, y.float()).sum(), rough)[0].double()
            for direction in (x.detach(), directions(6, seed=3) * x.detach().norm(dim=-1, keepdim=True)):
                along = (exact * direction).sum(-1)
                torch.testing.assert_close((got * direction).sum(-1), along, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_far_outside_becomes_a_point_at_the_edge_of_the_ball(dtype):
    """It once became the origin: |x|² = inf, and x/inf = 0."""
    for c in (0.01, 1.0, 100.0):
        m = Poincare(c)
        for size in (1e18, 1e25, 1e30 if dtype == torch.float32 else 1e300):
            v = (size * directions(5)).to(dtype).requires_grad_()
            for f in (m.exp0, m.lift, m.point):
                x = f(v)
                assert m.dist0(x).tolist() == pytest.approx([m.max_radius(dtype)] * 5, rel=0.05)
                torch.testing.assert_close(x / x.norm(dim=-1, keepdim=True), (v / size).to(dtype))
                assert gradients(x, v)[0].isfinite().all()


# Curvatures from 1e-30 to 1e30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("c", [1e-30, 1e30])
@pytest.mark.parametrize("name", [*HYPERBOLIC, "product"])
def test_any_curvature_is_a_change_of_units(name, c, dtype):
    root = math.sqrt(c)
    one, m = manifold(name, 1.0), manifold(name, c)
    eps = torch.finfo(dtype).eps
    for radius in (1e-3, 1.5, 5.0):
        x, y, v = generic(name, 1.0, dtype, radius)
        for key, f in functions_of(name).items():
            leaves = [(t / root).requires_grad_() for t in (x, y, v)]
            got, expected = f.call(m, *leaves), f.call(one, x, y, v) / root**f.power
            # relative to the largest; `pairwise` has the noise of a product
            rtol = 1e4 * eps if key != "pairwise" else 8 * math.cosh(radius) * math.sqrt(eps) / min(1.0, radius)
            error = ((got - expected) / expected.abs().max()).abs().max().item()
            assert error <= rtol, f"{key}: {error:.1e}"
            for g in gradients(got, *leaves):
                assert g.isfinite().all(), key


@pytest.mark.parametrize("name", HYPERBOLIC)
def test_the_gradient_of_a_learned_curvature(name):
    """c ∂f/∂c is in the units of f. Autograd squares c on its way: c² must be a float."""
    x, y, v = generic(name, 1.0, torch.float32)
    for key in ("dist", "sqdist", "pairwise", "dist0", "midpoint", "mean", "log0", "exp0", "log"):
        f, found = FUNCTIONS[key], []
        for c in (1.0, 1e-15, 1e15):
            m, root = manifold(name, c, learn=True), math.sqrt(c)
            total = (f.call(m, x / root, y / root, v / root) * root**f.power).sum()
            found.append(torch.autograd.grad(total, m.log_ratio)[0].item())
        assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-3, abs=1e-4), key


# Weights


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_points_without_weight_have_the_origin_for_their_centroid(name, dtype):
    case = Case(name, 0.7, dtype, 3.0)
    x = case.points().view(8, 4, -1).requires_grad_()
    w = torch.rand(8, 4, dtype=dtype)
    w[3] = 0
    w.requires_grad_()
    out = case.m.midpoint(x, w)
    assert (out[3] == 0).all()
    others = [0, 1, 2, 4, 5, 6, 7]
    torch.testing.assert_close(out[others], case.m.midpoint(x[others], w[others]))
    for g in gradients(out, x, w):
        assert g.isfinite().all()
    assert (gradients(case.m.midpoint(x, w)[3], x)[0] == 0).all()


@quick
@given(st.sampled_from(MANIFOLDS), st.sampled_from(DTYPES), st.floats(-34, 34), st.integers(0, 99))
def test_weights_count_by_their_ratios(name, dtype, power, seed):
    case = Case(name, 1.0, dtype, 2.0)
    x = case.points(seed=seed).view(8, 4, -1).requires_grad_()
    w = torch.rand(8, 4, dtype=dtype, generator=torch.Generator().manual_seed(seed)) + 0.01
    scaled = (10**power * w).requires_grad_()
    out = case.m.midpoint(x, scaled)
    case.assert_same_point(out.detach(), case.m.midpoint(x.detach(), w), 4 * math.exp(2.0))
    assert gradients(out, x)[0].isfinite().all()
