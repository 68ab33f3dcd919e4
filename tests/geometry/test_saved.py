"""A fixed curvature travels with the weights: what was saved at one does not load at another without a word."""

import copy
import io
import pickle

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.models.weights import begin_with
from horosphere.nn import Classifier, Linear
from horosphere.train.checkpoint import model_tensors


def network(m):
    """Two layers that share a manifold."""
    torch.manual_seed(0)
    return nn.Sequential(Linear(3, 4, m), nn.ModuleDict({"head": Classifier(4, 2, m)}))


def mixed(c):
    return Product((Lorentz(c), 2), (Euclidean(), 1))


def loaded(state):
    """As a file brings it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def pickled(state):
    return pickle.loads(pickle.dumps(state))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("through", [lambda state: state, loaded, copy.deepcopy, pickled])
@pytest.mark.parametrize("make", [Lorentz, Poincare])
def test_another_curvature_is_refused_in_one_line(make, through, strict):
    state = through(network(make(1.0)).state_dict())
    name = make.__name__
    with pytest.raises(RuntimeError, match=rf"saved on {name}\(c=1\.0\), loaded on {name}\(c=4\.0\)") as error:
        network(make(4.0)).load_state_dict(state, strict=strict)
    assert str(error.value).count("saved on") == 1  # though two layers hold the manifold
    assert "c=1.0" in str(error.value).splitlines()[-1]
    assert "dict(state)" in str(error.value)


def test_another_chart_is_another_geometry():
    with pytest.raises(RuntimeError, match=r"saved on Poincare\(c=1\.0\), loaded on Lorentz\(c=1\.0\)"):
        Classifier(4, 2, Lorentz()).load_state_dict(Classifier(4, 2, Poincare()).state_dict())


def test_a_product_asks_its_factors():
    mixed(1.0).load_state_dict(mixed(1.0).state_dict())
    with pytest.raises(RuntimeError, match=r"saved on Lorentz\(c=1\.0\), loaded on Lorentz\(c=2\.0\)"):
        mixed(2.0).load_state_dict(mixed(1.0).state_dict())


@pytest.mark.parametrize("c", [0.1, 1.0, 1 / 3, 1e-30])
def test_the_same_curvature_loads(c):
    one, other = network(Lorentz(c)), network(Lorentz(c))
    with torch.no_grad():
        one[0].weight.add_(1)
    other.load_state_dict(loaded(one.state_dict()))
    assert torch.equal(one[0].weight, other[0].weight)


@pytest.mark.parametrize("through", [dict, lambda state: from_bytes(to_bytes(state))])
def test_a_state_without_the_mark_loads_as_ever(through):
    """Older files, plain dicts and safetensors hold tensors only."""
    one, other = network(Lorentz(1.0)), network(Lorentz(4.0))
    with torch.no_grad():
        one[0].weight.add_(1)
    other.load_state_dict(through(one.state_dict()))
    assert torch.equal(one[0].weight, other[0].weight)


def test_the_mark_takes_no_room():
    """No tensor, no name: nothing for files, checkpoints, sharding or `from_pretrained` to carry."""
    net = network(Lorentz(2.0))
    names = {"0.weight", "0.bias", "0.time_weight", "1.head.weight", "1.head.bias"}
    assert set(net.state_dict()) == set(model_tensors(net)) == set(dict(net.named_parameters())) == names
    assert not list(net.buffers())
    assert set(from_bytes(to_bytes(net.state_dict()))) == names


def test_a_learned_curvature_is_a_tensor_and_loads_as_one():
    one, other = Lorentz(0.3, learn=True), Lorentz(5.0, learn=True)
    other.load_state_dict(loaded(one.state_dict()))
    assert torch.equal(one.c, other.c)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Lorentz(0.3).load_state_dict(one.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        one.load_state_dict(Lorentz(0.3).state_dict())


def test_copies_casts_and_compiled_networks_keep_their_curvature():
    net = network(Lorentz(2.0))
    for twin in (copy.deepcopy(net), pickled(net), copy.deepcopy(net).bfloat16(), net.to("meta")):
        assert twin[0].manifold.c == twin[1]["head"].manifold.c == 2.0
        with pytest.raises(RuntimeError, match=r"saved on Lorentz\(c=2\.0\)"):
            network(Lorentz(3.0)).load_state_dict(twin.state_dict())
    compiled = [torch.compile(network(Lorentz(c)), backend="eager") for c in (1.0, 1.0, 2.0)]
    compiled[0].load_state_dict(compiled[1].state_dict())
    with pytest.raises(RuntimeError, match=r"saved on Lorentz\(c=1\.0\), loaded on Lorentz\(c=2\.0\)"):
        compiled[2].load_state_dict(compiled[0].state_dict())


def test_a_run_of_another_curvature_is_no_beginning():
    one, other = network(Lorentz(1.0)), network(Lorentz(4.0))
    before = other[0].weight.clone()
    with torch.no_grad():
        one[0].weight.add_(1)
    with pytest.raises(UserError, match=r"start=runs/one: .* Lorentz\(c=1\.0\).* Lorentz\(c=4\.0\)") as error:
        begin_with(other, one.state_dict(), "runs/one")
    assert "\n" not in str(error.value)
    assert torch.equal(other[0].weight, before)  # nothing was loaded
    same = network(Lorentz(1.0))
    begin_with(same, one.state_dict(), "runs/one")
    assert torch.equal(same[0].weight, one[0].weight)
