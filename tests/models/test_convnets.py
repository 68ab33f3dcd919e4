"""The classic convnets: published sizes, torchvision's logits, one network in three geometries, wrong pictures."""

import copy

import pytest
import torch
from torch import nn

from horosphere import catalogue
from horosphere.catalogue.classics import CONVNETS as ENTRIES
from horosphere.errors import UserError
from horosphere.geometry import Lorentz
from horosphere.models.backbones import adapt, classifier, create_backbone, with_common_norms
from horosphere.models.convnets import CONVNETS, ResNetConfig, Shape, convnet, resnet18
from horosphere.nn import BatchNorm2d

SIZES = {"lenet": 28, "alexnet": 96, "vgg11": 32, "nin": 96, "googlenet": 48, "resnet18": 16, "densenet": 32}
SMALL = {"breadth": 0.06, "init": "xavier"}
names = pytest.mark.parametrize("name", CONVNETS)
curved = pytest.mark.parametrize("geometry", ["lorentz", "poincare"])


def made(name, seed=0, channels=1, **changes):
    torch.manual_seed(seed)
    return convnet(name, Shape(channels, 10, SIZES[name]), {**SMALL, **changes})


def pictures(name, count=3, channels=1):
    return torch.rand(count, channels, SIZES[name], SIZES[name], generator=torch.Generator().manual_seed(1))


def count(network):
    return sum(p.numel() for key, p in network.named_parameters() if "time_weight" not in key)


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "shape", "parameters"),
    [(entry, shape, n) for entry in ENTRIES for shape, n in entry.parameters],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_published_sizes(entry, shape, parameters, geometry):
    """In the catalogue, and the same in every geometry but for the weights of times."""
    with torch.device("meta"):
        network = convnet(entry.name, Shape(*shape), {"geometry": geometry})
    assert count(network) == parameters
    assert catalogue.resolve(entry.build) is CONVNETS[entry.name][0]
    assert catalogue.resolve(entry.settings) is CONVNETS[entry.name][1]


@pytest.mark.parametrize(("shape", "parameters"), [((1, 10, 224), 11_178_378), ((3, 1000, 224), 11_692_520)])
def test_the_resnet_of_textbooks(shape, parameters):
    with torch.device("meta"):
        assert count(resnet18(Shape(*shape), ResNetConfig(bias=True, shortcut_norm=False))) == parameters


# -- torchvision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), [("resnet18", 65), ("vgg11", 224)])
def test_logits_of_torchvision(name, size):
    """Its state dict loads, and logits are its to the last bit; after a step so are running means."""
    zoo = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        theirs, ours = zoo.get_model(name, num_classes=7), convnet(name, Shape(3, 7, size), {})
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs, ours = (network.to_empty(device="cpu") for network in (theirs, ours))
    torch.manual_seed(0)
    state = {
        key: 0.02 * torch.randn(t.shape) if t.is_floating_point() else t.zero_()
        for key, t in theirs.state_dict().items()
    }
    state = {key: t.abs() + 0.5 if key.endswith("running_var") else t for key, t in state.items()}
    for network in (theirs, ours):
        network.load_state_dict(state)
    x = torch.rand(1, 3, size, size)
    with torch.no_grad():
        assert torch.equal(ours.eval()(x), theirs.eval()(x))
        if name == "resnet18":
            x = torch.rand(2, 3, size, size)
            assert torch.equal(ours.train()(x), theirs.train()(x))
            assert torch.equal(ours.layer4[1].bn2.running_mean, theirs.layer4[1].bn2.running_mean)


def test_gradients_of_torchvision():
    zoo = pytest.importorskip("torchvision.models")
    theirs = zoo.resnet18(num_classes=3)
    ours = convnet("resnet18", Shape(3, 3, 65), {})
    ours.load_state_dict(theirs.state_dict())
    x = torch.rand(2, 3, 65, 65)
    gradients = [
        torch.autograd.grad(network(x).square().sum(), list(network.parameters())) for network in (ours, theirs)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_small_pictures_have_a_small_stem():
    """As before with torchvision's: 3 x 3 without stride and pool."""
    network = classifier("resnet18", 10, 32, {})
    assert count(network) == 11_173_962
    assert network.conv1.kernel_size == (3, 3)
    assert isinstance(network.maxpool, nn.Identity)


# -- geometries -------------------------------------------------------------------------------------------------------


@names
@curved
def test_flat_limit(name, geometry):
    """H1: the same weights at c -> 0 give the flat logits; the error falls with c."""
    flat = made(name).double().eval()
    x = pictures(name).double()
    gaps = []
    for c in (1e-3, 1e-4):
        network = made(name, geometry=geometry, curvature=c).double().eval()
        network.load_state_dict(flat.state_dict(), strict=False)
        gaps.append((network(x) - flat(x)).abs().max().item())
    assert gaps[1] < max(0.15 * gaps[0], 1e-12)


@names
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_ball_is_hyperboloid(name, c):
    """H3: the same logits and gradients of weights, in general position."""
    runs = []
    for geometry in ("lorentz", "poincare"):
        network = made(name, geometry=geometry, curvature=c).double()
        torch.manual_seed(1)
        with torch.no_grad():
            for p in network.parameters():
                p.add_(0.01 * torch.randn(p.shape))
        torch.manual_seed(2)  # of dropout
        y = network(pictures(name).double())
        runs.append([y, *torch.autograd.grad(y.square().sum(), list(network.parameters()))])
    torch.testing.assert_close(*runs, rtol=1e-6, atol=1e-8)


@names
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
def test_gradients_are_finite(name, geometry):
    """fp32 and bf16 autocast, in training."""
    network, x = made(name, geometry=geometry), pictures(name)
    for context in (torch.autocast("cpu", torch.bfloat16, enabled=False), torch.autocast("cpu", torch.bfloat16)):
        network.zero_grad()
        with context:
            y = network(x)
        nn.functional.cross_entropy(y.float(), torch.tensor([0, 1, 2])).backward()
        assert y.shape == (3, 10)
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@names
@curved
def test_state_travels(name, geometry):
    one, other = made(name, geometry=geometry), made(name, seed=1, geometry=geometry)
    one(pictures(name))
    other.load_state_dict(one.state_dict())
    one, other = one.eval(), other.eval()
    assert torch.equal(one(pictures(name)), other(pictures(name)))


@names
def test_one_graph_holds_a_network(name):
    network = made(name, geometry="lorentz").eval()
    compiled = torch.compile(copy.deepcopy(network), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(pictures(name)), network(pictures(name)))


@pytest.mark.parametrize("norm", ["centred", "free"])
def test_norms_of_a_configuration(norm):
    norms = [
        layer for layer in made("densenet", geometry="lorentz", norm=norm).modules() if isinstance(layer, BatchNorm2d)
    ]
    assert norms
    assert all(layer.form == norm for layer in norms)


def test_xavier_has_its_bound():
    conv = convnet("lenet", Shape(1, 10, 28), {"init": "xavier"}).features[0]
    bound = (6 / (25 + 6 * 25)) ** 0.5
    assert 0.8 * bound < conv.weight.abs().max() <= bound
    assert not conv.bias.any()


# -- as a backbone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("init", ["torch", "xavier", "kaiming"])
def test_every_class_of_nin_can_learn(init, geometry):
    """Its logits end in a relu: one that is 0 for all pictures has no gradient."""
    for seed in range(5):
        network = made("nin", seed, init=init, geometry=geometry, dropout=0)
        logits = network(pictures("nin"))
        slope = torch.autograd.grad(logits.sum(), network.features[-3].bias)[0]
        assert (logits > 0).all()
        assert (slope != 0).all()


def test_a_flat_resnet_is_a_backbone():
    network = create_backbone("resnet18", 5)
    x = torch.rand(2, 3, 64, 64)
    logits = network.eval()(x)
    backbone, head = adapt(network)
    torch.testing.assert_close(head(backbone.features(x)[1]), logits)
    assert [level.shape[1] for level in backbone.eval().pyramid(x)] == [64, 128, 256, 512]


def test_a_curved_one_is_none():
    with pytest.raises(UserError, match="a backbone gives flat maps; use geometry=euclidean"):
        adapt(create_backbone("resnet18", 5, geometry="lorentz"))


def test_norms_of_several_processes():
    """In flat space torch's SyncBatchNorm; curved ones add up their own sums."""
    L = Lorentz()
    network = with_common_norms(nn.Sequential(nn.BatchNorm2d(3), BatchNorm2d(3, L), nn.Sequential(nn.BatchNorm1d(3))))
    assert [type(m).__name__ for m in network.modules() if hasattr(m, "running_mean")] == [
        "SyncBatchNorm",
        "BatchNorm2d",
        "SyncBatchNorm",
    ]


# -- wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), [("lenet", 8), ("alexnet", 28), ("vgg11", 28), ("nin", 28), ("densenet", 8)])
def test_pictures_that_are_too_small(name, size):
    with pytest.raises(UserError, match=f"size={size}: nothing would be left of such small pictures"):
        convnet(name, Shape(1, 10, size), {})


def test_other_networks_take_colours():
    with pytest.raises(UserError, match="channels=1: swin_t takes pictures in colour"):
        classifier("swin_t", 10, 32, {}, channels=1)
