"""Multilayer perceptrons: scikit-learn's with the same weights, and curved ones near flat space."""

import numpy as np
import pytest
import torch
from torch import nn

from horosphere.data.tables import Scaling, open_table
from horosphere.models.mlp import MLP, MaxoutConfig, MaxoutNetwork, MLPConfig
from horosphere.models.table_model import Sizes

NO_NOISE = torch.zeros(1, 0)


def test_with_its_weights_it_is_sklearns():
    networks = pytest.importorskip("sklearn.neural_network")
    table = open_table("builtin:digits")
    x, y = Scaling.of_unit_length(table.x)(table.x), table.labels
    theirs = networks.MLPClassifier((16, 12), max_iter=3, random_state=0)
    with pytest.warns(match="Maximum iterations"):
        theirs.fit(x, y)
    model = MLP(Sizes(64, 10, len(x)), MLPConfig(hidden=(16, 12))).double()
    with torch.no_grad():
        for layer, weight, bias in zip((*model.layers, model.head), theirs.coefs_, theirs.intercepts_, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T))
            layer.bias.copy_(torch.from_numpy(bias))
        logits = model(torch.from_numpy(x))
        np.testing.assert_allclose(logits.softmax(1), theirs.predict_proba(x), atol=1e-12)
        loss = model.loss(torch.from_numpy(x), torch.from_numpy(y), NO_NOISE)
    probabilities = np.log(theirs.predict_proba(x)[np.arange(len(y)), y])
    assert loss.item() == pytest.approx(-probabilities.mean())


def test_flat_it_is_torchs_sequence():
    torch.manual_seed(0)
    model = MLP(Sizes(4, 3, 9), MLPConfig(hidden=(5, 6)))
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    x = torch.randn(9, 4)
    assert torch.equal(model(x), theirs(x))


def test_without_hidden_layers_it_is_softmax_regression():
    model, x = MLP(Sizes(4, 3, 9), MLPConfig(hidden=())), torch.randn(9, 4)
    assert torch.equal(model(x), nn.functional.linear(x, model.head.weight, model.head.bias))


@pytest.mark.parametrize(("cls", "config"), [(MLP, MLPConfig), (MaxoutNetwork, MaxoutConfig)])
def test_in_a_nearly_flat_space_it_is_its_flat_twin(cls, config):
    sizes, x, errors = Sizes(4, 3, 9), torch.randn(9, 4, dtype=torch.float64), []
    flat = cls(sizes, config(hidden=(5, 6))).double()
    for c in (1e-2, 1e-4):
        curved = cls(sizes, config(hidden=(5, 6), geometry="lorentz", curvature=c)).double()
        missing = curved.load_state_dict(flat.state_dict(), strict=False).missing_keys
        assert all("time_weight" in name or "manifold" in name for name in missing)
        errors.append((curved(x) - flat(x)).abs().max().item())
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.3)


@pytest.mark.parametrize("geometry", ["lorentz", "poincare"])
@pytest.mark.parametrize(("cls", "config"), [(MLP, MLPConfig), (MaxoutNetwork, MaxoutConfig)])
def test_curved_networks_learn_what_no_plane_separates(cls, config, geometry):
    torch.manual_seed(0)
    x = torch.randn(120, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = cls(Sizes(2, 2, 120), config(hidden=(16, 8), geometry=geometry))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        model.loss(x, y, NO_NOISE).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.95


def test_ball_and_hyperboloid_are_one_network():
    x, sizes = torch.randn(9, 4, dtype=torch.float64), Sizes(4, 3, 9)
    for cls, config in ((MLP, MLPConfig), (MaxoutNetwork, MaxoutConfig)):
        here = cls(sizes, config(hidden=(5, 6), geometry="lorentz", curvature=0.7)).double()
        for name, p in here.named_parameters():
            if "time" in name:
                nn.init.normal_(p, std=0.1)
        there = cls(sizes, config(hidden=(5, 6), geometry="poincare", curvature=0.7)).double()
        weights = dict(here.named_parameters())
        there.load_state_dict(weights, strict=False)
        torch.testing.assert_close(here(x), there(x), rtol=1e-9, atol=1e-9)
