"""Any backbone has a pyramid, any size of pictures is answered pixel by pixel, and ignored pixels teach nothing."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.backbones import TimmBackbone, adapt, create_backbone
from horosphere.models.dense import Pyramid, SemanticFPN, SimplePyramid, _in_fp32, mask_rcnn, segmentation_loss
from horosphere.models.himapper import HiMapper, HiMapperConfig

models = pytest.importorskip("torchvision.models", reason="the feature pyramid is torchvision's")
TINY = {
    **{
        "blocks": (1, 1, 1, 1),
        "dims": (8, 8, 16, 16),
        "heads": (1, 1, 1, 1),
        "head_width": 8,
        "mlp_ratios": (1, 1, 1, 1),
        "image_size": 64,
    },
    **{"windows": (2, 2, 1, 1), "patch_centres": (4, 1, 1, 1), "window_centres": (1, 1, 1, 0)},
}


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def hcformer():
    return create_backbone("hcformer-nano", 5, **TINY)


def torchvision_resnet():
    return models.resnet18(num_classes=5)


def torchvision_swin():
    return models.SwinTransformer([4, 4], 8, [1, 1, 1, 1], [1, 1, 2, 2], [4, 4], num_classes=5)


def torchvision_convnext():
    setting = models.convnext.CNBlockConfig
    return models.ConvNeXt(
        [setting(8, 8, 1), setting(8, 16, 1), setting(16, 16, 1), setting(16, None, 1)], num_classes=5
    )


def torchvision_vit():
    return models.VisionTransformer(32, 16, 1, 2, 16, 32, num_classes=5)


def timm_resnet():
    timm = pytest.importorskip("timm.models")
    return timm.ResNet(timm.resnet.BasicBlock, (1, 1, 1, 1), channels=(4, 4, 8, 8), stem_width=4, num_classes=5)


def timm_swin():
    timm = pytest.importorskip("timm.models")
    options = {"img_size": 64, "window_size": 2, "embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2)}
    return timm.SwinTransformer(**options, strict_img_size=False, num_classes=5)


def timm_vit(patch=16, **options):
    timm = pytest.importorskip("timm.models")
    options = {
        "img_size": 2 * patch,
        "embed_dim": 16,
        "depth": 1,
        "num_heads": 2,
        "dynamic_img_size": True,
        "dynamic_img_pad": True,
        **options,
    }
    return timm.VisionTransformer(patch_size=patch, num_classes=5, **options)


STAGED = [hcformer, torchvision_resnet, torchvision_swin, torchvision_convnext, timm_resnet, timm_swin]
PLAIN = [torchvision_vit, timm_vit]


# -- pyramids ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", STAGED)
def test_a_pyramid_goes_down_by_two_and_ends_in_the_last_map(build):
    backbone, _ = adapt(build().eval())
    x = torch.randn(2, 3, 64, 96)
    maps = backbone.pyramid(x)
    assert [tuple(m.shape[2:]) for m in maps] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    last = backbone.features(x)[0]
    assert last.shape == maps[-1].shape
    assert_close(maps[-1], last)


@pytest.mark.parametrize("build", PLAIN)
def test_a_plain_transformer_has_one_map_and_gets_four(build):
    backbone, _ = adapt(build().eval())
    x = torch.randn(2, 3, 64, 96)
    (only,) = backbone.pyramid(x)
    assert_close(only, backbone.features(x)[0])
    pyramid = Pyramid(build(), 8)
    assert isinstance(pyramid.simple, SimplePyramid)
    assert [tuple(m.shape[1:]) for m in pyramid(x).values()] == [(8, 16, 24), (8, 8, 12), (8, 4, 6), (8, 2, 3)]


@pytest.mark.parametrize("unknown", ["forward_intermediates", "feature_info"])
def test_a_network_of_timm_that_does_not_name_its_levels_has_one_map(unknown):
    network = timm_resnet().eval()
    network.__class__ = type("Silent", (type(network),), {unknown: property(lambda _: network.no_such_thing)})
    backbone, x = TimmBackbone(network), torch.randn(2, 3, 64, 96)
    (only,) = backbone.pyramid(x)
    assert_close(only, backbone.features(x)[0])


def test_a_transformer_of_torchvision_keeps_its_answers_and_takes_other_sizes():
    model = torchvision_vit().eval()
    x = torch.randn(2, 3, 32, 32)
    nn.init.normal_(model.heads.head.weight)
    expected = model(x)
    backbone, head = adapt(model)
    assert_close(head(backbone.features(x)[1]), expected)
    assert backbone.features(torch.ones(1, 3, 48, 80))[0].shape == (1, 16, 3, 5)
    with torch.no_grad():  # embeddings that tell nothing but the column
        model.encoder.pos_embedding[:, 1:] = torch.tensor([1.0, 3.0, 1.0, 3.0])[None, :, None]
    places = backbone._places(3, 5)
    assert torch.equal(places[:, 0], model.encoder.pos_embedding[:, 0])
    columns = places[0, 1:, 0].unflatten(0, (3, 5))
    assert_close(columns, columns[:1].expand(3, -1))
    assert (columns[0].diff() > 0).all()
    assert_close(columns[0, 2], torch.tensor(2.0))


@pytest.mark.parametrize("build", [*STAGED, *PLAIN])
def test_strides_and_widths_are_found_and_nothing_is_changed_by_looking(build):
    model = build().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pyramid = Pyramid(model, 8, coarser=True)
    after = model.state_dict()  # of some without the classifier
    assert len(after) >= len(before) - 2
    assert all(torch.equal(value, before[name]) for name, value in after.items())  # running means too
    assert all(module.training for module in pyramid.modules())
    assert pyramid.strides == (4, 8, 16, 32)
    assert list(pyramid(torch.randn(2, 3, 64, 64))) == ["0", "1", "2", "3", "pool"]


class OneMap(nn.Module):
    map_width, width = 6, 6

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 8, 8)

    def features(self, x):
        feature_map = self.conv(x)
        return feature_map, feature_map.mean((2, 3))


def test_a_module_with_a_map_alone_will_do():
    model = SemanticFPN(OneMap(), 3, width=8)
    assert model.pyramid.strides == (2, 4, 8, 16)
    assert model(torch.randn(1, 3, 21, 35)).shape == (1, 3, 21, 35)


def test_a_backbone_of_one_size_is_refused_in_one_line():
    with pytest.raises(UserError, match="takes pictures of one size only") as error:
        Pyramid(timm_vit(dynamic_img_size=False, dynamic_img_pad=False), 8)
    assert "\n" not in str(error.value)


def test_names_of_timm_take_any_size():
    pytest.importorskip("timm")
    assert SemanticFPN("timm:test_vit", 3, width=8)(torch.randn(1, 3, 50, 75)).shape == (1, 3, 50, 75)


def test_hi_mapper_takes_the_backbone_of_a_dense_model_and_gives_it_back():
    dense = SemanticFPN(hcformer(), 3, width=8)
    mapper = HiMapper(dense.pyramid.backbone, 4, HiMapperConfig(leaves=8, levels=3, width=16, heads=2)).eval()
    assert mapper(torch.randn(2, 3, 64, 64)).shape == (2, 4)
    assert SemanticFPN(mapper.backbone, 3, width=8).pyramid.backbone is dense.pyramid.backbone


# -- pixels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [*STAGED, *PLAIN])
@pytest.mark.parametrize("size", [(64, 64), (45, 71), (7, 130)])
def test_every_pixel_has_its_logits_at_any_size(build, size):
    model = SemanticFPN(build(), 3, width=8).eval()
    logits = model(torch.randn(1, 3, *size))
    assert logits.shape == (1, 3, *size)
    assert logits.isfinite().all()


@pytest.mark.parametrize("build", [hcformer, torchvision_swin, timm_vit])
def test_every_part_learns(build):
    model = SemanticFPN(build(), 3, width=8).train()
    segmentation_loss(model(torch.randn(2, 3, 64, 64)), torch.randint(3, (2, 64, 64)), -1).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("width", [8, 36, 40, 256])
def test_a_batch_is_answered_as_its_rows_are_alone_also_on_maps_of_one_place(width):
    """The coarsest map of 32 pixels is one place: whatever is normed there needs more than one channel."""
    model = SemanticFPN(hcformer(), 3, width=width).train()
    x, classes = torch.randn(4, 3, 32, 32), torch.randint(3, (4, 32, 32))
    together = torch.autograd.grad(segmentation_loss(model(x), classes, -1), list(model.parameters()))
    alone = [
        torch.autograd.grad(segmentation_loss(model(x[i : i + 1]), classes[i : i + 1], -1), list(model.parameters()))
        for i in range(4)
    ]
    for whole, *rows in zip(together, *alone, strict=True):
        assert_close(torch.stack(rows).mean(0), whole, rtol=1e-3, atol=1e-5)
    assert min(m.num_channels // m.num_groups for m in model.towers.modules() if isinstance(m, nn.GroupNorm)) >= 4
    assert max(m.num_groups for m in model.towers.modules() if isinstance(m, nn.GroupNorm)) <= 32


def test_patches_of_fourteen_pixels():
    model = SemanticFPN(timm_vit(14), 3, width=8).eval()
    assert model.pyramid.strides == (3.5, 7, 14, 28)
    assert model(torch.randn(1, 3, 50, 61)).shape == (1, 3, 50, 61)
    with pytest.raises(UserError, match="a backbone of stride 14: Mask R-CNN needs powers of 2"):
        mask_rcnn(timm_vit(14), 2, width=8)


def test_the_loss_is_a_mean_over_rows_that_ignored_pixels_do_not_touch():
    logits, classes = torch.randn(4, 3, 5, 6, requires_grad=True), torch.randint(3, (4, 5, 6))
    assert_close(segmentation_loss(logits, classes, -1), F.cross_entropy(logits, classes))
    classes[:2, :, :4] = -1
    whole = segmentation_loss(logits, classes, -1)
    assert_close(
        whole, (segmentation_loss(logits[:1], classes[:1], -1) + 3 * segmentation_loss(logits[1:], classes[1:], -1)) / 4
    )
    whole.backward()
    assert ((logits.grad == 0).all(1) == (classes == -1)).all()
    assert segmentation_loss(logits, torch.full_like(classes, -1), -1) == 0


# -- objects ----------------------------------------------------------------------------------------------------------


def targets(*boxes, size=(64, 64)):
    masks = torch.zeros(len(boxes), *size, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[top:bottom, left:right] = 1
    return {
        "boxes": torch.tensor(boxes).float().reshape(-1, 4),
        "labels": torch.ones(len(boxes), dtype=torch.int64),
        "masks": masks,
    }


def test_what_mask_rcnn_answers_does_not_depend_on_what_it_saw_first():
    torch.manual_seed(0)
    model = mask_rcnn(hcformer(), 2, width=8, size=64, box_score_thresh=0.0).eval()
    fresh = deepcopy(model)
    with torch.no_grad():
        model([torch.rand(3, 33, 33)])  # filled up to twice its side
        picture = torch.rand(3, 64, 64)
        assert torch.equal(model([picture])[0]["boxes"], fresh([picture])[0]["boxes"])
    strides = model.backbone.strides
    assert [1 / s for s in model.roi_heads.box_roi_pool.scales] == list(strides)


def test_the_levels_are_those_that_torchvision_finds_in_large_pictures():
    from torchvision.ops import MultiScaleRoIAlign

    model = mask_rcnn(hcformer(), 2, width=8, size=64).eval()
    strides = model.backbone.strides
    maps = {str(i): torch.rand(1, 8, 512 // int(s), 512 // int(s)) for i, s in enumerate(strides)}
    boxes = [torch.tensor([[3.0, 5.0, 40.0, 60.0], [0.0, 0.0, 500.0, 400.0], [100.0, 90.0, 350.0, 300.0]])]
    theirs = MultiScaleRoIAlign(list(maps), 7, 2)
    assert torch.equal(model.roi_heads.box_roi_pool(maps, boxes, [(512, 512)]), theirs(maps, boxes, [(512, 512)]))


@pytest.mark.parametrize("build", [hcformer, torchvision_resnet, timm_vit])
def test_mask_rcnn_learns_from_pictures_with_and_without_objects(build):
    model = mask_rcnn(build(), 2, width=8, size=64).train()
    losses = model([torch.rand(3, 64, 64), torch.rand(3, 50, 75)], [targets((4, 4, 40, 30)), targets(size=(50, 75))])
    sum(losses.values()).backward()
    assert all(value.isfinite() for value in losses.values())
    assert model.backbone.norms[0].weight.grad.abs().sum() > 0


def test_a_batch_without_any_object_is_fine():
    model = mask_rcnn(hcformer(), 2, width=8, size=64).train()
    losses = model([torch.rand(3, 64, 64)], [targets()])
    sum(losses.values()).backward()
    assert all(value.isfinite() for value in losses.values())


def test_answers_have_the_pictures_own_size_and_labels_without_background():
    model = mask_rcnn(hcformer(), 2, width=8, size=64, box_score_thresh=0.0).eval()
    for size in ((64, 64), (41, 99)):
        (detected,) = model([torch.rand(3, *size)])
        assert detected["masks"].shape[2:] == size
        assert set(detected["labels"].tolist()) <= {1, 2}
        assert (detected["boxes"][:, [0, 2]] <= size[1]).all()
        assert (detected["boxes"][:, [1, 3]] <= size[0]).all()


def test_anchors_are_torchvisions():
    """One size a level, 32 to 512, and three forms; the coarsest level is made of the one before it."""
    theirs = models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None).rpn.anchor_generator
    for build in (hcformer, torchvision_resnet):
        model = mask_rcnn(build(), 2, width=8, size=64)
        assert model.rpn.anchor_generator.sizes == theirs.sizes
        assert model.rpn.anchor_generator.aspect_ratios == theirs.aspect_ratios
        assert len(model.backbone(torch.rand(1, 3, 64, 64))) == len(theirs.sizes)


def test_heads_are_torchvisions():
    """Kernels, dilations and what is cut out, of all heads; channels are as many as the pyramid has."""
    theirs = models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=3)
    ours = mask_rcnn(hcformer(), 2, width=256, size=64)

    def layers(model):
        heads = {"rpn": model.rpn.head, "roi": model.roi_heads}
        for name, m in ((f"{k}.{n}", m) for k, head in heads.items() for n, m in head.named_modules()):
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                yield name, m.weight.shape, m.stride, m.padding, m.dilation
            elif isinstance(m, nn.Linear):
                yield name, m.weight.shape

    assert list(layers(ours)) == list(layers(theirs))
    for pool in ("box_roi_pool", "mask_roi_pool"):
        for setting in ("output_size", "sampling_ratio", "featmap_names"):
            assert getattr(getattr(ours.roi_heads, pool), setting) == getattr(getattr(theirs.roi_heads, pool), setting)
    assert (ours.transform.image_mean, ours.transform.image_std) == (
        theirs.transform.image_mean,
        theirs.transform.image_std,
    )


def test_sizes_in_training_lie_around_that_of_inference():
    transform = mask_rcnn(hcformer(), 2, width=8, size=100, scale=(0.5, 1.5)).transform
    assert transform.min_size == (50, 75, 100, 125, 150, 100)
    assert transform.max_size == 250
    assert mask_rcnn(hcformer(), 2, width=8, size=60).transform.min_size == (60,)


def test_boxes_stay_in_fp32_under_autocast():
    model = mask_rcnn(hcformer(), 2, width=8, size=64, box_score_thresh=0.0).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (detected,) = model([torch.rand(3, 64, 64)])
    assert detected["boxes"].dtype == torch.float32
    coordinates = detected["boxes"].detach()
    assert (coordinates != coordinates.bfloat16().float()).any()  # more digits than bf16 has
    nested = _in_fp32(model, (), ([torch.ones(1).bfloat16()], torch.ones(1).bfloat16()))
    assert nested[0][0].dtype == nested[1].dtype == torch.float32


def test_activations_are_recomputed_where_the_backbone_can():
    for model in (SemanticFPN(hcformer(), 3, width=8), mask_rcnn(hcformer(), 2, width=8)):
        model.gradient_checkpointing_enable()
        assert any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    with pytest.raises(UserError, match="cannot recompute"):
        SemanticFPN(torchvision_resnet(), 3, width=8).gradient_checkpointing_enable()
