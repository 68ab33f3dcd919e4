"""Layers on curved manifolds: points in, points out; the same map in every model of the geometry; gradients exact."""

import copy
import io

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, lorentz_to_poincare
from horosphere.nn import Classifier, Embedding, Linear, Residual, RMSNorm
from horosphere.optim import RiemannianAdam, param_groups
from tests.nn.samples import CURVATURES, CURVED, DIM, LAYERS, NO_CURVATURE, Stack, layer, manifold, points

kinds = pytest.mark.parametrize("kind", LAYERS)
curved = pytest.mark.parametrize("name", CURVED)
curvatures = pytest.mark.parametrize("c", CURVATURES)
MADE_FOR_TANGENTS = ("lift", "matched lift")
MAKES_NO_POINTS = ("classifier", "classifier without bias", "lower", "linear to flat")


def is_point(m, x):
    if isinstance(m, Product):
        return all(is_point(f, own) for f, own in zip(m.factors, m.split(x), strict=True))
    inside = not isinstance(m, Poincare) or (float(m.c) * x.double().square().sum(-1) < 1).all()
    return bool(x.isfinite().all() and inside)


@curvatures
@curved
@kinds
def test_points_become_points(kind, name, c):
    """fp32, out to radius 15/√c, the edge of the ball."""
    m = manifold(name, c)
    module, v = (
        layer(kind, m, dtype=torch.float32),
        torch.tensor([0.01, 1.0, 5.0]).view(3, 1, 1) / c**0.5 * torch.randn(50, DIM),
    )
    y = module(v if kind in MADE_FOR_TANGENTS else m.lift(v))
    assert y.isfinite().all()
    out = Poincare(0.5) if kind == "linear to ball" else m
    assert kind in MAKES_NO_POINTS or is_point(out, y)


@curvatures
@kinds
def test_ball_and_hyperboloid_are_the_same_map(kind, c):
    L, B = Lorentz(c), Poincare(c)
    on_L, on_B = layer(kind, L), layer(kind, B)
    x = points(L)
    y = on_L(x)
    expected = y if kind in (*MAKES_NO_POINTS, "linear to ball") else lorentz_to_poincare(y, c)
    torch.testing.assert_close(
        on_B(x if kind in MADE_FOR_TANGENTS else lorentz_to_poincare(x, c)), expected, rtol=1e-9, atol=1e-11
    )


@curved
@kinds
def test_gradients_of_input_weights_and_curvature(kind, name):
    """gradcheck in fp64. Every parameter takes part; a learned curvature not in a norm of free coordinates."""
    m = manifold(name, 0.7, learn=True)
    module = layer(kind, m)
    x = points(m, 3, std=0.7).detach().requires_grad_()
    names, leaves = (
        zip(*((n, p) for n, p in module.named_parameters()), strict=True) if list(module.parameters()) else ((), ())
    )

    def call(x, *leaves):
        return torch.func.functional_call(module, dict(zip(names, leaves, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (x, *leaves))
    gradients = torch.autograd.grad((call(x, *leaves) ** 3).sum(), (x, *leaves), allow_unused=True)
    for n, g in zip(("x", *names), gradients, strict=True):
        idle = g is None or not g.any()
        assert idle == (kind in NO_CURVATURE and "log_ratio" in n and (name == "lorentz" or "factors.0" in n)), n


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("learn", [False, True])
@curved
@kinds
def test_dtype_in_is_dtype_out(kind, name, learn, dtype):
    m = manifold(name, learn=learn)
    module = layer(kind, m, dtype=dtype)
    x = points(m, dtype=dtype, std=0.5).detach().requires_grad_()
    y = module(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert all(
        t.grad.isfinite().all() and t.grad.dtype == dtype for t in (x, *module.parameters()) if t.grad is not None
    )
    exact = layer(kind, manifold(name, learn=learn))(x.detach().double())
    torch.testing.assert_close(
        y.double(), exact, rtol=0.1 if dtype == torch.bfloat16 else 1e-4, atol=0.1 if dtype == torch.bfloat16 else 1e-4
    )


@pytest.mark.parametrize("name", [*CURVED, "euclidean"])
def test_autocast_stays_near(name):
    """bf16 products, fp32 geometry."""
    torch.manual_seed(0)
    m = manifold(name, learn=True) if name != "euclidean" else Euclidean()
    net, i = Stack(m), torch.arange(20)
    expected = net(i)
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(i)
    nn.functional.cross_entropy(logits.float(), i % 3).backward()
    assert (logits.float() - expected).abs().max() < 0.05 * expected.abs().max().clamp_min(1)
    assert all(p.grad.isfinite().all() for p in net.parameters())


@curved
@kinds
def test_state_travels(kind, name):
    m = manifold(name, 0.7, learn=True)
    module = layer(kind, m)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = layer(kind, manifold(name, 0.7, learn=True), seed=1)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = points(manifold(name, 0.7))
    for twin in (other, copy.deepcopy(module)):
        assert torch.equal(twin(x), module(x))


def stack_and_input(name):
    m = manifold(name, learn=True)
    if name == "product":
        return layer("centroid", m, dtype=torch.float32), points(m, dtype=torch.float32).detach()
    return Stack(m), torch.arange(20)


@pytest.mark.parametrize("name", ["euclidean", "lorentz", "product"])
def test_one_graph_holds_a_stack(name):
    torch.manual_seed(0)
    net, x = stack_and_input(name)
    expected = net(x)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-4)
    parameters = list(net.parameters())
    for a, b in zip(
        torch.autograd.grad(compiled.square().sum(), parameters),
        torch.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@curved
@pytest.mark.parametrize("form", ["centroid", "additive"])
def test_a_stack_learns(name, form):
    """fp32, labels that no table start gives away: the loss falls to a tenth."""
    torch.manual_seed(0)
    net, i = Stack(manifold(name, learn=True), rows=30, form=form), torch.arange(30)
    labels = torch.randint(3, (30,))
    optimizer = RiemannianAdam(param_groups(net, weight_decay=1e-4), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(i), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert (net(i).argmax(-1) == labels).all()


# Starting


@curved
def test_time_has_no_weight_at_first(name):
    m = manifold(name)
    linear = Linear(DIM, 4, m, out_manifold=Euclidean())
    assert linear.time_weight.shape == (4, 2 if name == "product" else 1)
    assert not linear.time_weight.any()
    x = points(m, dtype=torch.float32)
    torch.testing.assert_close(linear(x), nn.functional.linear(m.ambient(x)[0], linear.weight, linear.bias))


@curved
def test_a_table_starts_as_a_wrapped_normal(name):
    m = manifold(name)
    torch.manual_seed(0)
    table = Embedding(2000, DIM, m, std=0.5, padding_idx=3)
    v = m.lower(table.weight.detach())
    assert not v[3].any()
    torch.testing.assert_close(v.std(0), torch.full((DIM,), 0.5), rtol=0.1, atol=0)
    table(torch.tensor([3, 4])).sum().backward()
    assert not table.weight.grad[3].any()


@curved
@pytest.mark.parametrize("parents_first", [True, False])
@pytest.mark.parametrize("kind", ["linear", "norm", "centroid", "classifier", "table"])
def test_reset_makes_a_layer_anew(kind, parents_first, name):
    """What a model made on the meta device needs: to_empty() leaves garbage, reset_parameters() a start."""

    def make():
        torch.manual_seed(0)
        m = manifold(name, 0.7, learn=True)
        return Embedding(5, DIM, m, padding_idx=1) if kind == "table" else LAYERS[kind](m)

    fresh, used = make(), make()
    with torch.no_grad():
        for t in (*used.parameters(), *used.buffers()):
            t.fill_(torch.nan)
    torch.manual_seed(0)
    modules = list(used.modules())  # `for m in net.modules()` and `net.apply` have it the other way round
    for module in modules if parents_first else modules[::-1]:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for (what, a), b in zip(fresh.state_dict().items(), used.state_dict().values(), strict=True):
        assert torch.equal(a, b), what


@curved
def test_a_new_table_leaves_a_curvature_that_was_learned(name):
    m = manifold(name, 0.7, learn=True)
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(0.5)
    assert is_point(m, Embedding(50, DIM, m, std=3.0).weight.detach())
    assert all((p == 0.5).all() for p in m.parameters())


def test_a_table_resets_on_the_manifold_it_has():
    table = Embedding(50, 3, Lorentz(), std=5.0)
    table.manifold = Poincare()
    table.reset_parameters()
    assert is_point(Poincare(), table.weight)


# Norm and residual


@curvatures
@pytest.mark.parametrize("name", ["lorentz", "poincare"])
def test_norm_forgets_the_scale(name, c):
    m = manifold(name, c)
    norm, u = layer("norm", m), torch.randn(5, DIM, dtype=torch.float64)
    torch.testing.assert_close(norm(m.point(7 * u)), norm(m.point(u)))
    torch.testing.assert_close(m.ambient(norm(m.point(u)))[0], nn.functional.rms_norm(u, (DIM,), norm.weight))


@curved
def test_additive_residual_adds_coordinates(name):
    m = manifold(name)
    u, v = torch.randn(2, 5, DIM, dtype=torch.float64)
    y = Residual(DIM, m, "additive")(m.point(u), m.point(v))
    torch.testing.assert_close(m.ambient(y)[0], u + v)


@curvatures
@pytest.mark.parametrize("w", [0.0, 1.0, 2.5])
def test_centroid_residual_is_the_scaled_midpoint(w, c):
    m = Lorentz(c)
    x, y = points(m, seed=1), points(m, seed=2)
    residual = Residual(DIM, m).double()
    nn.init.constant_(residual.weight, w)
    middle = m.midpoint(torch.stack((x, y), -2), torch.tensor([1.0, w], dtype=torch.float64))
    torch.testing.assert_close(residual(x, y), 4 * DIM**0.5 * middle)


@pytest.mark.parametrize("form", ["centroid", "additive"])
def test_a_product_is_joined_factor_by_factor(form):
    m = manifold("product")
    x, y = points(m, seed=1), points(m, seed=2)
    whole = Residual(DIM, m, form).double()
    by_factor = [
        Residual(d, f, form).double()(a, b)
        for d, f, a, b in zip(m.dims, m.factors, m.split(x), m.split(y), strict=True)
    ]
    torch.testing.assert_close(whole(x, y), torch.cat(by_factor, -1))
    assert torch.equal(whole(x, y)[:, 4:], x[:, 4:] + y[:, 4:])  # the flat factor is not scaled
    assert sum(p.numel() for p in whole.parameters()) == (2 if form == "centroid" else 0)


def test_unknown_residual_forms_are_named():
    with pytest.raises(ValueError, match='"sum": choose "centroid" or "additive"'):
        Residual(DIM, Lorentz(), "sum")


def test_every_module_prints():
    for name in (*CURVED, "euclidean"):
        assert "Linear" in repr(Stack(manifold(name, learn=True)))
    assert all(isinstance(m, (Classifier, Linear, RMSNorm, Embedding, Residual)) for m in Stack(Lorentz()).children())
