"""Optimizers on the sphere find what they should, and what geoopt finds from the same start."""

import math

import pytest
import torch
from torch import nn

from horosphere.geometry import Sphere
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD
from tests.optim.samples import group

D, STEPS = 4, 400
# the rate is in radii; of SGD, whose steps are as long as the gradient, in units of the loss
OPTIMIZERS = [
    (RiemannianSGD, 0.5, {}),
    (RiemannianSGD, 0.05, {"momentum": 0.9}),
    (RiemannianAdam, 0.1, {}),
    (RiemannianAdagrad, 0.5, {}),
    (RiemannianRMSprop, 0.02, {}),
]


def cloud(m, radius):
    """Points around a place that is nearer to the origin's antipode than to the origin, and their Fréchet mean."""
    centre = m.lift(torch.tensor([2.2, 0.5, 0, 0], dtype=torch.float64) * radius).expand(50, D)
    away = 0.3 * radius * torch.randn(50, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = m.exp(centre, m.transport(away, torch.zeros_like(centre), centre))
    mean = m.midpoint(points)
    for _ in range(100):  # Karcher's iteration
        mean = m.exp(mean, m.log(mean.expand_as(points), points).mean(0))
    return points, mean


def begin(m, radius):
    return m.lift(torch.tensor([0.3, -0.2, 0.1, 0], dtype=torch.float64) * radius)


def descended(p, optimizer, loss):
    rates = [g["lr"] for g in optimizer.param_groups]
    for step in range(STEPS):
        for g, rate in zip(optimizer.param_groups, rates, strict=True):
            g["lr"] = rate * (1 - step / STEPS)
        optimizer.zero_grad()
        loss(p).backward()
        optimizer.step()
    return p.detach()


@pytest.mark.parametrize("c", [0.25, 1.0, 9.0])
@pytest.mark.parametrize(("optimizer", "pace", "options"), OPTIMIZERS)
def test_they_find_the_mean(optimizer, pace, options, c):
    m, radius = Sphere(c), 1 / math.sqrt(c)
    points, mean = cloud(m, radius)
    p = nn.Parameter(begin(m, radius))
    lr = pace * (1 if optimizer is RiemannianSGD else radius)
    found = descended(p, optimizer(group(p, m), lr=lr, **options), lambda p: m.sqdist(p, points).mean() / 2)
    assert m.dist(found, mean) < 1e-6 * radius


@pytest.mark.parametrize("c", [0.25, 1.0, 9.0])
@pytest.mark.parametrize(("optimizer", "pace", "options"), OPTIMIZERS)
def test_they_find_the_first_principal_axis(optimizer, pace, options, c):
    """-PᵀAP of unit vectors P is least at ± the axis."""
    m, radius = Sphere(c), 1 / math.sqrt(c)
    b = torch.randn(D + 1, D + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values, axes = torch.linalg.eigh(b @ b.T)
    a = b @ b.T / values[-1]
    p = nn.Parameter(begin(m, radius))
    lr = pace * (radius**2 if optimizer is RiemannianSGD else radius)
    found = descended(p, optimizer(group(p, m), lr=lr, **options), lambda p: -(m.vector(p) @ a @ m.vector(p)))
    assert abs(m.vector(found) @ axes[:, -1]) > 1 - 1e-9


@pytest.mark.parametrize("options", [{"betas": (0.0, 0.9)}, {"betas": (0.0, 0.9), "amsgrad": True}, {}])
def test_geoopt_takes_the_same_way_to_the_same_place(options):
    """Its sphere has radius 1 and is stored in one number more. It projects momentum, where we carry it in parallel."""
    geoopt = pytest.importorskip("geoopt")
    m, theirs = Sphere(1.0), geoopt.SphereExact()
    points, mean = cloud(m, 1.0)
    p, q = nn.Parameter(begin(m, 1.0)), geoopt.ManifoldParameter(m.vector(begin(m, 1.0)), manifold=theirs)
    ours, other = RiemannianAdam(group(p, m), lr=0.1, **options), geoopt.optim.RiemannianAdam([q], lr=0.1, **options)
    losses = (lambda p: m.sqdist(p, points).mean()), (lambda q: theirs.dist(q, m.vector(points)).square().mean())
    if options:
        for _ in range(10):
            for x, optimizer, loss in zip((p, q), (ours, other), losses, strict=True):
                optimizer.zero_grad()
                loss(x).backward()
                optimizer.step()
            torch.testing.assert_close(m.vector(p.detach()), q.detach(), rtol=1e-6, atol=1e-6)
    for x, optimizer, loss, point in zip((p, q), (ours, other), losses, (lambda p: p, m.of_vector), strict=True):
        assert m.dist(point(descended(x, optimizer, loss)), mean) < 1e-6


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam, RiemannianAdagrad, RiemannianRMSprop])
def test_a_step_over_the_origins_antipode_goes_on_behind_it(optimizer):
    """There the chart ends; the sphere does not, and momentum is carried across."""
    m = Sphere(1.0)
    x = m.lift(torch.tensor([[math.pi - 0.01, 0.0]], dtype=torch.float64))
    p = nn.Parameter(x.clone())
    p.grad = m.log(x, m.lift(torch.tensor([[-math.pi + 0.2, 0.0]], dtype=torch.float64)))
    p.grad = -p.grad / m.rgrad(x, torch.ones_like(x))  # its rgrad is the way there
    lr = {RiemannianSGD: 1.0, RiemannianRMSprop: 0.021}.get(optimizer, 0.21)
    optimizer(group(p, m), lr=lr).step()
    assert p[0, 0] < 0
    assert m.dist(p.detach(), x).item() == pytest.approx(0.21, rel=1e-6)
