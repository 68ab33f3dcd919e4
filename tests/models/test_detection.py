"""R-CNNs on any backbone are torchvision's, and what they answer does not depend on what they saw first."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from horosphere.errors import UserError
from horosphere.models.detection import _in_fp32, mask_rcnn
from horosphere.models.segmentation import SemanticFPN
from tests.models.tiny_backbones import hcformer, models, timm_vit, torchvision_resnet


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


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


@pytest.mark.parametrize("shape", [(1, 400), (400, 1), (3, 321)])
def test_a_picture_too_thin_for_its_size_is_named(shape):
    model = mask_rcnn(torchvision_resnet(), 1, width=8, size=64).eval()
    with pytest.raises(UserError, match=f"a picture of {shape[1]} x {shape[0]} pixels vanishes at 64 pixels a side"):
        model([torch.rand(3, *shape)])


def test_a_picture_of_one_pixel_is_not_too_thin():
    model = mask_rcnn(torchvision_resnet(), 1, width=8, size=64).eval()
    assert model([torch.rand(3, 1, 1)])[0]["boxes"].shape[1] == 4
