"""param_groups: every parameter that learns, once, where it belongs."""

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.nn import Classifier, Embedding, Linear, Residual, RMSNorm
from horosphere.optim import param_groups
from horosphere.optim.groups import with_rate


class Everything(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.one, self.two, self.other = Embedding(5, 4, a), Embedding(6, 4, a), Embedding(7, 4, b)
        self.linear, self.head = Linear(4, 4, a, out_manifold=b), Classifier(4, 3, b)
        self.norm, self.residual = RMSNorm(4, a), Residual(4, a)
        self.conv, self.batch_norm, self.table_bias = (
            nn.Conv1d(4, 4, 3),
            nn.BatchNorm1d(4),
            nn.Parameter(torch.zeros(4, 4)),
        )
        self.scale = nn.Parameter(torch.ones(1))


def where(groups):
    """id -> "decayed", "alone" or the manifold"""
    return {
        id(p): g.get("manifold") or ("decayed" if g["weight_decay"] else "alone") for g in groups for p in g["params"]
    }


def test_every_parameter_once_where_it_belongs():
    a, b = Lorentz(learn=True), Poincare(learn=True)
    model = Everything(a, b)
    groups = param_groups(model, weight_decay=0.1)
    listed = [id(p) for g in groups for p in g["params"]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {id(p) for p in model.parameters()}
    places = where(groups)
    expected = {
        **dict.fromkeys(("one.weight", "two.weight"), a),
        "other.weight": b,
        **dict.fromkeys(("linear.weight", "linear.time_weight", "head.weight", "conv.weight"), "decayed"),
    }
    for name, p in model.named_parameters():
        assert places[id(p)] == expected.get(name, "alone"), name
    assert sum("manifold" in g for g in groups) == 2  # one group a manifold


def test_no_points_in_flat_space():
    model = Everything(Euclidean(), Euclidean())
    groups = param_groups(model, weight_decay=0.1)
    assert all("manifold" not in g for g in groups)
    assert where(groups)[id(model.one.weight)] == "decayed"


@pytest.mark.parametrize("head_first", [True, False])
def test_a_tied_table_is_a_table(head_first):
    m = Lorentz()
    table, head = Embedding(5, 4, m), nn.Linear(4, 5)
    head.weight = table.weight
    model = nn.Sequential(*([head, table] if head_first else [table, head]))
    groups = param_groups(model, weight_decay=0.1)
    assert [(g.get("manifold"), len(g["params"])) for g in groups] == [(None, 1), (m, 1)]
    assert groups[1]["params"] == [table.weight]


def test_frozen_parameters_are_left_out():
    model = Everything(Lorentz(), Product((Lorentz(), 2), (Euclidean(), 2)))
    model.one.requires_grad_(False)
    model.conv.weight.requires_grad_(False)
    listed = {id(p) for g in param_groups(model) for p in g["params"]}
    assert listed == {id(p) for p in model.parameters() if p.requires_grad}


def test_sparse_tables_are_not_decayed():
    """Decay would touch every row."""
    for table in (Embedding(5, 4, Euclidean(), sparse=True), nn.Embedding(5, 4, sparse=True)):
        (only,) = param_groups(table, weight_decay=0.1)
        assert only["weight_decay"] == 0


def test_what_is_left_alone_is_so_wherever_it_lies():
    """The module that owns a parameter decides, not those around it."""
    left = nn.ModuleDict(
        {
            "norm": nn.LayerNorm((3, 4)),  # its weight has two axes
            "sparse": nn.Embedding(5, 4, sparse=True),
            "scale": nn.ParameterList([nn.Parameter(torch.ones(4, 1, 1))]),
        }
    )
    decayed = nn.ModuleDict({"column": nn.Linear(4, 1, bias=False), "dense": nn.Embedding(5, 4)})
    model = nn.Sequential(nn.Sequential(left), nn.Sequential(decayed))
    places = where(param_groups(model, weight_decay=0.1))
    assert {places[id(p)] for p in left.parameters()} == {"alone"}
    assert {places[id(p)] for p in decayed.parameters()} == {"decayed"}


def test_options_reach_every_group():
    groups = param_groups(Everything(Lorentz(), Poincare()), lr=0.5, betas=(0.1, 0.2))
    assert len(groups) == 4
    assert all(g["lr"] == 0.5 and g["betas"] == (0.1, 0.2) for g in groups)


def test_a_torch_model_has_matrices_and_the_rest():
    model = nn.TransformerEncoderLayer(8, 2, 16)
    places = where(param_groups(model, weight_decay=0.1))
    for name, p in model.named_parameters():
        assert places[id(p)] == ("decayed" if p.ndim == 2 else "alone"), name


def test_chosen_parameters_learn_at_a_rate_of_their_own():
    model = Everything(Lorentz(), Poincare())
    head = {id(p) for p in model.head.parameters()}
    plain = param_groups(model, weight_decay=0.1)
    groups = with_rate(plain, lambda p: id(p) in head, 10.0)
    rates = {id(p): g.get("lr_scale", 1.0) for g in groups for p in g["params"]}
    assert rates == {id(p): 10.0 if id(p) in head else 1.0 for p in model.parameters()}
    assert where(groups) == where(plain)
    assert with_rate(plain, lambda p: True, 1.0) is plain


@pytest.mark.parametrize("kind", ["generator", "list", "type", "None"])
def test_what_is_no_model_is_said(kind):
    model = nn.Sequential(Linear(2, 2, Lorentz()))
    given = {"generator": model.parameters(), "list": list(model.parameters()), "type": type(model), "None": None}
    says = r"^param_groups: \w+ is no model; give the model itself, as in param_groups\(model\)$"
    with pytest.raises(TypeError, match=says):
        param_groups(given[kind])
