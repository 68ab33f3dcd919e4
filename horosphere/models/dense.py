"""Semantic FPN and Mask R-CNN on any backbone: HCFormer, timm's, torchvision's, or a module with `features`.

Both read a feature pyramid. A plain vision transformer has only one resolution, and gets a pyramid by up- and
down-sampling, as in ViTDet.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import MEAN, STD
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.models.backbones import adapt, blocks_of, create_backbone

PROBE = (96, 160)  # height and width of a picture that shows what maps a backbone has
ANCHOR = 8  # side of a level's anchors in steps of its map: 32 pixels at stride 4
LONGEST = 5 / 3  # longest side that Mask R-CNN sees, in shortest sides: 1333 for 800
STEPS = 5  # sizes between the smallest and the largest that Mask R-CNN trains on


# -- the pyramid ------------------------------------------------------------------------------------------------------


class SimplePyramid(nn.Module):
    """Four resolutions of one map: four and two times finer, itself, two times coarser.

    (B, C, h, w) -> maps of C/4, C/2, C and C channels

    >>> [tuple(level.shape) for level in SimplePyramid(8)(torch.rand(1, 8, 4, 4))]
    [(1, 2, 16, 16), (1, 4, 8, 8), (1, 8, 4, 4), (1, 8, 2, 2)]
    """

    def __init__(self, width: int):
        super().__init__()
        half, quarter = max(1, width // 2), max(1, width // 4)
        self.widths = (quarter, half, width, width)
        self.finest = nn.Sequential(
            nn.ConvTranspose2d(width, half, 2, 2),
            nn.GroupNorm(1, half),
            nn.GELU(),
            nn.ConvTranspose2d(half, quarter, 2, 2),
        )
        self.finer = nn.ConvTranspose2d(width, half, 2, 2)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.finest(x), self.finer(x), x, F.max_pool2d(x, 2, ceil_mode=True)]


class Pyramid(nn.Module):
    """A backbone's maps, normed, through torchvision's feature pyramid network.

    (B, 3, H, W) -> {"0": (B, width, H/stride_0, W/stride_0), …}
    backbone: as for `HiMapper`. Pictures whose size is no multiple of `multiple` lose or gain part of a patch at their
    edge. coarser: another level, every second place of the last one.
    """

    def __init__(self, backbone: str | nn.Module, width: int = 256, pretrained: bool = False, coarser: bool = False):
        super().__init__()
        require("torchvision")
        from torchvision.ops import FeaturePyramidNetwork
        from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

        model = create_backbone(backbone, 1, pretrained, any_size=True) if isinstance(backbone, str) else backbone
        self.backbone, _ = adapt(model)
        widths, self.strides = _shapes(self.backbone)
        self.simple = None
        if len(widths) == 1:
            self.simple = SimplePyramid(widths[0])
            widths, self.strides = self.simple.widths, tuple(self.strides[0] * step for step in (0.25, 0.5, 1, 2))
        self.multiple = math.ceil(self.strides[-1])
        self.norms = nn.ModuleList(nn.GroupNorm(1, channels) for channels in widths)
        self.network = FeaturePyramidNetwork(list(widths), width, LastLevelMaxPool() if coarser else None)
        self.out_channels = width  # torchvision's name for it

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = _maps(self.backbone, x)
        maps = self.simple(maps[0]) if self.simple is not None else maps
        levels: dict[str, Tensor] = self.network(
            {str(i): norm(m) for i, (norm, m) in enumerate(zip(self.norms, maps, strict=True))}
        )
        return levels

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one: the backbone's."""
        return blocks_of(self.backbone)

    def gradient_checkpointing_enable(self) -> None:
        model = getattr(self.backbone, "model", self.backbone)
        if not hasattr(model, "set_grad_checkpointing"):
            raise UserError(
                f"checkpointing=true: {type(model).__name__} cannot recompute its activations; use checkpointing=false"
            )
        model.set_grad_checkpointing()


def _maps(backbone: Any, x: Tensor) -> list[Tensor]:
    maps: list[Tensor] = backbone.pyramid(x) if hasattr(backbone, "pyramid") else [backbone.features(x)[0]]
    return maps


@torch.no_grad()
def _shapes(backbone: nn.Module) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Widths and strides of the maps, as a small picture shows them."""
    some = next(backbone.parameters())
    was_training = {module: module.training for module in backbone.modules()}
    try:
        maps = _maps(backbone.eval(), torch.zeros(1, 3, *PROBE, device=some.device, dtype=some.dtype))
    except AssertionError as error:
        name = type(getattr(backbone, "model", backbone)).__name__
        raise UserError(
            f"{name} takes pictures of one size only ({' '.join(str(error).split())}); choose another backbone"
        ) from error
    finally:
        for module, training in was_training.items():
            module.training = training
    return tuple(m.shape[1] for m in maps), tuple(float(-(-PROBE[1] // m.shape[3])) for m in maps)


# -- a class for every pixel ------------------------------------------------------------------------------------------


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


def segmentation_loss(logits: Tensor, classes: Tensor, ignored: int) -> Tensor:
    """Cross-entropy of the pixels that count, divided by the number of all pixels.   (B, K, H, W), (B, H, W) -> ()

    So it is a mean over rows however a batch is cut, and 0 where nothing counts.

    >>> logits, classes = torch.zeros(1, 4, 2, 2), torch.tensor([[[0, 1], [2, -1]]])
    >>> segmentation_loss(logits, classes, ignored=-1)  # 3/4 · log 4
    tensor(1.0397)
    """
    return F.cross_entropy(logits.float(), classes, ignore_index=ignored, reduction="sum") / classes.numel()


# -- boxes and masks --------------------------------------------------------------------------------------------------


def mask_rcnn(
    backbone: str | nn.Module,
    num_classes: int,
    width: int = 256,
    size: int = 800,
    scale: tuple[float, float] = (1.0, 1.0),
    pretrained: bool = False,
    **options: Any,
) -> nn.Module:
    """torchvision's Mask R-CNN. It takes lists of pictures (3, H, W) from 0 to 1 and, to train, of targets.

    num_classes: without the background, so labels go from 1 to num_classes.
    size: of a picture's shorter side. In training it is drawn from STEPS sizes between scale[0]·size and scale[1]·size.
    options: more arguments of torchvision's class.
    """
    require("torchvision")
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

    pyramid = Pyramid(backbone, width, pretrained, coarser=True)
    strides = pyramid.strides
    if any(math.log2(stride) % 1 for stride in strides):
        raise UserError(
            f"a backbone of stride {strides[-1] / 2:g}: Mask R-CNN needs powers of 2; "
            "choose one with patches of 8, 16 or 32 pixels"
        )
    sides = [*strides, 2 * strides[-1]]
    sizes: list[int] = []
    if scale != (1.0, 1.0):
        sizes = [round(size * (scale[0] + (scale[1] - scale[0]) * i / (STEPS - 1))) for i in range(STEPS)]
    model = MaskRCNN(
        pyramid,
        min_size=(*sizes, size),  # evaluation takes the last one
        max_size=round(LONGEST * max([*sizes, size])),
        image_mean=list(MEAN),
        image_std=list(STD),
        rpn_anchor_generator=AnchorGenerator(
            tuple((int(ANCHOR * side),) for side in sides), ((0.5, 1.0, 2.0),) * len(sides)
        ),
        box_roi_pool=_roi_align(strides, 7),
        box_head=TwoMLPHead(width * 7**2, 4 * width),
        box_predictor=FastRCNNPredictor(4 * width, num_classes + 1),
        mask_roi_pool=_roi_align(strides, 14),
        mask_head=MaskRCNNHeads(width, [width] * 4, 1),
        mask_predictor=MaskRCNNPredictor(width, width, num_classes + 1),
        **{"size_divisible": max(32, pyramid.multiple), **options},
    )
    for head in (model.rpn.head, model.roi_heads.box_predictor, model.roi_heads.mask_predictor):
        head.register_forward_hook(_in_fp32)
    model.gradient_checkpointing_enable, model.blocks = pyramid.gradient_checkpointing_enable, pyramid.blocks
    return model  # type: ignore[no-any-return, unused-ignore]


def _roi_align(strides: tuple[float, ...], side: int) -> nn.Module:
    """What cuts boxes out of the levels of a pyramid.

    By itself torchvision guesses the scales of the levels from the first batch and keeps the guess. Of small pictures
    that were filled up the guess is wrong, and a network that was trained and one that was loaded would differ.
    """
    from torchvision.ops import MultiScaleRoIAlign
    from torchvision.ops.poolers import initLevelMapper

    pool = MultiScaleRoIAlign([str(i) for i in range(len(strides))], side, sampling_ratio=2)
    first, last = (round(math.log2(stride)) for stride in (strides[0], strides[-1]))
    pool.scales = [1 / stride for stride in strides]
    canonical = {"canonical_scale": pool.canonical_scale, "canonical_level": pool.canonical_level}
    pool.map_levels = initLevelMapper(first, last, **canonical)
    return pool  # type: ignore[no-any-return, unused-ignore]


def _in_fp32(module: nn.Module, inputs: object, output: Any) -> Any:
    """The output in fp32: under autocast torchvision would compute boxes in its dtype.

    bf16 has places beyond 256 only to two pixels and more.
    """
    if isinstance(output, Tensor):
        return output.float()
    return type(output)(_in_fp32(module, inputs, part) for part in output)
