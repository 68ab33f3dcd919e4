"""Classifiers in any geometry on flat networks: torch's own in flat space, distances to hyperplanes else."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.models.backbones import create_backbone, head_of
from horosphere.models.heads import LiftedClassifier, LiftedConvClassifier, put_head


def test_in_flat_space_they_are_torchs_to_the_last_bit():
    head, maps = LiftedClassifier(6, 3, Euclidean()), LiftedConvClassifier(6, 3, Euclidean(), kernel_size=3)
    v, x = torch.randn(5, 6), torch.randn(2, 6, 4, 5)
    assert torch.equal(head(v), nn.functional.linear(v, head.weight, head.bias))
    assert torch.equal(maps(x), nn.functional.conv2d(x, maps.weight, maps.bias, padding=1))
    assert set(head.state_dict()) == set(maps.state_dict()) == {"weight", "bias"}


@pytest.mark.parametrize("manifold", [Lorentz(0.5), Poincare(2.0)])
def test_a_place_is_classified_as_its_vector_is(manifold):
    head, maps = LiftedClassifier(6, 3, manifold).double(), LiftedConvClassifier(6, 3, manifold).double()
    maps.weight.data = head.weight.data[..., None, None]
    maps.bias.data = head.bias.data
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    assert_close(maps(x), head(x.movedim(1, -1)).movedim(-1, 1))
    assert_close(maps.lift.scale, head.lift.scale)


@pytest.mark.parametrize("name", ["resnet18", "torchvision:resnet18", "timm:resnet10t", "hcformer-nano-32"])
def test_a_head_replaces_the_classifier_of_any_network(name):
    if name.startswith("timm"):
        pytest.importorskip("timm")
    network = create_backbone(name, num_classes=5)
    old = head_of(network)
    new = put_head(network, Lorentz())
    assert old not in set(network.modules())
    assert new in set(network.modules())
    logits = network(torch.randn(2, 3, 64, 64))
    assert logits.shape == (2, 5)
    logits.sum().backward()
    assert new.weight.grad.abs().sum() > 0


def test_a_curved_network_and_one_without_a_classifier_are_refused():
    with pytest.raises(UserError, match="ResNet: a head needs a flat network"):
        put_head(create_backbone("resnet18", 5, geometry="lorentz"), Lorentz())
    with pytest.raises(UserError, match="Sequential: no linear layer is its classifier"):
        head_of(nn.Sequential(nn.Conv2d(3, 4, 1)))


@pytest.mark.parametrize("manifold", [Lorentz(0.5), Poincare(2.0)])
def test_features_that_grow_stay_within_reach_and_keep_learning(manifold):
    head = LiftedClassifier(6, 3, manifold)
    head(torch.randn(5, 6))  # matched to these
    for times in (1.0, 1e3, 1e6):
        v = (times * torch.randn(5, 6)).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = head(v)
        nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1])).backward()
        assert logits.isfinite().all()
        assert v.grad.isfinite().all()
        assert v.grad.abs().sum() > 0
