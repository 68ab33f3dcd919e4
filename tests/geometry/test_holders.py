"""Optimizers find tables of points among plain parameters, and step them as `param_groups` has it."""

import copy

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.geometry.holders import points_among
from horosphere.nn import Classifier, Embedding
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD, param_groups

OPTIMIZERS = [RiemannianAdam, RiemannianSGD, RiemannianAdagrad, RiemannianRMSprop]


def net(m):
    torch.manual_seed(0)
    return nn.Sequential(Embedding(6, 2, m), Classifier(2, 3, m))


def trained(model, groups, kind, steps=30):
    optimizer = kind(groups, lr=0.3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(-model(torch.arange(6)), torch.arange(6) % 3).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("m", [Lorentz(), Poincare(0.7), Euclidean()], ids=str)
def test_plain_parameters_train_as_groups_do(m, kind):
    model = net(m)
    plain = trained(model, model.parameters(), kind)
    other = net(m)
    expected = trained(other, param_groups(other), kind)
    torch.testing.assert_close(list(plain.parameters()), list(expected.parameters()))


def test_points_of_the_unit_ball_stay_inside():
    model = net(Poincare())
    trained(model, model.parameters(), RiemannianAdam, steps=100)
    assert model[0].weight.norm(dim=-1).max() < 1


def test_copies_names_and_groups_are_searched_too():
    model = copy.deepcopy(net(Lorentz()))
    named = RiemannianAdam(model.named_parameters(), lr=0.1, weight_decay=0.1)
    assert [type(m).__name__ for m in named.manifolds] == ["Lorentz", "Euclidean"]
    assert [g["weight_decay"] for g in named.param_groups] == [0.0, 0.1]  # points are never decayed
    in_groups = RiemannianAdam([{"params": model[0].weight, "lr": 0.5}, {"params": model[1].parameters()}])
    assert [(type(m).__name__, g["lr"]) for m, g in zip(in_groups.manifolds, in_groups.param_groups, strict=True)] == [
        ("Lorentz", 0.5),
        ("Euclidean", 1e-3),
    ]


def test_what_is_said_holds():
    """A group with a manifold of its own is not searched."""
    model = net(Lorentz())
    optimizer = RiemannianAdam([{"params": model.parameters(), "manifold": Euclidean()}])
    assert [type(m).__name__ for m in optimizer.manifolds] == ["Euclidean"]


def test_tables_that_are_gone_are_not_held():
    model = net(Lorentz())
    parameters = list(model.parameters())
    assert len(points_among(parameters)) == 1
    del model
    assert not points_among(parameters)
