"""Plain tensors under vmap, func.grad, compile, half precision and autocast give what eager fp32 gives.

And learned curvature.
"""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Lorentz, Poincare, geometry
from tests.geometry.samples import (
    EVERY_FUNCTION,
    FUNCTIONS,
    HYPERBOLIC,
    MANIFOLDS,
    Case,
    functions_of,
    generic,
    manifold,
)


def batch(name, dtype=torch.float64):
    """(3, 4, DIM) each"""
    return (t.view(3, 4, -1) for t in generic(name, 1.0, dtype, n=12))


@pytest.mark.parametrize(("name", "function"), EVERY_FUNCTION)
def test_vmap_and_its_gradient_are_the_batched_ones(name, function):
    m, (x, y, v) = manifold(name, 1.0), batch(name)

    def call(x, y, v):
        return FUNCTIONS[function].call(m, x, y, v)

    out = call(x, y, v)
    torch.testing.assert_close(torch.func.vmap(call)(x, y, v), out)
    leaves = [t.clone().requires_grad_() for t in (x, y, v)]
    expected = torch.autograd.grad(call(*leaves).sum() + 0 * sum(map(torch.sum, leaves)), leaves)
    got = torch.func.vmap(torch.func.grad(lambda x, y, v: call(x, y, v).sum(), argnums=(0, 1, 2)))(x, y, v)
    torch.testing.assert_close(got, expected)
    if function == "pairwise" and name in ("euclidean", "product"):
        return  # torch 2.13: jacrev of torch.cdist is wrong
    jacobian = torch.func.jacrev(call)(x[0], y[0], v[0])
    torch.testing.assert_close(jacobian.sum(tuple(range(jacobian.dim() - 2))), expected[0][0])


def with_gradients(call, *given):
    """What a function gives, and the gradient of its sum in each argument and in the curvature."""
    m, *given = given
    leaves = [*(t.clone().requires_grad_() for t in given), *m.parameters()]
    out = call(m, *leaves[: len(given)])
    return [out, *torch.autograd.grad(out.sum() + 0 * sum(map(torch.sum, leaves)), leaves)]


@pytest.mark.parametrize("lead", [(1,), (2, 3), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_a_midpoint_and_its_gradient_are_those_of_each_set_by_itself(name, weighted, lead):
    m, sets = manifold(name, 0.7, learn=name != "euclidean"), math.prod(lead)
    x = generic(name, 0.7, n=5 * sets)[0].view(sets, 5, -1)
    w = torch.rand(sets, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    given = (x, w) if weighted else (x,)

    def call(m, x, *w):
        return m.midpoint(x, *w)

    whole = with_gradients(call, m, *(t.view(*lead, *t.shape[1:]) for t in given))
    alone = [with_gradients(call, m, *(t[i] for t in given)) for i in range(sets)]
    for number, got in enumerate(whole):
        parts = torch.stack([one[number] for one in alone])
        expected = parts.view(*lead, *parts.shape[1:]) if number <= len(given) else parts.sum(0)
        torch.testing.assert_close(got, expected)


CORE = [
    "exp",
    "log",
    "transport",
    "dist",
    "pairwise",
    "midpoint",
]  # compiling all of them for a product takes half a minute


@pytest.mark.parametrize(
    ("name", "backend", "names"),
    [
        *((name, "eager", list(functions_of(name))) for name in ("euclidean", "lorentz", "poincare")),
        ("product", "eager", CORE[:4]),
        ("lorentz", "aot_eager", CORE[2:]),
    ],
)
def test_one_graph_holds_every_function_and_its_gradient(name, backend, names):
    m = manifold(name, 0.7, learn=True)
    x, y, v = generic(name, 0.7, torch.float32)

    def total(x, y, v):
        return sum(FUNCTIONS[key].call(m, x, y, v).sum() for key in names) + 0 * (x + y + v).sum()

    leaves = [t.requires_grad_() for t in (x, y, v)] + list(m.parameters())
    expected = torch.autograd.grad(total(x, y, v), leaves)
    compiled = torch.compile(total, fullgraph=True, backend=backend)(x, y, v)
    torch.testing.assert_close(compiled, total(x, y, v), rtol=1e-5, atol=1e-5)
    for got, exact in zip(torch.autograd.grad(compiled, leaves), expected, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-4)


def test_deepcopy_computes_the_same():
    for name in MANIFOLDS:
        m = manifold(name, 0.7, learn=True)
        x, y, v = generic(name, 0.7, torch.float32)
        twin = copy.deepcopy(m)
        assert all(torch.equal(f.call(m, x, y, v), f.call(twin, x, y, v)) for f in functions_of(name).values())


# Dtypes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "function"), EVERY_FUNCTION)
def test_half_precision_is_the_fp32_result_rounded(name, function, dtype):
    if function == "ambient":
        pytest.skip("two results, each rounded: tested below")
    x, y, v = generic(name, 1.0, dtype)
    for m in (manifold(name, 1.0), manifold(name, 1.0, learn=True)):
        got = FUNCTIONS[function].call(m, x, y, v)
        exact = FUNCTIONS[function].call(m, x.float(), y.float(), v.float())
        assert got.dtype == dtype
        if (name, function) == (
            "product",
            "lift",
        ):  # v/√w is rounded on its own, so that the ball's part is held inside bf16's ball
            torch.testing.assert_close(got.float(), exact, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
        else:
            assert torch.equal(got, exact.to(dtype))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_half_precision_ambient(name):
    m, x = manifold(name, 1.0), generic(name, 1.0, torch.bfloat16)[0]
    for got, exact in zip(m.ambient(x), m.ambient(x.float()), strict=True):
        assert got is exact is None or torch.equal(got, exact.bfloat16())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_half_precision_moves_in_place_as_beside(name, dtype):
    """An optimizer of half-precision points loses no more than the rounding at the end."""
    m, (x, _, v) = manifold(name, 1.0), generic(name, 1.0, dtype)
    moved, carried = m.flow(x, v, 0.7)
    m.flow_(x, v, 0.7)
    assert torch.equal(x, moved)
    assert torch.equal(v, carried)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_dtype_follows_the_input_whatever_the_curvature_is_stored_in(name, dtype):
    x, y, v = generic(name, 1.0, dtype)
    for m in (manifold(name, 1.0), manifold(name, 1.0, learn=True)):
        for key, f in functions_of(name).items():
            assert f.call(m, x, y, v).dtype == dtype, key


@pytest.mark.parametrize("name", MANIFOLDS)
def test_autocast_changes_nothing(name):
    m, (x, y, v) = manifold(name, 1.0), generic(name, 1.0, torch.float32)
    for key, f in functions_of(name).items():
        with torch.autocast("cpu", torch.bfloat16):
            got = f.call(m, x, y, v)
        assert torch.equal(got, f.call(m, x, y, v)), key


@pytest.mark.parametrize("name", MANIFOLDS)
def test_shapes_broadcast(name):
    m = manifold(name, 1.0)
    x, y, v = generic(name)
    for key in ("log", "geodesic", "transport", "dist", "sqdist", "inner", "add", "translate"):
        f = FUNCTIONS[key].call
        got = f(m, x[:, None], y, v[:, None])
        assert got.shape[:2] == (4, 4)
        torch.testing.assert_close(got[1, 2], f(m, x[1], y[2], v[1]))


# Learned curvature


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0, 0.3])
@pytest.mark.parametrize("manifold_class", [Lorentz, Poincare])
def test_curvature_is_a_float_when_fixed_and_exact_at_the_start_when_learned(manifold_class, c):
    assert manifold_class(c).c == c
    assert isinstance(manifold_class(c).c, float)
    assert not list(manifold_class(c).parameters())
    m = manifold_class(c, learn=True)
    assert m.c.shape == (1,)
    assert torch.equal(m.c, torch.tensor([c]))
    assert f"c={c:g}" in repr(m)


def test_curvature_stays_positive_and_in_bounds():
    m = Lorentz(2.0, learn=True)
    for value in (-1e30, -50.0, -1.0, 1.0, 50.0, 1e30):
        with torch.no_grad():
            m.log_ratio.fill_(value)
        assert 0.02 * (1 - 1e-5) <= m.c.item() <= 200 * (1 + 1e-5)


def test_curvature_follows_its_gradient():
    """Points on a circle of the tangent plane: a smaller target distance asks for less curvature."""
    m = Lorentz(1.0, learn=True)
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = Lorentz(0.25).dist(*Lorentz(0.25).lift(v))
    optimizer = torch.optim.Adam(m.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (m.dist(*m.lift(v)) - target).square().backward()
        optimizer.step()
    assert m.c.item() == pytest.approx(0.25, rel=1e-2)


@pytest.mark.parametrize("name", [*HYPERBOLIC, "product"])
def test_curvature_saves_and_loads(name, tmp_path):
    m, other = manifold(name, 0.3, learn=True), manifold(name, 5.0, learn=True)
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(0.4)
    torch.save(m.state_dict(), tmp_path / "m.pt")
    other.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    x, y, _ = generic(name, 0.3, torch.float32)
    assert torch.equal(m.dist(x, y), other.dist(x, y))
    assert torch.equal(copy.deepcopy(m).dist(x, y), m.dist(x, y))


@pytest.mark.parametrize("kind", [Lorentz, Poincare])
@pytest.mark.parametrize("c", [0.0, -1.0, math.nan, math.inf, -math.inf, 0, -3])
def test_curvature_must_be_positive(kind, c):
    with pytest.raises(ValueError, match=rf"^c = {c}: .* must be positive; .*Euclidean"):
        kind(c)


@pytest.mark.parametrize("kind", [Lorentz, Poincare])
@pytest.mark.parametrize(
    ("c", "says"),
    [
        ("1.0", "c = '1.0': .* a positive number, as in c=1.0"),
        (True, "c = True: .* a positive number, as in c=1.0"),
        ([1.0], r"c = \[1.0\]: .* a positive number"),
        (1j, "c = 1j: .* a positive number"),
        (torch.tensor(2.0), r"c is a tensor: give a number, as in c=float\(c\), or .* learn=True"),
        (torch.nn.Parameter(torch.ones(1)), "c is a tensor: give a number, .* learn=True"),
    ],
)
def test_curvature_is_a_number(kind, c, says):
    with pytest.raises(TypeError, match=f"^{says}") as error:
        kind(c)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="a positive number" if not isinstance(c, torch.Tensor) else "give a number"):
        geometry(kind.__name__.lower(), 3, c)


@pytest.mark.parametrize("c", [2, np.float32(2), np.float64(2), np.int64(2), Fraction(2)])
def test_any_real_number_is_a_curvature(c):
    assert Lorentz(c).c == Poincare(c).c == geometry("lorentz", 3, c).c == 2.0
    assert type(Lorentz(c).c) is float


def test_random_points_have_the_asked_spread():
    for name in MANIFOLDS:
        m = manifold(name, 1.0)
        x = m.random(4000, 6, std=0.5, generator=torch.Generator().manual_seed(0))
        assert m.dist0(x).square().mean().item() == pytest.approx(6 * 0.25, rel=0.05)


def test_a_bf16_ball_point_is_inside():
    """fp32 says 0.999, bf16 rounds it to 1: the edge, infinitely far."""
    m = Poincare()
    x = Case("poincare", 1.0, torch.float32, 14.0).points().bfloat16().float()
    v = torch.randn(100, 4, generator=torch.Generator().manual_seed(0)).bfloat16() * 20
    p = m.point(v.exp())
    for q in (
        m.lift(v),
        p,
        m.exp(p, v),
        m.geodesic(p, p.roll(1, 0), 0.9),
        m.translate(p, p),
        m.midpoint(p.view(20, 5, 4)),
        m.flow(p, v, 1.0)[0],
    ):
        assert q.dtype == torch.bfloat16
        assert q.float().norm(dim=-1).max() < 1
        assert m.dist0(q).isfinite().all()
    assert x.norm(dim=-1).max() >= 1  # the danger is real


@pytest.mark.parametrize("kind", [Lorentz, Poincare])
def test_compiled_with_varying_shapes_and_curvatures_has_the_same_gradients(kind):
    """A float c must not become an input of the graph, nor a result changed in place be compiled as it was before."""

    def loss(m, x, y):
        return (
            m.dist(x, y[: len(x)]).sum()
            + m.pairwise(x, y).square().sum()
            + m.midpoint(y).sum()
            + m.exp(x, m.log0(x)).sum()
        )

    compiled = torch.compile(loss, dynamic=True, fullgraph=True, backend="aot_eager")
    for c, rows in ((1.0, 3), (0.5, 4), (2.0, 6)):
        m = kind(c)
        gradients = []
        for f in (loss, compiled):
            x, y = (
                m.random(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64).requires_grad_()
                for n in (rows, rows + 2)
            )
            gradients.append(torch.autograd.grad(f(m, x, y), (x, y)))
        torch.testing.assert_close(gradients[1], gradients[0])
