"""Information: scipy's and scikit-learn's numbers, identities, and the notes' printed forms, which fail them."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare, WrappedNormal, halfspace_to_lorentz, lorentz_to_halfspace
from horosphere.measure.information import (
    conditional_entropy,
    entropy,
    entropy_by_sampling,
    joint_entropy,
    kl,
    kl_of_gaussians,
    mutual_information,
    pmi,
    self_information,
)


def shares(*shape, seed=0, sparse=False):
    p = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    p = torch.where(p < 0.3, 0.0, p) if sparse else p
    return p


def joint(batch=4, x=3, y=5, **how):
    p = shares(batch, x, y, **how)
    return p / p.sum((-1, -2), keepdim=True)


def simple(batch=4, k=6, **how):
    p = shares(batch, k, **how)
    return p / p.sum(-1, keepdim=True)


# -- self-information, entropy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 8, 40])
def test_n_fair_bits_tell_n_bits(n):
    """13.01 prints -log₂ n, of the length in place of the probability: -3 for a byte."""
    told = self_information(torch.tensor(0.5, dtype=torch.float64) ** n) / math.log(2)
    assert told.item() == pytest.approx(n)
    assert -math.log2(n) != pytest.approx(n)


def test_independent_events_add_up():
    """13.02 prints log(p_x p_y) = log p_x · log p_y."""
    p, q = torch.tensor([0.3, 0.2], dtype=torch.float64)
    assert_close(self_information(p * q), self_information(p) + self_information(q))
    assert not torch.isclose((p * q).log(), p.log() * q.log())


@pytest.mark.parametrize("sparse", [False, True])
def test_entropy_is_scipys(sparse):
    p = simple(sparse=sparse)
    assert_close(entropy(p), torch.from_numpy(stats.entropy(p.numpy(), axis=-1)))


def test_entropy_is_at_most_log_k():
    """13.04 prints log(1/k), which is negative, and 13.03 the mean of log x in place of log p(x)."""
    p = simple(200, 6)
    assert (entropy(p) <= math.log(6)).all()
    assert entropy(torch.full((6,), 1 / 6)).item() == pytest.approx(math.log(6))
    assert (entropy(p) > math.log(1 / 6)).all()
    values = torch.arange(1, 7)
    assert not torch.isclose(-(p * values.log()).sum(-1), entropy(p)).any()


def test_gibbs_no_other_code_is_shorter():
    p, q = simple(seed=1), simple(seed=2)
    assert (-(p * q.log()).sum(-1) > entropy(p)).all()


def test_a_certain_event_tells_nothing():
    certain = entropy(torch.tensor([0.0, 1.0, 0.0]))
    assert certain == 0
    assert not certain.signbit()


# -- joint, conditional, mutual ---------------------------------------------------------------------------------------


def test_joint_entropy_lies_between():
    p = joint()
    x, y, both = entropy(p.sum(-1)), entropy(p.sum(-2)), joint_entropy(p)
    assert (both >= torch.maximum(x, y)).all()
    assert (both <= x + y).all()


def test_joint_entropy_of_densities_can_be_less_than_each():
    """13.05 says H(X) ≤ H(X, Y) of all; a second, narrow Gaussian has a negative entropy of its own."""
    wide, narrow = (stats.norm(scale=scale).entropy() for scale in (1.0, 0.01))
    assert narrow == pytest.approx(-3.186, abs=1e-3)
    assert wide + narrow < wide


def test_conditional_entropy_is_positive():
    """13.06 prints it without its minus."""
    p = joint()
    direct = -(p * (p / p.sum(-1, keepdim=True)).log()).sum((-1, -2))
    assert_close(conditional_entropy(p), direct)
    assert_close(conditional_entropy(p), joint_entropy(p) - entropy(p.sum(-1)))
    assert (conditional_entropy(p) >= 0).all()
    printed = (p * (p / p.sum(-1, keepdim=True)).log()).sum((-1, -2))
    assert (printed < 0).all()


def test_mutual_information_is_sklearns():
    metrics = pytest.importorskip("sklearn.metrics")
    counts = np.random.default_rng(0).integers(0, 9, size=(4, 5))
    told = mutual_information(torch.from_numpy(counts / counts.sum()))
    assert told.item() == pytest.approx(metrics.mutual_info_score(None, None, contingency=counts))


@pytest.mark.parametrize("sparse", [False, True])
def test_mutual_information_in_all_its_forms(sparse):
    p = joint(sparse=sparse)
    x, y = entropy(p.sum(-1)), entropy(p.sum(-2))
    told = mutual_information(p)
    assert_close(told, x + y - joint_entropy(p))
    assert_close(told, joint_entropy(p) - conditional_entropy(p) - conditional_entropy(p.mT))
    assert_close(told, y - conditional_entropy(p))
    assert_close(told, (p * pmi(p)).nan_to_num(0).sum((-1, -2)))
    assert_close(told, mutual_information(p.mT))


def test_mutual_information_is_zero_where_independent_and_there_only():
    """13.07 prints E_x E_y(p_xy log …), whose weights p_x p_y p_xy are too small, and no value for independence."""
    p = joint()
    apart = p.sum(-1, keepdim=True) * p.sum(-2, keepdim=True)
    assert_close(mutual_information(apart), torch.zeros(4, dtype=torch.float64), atol=1e-14, rtol=0)
    assert (mutual_information(p) > 1e-3).all()
    printed = (apart * p * pmi(p)).sum((-1, -2))
    assert (printed < mutual_information(p) / 2).all()


def test_a_bijection_tells_all():
    p = torch.diag(simple(1, 5)[0])
    assert_close(mutual_information(p), entropy(p.sum(-1)))


def test_skip_gram_with_negatives_finds_pmi_less_log_k():
    """Levy & Goldberg 2014: the best score of a pair, word by word, is its pmi - log k."""
    p, negatives = joint(1, 4, 4, seed=3)[0], 5
    apart = p.sum(-1, keepdim=True) * p.sum(-2, keepdim=True)
    score = (pmi(p) - math.log(negatives)).requires_grad_()
    logsigmoid = torch.nn.functional.logsigmoid
    (p * logsigmoid(score) + negatives * apart * logsigmoid(-score)).sum().backward()
    assert_close(score.grad, torch.zeros_like(score), atol=1e-12, rtol=0)


# -- divergence -------------------------------------------------------------------------------------------------------


def test_divergence_is_scipys_and_no_distance():
    p, q = simple(seed=1, sparse=True), simple(seed=2)
    assert_close(kl(p, q), torch.from_numpy(stats.entropy(p.numpy(), q.numpy(), axis=-1)))
    assert not torch.isclose(kl(p, q), kl(q, simple(seed=3))).any()
    assert (kl(p, q) > 0).all()
    assert_close(kl(p, p), torch.zeros(4, dtype=torch.float64))
    a, b = torch.tensor([0.5, 0.5]), torch.tensor([0.1, 0.9])
    assert kl(a, b) != kl(b, a)
    assert kl(a, torch.tensor([0.0, 1.0])) == math.inf


def test_the_mean_of_divergences_is_the_mutual_information():
    p = joint()
    y, x = p.sum(-2, keepdim=True), p.sum(-1, keepdim=True)
    assert_close(mutual_information(p), (y.squeeze(-2) * kl((p / y).mT, x.mT)).sum(-1))


def test_divergence_of_gaussians_is_torchs():
    a, b, c, d = torch.rand(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    normal = torch.distributions.Normal
    assert_close(kl_of_gaussians(a, b, c, d), torch.distributions.kl_divergence(normal(a, b), normal(c, d)))


def test_between_near_gaussians_divergence_is_half_the_squared_distance_of_the_half_plane():
    L = Lorentz(c=0.5)  # (dμ² + 2dσ²)/σ² is the half-plane's metric |dy|²/(c y²) at y = (μ/√2, σ) with c = ½
    random = torch.Generator().manual_seed(0)
    x = L.random(50, 2, generator=random, dtype=torch.float64)
    step = torch.randn(50, 2, generator=random, dtype=torch.float64)
    errors = []
    for size in (1e-2, 1e-3):
        near = L.exp(x, size * step)
        (mean, std), (other_mean, other_std) = (
            (math.sqrt(2) * y[..., 0], y[..., 1]) for y in (lorentz_to_halfspace(p, L.c) for p in (x, near))
        )
        told = kl_of_gaussians(mean, std, other_mean, other_std)
        errors.append((told / (L.sqdist(x, near) / 2) - 1).abs().max().item())
    assert errors[0] < 0.1
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.2)
    again = halfspace_to_lorentz(torch.stack((mean / math.sqrt(2), std), -1), L.c)
    assert_close(again, x)


# -- densities --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(1.0), Poincare(1.0), Lorentz(4.0)], ids=str)
def test_entropy_of_a_wrapped_normal_by_sampling(manifold):
    """That of the Gaussian, and what `lift` stretches: H = H(v) + E log|det lift(v)|."""
    normal = WrappedNormal(manifold, manifold.lift(torch.tensor([0.3, 0.7], dtype=torch.float64)), std=0.8)
    z = normal.sample(200_000, generator=torch.Generator().manual_seed(0))
    radius = torch.linspace(0, 8, 20_001, dtype=torch.float64)[1:]
    rayleigh = radius / 0.64 * (-radius.square() / (2 * 0.64)).exp()
    stretched = manifold.log_volume(torch.stack((radius, 0 * radius), -1))
    exact = 1 + math.log(2 * math.pi) + 2 * math.log(0.8) + torch.trapezoid(rayleigh * stretched, radius).item()
    assert entropy_by_sampling(normal.log_prob, z).item() == pytest.approx(exact, abs=0.01)


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [entropy, joint_entropy, conditional_entropy, mutual_information, pmi])
def test_gradients(told):
    p = joint(2, 3, 3)
    assert torch.autograd.gradcheck(told, (p.flatten(1) if told is entropy else p).requires_grad_())


def test_gradients_of_divergence_and_where_there_is_nothing():
    p, q = simple(2, 3, seed=1), simple(2, 3, seed=2)
    assert torch.autograd.gradcheck(kl, (p.requires_grad_(), q.requires_grad_()))
    empty = torch.tensor([0.0, 0.4, 0.6], requires_grad=True)
    entropy(empty).backward()
    assert empty.grad.isfinite().all()
