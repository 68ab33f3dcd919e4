"""Style transfer (Gatys et al. 2016): a picture that has the content of one picture and the style of another.

Content is what a deep layer of a network sees where. Style is which channels of a layer answer together, wherever that
is. The network is VGG-19 or any backbone, and stays as it is: the only parameter is the picture.

With random weights all of this runs, and the loss falls; what comes out means little. Published weights, or a network
that was trained on pictures, make it art.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import MEAN, STD
from horosphere.models.backbones import adapt, create_backbone
from horosphere.settings import Amount, check

VGG19 = "torchvision:vgg19"
CLASSES = 1000  # of ImageNet: what published weights answer, and nobody here reads
STYLE_LAYERS = ("conv1_1", "conv2_1", "conv3_1", "conv4_1", "conv5_1")  # the first convolution of each block
CONTENT_LAYER = "conv4_4"  # the last convolution of block 4


@dataclass(frozen=True)
class StyleConfig:
    content_weight: Amount = 1.0
    style_weight: Amount = 1e4
    variation_weight: Amount = 1.0  # of differences between neighbouring pixels
    begin: Literal["content", "noise"] = "content"  # the picture before the first step

    def __post_init__(self) -> None:
        check(self)


# -- pixels -----------------------------------------------------------------------------------------------------------


def standardised(pictures: Tensor) -> Tensor:
    """(x - mean)/std by channel, with ImageNet's: what published networks see.   (B, 3, H, W) in [0, 1] -> the same

    >>> standardised(torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)).flatten()
    tensor([0., 0., 0.])
    """
    mean, std = _colours(pictures)
    return (pictures - mean) / std


def restored(x: Tensor) -> Tensor:
    """x·std + mean: undoes `standardised`.   (B, 3, H, W) -> the same

    >>> x = torch.rand(1, 3, 4, 4, dtype=torch.float64)
    >>> torch.allclose(restored(standardised(x)), x, rtol=0, atol=1e-15)
    True
    """
    mean, std = _colours(x)
    return x * std + mean


def _colours(like: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = (like.new_tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return mean, std


class Picture(nn.Module):
    """The one parameter: a standardised picture.   () -> (1, 3, H, W)

    >>> Picture(torch.zeros(1, 3, 8, 6)).pixels().shape
    torch.Size([8, 6, 3])
    """

    def __init__(self, pictures: Tensor):
        """pictures: what it begins with, (1, 3, H, W) in [0, 1]."""
        super().__init__()
        self.x = nn.Parameter(standardised(pictures))

    def forward(self) -> Tensor:
        return self.x

    @torch.no_grad()
    def after_step(self) -> None:
        """Colours stay colours: what is judged is what can be written."""
        self.x.copy_(standardised(restored(self.x).clamp(0, 1)))

    def no_weight_decay(self) -> set[str]:
        return {"x"}

    @torch.no_grad()
    def pixels(self) -> Tensor:
        """As files have it.   -> (H, W, 3) uint8"""
        return (255 * restored(self.x[0])).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).cpu()


# -- what a network sees ----------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Maps of a standardised picture."""

    content: Tensor  # (1, C, h, w)
    style: list[Tensor]  # (1, C_i, h_i, w_i) each


class Trunk(Protocol):
    """A frozen network.   (1, 3, H, W) -> Seen"""

    def __call__(self, x: Tensor) -> Seen: ...


def layers_of_vgg(features: nn.Sequential) -> dict[str, int]:
    """{"conv1_1": 0, …}: where each convolution stands, by its block and its number there. A pool ends a block.

    >>> layers_of_vgg(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)))
    {'conv1_1': 0, 'conv2_1': 3}
    """
    places, block, number = {}, 1, 1
    for place, layer in enumerate(features):
        if isinstance(layer, nn.MaxPool2d):
            block, number = block + 1, 1
        elif isinstance(layer, nn.Conv2d):
            places[f"conv{block}_{number}"] = place
            number += 1
    return places


class VGGTrunk(nn.Module):
    """VGG-19 up to the last layer that is looked at: outputs of convolutions, before their relu, as in the paper.

    features: a VGG's, as torchvision has it.
    """

    def __init__(self, features: nn.Sequential):
        super().__init__()
        places = layers_of_vgg(features)
        self.content, self.style = places[CONTENT_LAYER], [places[name] for name in STYLE_LAYERS]
        self.layers = nn.ModuleList(list(features)[: max(self.content, *self.style) + 1])
        for layer in self.layers:
            if isinstance(layer, nn.ReLU):
                layer.inplace = False  # torchvision's would write over the outputs that are looked at
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Seen:
        outputs = {}
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if place == self.content or place in self.style:
                outputs[place] = x
        return Seen(outputs[self.content], [outputs[place] for place in self.style])


class BackboneTrunk(nn.Module):
    """Any backbone: style is in each level of its pyramid, content in the last but one, as it is in VGG's blocks.

    >>> trunk = BackboneTrunk(create_backbone("hcformer-nano-32", num_classes=10))
    >>> seen = trunk(torch.rand(1, 3, 32, 32))
    >>> seen.content.shape[1], len(seen.style)
    (196, 4)
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.backbone: Any = adapt(network)[0]
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Seen:
        levels = self.backbone.pyramid(x)
        return Seen(levels[-2:][0], levels)


def make_trunk(name: str = VGG19, pretrained: bool = False) -> nn.Module:
    """The trunk of this name, as `create_backbone` takes it. Nothing is fetched unless `pretrained`."""
    network = create_backbone(name, CLASSES, pretrained, any_size=True)
    return VGGTrunk(cast(Any, network).features) if name == VGG19 else BackboneTrunk(network)


# -- the loss ---------------------------------------------------------------------------------------------------------


def gram(maps: Tensor) -> Tensor:
    """Which channels answer together: XXᵀ/numel(X), X (C, hw) the outputs of a layer.   (B, C, h, w) -> (B, C, C)

    Convention: divided by C·h·w, as in d2l; Gatys et al. divide the loss by 4C²(hw)² instead.

    >>> gram(torch.ones(1, 2, 3, 3))
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]])
    """
    x = maps.flatten(2)
    return x @ x.mT / x[0].numel()


def variation(pictures: Tensor) -> Tensor:
    """How much neighbours differ: half of mean |Δx| + mean |Δy|.   (B, 3, H, W) -> ()

    Convention: d2l's means, which do not grow with the picture; kornia's total variation is the sum by default.

    >>> variation(torch.tensor([[0.0, 1.0], [0.0, 1.0]]).expand(1, 3, 2, 2)).item()
    0.5
    """
    return 0.5 * (pictures.diff(dim=-1).abs().mean() + pictures.diff(dim=-2).abs().mean())


class Losses(NamedTuple):
    """Each a scalar, before its weight."""

    content: Tensor
    style: Tensor
    variation: Tensor


class StyleLoss:
    """How far a standardised picture is from the content of one picture and the style of another.

    content: mean squares of differences of maps. style: of Gram matrices, added up over the layers.
    The style picture may have any size: its Gram matrices have the sizes of channels.
    Each layer is scaled so that what it says of the given pictures has a mean square of 1, as Gatys et al. scale VGG's
    weights: so one choice of weights fits every network.
    """

    def __init__(self, trunk: Trunk, content: Tensor, style: Tensor, config: StyleConfig):
        """content (1, 3, H, W), style (1, 3, H', W'): standardised."""
        self.trunk, self.config = trunk, config
        with torch.no_grad():
            shown, painted = trunk(content).content, trunk(style).style
            self.scale, self.scales = _scale(shown), [_scale(maps) for maps in painted]
            self.content = self.scale * shown
            self.grams = [gram(scale * maps) for scale, maps in zip(self.scales, painted, strict=True)]

    def parts(self, x: Tensor) -> Losses:
        seen = self.trunk(x)
        layers = zip(seen.style, self.scales, self.grams, strict=True)
        style = torch.stack([F.mse_loss(gram(scale * maps), wanted) for maps, scale, wanted in layers]).sum()
        return Losses(F.mse_loss(self.scale * seen.content, self.content), style, variation(x))

    def total(self, parts: Losses) -> Tensor:
        how = self.config
        weights = (how.content_weight, how.style_weight, how.variation_weight)
        return torch.stack([weight * part for weight, part in zip(weights, parts, strict=True)]).sum()


def _scale(maps: Tensor) -> Tensor:
    """1/√(mean square); 1 of maps that are 0 everywhere.   (1, C, h, w) -> ()"""
    size = maps.square().mean().sqrt()
    return torch.where(size > 0, size, 1.0).reciprocal()
