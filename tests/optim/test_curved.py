"""On a curved manifold every optimizer is the textbook's, and find what they should."""

import math

import pytest
import torch
from torch import nn

from horosphere.geometry import Lorentz, Poincare, lorentz_to_poincare
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD, gradient_lengths
from tests.optim import reference
from tests.optim.samples import CURVATURES, CURVED, DIM, OPTIMIZERS, gradient, group, manifold, points

STEPS = 6
SGD = [{}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.5}, {"momentum": 0.5, "maximize": True}]
ADAM = [{}, {"amsgrad": True, "betas": (0.9, 0.5)}, {"betas": (0.5, 0.7), "eps": 1e-3}, {"maximize": True}]
ADAGRAD = [{}, {"lr_decay": 0.5, "eps": 1e-3}]
RMSPROP = [{}, {"momentum": 0.9, "alpha": 0.8}, {"eps": 1e-2}]
REFERENCED = [
    *((RiemannianSGD, reference.SGD, o) for o in SGD),
    *((RiemannianAdam, reference.Adam, o) for o in ADAM),
    *((RiemannianAdagrad, reference.Adagrad, o) for o in ADAGRAD),
    *((RiemannianRMSprop, reference.RMSprop, o) for o in RMSPROP),
]


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize(("optimizer", "textbook", "options"), REFERENCED)
def test_a_step_is_the_textbooks(optimizer, textbook, options, name, c):
    m = manifold(name, c)
    x, target = points(m, seed=1, c=c), points(m, seed=2, c=c)
    lr = 0.02 if textbook is reference.SGD else 0.05 / math.sqrt(c)  # others divide by a length: their lr is one
    p, slow = nn.Parameter(x.clone()), textbook(m, lr, **options)
    fast = optimizer(group([p], m), lr=lr, **options)
    for t in range(STEPS):
        p.grad = 0.6**t * gradient(m, p, target)  # smaller and smaller: amsgrad remembers the largest
        fast.step()
        x = slow.step(x, 0.6**t * gradient(m, x, target))
        torch.testing.assert_close(p.detach(), x, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(
    ("optimizer", "options"), [(RiemannianSGD, {}), (RiemannianAdam, {}), (RiemannianAdam, {"amsgrad": True})]
)
def test_geoopt_takes_the_same_steps_on_the_ball(optimizer, options, c):
    """Without momentum: geoopt's SGD starts its buffer with the Euclidean gradient."""
    geoopt = pytest.importorskip("geoopt")
    m, x, target = Poincare(c), points(Poincare(c), seed=1, c=c), points(Poincare(c), seed=2, c=c)
    p, q = (
        nn.Parameter(x.clone()),
        geoopt.ManifoldParameter(x.clone(), manifold=geoopt.PoincareBallExact(c=torch.tensor(c, dtype=torch.float64))),
    )
    ours = optimizer(group([p], m), lr=0.03, **options)
    theirs = getattr(geoopt.optim, optimizer.__name__)([q], lr=0.03, **options)
    for _ in range(STEPS):
        p.grad, q.grad = gradient(m, p, target), gradient(m, q, target)
        ours.step()
        theirs.step()
    torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_isometric_models_take_the_same_path(optimizer, options, c):
    L, B = Lorentz(c), Poincare(c)
    x, target = points(L, seed=1, c=c), points(L, seed=2, c=c)
    p, q = nn.Parameter(x.clone()), nn.Parameter(lorentz_to_poincare(x, c))
    on_L, on_B = optimizer(group([p], L), **options), optimizer(group([q], B), **options)
    for _ in range(10):
        p.grad, q.grad = gradient(L, p, target), gradient(B, q, lorentz_to_poincare(target, c))
        on_L.step()
        on_B.step()
        torch.testing.assert_close(lorentz_to_poincare(p.detach(), c), q.detach(), rtol=1e-8, atol=1e-9)


def descend(m, x, loss, optimizer, length):
    """Minimise; `length` is how far apart things are."""
    p, steps = nn.Parameter(x.clone()), 160
    options = {"lr": 0.1, "momentum": 0.3} if optimizer is RiemannianSGD else {"lr": length / 10, "betas": (0.9, 0.9)}
    fast = optimizer(group([p], m), **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(fast, lambda t: 1.0 if optimizer is RiemannianSGD else 0.95**t)
    for _ in range(steps):
        fast.zero_grad()
        loss(p).backward()
        fast.step()
        schedule.step()
    return p.detach()


@pytest.mark.parametrize("name", ["lorentz", "poincare", "product"])  # on a sphere nothing is far away
@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
def test_finds_a_target_from_far_away(optimizer, name):
    m = manifold(name)
    x, target = points(m, 8, seed=1, std=3.0), points(m, 8, seed=2)
    assert m.dist(x, target).max() > 9
    lowest = descend(m, x, lambda p: m.sqdist(p, target).sum(), optimizer, length=12.0)
    assert m.dist(lowest, target).max() < 3e-3


@pytest.mark.parametrize(("name", "c"), [*(("lorentz", c) for c in CURVATURES), ("poincare", 4.0), ("product", 0.1)])
@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
def test_the_mean_of_two_points_is_midway(optimizer, name, c):
    m = manifold(name, c)
    a, b = points(m, 2, seed=3, c=c)
    origin = torch.zeros(DIM, dtype=torch.float64)  # one point, without a leading axis
    lowest = descend(m, origin, lambda p: m.sqdist(p, a) + m.sqdist(p, b), optimizer, length=3 / math.sqrt(c))
    assert m.dist(lowest, m.geodesic(a, b, 0.5)) < 1e-3 * m.dist(a, b)


def lengths(m, x, target):
    p = nn.Parameter(x.clone())
    p.grad = gradient(m, x, target)
    return gradient_lengths(RiemannianSGD(group([p], m)))[p]


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", CURVED)
def test_the_length_of_a_gradient_is_the_metrics(name, c):
    """Of Σ dist² it is twice the distance, at any place: so no isometry changes it."""
    m = manifold(name, c)
    x, target, by = (points(m, seed=seed, c=c) for seed in (1, 2, 3))
    torch.testing.assert_close(lengths(m, x, target), 2 * m.dist(x, target))
    moved = (m.translate(t, by[:1]) for t in (x, target))
    torch.testing.assert_close(lengths(m, *moved), lengths(m, x, target))


def test_flat_parameters_and_torchs_own_optimizers_have_no_points():
    p = nn.Parameter(torch.ones(3, 2))
    p.sum().backward()
    assert gradient_lengths(RiemannianSGD([p])) == {}
    assert gradient_lengths(torch.optim.SGD([p])) == {}


def test_the_length_of_a_sparse_gradient_is_that_of_the_rows_it_has():
    m = Lorentz()
    table = nn.Embedding(5, DIM, sparse=True)
    table(torch.tensor([1, 1, 3])).square().sum().backward()
    optimizer = RiemannianSGD(group([table.weight], m))
    found = gradient_lengths(optimizer)[table.weight]
    table.weight.grad = table.weight.grad.to_dense()
    torch.testing.assert_close(found, gradient_lengths(optimizer)[table.weight][[1, 3]])
