"""The wrapped normal: a density, its samples, and the gradients that pass through both."""

import math

import pytest
import torch

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, WrappedNormal
from tests.geometry.samples import CURVATURES

TWO_DIMENSIONAL = {
    "euclidean": lambda c: Euclidean(),
    "lorentz": Lorentz,
    "poincare": Poincare,
    "product": lambda c: Product((Lorentz(c), 1), (Euclidean(), 1), weights=(0.5, 2.0)),
}


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", TWO_DIMENSIONAL)
def test_density_integrates_to_one(name, c):
    """Over a grid of the tangent plane at the origin: at distance r a cell has sinh(√c r)/(√c r) times its area."""
    m, unit = TWO_DIMENSIONAL[name](c), 1 / math.sqrt(c)
    line = torch.linspace(-5, 5, 400, dtype=torch.float64) * unit
    v = torch.cartesian_prod(line, line)
    r = math.sqrt(c) * v.norm(dim=-1)
    area = torch.sinh(r) / r if name in ("lorentz", "poincare") else torch.ones_like(r)
    mean = m.lift(unit * torch.tensor([0.6, -0.4], dtype=torch.float64))
    density = WrappedNormal(m, mean, unit * torch.tensor([0.3, 0.5], dtype=torch.float64)).log_prob(m.lift(v)).exp()
    assert ((density * area).sum() * (line[1] - line[0]) ** 2).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", TWO_DIMENSIONAL)
def test_samples_have_the_moments_and_the_entropy_of_the_density(name, c):
    m, unit = TWO_DIMENSIONAL[name](c), 1 / math.sqrt(c)
    mean = m.lift(unit * torch.tensor([0.6, -0.4], dtype=torch.float64))
    std = unit * torch.tensor([0.3, 0.5], dtype=torch.float64)
    w = WrappedNormal(m, mean, std)
    z = w.sample(20000, generator=torch.Generator().manual_seed(0))
    v = m.lower(m.translate(z, -mean))
    assert (v.mean(0) / unit).abs().max() < 0.02
    torch.testing.assert_close(v.std(0), std, rtol=0.03, atol=0)
    # -E log p = entropy of the Gaussian + E log volume, both known
    entropy = (std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum() + m.log_volume(v).mean()
    assert -w.log_prob(z).mean().item() == pytest.approx(entropy.item(), abs=0.03)


def test_shapes():
    m, mean = Lorentz(), Lorentz().random(3, 1, 2)
    w = WrappedNormal(m, mean, torch.rand(3, 5, 2) + 0.1)
    z = WrappedNormal(m, mean, torch.full((3, 1, 1), 0.1)).rsample(7)
    assert z.shape == (7, 3, 1, 2)
    assert w.log_prob(z.expand(7, 3, 5, 2)).shape == (7, 3, 5)
    assert WrappedNormal(m, mean, 0.1).sample().shape == mean.shape


def test_every_std_has_noise_of_its_own():
    """A mean shared by several stds: their samples are not copies of one another."""
    std = torch.tensor([[0.1], [0.1], [0.1]])
    w = WrappedNormal(Lorentz(), torch.zeros(2), std)
    z = w.sample(5, generator=torch.Generator().manual_seed(0))
    assert z.shape == (5, 3, 2)
    assert w.log_prob(z).shape == (5, 3)
    assert len(z.view(-1, 2).unique(dim=0)) == 15


@pytest.mark.parametrize("name", TWO_DIMENSIONAL)
def test_gradients_reach_mean_std_and_curvature(name):
    m = TWO_DIMENSIONAL[name](0.5)
    if name in ("lorentz", "poincare"):
        m = type(m)(0.5, learn=True).double()
    mean = torch.tensor([0.2, 0.3], dtype=torch.float64, requires_grad=True)
    std = torch.tensor([0.4, 0.7], dtype=torch.float64, requires_grad=True)
    z = torch.tensor(
        [[0.5, -0.1], [0.0, 0.0], [0.2, 0.3]], dtype=torch.float64, requires_grad=True
    )  # the last one is the mean
    noise = torch.Generator().manual_seed(0).get_state()

    def sample(mean, std, *_):
        return WrappedNormal(m, mean, std).rsample(4, generator=torch.Generator().set_state(noise))

    leaves = list(m.parameters())
    assert torch.autograd.gradcheck(
        lambda mean, std, z, *_: WrappedNormal(m, mean, std).log_prob(z), (mean, std, z, *leaves)
    )
    assert torch.autograd.gradcheck(sample, (mean, std, *leaves))
    assert not WrappedNormal(m, mean, std).sample(4).requires_grad


@pytest.mark.parametrize("draw", ["sample", "rsample"])
def test_a_generator_decides_what_is_drawn(draw):
    w = WrappedNormal(Lorentz(), torch.zeros(2), 0.5)
    torch.manual_seed(0)
    one, other = (getattr(w, draw)(5, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, getattr(w, draw)(5))
