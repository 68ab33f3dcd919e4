"""Any backbone takes the plug-in: its map has the right layout, its classifier stays, a wrong name is told."""

import sys

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.backbones import adapt, create_backbone
from horosphere.models.himapper import HiMapper, HiMapperConfig
from tests.models.tiny_himapper import SMALL, images


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def timm_swin():
    models = pytest.importorskip("timm.models")
    return models.SwinTransformer(
        img_size=32, patch_size=2, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2), num_classes=5
    )


def timm_vit(**options):
    models = pytest.importorskip("timm.models")
    return models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=5, dynamic_img_size=True, **options
    )


def timm_resnet():
    models = pytest.importorskip("timm.models")
    return models.ResNet(models.resnet.BasicBlock, (1, 1, 1, 1), channels=(4, 4, 8, 8), stem_width=4, num_classes=5)


def torchvision_swin():
    models = pytest.importorskip("torchvision.models")
    return models.SwinTransformer([2, 2], 8, [1, 1], [1, 2], [4, 4], num_classes=5)


def torchvision_vit():
    models = pytest.importorskip("torchvision.models")
    return models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=5)


def torchvision_mobilenet():
    models = pytest.importorskip("torchvision.models")
    return models.mobilenet_v3_small(num_classes=5)


def hcformer():
    return create_backbone("hcformer-nano-32", 5)


POOLED = [timm_swin, timm_resnet, torchvision_swin, hcformer]
BACKBONES = [*POOLED, timm_vit, torchvision_vit, torchvision_mobilenet]


@pytest.mark.parametrize("build", BACKBONES)
def test_a_new_plug_in_leaves_the_backbone_as_it_is(build):
    """With its classifier: so a pretrained model starts at its own accuracy."""
    model, x = build().eval(), images(2, 3, 32, 32)
    expected = model(x)
    assert_close(HiMapper(model, 5, HiMapperConfig(**SMALL)).eval()(x), expected)


@pytest.mark.parametrize("build", BACKBONES)
def test_backbones_train_with_another_number_of_classes(build):
    model = HiMapper(build(), 3, HiMapperConfig(**SMALL)).train()
    logits, loss = model(images(2, 3, 32, 32))
    assert logits.shape == (2, 3)
    (logits.sum() + loss.total).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert model.no_weight_decay() <= {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("build", POOLED)
def test_maps_that_are_pooled_have_the_vector_as_their_mean(build):
    backbone, _ = adapt(build().eval())
    feature_map, v = backbone.features(images(2, 3, 32, 32))
    assert feature_map.shape[1] == backbone.map_width
    assert_close(feature_map.mean((2, 3)), v)


@pytest.mark.parametrize("build", [timm_swin, timm_vit, timm_resnet, torchvision_swin, hcformer])
def test_maps_have_the_pictures_height_and_width(build):
    model = build()
    if build is timm_swin:
        model.set_input_size(img_size=(32, 48), window_size=4)
    height, width = adapt(model.eval())[0].features(images(1, 3, 32, 48))[0].shape[2:]
    assert 2 * width == 3 * height or (height, width) == (1, 2)


@pytest.mark.parametrize("build", [timm_vit, torchvision_vit])
def test_tokens_become_a_map_row_by_row_without_cls(build, monkeypatch):
    model, tokens = build().eval(), torch.arange(17.0).expand(16, -1).mT[None]
    backbone, _ = adapt(model)
    monkeypatch.setattr(
        *((model, "forward_features") if build is timm_vit else (model.encoder.ln, "forward")), lambda _: tokens
    )
    feature_map, v = backbone.features(images(1, 3, 32, 32))
    assert feature_map[0, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]
    assert v.shape == (1, 16)
    assert build is timm_vit or (v == 0).all()  # timm's head norms it


@pytest.mark.parametrize("name", ["vgg11", "densenet121"])
def test_models_need_a_pooled_map(name):
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        for model in (name, models.get_model(name)):
            with pytest.raises(UserError, match=r"features\(x\)"):
                HiMapper(model, 5)


def test_a_name_without_a_library_is_torchvisions():
    pytest.importorskip("torchvision")
    with torch.device("meta"):
        assert HiMapper("resnet18", 5).backbone.width == 512
    with pytest.raises(UserError, match="torchvision knows no model resnet5O: did you mean"):
        HiMapper("resnet5O", 5)
    with pytest.raises(UserError, match="say whose it is, as in timm:resnet50"):
        HiMapper("mine:resnet50", 5)


@pytest.mark.parametrize("any_size", [False, True])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("timm:test_resnet", (160, 64)),
        ("timm:vit_tiny_patch16_224", (224,)),
        ("timm:swin_tiny_patch4_window7_224", (224,)),
        ("torchvision:resnet18", (224, 64)),
        ("resnet18", (224, 64)),
    ],
)
def test_a_network_has_as_many_answers_as_asked_for_and_takes_its_sizes(name, sizes, any_size):
    pytest.importorskip(name.partition(":")[0].replace("resnet18", "torchvision"))
    with torch.device("meta"):
        model = create_backbone(name, 5, any_size=any_size).eval()
        for size in {*sizes, 64} if any_size else sizes:
            assert model(torch.empty(2, 3, size, size)).shape == (2, 5)
        if not any_size and 64 not in sizes:
            with pytest.raises(AssertionError):
                model(torch.empty(2, 3, 64, 64))


@pytest.mark.parametrize(
    ("library", "wrong", "near"),
    [("timm", "resnet5O", "timm:resnet50"), ("torchvision", "swin_tt", "torchvision:swin_t")],
)
def test_unknown_names_get_near_matches_in_one_line(library, wrong, near):
    pytest.importorskip(library)
    with pytest.raises(UserError, match=near) as error:
        HiMapper(f"{library}:{wrong}", 5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_missing_library_is_named(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.models", None)
    with pytest.raises(UserError, match=f"pip install {library}"):
        HiMapper(f"{library}:resnet18", 5)


def test_weights_are_fetched_only_when_asked_for_and_never_unpickled(monkeypatch):
    zoo = pytest.importorskip("torchvision.models")
    asked, net = [], zoo.resnet18()
    monkeypatch.setattr(
        "torchvision.models._api.load_state_dict_from_url",
        lambda url, **options: asked.append(options) or net.state_dict(),
    )
    create_backbone("torchvision:resnet18", 5)
    assert not asked
    model = HiMapper("torchvision:resnet18", 5, HiMapperConfig(**SMALL), pretrained=True)
    assert [options["weights_only"] for options in asked] == [True]
    assert_close(model.backbone.trunk[0].weight, net.conv1.weight)
    assert_close(create_backbone("torchvision:resnet18", 1000, pretrained=True).fc.weight, net.fc.weight)
    assert create_backbone("torchvision:resnet18", 5, pretrained=True).fc.out_features == 5


def test_weights_out_of_reach_are_a_user_error(monkeypatch):
    pytest.importorskip("torchvision")

    def offline(*_, **__):
        raise OSError("no route\nto host")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(UserError, match="no route to host") as error:
        HiMapper("torchvision:resnet18", 5, pretrained=True)
    assert "\n" not in str(error.value)


def test_hcformer_by_its_name_in_timm():
    pytest.importorskip("timm", reason="needs timm")
    model = create_backbone("timm:hcformer_nano_32", num_classes=7, any_size=True)
    assert model(torch.rand(1, 3, 40, 40)).shape == (1, 7)
    backbone, _ = adapt(model)
    assert (backbone.width, [level.shape[1] for level in backbone.pyramid(torch.rand(1, 3, 32, 32))]) == (
        224,
        [32, 64, 196, 224],
    )
    with pytest.raises(UserError, match="did you mean timm:hcformer_nano"):
        create_backbone("timm:hcformer_nanno", num_classes=7)
