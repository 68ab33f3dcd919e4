"""Routers and experts: the balance loss of the paper, loads that are counted, columns of times that start still."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz
from horosphere.geometry.manifold import learned_curvature
from horosphere.nn import Experts, MixtureOfExperts, Router
from horosphere.nn.experts import grouped_product

MANIFOLDS = {"lorentz": Lorentz(0.5), "euclidean": Euclidean()}
geometries = pytest.mark.parametrize("geometry", MANIFOLDS)
SIZES = {"dim": 8, "inner": 6, "routed": 4, "active": 2, "shared": 1}


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def router(geometry, form="sigmoid", **options):
    made = Router(8, 5, 2, MANIFOLDS[geometry], form, **options).double()
    torch.nn.init.normal_(made.weight)
    made.e_score_correction_bias += 0.3 * torch.randn(5)
    return made


def rows(*shape):
    return torch.randn(*shape, 8, dtype=torch.float64)


# Routers


@geometries
@pytest.mark.parametrize("form", ["sigmoid", "softmax"])
def test_the_balance_loss_is_that_of_each_sequence(form, geometry):
    """Σ_i f_i P_i of one sequence, token by token: equations 17 to 20 of DeepSeek-V3; the mean over sequences."""
    gate, x = router(geometry, form), rows(3, 7)
    expected = []
    for sequence in x:
        affinities, counts = [], torch.zeros(5, dtype=torch.float64)
        for token in sequence:
            logits = gate.weight @ token if geometry == "euclidean" else gate.weight[:, 1:] @ token[1:]
            affinity = logits.sigmoid() if form == "sigmoid" else logits.softmax(-1)
            for best in (affinity + gate.e_score_correction_bias).argsort(descending=True)[:2].tolist():
                counts[best] += 1
            affinities.append(affinity / affinity.sum())
        f, p = counts * 5 / (2 * len(sequence)), torch.stack(affinities).mean(0)
        expected.append((f * p).sum())
    assert_close(gate(x)[2], torch.stack(expected).mean())


@geometries
def test_balance_is_one_for_a_router_without_preference(geometry):
    gate = router(geometry)
    torch.nn.init.zeros_(gate.weight)
    assert_close(gate(rows(2, 9))[2], torch.ones((), dtype=torch.float64))


@geometries
def test_weights_sum_to_the_scale_and_the_bias_only_chooses(geometry):
    gate, x = router(geometry, scale=1.7), rows(2, 6)
    weights, chosen, _ = gate(x)
    assert weights.shape == chosen.shape == (12, 2)
    assert_close(weights.sum(-1), torch.full((12,), 1.7, dtype=torch.float64))
    affinity = F.linear(MANIFOLDS[geometry].slots.space(x), MANIFOLDS[geometry].slots.space(gate.weight)).sigmoid()
    picked = affinity.flatten(0, 1).gather(-1, chosen)
    assert_close(weights, 1.7 * picked / picked.sum(-1, keepdim=True))
    gate.e_score_correction_bias.fill_(-100.0)[3] = 100.0  # whoever it is for, expert 3 is chosen, and weighs as before
    weights, chosen, _ = gate(x)
    assert (chosen[:, 0] == 3).all()
    assert (weights > 0).all()


@geometries
def test_a_router_counts_the_tokens_it_sent_while_it_learns(geometry):
    gate = router(geometry)
    total = torch.zeros(5)
    for _ in range(2):
        _, chosen, _ = gate(rows(2, 6))
        total += torch.bincount(chosen.flatten(), minlength=5)
    assert torch.equal(gate.load.float(), total)
    gate.eval()(rows(2, 6))
    assert torch.equal(gate.load.float(), total)
    before = gate.e_score_correction_bias.clone()
    gate.rebalance(0.25)
    assert_close(gate.e_score_correction_bias - before, 0.25 * (total.mean() - total).sign().double())
    assert not gate.load.any()


def test_tokens_that_other_processes_sent_count_too(monkeypatch):
    gate, elsewhere = router("lorentz"), torch.tensor([9.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    gate.load.copy_(torch.tensor([0.0, 1.0, 1.0, 1.0, 2.0]))
    before = gate.e_score_correction_bias.clone()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda t: t.add_(elsewhere))
    gate.rebalance(0.25)
    assert_close(gate.e_score_correction_bias - before, torch.tensor([-0.25] + [0.25] * 4, dtype=torch.float64))
    assert not gate.load.any()


def test_active_experts_are_some_of_all():
    for active in (0, 6):
        with pytest.raises(ValueError, match=f"{active} active experts of 5: choose 1 to 5"):
            Router(8, 5, active, Lorentz())
    assert Router(8, 5, 5, Lorentz())(torch.ones(1, 2, 8))[1].sort().values.tolist() == [[0, 1, 2, 3, 4]] * 2


# Experts


@geometries
def test_experts_start_without_a_weight_on_times_and_with_normal_ones_elsewhere(geometry):
    times = MANIFOLDS[geometry].slots.times
    layer = MixtureOfExperts(64, 32, MANIFOLDS[geometry], routed=6, active=2, shared=3, spread=(0.1, 2.0))
    for experts in (layer.experts, layer.shared_experts):
        for weight in (experts.gate_up_proj, experts.down_proj):
            assert not weight[..., :times].any()
            assert weight[..., times:].std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.gate.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_curvatures_start_geometrically_spaced_around_the_streams():
    assert_close(Experts(5, 8, 6, Lorentz(2.0), (0.25, 4.0)).c, torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0]))
    assert_close(Experts(1, 8, 6, Lorentz(2.0), (0.25, 1.0)).c, torch.tensor([1.0]))
    assert Experts(5, 8, 6, Lorentz(2.0)).c is None
    assert Experts(5, 8, 6, Euclidean(), (0.25, 4.0)).c is None
    learned = Experts(2, 8, 6, Lorentz(2.0), (1.0, 1.0))
    with torch.no_grad():
        learned.log_ratio.copy_(torch.tensor([0.5, -0.5]))
    assert_close(learned.c, torch.cat([learned_curvature(torch.tensor([2.0]), torch.tensor([r])) for r in (0.5, -0.5)]))


def test_an_experts_curvature_is_a_gain_of_its_gate():
    """What comes out is that of experts on the stream's own manifold, whose gates are √(c/c_e) times as large.

    Everything but silu keeps scales: x enters as s·x, and y comes back as y/s. So no expert of another curvature can
    say what one of the stream's curvature cannot.
    """
    m = MANIFOLDS["lorentz"]
    curved, plain = (Experts(3, 8, 6, m, spread).double() for spread in ((0.1, 10.0), None))
    with torch.no_grad():
        for weight in curved.parameters():
            weight.normal_()
        gates, ups = (curved.gate_up_proj * 1.0).chunk(2, 1)
        plain.gate_up_proj[:] = torch.cat(((m.c / curved.c).sqrt().view(-1, 1, 1) * gates, ups), 1)
        plain.down_proj[:] = curved.down_proj
    x = m.slots.reading(rows(20))
    (y, factors), (expected, _) = curved(x), plain(x)
    assert_close(y / factors.view(-1, 1, 1), expected, atol=1e-12, rtol=1e-12)


@geometries
@pytest.mark.parametrize("spread", [None, (0.2, 3.0)])
def test_routed_experts_are_those_that_everyone_would_hear(spread, geometry):
    """Sorted rows of the chosen experts against all experts on all tokens; `order` and `place` lead there and back."""
    experts = Experts(4, 8, 6, MANIFOLDS[geometry], spread).double()
    for weight in experts.parameters():
        torch.nn.init.normal_(weight)
    x, chosen = rows(9), torch.randint(4, (9, 2))
    every, factors = experts.everyone(x)
    routed, order, place, factor = experts(x, chosen)
    assert torch.equal(order[place], torch.arange(18))
    assert_close(routed[place].view(9, 2, 8), torch.stack([every[chosen[:, k], torch.arange(9)] for k in (0, 1)], 1))
    assert (factor is None) == (factors is None) == (spread is None or geometry == "euclidean")
    if factor is not None:
        assert_close(factor, factors[chosen])


@geometries
def test_gradients_of_a_mixture(geometry):
    layer = MixtureOfExperts(**SIZES, manifold=MANIFOLDS[geometry], spread=(0.5, 2.0)).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = rows(1, 3).requires_grad_()
    assert torch.autograd.gradcheck(layer, x)
    sum(y.square().sum() for y in layer(x)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_grouped_product_is_a_product_for_each_group(dtype):
    """Also of experts that no token chose, at the beginning, in between and at the end."""
    sizes, weight = [0, 3, 0, 4, 0], torch.randn(5, 8, 16, dtype=dtype)
    x, ends = torch.randn(7, 16, dtype=dtype), torch.tensor(sizes).cumsum(0).to(torch.int32)
    expected = torch.cat([part @ w.T for part, w in zip(x.split(sizes), weight, strict=True)])
    assert_close(grouped_product(x, weight, ends), expected, atol=1e-5, rtol=1e-5)
