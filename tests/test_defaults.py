"""Where a thing of ours stands in for another library's, what is not said means the same."""

import argparse
import inspect
from importlib import import_module

import pytest
import torch

from horosphere import nn, optim
from horosphere.cli import generate
from horosphere.models.detection import mask_rcnn
from horosphere.models.hcformer import HCFormer
from horosphere.nn.slots import SlotNorm

TORCHS = [
    (optim.RiemannianSGD, torch.optim.SGD),
    (optim.RiemannianAdam, torch.optim.Adam),
    (nn.Linear, torch.nn.Linear),
    (nn.Classifier, torch.nn.Linear),
    (nn.RMSNorm, torch.nn.RMSNorm),
]


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def assert_same_defaults(ours, theirs, at_least=1):
    own, other = defaults(ours), defaults(theirs)
    shared = own.keys() & other.keys()
    assert len(shared) >= at_least
    assert {name: own[name] for name in shared} == {name: other[name] for name in shared}


@pytest.mark.parametrize(("ours", "theirs"), TORCHS, ids=lambda made: f"{made.__module__}.{made.__name__}")
def test_torchs(ours, theirs):
    assert_same_defaults(ours, theirs)


@pytest.mark.parametrize("method", ["forward_intermediates", "prune_intermediate_layers", "forward_head"])
def test_methods_of_timms_networks(method):
    theirs = pytest.importorskip("timm").models.SwinTransformer
    assert_same_defaults(getattr(HCFormer, method), getattr(theirs, method))


def test_settings_of_timms_networks():
    timm = pytest.importorskip("timm")
    assert_same_defaults(import_module("horosphere.models.timm_models").TimmHCFormer, timm.models.ResNet, at_least=3)


def test_timm_makes_our_networks_as_it_makes_its_own():
    timm = pytest.importorskip("timm")
    ours = import_module("horosphere.models.timm_models")
    for name in ours.__all__:
        assert_same_defaults(getattr(ours, name), timm.models.resnet18)
        with torch.device("meta"):
            assert isinstance(getattr(ours, name)(), HCFormer)


def test_mask_rcnn_of_torchvision():
    theirs = pytest.importorskip("torchvision.models.detection")
    assert defaults(mask_rcnn)["size"] == defaults(theirs.MaskRCNN)["min_size"]
    pyramid = theirs.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=2).backbone
    assert defaults(mask_rcnn)["width"] == pyramid.out_channels


def test_language_models_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    helm = import_module("horosphere.models.helm")
    assert_same_defaults(helm.HelmForCausalLM.forward, llama.LlamaForCausalLM.forward)
    assert defaults(SlotNorm)["eps"] == defaults(llama.LlamaRMSNorm)["eps"]


def test_what_is_written_from_python_is_what_the_command_writes():
    pytest.importorskip("transformers")
    write = import_module("horosphere.models.writing").write
    parser = argparse.ArgumentParser()
    generate.add(parser.add_subparsers())
    said = vars(parser.parse_args(["generate", "run", "Once"]))
    assert defaults(write) == {name: said[name] for name in defaults(write)}
