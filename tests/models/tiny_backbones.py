"""Backbones of every kind, so small that a step takes a moment."""

import pytest

from horosphere.models.backbones import create_backbone

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
