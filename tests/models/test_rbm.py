"""Restricted Boltzmann machines against all their states, an integral, and scikit-learn."""

import itertools
import math

import numpy as np
import pytest
import torch

from horosphere.data.tables import open_table
from horosphere.models.rbm import RBM, GaussianRBM, RBMConfig
from horosphere.models.table_model import Sizes

VISIBLE, HIDDEN = 3, 2


def machine(cls=RBM, visible=VISIBLE, hidden=HIDDEN, seed=0):
    torch.manual_seed(seed)
    made = cls(Sizes(visible, 0, 100), RBMConfig(hidden=hidden)).double()
    for p in made.parameters():
        torch.nn.init.normal_(p)
    return made


def states(count):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=count)), dtype=torch.float64)


def joint(made):
    """p(v, h) of all 2⁵ states.   -> (8, 4)"""
    v, h = states(VISIBLE), states(HIDDEN)
    energy = -(v @ made.a)[:, None] - h @ made.b - v @ made.weight.T @ h.T
    return (-energy).flatten().softmax(0).view(len(v), len(h))


# -- 0 and 1 ----------------------------------------------------------------------------------------------------------


def test_free_energy_and_conditionals_are_those_of_all_states():
    made, v, h = machine(), states(VISIBLE), states(HIDDEN)
    p = joint(made)
    torch.testing.assert_close((-made.free_energy(v)).softmax(0), p.sum(1))
    torch.testing.assert_close(made(v), (p / p.sum(1, keepdim=True)) @ h)
    torch.testing.assert_close(made.visible(h), (p / p.sum(0)).T @ v)


def test_without_the_term_of_the_visible_units_it_is_another_distribution():
    """As printed, exp(aᵀv) is missing."""
    made, v = machine(), states(VISIBLE)
    printed = torch.nn.functional.softplus(v @ made.weight.T + made.b).sum(-1).softmax(0)
    assert (printed - joint(made).sum(1)).abs().max() > 0.05


def test_pseudo_likelihood_is_that_of_all_states():
    made, v = machine(), states(VISIBLE)
    p = {tuple(row.tolist()): value for row, value in zip(v, joint(made).sum(1).tolist(), strict=True)}
    for row in v:
        total = 0.0
        for i in range(VISIBLE):
            other = row.clone()
            other[i] = 1 - row[i]
            total += math.log(p[tuple(row.tolist())] / (p[tuple(row.tolist())] + p[tuple(other.tolist())]))
        assert made.pseudo_likelihood(row[None]).item() == pytest.approx(total)


def test_the_chain_leads_to_the_distribution():
    made, draws = machine(), torch.Generator().manual_seed(0)
    v = torch.zeros(20_000, VISIBLE, dtype=torch.float64)
    noise = torch.rand(20_000, 20, HIDDEN + VISIBLE, generator=draws, dtype=torch.float64)
    reached = made.chained(v, noise) @ torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    shares = torch.bincount(reached.long(), minlength=8) / len(v)
    torch.testing.assert_close(shares.double(), joint(made).sum(1), rtol=0, atol=0.015)


def test_contrastive_divergence_tends_to_the_exact_gradient():
    """As k grows; with one step it is biased."""
    made, draws = machine(seed=1), torch.Generator().manual_seed(0)
    with torch.no_grad():  # nearly all units on, or nearly all off: a chain seldom goes from one to the other
        made.weight.add_(3)
        made.a.sub_(3)
        made.b.sub_(4.5)
    data = states(VISIBLE)[[1, 1, 3, 6, 6, 7]].repeat(8_000, 1)
    likelihood = (made.free_energy(data).mean() + (-made.free_energy(states(VISIBLE))).logsumexp(0)).mean()
    exact = torch.autograd.grad(likelihood, list(made.parameters()))
    errors = []
    for k in (1, 5, 60):
        noise = torch.rand(len(data), k, HIDDEN + VISIBLE, generator=draws, dtype=torch.float64)
        found = torch.autograd.grad(made.loss(data, data, noise), list(made.parameters()))
        errors.append(max((a - b).abs().max().item() for a, b in zip(found, exact, strict=True)))
    assert errors[2] < 0.02 < errors[1] < errors[0]


def test_the_gradient_has_hidden_units_as_probabilities():
    """d/dW of F(v_0) - F(v_k) is E(h v_kᵀ) - E(h v_0ᵀ), and v_k takes no part."""
    made, v, noise = machine(), states(VISIBLE)[:5], torch.rand(5, 1, HIDDEN + VISIBLE, dtype=torch.float64)
    last = made.chained(v, noise)
    (found,) = torch.autograd.grad(made.loss(v, v, noise), made.weight)
    torch.testing.assert_close(found, (made(last).T @ last - made(v).T @ v) / 5)


def test_digits_reach_the_pseudo_likelihood_of_sklearns():
    """32 units, ten passes over digits/16 in batches of ten: about -21. Theirs keeps its chains; ours begins anew."""
    networks = pytest.importorskip("sklearn.neural_network")
    x = open_table("builtin:digits").x / 16
    theirs = networks.BernoulliRBM(32, learning_rate=0.05, n_iter=10, random_state=0).fit(x)
    copy = RBM(Sizes(64, 0, len(x)), RBMConfig(hidden=32)).double()
    with torch.no_grad():
        for mine, value in (
            (copy.weight, theirs.components_),
            (copy.a, theirs.intercept_visible_),
            (copy.b, theirs.intercept_hidden_),
        ):
            mine.copy_(torch.from_numpy(value))
        reference = copy.pseudo_likelihood(torch.from_numpy(x)).mean().item()
    theirs.random_state = np.random.RandomState(1)  # of the columns that their score looks at
    assert np.mean([theirs.score_samples(x).mean() for _ in range(40)]) == pytest.approx(reference, abs=0.5)
    torch.manual_seed(0)
    made, draws = RBM(Sizes(64, 0, len(x)), RBMConfig(hidden=32)), torch.Generator().manual_seed(0)
    v = torch.from_numpy(x).float()
    optimizer = torch.optim.SGD(made.parameters(), lr=0.05)
    for _ in range(10):
        for rows in torch.randperm(len(v), generator=draws).split(10):
            optimizer.zero_grad()
            made.loss(v[rows], v[rows], torch.rand(len(rows), 1, 96, generator=draws)).backward()
            optimizer.step()
    with torch.no_grad():
        reached = made.pseudo_likelihood(v).mean().item()
        made.independent(v)
        alone = made.pseudo_likelihood(v).mean().item()
    assert reached > max(-22.0, reference - 0.5)
    assert alone < reached - 3


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_a_gaussian_free_energy_is_an_integral():
    """One visible unit: ∫exp(-F) is Σ_h of the Gaussians that the hidden units choose."""
    made = machine(GaussianRBM, visible=1)
    v = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]
    total = torch.trapezoid((-made.free_energy(v)).exp(), v[:, 0])
    h = states(HIDDEN)
    mean = made.visible(h)[:, 0]
    weights = (h @ made.b + (mean.square() - made.a.square()) / 2).exp() * math.sqrt(2 * math.pi)
    torch.testing.assert_close(total, weights.sum())
    density = (weights * (-(v - mean).square() / 2).exp()).sum(1) / math.sqrt(2 * math.pi)
    torch.testing.assert_close((-made.free_energy(v)).exp(), density)


def test_a_gaussian_pseudo_likelihood_is_normalised():
    made = machine(GaussianRBM)
    v = torch.randn(4, VISIBLE, dtype=torch.float64)
    values = torch.linspace(-14, 14, 4001, dtype=torch.float64)
    total = torch.zeros(4, dtype=torch.float64)
    for i in range(VISIBLE):
        moved = v[:, None].repeat(1, len(values), 1)
        moved[..., i] = values
        energies = made.free_energy(moved)
        total += -made.free_energy(v) - torch.trapezoid((-energies).exp(), values).log()
    torch.testing.assert_close(made.pseudo_likelihood(v), total, rtol=1e-6, atol=1e-6)


def test_gaussian_units_are_drawn_around_their_means():
    made, draws = machine(GaussianRBM), torch.Generator().manual_seed(0)
    noise = torch.rand(20_000, 1, HIDDEN + VISIBLE, generator=draws, dtype=torch.float64)
    made.weight.data.zero_()
    v = made.chained(torch.zeros(20_000, VISIBLE, dtype=torch.float64), noise)
    torch.testing.assert_close(v.mean(0), made.a.detach(), rtol=0, atol=0.03)
    torch.testing.assert_close(v.std(0), torch.ones(VISIBLE, dtype=torch.float64), rtol=0, atol=0.03)


@pytest.mark.parametrize("cls", [RBM, GaussianRBM])
def test_pieces_of_rows_change_nothing(cls, monkeypatch):
    made, v = machine(cls), torch.rand(7, VISIBLE, dtype=torch.float64)
    whole = made.pseudo_likelihood(v)
    monkeypatch.setattr("horosphere.models.rbm.AT_ONCE", 1)
    torch.testing.assert_close(made.pseudo_likelihood(v), whole)


@pytest.mark.parametrize("cls", [RBM, GaussianRBM])
def test_independent_columns_have_their_means(cls):
    made, x = machine(cls), torch.rand(50, VISIBLE, dtype=torch.float64)
    made.independent(x)
    torch.testing.assert_close(made.visible(torch.zeros(HIDDEN, dtype=torch.float64)), x.mean(0))
