"""Optimizers by name."""

import pytest
import torch
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.nn import Embedding, Linear
from horosphere.optim import OPTIMIZERS, make_optimizer, param_groups
from tests.optim.samples import same, values

TORCHS = {
    "adam": lambda groups: torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9)),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.5),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.01),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, momentum=0.5),
    "adadelta": lambda groups: torch.optim.Adadelta(groups, lr=0.01),
}


def net(m):
    torch.manual_seed(0)
    return nn.Sequential(Embedding(5, 4, m), Linear(4, 3, m))


def run(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.arange(5)).square().sum().backward()
        optimizer.step()
    return values(model)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_in_flat_space_it_is_torchs(name):
    ours, torchs = net(Euclidean()), net(Euclidean())
    made = make_optimizer(name, param_groups(ours, 0.1), 0.01, betas=(0.8, 0.9), momentum=0.5)
    assert same(run(ours, made), run(torchs, TORCHS[name](param_groups(torchs, 0.1))))


@pytest.mark.parametrize("name", ["adam", "sgd", "adagrad", "rmsprop"])
def test_points_get_a_rate_that_suits_their_dimension_where_steps_have_a_length(name):
    groups = param_groups(net(Lorentz()), 0.1)
    made = make_optimizer(name, groups, 0.01, momentum=0.5)
    (points,) = [group for group, m in zip(made.param_groups, made.manifolds, strict=True) if not m.flat]
    assert points.get("lr_scale", 1.0) == (1.0 if name == "sgd" else 2.0)
    assert "lr_scale" not in groups[-1]  # the caller's are left as they were


def test_a_rate_of_ones_own_is_kept():
    groups = param_groups(net(Lorentz()), lr_scale=0.25)
    assert [group["lr_scale"] for group in make_optimizer("adam", groups, 0.01).param_groups] == [0.25] * len(groups)


def test_adadelta_refuses_points():
    with pytest.raises(UserError, match="no rule for points"):
        make_optimizer("adadelta", param_groups(net(Lorentz())), 1.0)
