"""Detectors of the R-CNN family on any backbone: Fast, Faster and Mask R-CNN, of torchvision's parts.

They read a feature pyramid. The classifier of boxes lives in any geometry; boxes and masks are flat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from horosphere.data.augment import MEAN, STD
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.models.config import InAnyGeometry
from horosphere.models.heads import LiftedClassifier
from horosphere.models.pyramid import Pyramid
from horosphere.ops.proposals import selective_search
from horosphere.settings import Size

ANCHOR = 8  # side of a level's anchors in steps of its map: 32 pixels at stride 4
LONGEST = 5 / 3  # longest side that a detector sees, in shortest sides: 1333 for 800
# proposals that are kept in training: CHOSEN_OF for each region to learn from, at most PROPOSED, as torchvision has
PROPOSED, CHOSEN_OF = 2000, 4
ROUNDING = 1e-4  # torchvision cuts a side of 0.99999 pixels to 0
STEPS = 5  # sizes between the smallest and the largest that a detector trains on


@dataclass(frozen=True, kw_only=True)
class RCNNConfig(InAnyGeometry):
    """The geometry of the classifier of boxes, and how many of them it learns from."""

    regions: Size = 512  # of a picture, a quarter of them with objects; fewer are faster where there are few objects


def faster_rcnn(
    backbone: str | nn.Module,
    num_classes: int,
    config: RCNNConfig,
    width: int = 256,
    size: int = 800,
    scale: tuple[float, float] = (1.0, 1.0),
    **options: Any,
) -> nn.Module:
    """torchvision's Faster R-CNN (Ren et al. 2015). It takes lists of pictures (3, H, W) from 0 to 1 and, to train, of
    targets.

    num_classes: without the background, so labels go from 1 to num_classes.
    size: of a picture's shorter side. In training it is drawn from STEPS sizes between scale[0]·size and scale[1]·size.
    options: more arguments of torchvision's class.
    """
    require("torchvision")
    from torchvision.models.detection import FasterRCNN

    pyramid = _pyramid(backbone, width)
    model = FasterRCNN(
        pyramid, **_parts(pyramid, num_classes, config, size, scale), **{"size_divisible": _divisor(pyramid), **options}
    )
    return _finished(model, (model.rpn.head, model.roi_heads.box_predictor))


class FastRCNN(nn.Module):
    """Fast R-CNN (Girshick 2015): Faster R-CNN whose proposals are given, or found by selective search.

    The trunk reads a picture once; boxes are cut out of its maps. It takes lists of pictures (3, H, W) from 0 to 1, to
    train also of targets, and lists of proposals (P, 4) in pixels.
    """

    def __init__(self, backbone: str | nn.Module, num_classes: int, config: RCNNConfig, **options: Any):
        super().__init__()
        whole: Any = faster_rcnn(backbone, num_classes, config, **options)
        self.transform, self.backbone, self.roi_heads = whole.transform, whole.backbone, whole.roi_heads

    def forward(
        self,
        pictures: list[Tensor],
        targets: list[dict[str, Tensor]] | None = None,
        proposals: list[Tensor] | None = None,
    ) -> Any:
        if proposals is None:
            proposals = [selective_search(picture.cpu())[0].to(picture.device) for picture in pictures]
        sizes = [(picture.shape[1], picture.shape[2]) for picture in pictures]
        seen, targets = self.transform(pictures, targets)
        boxes = [
            given * given.new_tensor([wide / width, high / height] * 2)
            for given, (height, width), (high, wide) in zip(proposals, sizes, seen.image_sizes, strict=True)
        ]
        found, losses = self.roi_heads(self.backbone(seen.tensors), boxes, seen.image_sizes, targets)
        return losses if self.training else self.transform.postprocess(found, seen.image_sizes, sizes)

    def blocks(self) -> list[nn.Module]:
        blocks: list[nn.Module] = self.backbone.blocks()
        return blocks


def mask_rcnn(
    backbone: str | nn.Module,
    num_classes: int,
    config: RCNNConfig | None = None,
    width: int = 256,
    size: int = 800,
    scale: tuple[float, float] = (1.0, 1.0),
    **options: Any,
) -> nn.Module:
    """torchvision's Mask R-CNN (He et al. 2017): Faster R-CNN with a mask for every object."""
    require("torchvision")
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

    pyramid = _pyramid(backbone, width)
    model = MaskRCNN(
        pyramid,
        **_parts(pyramid, num_classes, config or RCNNConfig(), size, scale),
        mask_roi_pool=_roi_align(pyramid.strides, 14),
        mask_head=MaskRCNNHeads(width, [width] * 4, 1),
        mask_predictor=MaskRCNNPredictor(width, width, num_classes + 1),
        **{"size_divisible": _divisor(pyramid), **options},
    )
    return _finished(model, (model.rpn.head, model.roi_heads.box_predictor, model.roi_heads.mask_predictor))


# -- parts ------------------------------------------------------------------------------------------------------------


def _pyramid(backbone: str | nn.Module, width: int) -> Pyramid:
    pyramid = Pyramid(backbone, width, coarser=True)
    if any(math.log2(stride) % 1 for stride in pyramid.strides):
        raise UserError(
            f"a backbone of stride {pyramid.strides[-1] / 2:g}: R-CNNs need powers of 2; "
            "choose one with patches of 8, 16 or 32 pixels"
        )
    return pyramid


def _divisor(pyramid: Pyramid) -> int:
    return max(32, pyramid.multiple)


def _parts(
    pyramid: Pyramid, num_classes: int, config: RCNNConfig, size: int, scale: tuple[float, float]
) -> dict[str, Any]:
    """What all R-CNNs are made of, as arguments of torchvision's classes."""
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead

    strides, width = pyramid.strides, pyramid.out_channels
    sides = [*strides, 2 * strides[-1]]
    sizes: list[int] = []
    if scale != (1.0, 1.0):
        sizes = [round(size * (scale[0] + (scale[1] - scale[0]) * i / (STEPS - 1))) for i in range(STEPS)]
    predictor = FastRCNNPredictor(4 * width, num_classes + 1)
    predictor.cls_score = LiftedClassifier(4 * width, num_classes + 1, config.manifold())
    return {
        "min_size": (*sizes, size),  # evaluation takes the last one
        "max_size": round(LONGEST * max([*sizes, size])),
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "rpn_anchor_generator": AnchorGenerator(
            tuple((int(ANCHOR * side),) for side in sides), ((0.5, 1.0, 2.0),) * len(sides)
        ),
        "rpn_post_nms_top_n_train": min(PROPOSED, CHOSEN_OF * config.regions),
        "box_batch_size_per_image": config.regions,
        "box_roi_pool": _roi_align(strides, 7),
        "box_head": TwoMLPHead(width * 7**2, 4 * width),
        "box_predictor": predictor,
    }


def _finished(model: Any, heads: tuple[nn.Module, ...]) -> nn.Module:
    """What a network of the house says of itself, and heads whose boxes keep their pixels."""
    for head in heads:
        head.register_forward_hook(_in_fp32)
    model.transform.register_forward_pre_hook(_need_sides)
    pyramid = model.backbone
    model.gradient_checkpointing_enable, model.blocks = pyramid.gradient_checkpointing_enable, pyramid.blocks
    return cast(nn.Module, model)


def _need_sides(transform: Any, inputs: tuple[Any, ...]) -> None:
    """Complain about a picture of which nothing is left at the size that a detector sees."""
    shortest = min(transform.min_size) if transform.training else transform.min_size[-1]
    for picture in inputs[0]:
        short, long = sorted(picture.shape[-2:])
        if min(shortest, short * transform.max_size / long) < 1 + ROUNDING:
            sizes = f"{shortest} pixels a side, {transform.max_size} at most"
            what = f"a picture of {picture.shape[-1]} x {picture.shape[-2]} pixels"
            raise UserError(f"{what} vanishes at {sizes}; cut it, or give a larger size or scale")


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
