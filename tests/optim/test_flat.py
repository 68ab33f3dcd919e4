"""In flat space every optimizer is torch's, to the last bit."""

import copy

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean, Product
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD, param_groups
from tests.optim.samples import same, values

STEPS = 5
SGD = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True},
    {"momentum": 0.9, "fused": True},
]
ADAM = [
    {},
    {"amsgrad": True},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decoupled_weight_decay": True},
    {"betas": (0.8, 0.95), "eps": 1e-4, "amsgrad": True, "maximize": True},
    {"foreach": False},
    {"fused": True},
]
ADAGRAD = [
    {},
    {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-3},
    {"initial_accumulator_value": 0.5, "maximize": True},
]
RMSPROP = [{}, {"momentum": 0.9, "weight_decay": 0.1}, {"alpha": 0.8, "eps": 1e-3, "centered": True, "maximize": True}]
PAIRS = [
    (RiemannianSGD, torch.optim.SGD),
    (RiemannianAdam, torch.optim.Adam),
    (RiemannianAdagrad, torch.optim.Adagrad),
    (RiemannianRMSprop, torch.optim.RMSprop),
]
CASES = [
    (ours, torchs, options)
    for (ours, torchs), cases in zip(PAIRS, (SGD, ADAM, ADAGRAD, RMSPROP), strict=True)
    for options in cases
]


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def run(net, optimizer):
    for t in range(STEPS):
        optimizer.zero_grad()
        net(torch.linspace(-1, 1, 20).view(5, 4) * (t + 1)).square().sum().backward()
        optimizer.step()
    return values(net)


@pytest.mark.parametrize("manifold", [None, Euclidean()])
@pytest.mark.parametrize(("ours", "torchs", "options"), CASES)
def test_flat_steps_are_torchs_own(ours, torchs, options, manifold):
    a, b = plain(), plain()
    groups = [{"params": list(a.parameters()), **({"manifold": manifold} if manifold else {})}]
    assert same(run(a, ours(groups, lr=0.02, **options)), run(b, torchs(b.parameters(), lr=0.02, **options)))


@pytest.mark.parametrize(("ours", "torchs"), PAIRS)
def test_what_is_not_said_is_as_torch_has_it(ours, torchs):
    one, other = (make(plain().parameters()).defaults for make in (ours, torchs))
    assert {name: one[name] for name in other} == other


@pytest.mark.parametrize(("ours", "torchs"), PAIRS)
def test_param_groups_of_a_torch_model_are_torchs_own(ours, torchs):
    a, b = plain(), plain()
    decayed, alone = [b[0].weight, b[3].weight], [b[0].bias, b[1].weight, b[1].bias, b[3].bias]
    by_hand = [{"params": decayed, "weight_decay": 0.1}, {"params": alone, "weight_decay": 0.0}]
    assert same(run(a, ours(param_groups(a, weight_decay=0.1), lr=0.02)), run(b, torchs(by_hand, lr=0.02)))


@pytest.mark.parametrize(
    ("ours", "torchs", "options"),
    [case for case in CASES if not {"weight_decay", "nesterov", "fused", "centered"} & case[2].keys()],
)
def test_a_product_of_flat_factors_is_flat(ours, torchs, options):
    x = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a, b = nn.Parameter(x.clone()), nn.Parameter(x.clone())
    flat = Product((Euclidean(), 2), (Euclidean(), 4))
    one, other = ours([{"params": [a], "manifold": flat}], lr=0.1, **options), torchs([b], lr=0.1, **options)
    for _ in range(STEPS):
        for p, optimizer in ((a, one), (b, other)):
            p.grad = (p.detach() ** 3 - p.detach()).clone()
            optimizer.step()
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_hooks_run_once_a_step():
    """Even after torch has hooked the step of its own class, which ours calls."""
    for ours, torchs in PAIRS:
        net = plain()
        torchs(copy.deepcopy(net).parameters())
        optimizer, calls = ours(net.parameters()), []
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        run(net, optimizer)
        assert calls == ["before", "after"] * STEPS
