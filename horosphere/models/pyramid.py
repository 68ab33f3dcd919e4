"""Maps of several resolutions, for dense tasks, of any backbone: HCFormer, timm's, torchvision's, or a module with
`features`.

A plain vision transformer has only one resolution, and gets a pyramid by up- and down-sampling, as in ViTDet.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.models.backbones import adapt, blocks_of, create_backbone

PROBE = (96, 160)  # height and width of a picture that shows what maps a backbone has


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
        widths, self.strides = shapes_of(self.backbone)
        self.simple = None
        if len(widths) == 1:
            self.simple = SimplePyramid(widths[0])
            widths, self.strides = self.simple.widths, tuple(self.strides[0] * step for step in (0.25, 0.5, 1, 2))
        self.multiple = math.ceil(self.strides[-1])
        self.norms = nn.ModuleList(nn.GroupNorm(1, channels) for channels in widths)
        self.network = FeaturePyramidNetwork(list(widths), width, LastLevelMaxPool() if coarser else None)
        self.out_channels = width  # torchvision's name for it

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = maps_of(self.backbone, x)
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


def maps_of(backbone: Any, x: Tensor) -> list[Tensor]:
    """The last map of each resolution, finest first; one map of a module that has `features` alone."""
    maps: list[Tensor] = backbone.pyramid(x) if hasattr(backbone, "pyramid") else [backbone.features(x)[0]]
    return maps


@torch.no_grad()
def shapes_of(backbone: nn.Module) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Widths and strides of the maps, as a small picture shows them."""
    some = next(backbone.parameters())
    was_training = {module: module.training for module in backbone.modules()}
    try:
        maps = maps_of(backbone.eval(), torch.zeros(1, 3, *PROBE, device=some.device, dtype=some.dtype))
    except AssertionError as error:
        name = type(getattr(backbone, "model", backbone)).__name__
        raise UserError(
            f"{name} takes pictures of one size only ({' '.join(str(error).split())}); choose another backbone"
        ) from error
    finally:
        for module, training in was_training.items():
            module.training = training
    return tuple(m.shape[1] for m in maps), tuple(float(-(-PROBE[1] // m.shape[3])) for m in maps)
