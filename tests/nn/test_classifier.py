"""Logits are |w| times signed distances to hyperplanes, near, far and where there is none."""

import mpmath
import pytest
import torch
from torch import nn

from horosphere.geometry import Lorentz, Poincare, lorentz_to_poincare
from horosphere.nn import Classifier, hyperplane_logits, hyperplane_pairs, hyperplane_scores, pairs
from tests.nn.samples import CURVATURES, DIM, manifold, points

MODELS = ["lorentz", "poincare"]
models = pytest.mark.parametrize("name", MODELS)
curvatures = pytest.mark.parametrize("c", CURVATURES)
K = 4


def weights(scale=1.0, seed=7):  # another seed than the points': none of them straight along a normal
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(K, DIM, dtype=torch.float64, generator=generator), scale * torch.randn(
        K, dtype=torch.float64, generator=generator
    )


@curvatures
@models
def test_logits_are_distances_to_hyperplanes(name, c):
    """Through p = lift(-b/|w| ŵ), across w carried there from the origin."""
    m, x, (w, b) = manifold(name, c), points(manifold(name, c)), weights()
    length = w.norm(dim=-1, keepdim=True)
    p = m.lift(-b[:, None] / length * (w / length))
    normal = m.transport(w, torch.zeros_like(p), p)
    distance = m.dist_to_hyperplane(x[:, None], p, normal)
    torch.testing.assert_close(hyperplane_logits(x, w, b, m), length.squeeze(-1) * distance)
    torch.testing.assert_close(
        hyperplane_logits(p, w, b, m).diagonal(), torch.zeros(K, dtype=torch.float64), rtol=0, atol=1e-12
    )


@curvatures
def test_logits_are_those_of_hnn_plus_plus(c):
    """Shimizu et al. 2021, eq. 6, with z = w/2, r = -b/(2|w|):

    2|z|/√c asinh(λ √c x·ẑ cosh(2√c r) - (λ - 1) sinh(2√c r))
    """
    m, x, (w, b) = Poincare(c), points(Poincare(c)), weights()
    root, length = c**0.5, w.norm(dim=-1)
    z, r, lam = length / 2, -b / (2 * length), 2 / (1 - c * x.square().sum(-1, keepdim=True))
    inside = lam * root * (x @ (w / length[:, None]).T) * (2 * root * r).cosh() - (lam - 1) * (2 * root * r).sinh()
    torch.testing.assert_close(hyperplane_logits(x, w, b, m), 2 * z / root * inside.asinh())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", [*MODELS, "product"])
@curvatures
def test_the_bias_is_the_logit_at_the_origin(name, c, bias):
    head = Classifier(DIM, K, manifold(name, c), bias=bias).double()
    at_origin = head(torch.zeros(DIM, dtype=torch.float64))
    torch.testing.assert_close(
        at_origin, head.bias if bias else torch.zeros(K, dtype=torch.float64), rtol=1e-13, atol=1e-13
    )


@models
def test_no_bias_is_a_bias_of_zero(name):
    m, x, (w, b) = manifold(name), points(manifold(name)), weights()
    torch.testing.assert_close(hyperplane_logits(x, w, None, m), hyperplane_logits(x, w, 0 * b, m))


@pytest.mark.parametrize("name", [*MODELS, "product"])
def test_without_curvature_it_is_a_linear_head(name):
    m, (w, b) = manifold(name, 1e-10), weights()
    u = torch.randn(5, DIM, dtype=torch.float64)
    flat = nn.functional.linear(m.ambient(m.point(u))[0], w, b)
    torch.testing.assert_close(hyperplane_logits(m.point(u), w, b, m), flat, rtol=1e-8, atol=1e-8)


def test_a_products_logits_add_up():
    m, x, (w, b) = manifold("product"), points(manifold("product")), weights()
    by_factor = zip(m.split(x), m.split(w), m.factors, strict=True)
    torch.testing.assert_close(
        hyperplane_logits(x, w, b, m), sum(hyperplane_logits(a, v, b / 3, f) for a, v, f in by_factor)
    )


# Far hyperplanes, far points, no hyperplane

mp = mpmath.MPContext()
mp.dps = 60


def exact_logit(x, w, b, c):
    """The formula as it stands, with sixty digits and an exponent that does not end."""
    x, w, b, c = [mp.mpf(a) for a in x.tolist()], [mp.mpf(a) for a in w.tolist()], mp.mpf(b.item()), mp.mpf(c)
    length, time = mp.norm(w), mp.sqrt(1 / c + mp.fsum(a * a for a in x))
    offset = -mp.sqrt(c) * b / length
    inside = mp.sqrt(c) * (
        mp.fsum(p * q for p, q in zip(x, w, strict=True)) / length * mp.cosh(offset) - time * mp.sinh(offset)
    )
    return length / mp.sqrt(c) * mp.asinh(inside)


OFFSETS = [0.0, 1e-6, 0.3, 3.0, 19.0, 21.0, 50.0, 800.0, 1e4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [1e-3, 1.0, 5.0, 15.0])
@curvatures
def test_any_offset_and_radius_is_right(c, radius, dtype):
    """Within what a linear head would have: rounding of the bias, and of points as far as they are."""
    m, eps = Lorentz(c), torch.finfo(dtype).eps
    directions = points(m)
    x = m.lift(radius / c**0.5 * directions / directions.norm(dim=-1, keepdim=True)).to(dtype)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64)
    offsets = (torch.tensor(OFFSETS, dtype=torch.float64)[:, None] * signs).flatten() / c**0.5
    w = torch.randn(len(offsets), DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    b = (-offsets * w.double().norm(dim=-1)).to(dtype)
    got = hyperplane_logits(x, w, b, m)
    for row, logits in zip(x, got, strict=True):
        for k, logit in enumerate(logits):
            exact = exact_logit(row, w[k], b[k], c)
            reach = radius + min(
                abs(offsets[k].item()) * c**0.5, radius
            )  # across: x·ŵ cosh α and x_t sinh α are this long where they cancel
            allowed = 16 * eps * (abs(b[k].item()) + w[k].double().norm().item() * (2.718**reach + 1) / c**0.5)
            assert abs(mp.mpf(logit.item()) - exact) <= allowed, (k, OFFSETS[k // 2], logit.item(), float(exact))


@pytest.mark.parametrize("radius", [0.5, 5.0, 15.0, 20.0])
@curvatures
def test_gradients_of_far_hyperplanes_are_those_of_fp64(c, radius):
    """fp32: no overflow, and none that vanishes because a square did not fit."""
    m = Lorentz(c)
    directions = points(m)
    x = m.lift(radius / c**0.5 * directions / directions.norm(dim=-1, keepdim=True))
    w, _ = weights()
    for offset in (0.3, 30.0, 1e4):
        gradients = {}
        for dtype in (torch.float32, torch.float64):
            b = -offset / c**0.5 * w.norm(dim=-1)
            leaves = [t.float().to(dtype).requires_grad_() for t in (x, w, b)]
            gradients[dtype] = torch.autograd.grad(hyperplane_logits(*leaves, m).sum(), leaves)
        for got, exact in zip(gradients[torch.float32], gradients[torch.float64], strict=True):
            assert got.isfinite().all()
            torch.testing.assert_close(got.double(), exact, rtol=1e-2, atol=1e-3 * exact.abs().max().item())


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-18, 1e-12, 1e-6])
@pytest.mark.parametrize("b", [0.0, 0.5, -100.0])
@models
def test_a_row_without_weight_has_its_bias(name, size, b):
    m = manifold(name)
    x = points(m, dtype=torch.float32).detach().requires_grad_()
    w = (size * weights()[0].float()).requires_grad_()
    bias = torch.full((K,), b, requires_grad=True)
    logits = hyperplane_logits(x, w, bias, m)
    torch.testing.assert_close(logits, torch.full_like(logits, b), rtol=1e-5, atol=1e-4)
    logits.sum().backward()
    assert all(t.grad.isfinite().all() for t in (x, w, bias))
    assert w.grad.abs().max() < 1e3  # no noise of size |b|/|w|
    if b:  # a hyperplane that far has its bias in every logit
        torch.testing.assert_close(bias.grad, torch.full((K,), 5.0), rtol=1e-2, atol=0)


@models
def test_it_fits_a_toy_set(name):
    """Rings around the origin and clusters off it, fp32: an MLP of one hidden layer."""
    from horosphere.nn import Lift, Linear
    from horosphere.optim import RiemannianAdam, param_groups

    torch.manual_seed(0)
    m = manifold(name, learn=True)
    angle, label = torch.rand(90) * 6.28, torch.arange(90) % 3
    x = (0.3 + label)[:, None] * torch.stack((angle.cos(), angle.sin()), -1)
    net = nn.Sequential(Lift(m), Linear(2, 16, m), Classifier(16, 3, m))
    optimizer = RiemannianAdam(param_groups(net), lr=0.05)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert (net(x).argmax(-1) == label).float().mean() > 0.95


@curvatures
def test_head_and_its_map_to_the_ball_agree_far_out(c):
    L, (w, b) = Lorentz(c), weights()
    x = L.lift(5 / c**0.5 * nn.functional.normalize(points(L), dim=-1))
    torch.testing.assert_close(
        hyperplane_logits(lorentz_to_poincare(x, c), w, b, Poincare(c)),
        hyperplane_logits(x, w, b, L),
        rtol=1e-8,
        atol=1e-8,
    )


# Rows gathered from a table: hyperplane_scores

ROWS = torch.tensor([[0, 3, 3], [1, 0, 2], [2, 2, 2], [3, 1, 0], [1, 1, 3]])  # of five points, with repetitions
EVERY = ["euclidean", *MODELS, "product"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", EVERY)
@curvatures
def test_gathered_rows_have_the_tables_logits(name, c, bias, dtype):
    m = manifold(name, c)
    x, (w, b) = points(m, dtype=dtype), (t.to(dtype) for t in weights())
    scores = hyperplane_scores(x, w[ROWS], b[ROWS] if bias else None, m)
    logits = hyperplane_logits(x, w, b if bias else None, m).gather(1, ROWS)
    tolerance = 16 * torch.finfo(dtype).eps * (1 + logits.abs().max().item())
    torch.testing.assert_close(scores, logits, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", EVERY)
@curvatures
def test_gathered_rows_have_the_tables_gradients(name, c):
    m, x, (w, b), up = manifold(name, c), points(manifold(name, c)), weights(), torch.randn(5, 3, dtype=torch.float64)

    def gradients(score):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        return torch.autograd.grad((up * score(*leaves)).sum(), leaves)

    ours = gradients(lambda x, w, b: hyperplane_scores(x, w[ROWS], b[ROWS], m))
    torch.testing.assert_close(ours, gradients(lambda x, w, b: hyperplane_logits(x, w, b, m).gather(1, ROWS)))


@pytest.mark.parametrize("radius", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("name", EVERY)
@curvatures
def test_gradients_of_gathered_rows_by_differences(name, c, radius):
    m, (w, b) = manifold(name, c), weights()
    x = m.lift(radius / c**0.5 * nn.functional.normalize(torch.ones(5, DIM, dtype=torch.float64), dim=-1))
    leaves = [t.clone().requires_grad_() for t in (x, w[ROWS], b[ROWS])]
    assert torch.autograd.gradcheck(lambda *inputs: hyperplane_scores(*inputs, m), leaves, eps=1e-7, atol=1e-4)


def test_in_flat_space_a_score_is_a_dot_product():
    x, w, b = torch.randn(2, 5, DIM), torch.randn(2, 5, 3, DIM), torch.randn(2, 5, 3)
    m = manifold("euclidean")
    assert torch.equal(hyperplane_scores(x, w, None, m), (w @ x[..., None])[..., 0])
    assert torch.equal(hyperplane_scores(x, w, b, m), (w @ x[..., None])[..., 0] + b)


@models
def test_without_curvature_a_score_is_a_dot_product(name):
    """The error is of order c."""
    u, (w, b) = torch.randn(5, DIM, dtype=torch.float64), weights()
    flat = (w[ROWS] * u[:, None]).sum(-1) + b[ROWS]
    errors = []
    for c in (1e-3, 1e-5):
        m = manifold(name, c)
        errors.append((hyperplane_scores(m.lift(u), w[ROWS], b[ROWS], m) - flat).abs().max().item())
    assert errors[1] < 0.02 * errors[0]


@models
@curvatures
def test_a_score_has_no_length_of_its_own(name, c):
    """f_c(x) = f_1(√c x)/√c, biases scaled alike."""
    m, one, x, (w, b) = manifold(name, c), manifold(name), points(manifold(name, c)), weights()
    scaled = hyperplane_scores(c**0.5 * x, w[ROWS], c**0.5 * b[ROWS], one) / c**0.5
    torch.testing.assert_close(hyperplane_scores(x, w[ROWS], b[ROWS], m), scaled)


@curvatures
def test_scores_on_the_ball_are_the_hyperboloids(c):
    L, x, (w, b) = Lorentz(c), points(Lorentz(c)), weights()
    on_ball = hyperplane_scores(lorentz_to_poincare(x, c), w[ROWS], b[ROWS], Poincare(c))
    torch.testing.assert_close(on_ball, hyperplane_scores(x, w[ROWS], b[ROWS], L))


@models
def test_a_gathered_row_without_weight_has_its_bias(name):
    m, w = manifold(name), torch.zeros(5, 3, DIM, requires_grad=True)
    scores = hyperplane_scores(points(m, dtype=torch.float32), w, torch.full((5, 3), 0.5), m)
    torch.testing.assert_close(scores, torch.full((5, 3), 0.5))
    scores.sum().backward()
    assert w.grad.isfinite().all()


# Chosen pairs of a point and a hyperplane: hyperplane_pairs

ROW, COLUMN = torch.tensor([4, 0, 0, 2, 0]), torch.tensor([1, 3, 3, 0, 2])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", EVERY)
@curvatures
def test_pairs_have_the_tables_logits_and_gradients(name, c, bias, compiled, monkeypatch):
    monkeypatch.setattr(pairs, "COMPILED", compiled and pairs.COMPILED)
    m, up = manifold(name, c), torch.randn(5, dtype=torch.float64)

    def values(score):
        leaves = [t.clone().requires_grad_() for t in (points(m), *weights())][: 3 if bias else 2]
        scores = score(*leaves, *[None] * (not bias))
        return [scores, *torch.autograd.grad((up * scores).sum(), leaves)]

    ours = values(lambda x, w, b: hyperplane_pairs(x, w, b, m, ROW, COLUMN))
    torch.testing.assert_close(ours, values(lambda x, w, b: hyperplane_logits(x, w, b, m)[ROW, COLUMN]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_pairs_are_no_scores(dtype):
    x, none = torch.ones(2, 3, dtype=dtype, requires_grad=True), torch.empty(0, dtype=torch.long)
    scores = pairs.pair_products(x, torch.ones(4, 3, dtype=dtype), none, none)
    assert scores.shape == (0,)
    assert scores.dtype == dtype
    scores.sum().backward()
    assert not x.grad.any()


def test_rows_of_any_layout_make_pairs():
    x, u = torch.randn(6, 5).T, torch.randn(4, 12)[:, ::2]
    torch.testing.assert_close(pairs.pair_products(x, u, ROW, COLUMN), (x @ u.T)[ROW, COLUMN])


def test_distinct_rows_and_their_places():
    rows = torch.tensor([7, 0, 7, 3, 0])
    different, place = pairs.distinct(rows, 9)
    assert different.tolist() == [0, 3, 7]
    assert torch.equal(different[place], rows)
