"""First and second derivatives against finite differences in fp64, with learned curvature; finite at every point."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from horosphere.geometry import Lorentz
from tests.geometry.samples import (
    EVERY_FUNCTION,
    FUNCTIONS,
    HYPERBOLIC,
    MANIFOLDS,
    directions,
    functions_of,
    generic,
    manifold,
    special,
)


def check(check, name, call, inputs):
    """The curvature's parameters are inputs too: finite differences move them in place."""
    m = manifold(name, 0.7, learn=True).double()
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(0.3)
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert check(lambda x, y, v, *c: call(m, x, y, v), (*inputs, *m.parameters()), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "function"), EVERY_FUNCTION)
def test_gradient(name, function):
    """In general position; the smooth functions also at x = y, x = 0, x = y = 0 and v = 0."""
    inputs = generic(name, 0.7, n=2)
    if FUNCTIONS[function].smooth:
        inputs = [torch.cat((a[:1], b[[0, 1, 3, 4]])) for a, b in zip(inputs, special(name, 0.7), strict=True)]
    check(gradcheck, name, FUNCTIONS[function].call, inputs)


@pytest.mark.parametrize("name", MANIFOLDS)
def test_gradient_is_finite_where_there_is_none(name):
    """dist at x = y, norm at v = 0, angles at the apex: 0 or one of the limits, never NaN."""
    for dtype in (torch.float32, torch.float64):
        for key, f in functions_of(name).items():
            x, y, v = (t.requires_grad_() for t in special(name, 1.0, dtype))
            if key == "dist_to_hyperplane":
                v = torch.ones_like(v, requires_grad=True)  # no hyperplane has normal 0
            total = (
                f.call(manifold(name, 1.0), x, y, v).sum() + 0 * x.sum()
            )  # some functions of flat space are constants
            for g in torch.autograd.grad(total, (x, y, v), allow_unused=True):
                assert g is None or g.isfinite().all(), key


@pytest.mark.parametrize("name", MANIFOLDS)
def test_gradient_of_distance_is_zero_at_equal_points(name):
    x = generic(name)[0].requires_grad_()
    for f in ("dist", "pairwise"):
        out = FUNCTIONS[f].call(manifold(name, 1.0), x, x.detach().clone(), x)
        (g,) = torch.autograd.grad(out.diagonal().sum() if f == "pairwise" else out.sum(), x)
        assert (g == 0).all()


@pytest.mark.parametrize("function", ["exp0", "log0", "dist", "sqdist", "pairwise", "exp", "log", "midpoint"])
@pytest.mark.parametrize("name", HYPERBOLIC)
def test_second_derivative(name, function):
    check(gradgradcheck, name, FUNCTIONS[function].call, generic(name, 0.7, n=2))


@pytest.mark.parametrize("function", ["exp0", "log0", "sqdist"])
@pytest.mark.parametrize("name", HYPERBOLIC)
def test_second_derivative_at_equal_points_and_at_the_origin(name, function):
    x, y, v = special(name, 0.7)
    check(gradgradcheck, name, FUNCTIONS[function].call, (x[[0, 1, 3, 5]], y[[0, 1, 3, 5]], v[[0, 1, 3, 5]]))


def test_second_derivative_of_pairwise_with_equal_points_on_the_diagonal():
    x = generic("lorentz")[0].requires_grad_()
    (g,) = torch.autograd.grad(Lorentz().pairwise(x, x).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), x)
    assert h.isfinite().all()


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-19, 1e-12, 1e-8, 1e-5, 1e-3])
def test_gradient_near_the_origin_is_the_one_at_the_origin(scale):
    """fp32. A quotient by |x|² in the metric once left ε/|x| of noise here."""
    m, v, g = Lorentz(), directions(1, seed=1)[0].float(), directions(1, seed=2)[0].float()
    gradients = []
    for s in (0.0, scale):
        x = (s * directions(1, seed=3)[0]).float().requires_grad_()
        gradients.append(torch.autograd.grad((m.exp(x, v) * g).sum() + m.inner(x, v, g), x)[0])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=4 * scale + 1e-6)


@pytest.mark.parametrize("radius", [8.0, 10.0])
def test_riemannian_gradient_of_distance_has_length_one(radius):
    """fp32, on pairs a step apart and far apart: |grad dist| = 1, in the storage limit ε·cosh(r)."""
    m, n = Lorentz(), 200
    x = m.lift(radius * directions(n, seed=1)).float().requires_grad_()
    far = m.lift(radius * directions(n, seed=2)).float()
    step = m.transport(0.3 * directions(n, seed=3), torch.zeros(n, 6, dtype=torch.float64), x.detach().double())
    near = m.exp(x.detach().double(), step).float()
    ancestor = m.lift(radius / 2 * directions(n, seed=1)).float()
    for y in (far, near, ancestor, torch.zeros_like(far)):
        (g,) = torch.autograd.grad(m.dist(x, y).sum(), x)
        length = m.norm(x.detach().double(), m.rgrad(x.detach().double(), g.double()))
        assert (length - 1).abs().max() < 4 * torch.finfo(torch.float32).eps * math.cosh(radius)
