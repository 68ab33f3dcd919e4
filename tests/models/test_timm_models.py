"""HCFormer in timm's hands."""

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("timm", reason="needs timm")

import timm
from timm.models import group_parameters
from timm.optim import param_groups_weight_decay

from horosphere.errors import UserError
from horosphere.models.hcformer import HCFORMER
from horosphere.models.timm_models import TimmHCFormer  # registers

SMALL = {
    "blocks": (1, 1, 1, 1),
    "dims": (8, 8, 12, 16),
    "heads": (2, 2, 2, 2),
    "head_width": 4,
    "mlp_ratios": (2, 2, 2, 2),
}


def model(**settings):
    torch.manual_seed(0)
    return timm.create_model("hcformer_nano", **SMALL, **settings).eval()


def test_every_size_is_registered():
    assert set(timm.list_models("hcformer*")) == {name.replace("-", "_") for name in HCFORMER}
    assert isinstance(model(), TimmHCFormer)
    small = timm.create_model("hcformer_nano_32")
    assert small.pretrained_cfg["input_size"] == (3, 32, 32)
    assert small(torch.randn(1, 3, 32, 32)).shape == (1, 100)


def test_no_weights_are_promised():
    assert not timm.list_models("hcformer*", pretrained=True)
    with pytest.raises(RuntimeError, match="pretrained"):
        model(pretrained=True)


def test_timms_settings_reach_the_model():
    m = model(num_classes=7, in_chans=1, img_size=96, drop_path_rate=0.3, window_geometry="euclidean")
    assert m(torch.randn(2, 1, 96, 96)).shape == (2, 7)
    assert m.config.image_size == 96
    assert m.config.drop_path == 0.3
    assert m.config.window_geometry == "euclidean"
    with pytest.raises(UserError, match="global_pool"):
        model(global_pool="max")


@pytest.mark.parametrize("size", [64, 75])
def test_features_only(size):
    x = torch.randn(1, 3, size, size)
    m = model(features_only=True)
    maps = m(x)
    assert m.feature_info.channels() == [8, 8, 12, 16]
    assert m.feature_info.reduction() == [4, 8, 16, 32]
    for f, channels, reduction in zip(maps, m.feature_info.channels(), m.feature_info.reduction(), strict=True):
        assert f.shape == (1, channels, -(-size // reduction), -(-size // reduction))
    some = model(features_only=True, out_indices=(0, 2))
    assert all(torch.equal(a, maps[i]) for a, i in zip(some(x), (0, 2), strict=True))
    assert sum(p.numel() for p in some.parameters()) < sum(p.numel() for p in m.parameters())  # the last stage is gone


def test_forward_intermediates():
    m, x = model(), torch.randn(2, 3, 64, 64)
    last, maps = m.forward_intermediates(x)
    assert_close(last, m.forward_features(x))
    assert all(torch.equal(a, b) for a, b in zip(maps, m.features(x), strict=True))
    (only,) = m.forward_intermediates(x, indices=1, norm=True, intermediates_only=True)
    assert_close(only, last)
    two = m.forward_intermediates(x, indices=[1, -2], intermediates_only=True, stop_early=True)
    assert all(torch.equal(a, maps[i]) for a, i in zip(two, (1, 2), strict=True))


def test_the_classifier_can_be_changed():
    m, x = model(num_classes=7), torch.randn(2, 3, 64, 64)
    features = m.forward_head(m.forward_features(x), pre_logits=True)
    assert_close(m.get_classifier()(features), m(x))
    m.reset_classifier(3)
    assert m(x).shape == (2, 3)
    assert m.num_classes == 3
    m.reset_classifier(0)
    assert_close(m(x), features)
    m.reset_classifier(0, global_pool="")
    assert m(x).shape == (2, 16, 2, 2)


def test_only_matrices_decay():
    m = model()
    groups = param_groups_weight_decay(m, 0.05, no_weight_decay_list=m.no_weight_decay())
    names = {id(p): name for name, p in m.named_parameters()}
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {
        f"{name}.weight" for name, module in m.named_modules() if isinstance(module, torch.nn.Linear | torch.nn.Conv2d)
    }


def test_layer_groups_run_from_stem_to_head():
    groups = group_parameters(model(), model().group_matcher(), reverse=True)
    assert groups["downs.0.weight"] == 0
    assert groups["stages.0.0.mixer.fc.weight"] < groups["stages.3.0.mixer.fc.weight"] <= groups["head.weight"]


def test_dropout_in_front_of_the_classifier():
    m, x = model(drop_rate=0.5), torch.randn(2, 16, 2, 2)
    assert_close(m.forward_head(x), m.head(x.mean((2, 3))))  # not in eval mode
    dropped = m.train().forward_head(x, pre_logits=True)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    assert_close(dropped[kept], 2 * x.mean((2, 3))[kept])
    with pytest.raises(UserError, match=r"drop_rate=1.5: give a share from 0 to below 1"):
        model(drop_rate=1.5)


def test_what_timms_tests_and_its_training_ask_for():
    m = model(device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in m.parameters()} == {("meta", torch.float64)}
    assert m.head_hidden_size == m.forward_head(torch.zeros(1, 16, 2, 2), pre_logits=True).shape[1]
    m.reset_classifier(3)
    assert not m.head.training  # as the rest


@pytest.mark.parametrize("cannot", [torch.jit.script, torch.fx.symbolic_trace])
def test_tracers_that_cannot_follow_are_refused_in_one_line(cannot):
    with pytest.raises(UserError, match=r"reads the sizes of its inputs.*use torch.export or torch.compile") as refused:
        cannot(model())
    assert "\n" not in str(refused.value)
