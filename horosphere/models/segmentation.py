"""A class for every pixel, on any backbone: Semantic FPN, and the fully convolutional network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.models.backbones import adapt, blocks_of, create_backbone
from horosphere.models.config import InAnyGeometry
from horosphere.models.heads import LiftedConvClassifier
from horosphere.models.pyramid import Pyramid, maps_of, shapes_of

# -- Semantic FPN -----------------------------------------------------------------------------------------------------


class SemanticFPN(nn.Module):
    """Panoptic feature pyramid's semantic branch (Kirillov et al. 2019).   (B, 3, H, W) -> logits (B, classes, H, W)

    Level k is brought to the finest level's resolution by k times convolution and upsampling by 2. The sum is
    classified place by place.

    >>> SemanticFPN("hcformer-nano-32", num_classes=5, width=16)(torch.rand(1, 3, 32, 40)).shape
    torch.Size([1, 5, 32, 40])
    """

    def __init__(self, backbone: str | nn.Module, num_classes: int, width: int = 256, pretrained: bool = False):
        super().__init__()
        self.pyramid = Pyramid(backbone, width, pretrained)
        half = max(1, width // 2)
        self.towers = nn.ModuleList(
            nn.ModuleList(_convolution(width if i == 0 else half, half) for i in range(max(1, level)))
            for level in range(len(self.pyramid.strides))
        )
        self.classifier = nn.Conv2d(half, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        multiple = self.pyramid.multiple
        whole = F.pad(x, (0, -width % multiple, 0, -height % multiple))  # 0 is the mean colour
        levels = list(self.pyramid(whole).values())
        total = torch.zeros_like(levels[0][:, :1])
        for number, (tower, level) in enumerate(zip(self.towers, levels, strict=True)):
            for step, convolution in enumerate(cast(nn.ModuleList, tower), start=1):
                level = convolution(level)
                if number:
                    level = F.interpolate(level, levels[number - step].shape[2:], mode="bilinear", align_corners=False)
            total = total + level
        logits = F.interpolate(self.classifier(total), whole.shape[2:], mode="bilinear", align_corners=False)
        return logits[..., :height, :width]

    def blocks(self) -> list[nn.Module]:
        return self.pyramid.blocks()

    def gradient_checkpointing_enable(self) -> None:
        self.pyramid.gradient_checkpointing_enable()


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    """Convolution, norm and ReLU. There are at most 32 groups, of at least four channels if there are so many.

    On a map of one place, a group of one channel would be normed by its rounding error alone.
    """
    groups = math.gcd(outputs, min(32, max(1, outputs // 4)))
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(groups, outputs), nn.ReLU())


# -- FCN --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FCNConfig(InAnyGeometry):
    """The geometry of the classifiers of places, and which maps they read."""

    skips: Literal[0, 1, 2] = 0  # finer maps that are classified too: FCN-32s, FCN-16s and FCN-8s of the paper


class FCN(nn.Module):
    """Fully convolutional network (Long et al. 2015).   (B, 3, H, W) -> logits (B, classes, H, W)

    A classifier of each place (in any geometry) reads the last map of a backbone. A transposed convolution brings its
    logits to the next finer map, whose own logits are added, and so on; the last one brings them to the pixels. Where
    it goes r times finer, it has a kernel of 2r, a stride of r and a padding of r/2. Its weights begin as bilinear
    interpolation. A pixel's class is the argmax.

    >>> FCN("resnet18", 5, FCNConfig(geometry="lorentz"))(torch.rand(1, 3, 64, 96)).shape
    torch.Size([1, 5, 64, 96])
    """

    def __init__(self, backbone: str | nn.Module, num_classes: int, config: FCNConfig):
        super().__init__()
        model = create_backbone(backbone, 1, any_size=True) if isinstance(backbone, str) else backbone
        self.backbone, _ = adapt(model)
        widths, strides = shapes_of(self.backbone)
        widths, strides = widths[::-1], strides[::-1]  # the coarsest map first
        if config.skips >= len(widths):
            raise UserError(f"skips={config.skips}: the backbone has maps of {len(widths)} sizes; use a smaller number")
        read = slice(config.skips + 1)
        self.stride, manifold = math.ceil(strides[0]), config.manifold()
        self.heads = nn.ModuleList(LiftedConvClassifier(width, num_classes, manifold) for width in widths[read])
        finer = [coarse // fine for coarse, fine in pairwise((*map(math.ceil, strides[read]), 1))]
        self.upsamples = nn.ModuleList(_upsample(num_classes, times) for times in finer)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        whole = F.pad(x, (0, -width % self.stride, 0, -height % self.stride))  # 0 is the mean colour
        coarsest_first = maps_of(self.backbone, whole)[: -len(self.heads) - 1 : -1]
        logits: Tensor | float = 0.0
        for head, upsample, places in zip(self.heads, self.upsamples, coarsest_first, strict=True):
            logits = upsample(head(places) + logits)
        return cast(Tensor, logits)[..., :height, :width]

    def blocks(self) -> list[nn.Module]:
        return blocks_of(self.backbone)

    def no_weight_decay(self) -> set[str]:
        """Decay would fade what is interpolated."""
        return {f"upsamples.{number}.weight" for number in range(len(self.upsamples))}


def _upsample(channels: int, times: int) -> nn.ConvTranspose2d:
    layer = nn.ConvTranspose2d(channels, channels, 2 * times, times, times // 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(bilinear_kernel(channels, 2 * times))
    return layer


def bilinear_kernel(channels: int, size: int) -> Tensor:
    """Weights of a transposed convolution of stride size/2 that interpolates each channel.

    -> (channels, channels, size, size)

    >>> bilinear_kernel(1, 4)[0, 0, 1]
    tensor([0.1875, 0.5625, 0.5625, 0.1875])
    """
    centre, reach = (size - 1) / 2, size / 2
    tent = 1 - (torch.arange(size) - centre).abs() / reach
    weight = torch.zeros(channels, channels, size, size)
    weight[range(channels), range(channels)] = tent[:, None] * tent
    return weight


# -- the loss ---------------------------------------------------------------------------------------------------------


def segmentation_loss(logits: Tensor, classes: Tensor, ignored: int) -> Tensor:
    """Cross-entropy of the pixels that count, divided by the number of all pixels.   (B, K, H, W), (B, H, W) -> ()

    So it is a mean over rows however a batch is cut, and 0 where nothing counts.

    >>> logits, classes = torch.zeros(1, 4, 2, 2), torch.tensor([[[0, 1], [2, -1]]])
    >>> segmentation_loss(logits, classes, ignored=-1)  # 3/4 · log 4
    tensor(1.0397)
    """
    return F.cross_entropy(logits.float(), classes, ignore_index=ignored, reduction="sum") / classes.numel()
