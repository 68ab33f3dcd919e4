"""What a training does to pictures: crops, flips, RandAugment, mixtures.

All random numbers of a batch are drawn on the CPU from (seed, step), for every row of the global batch.
So a step sees the same pictures, crops and mixtures on every device and with any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from horosphere.extras import require
from horosphere.settings import Amount, Range, Share

Channels = tuple[float, float, float]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as every pretrained network expects
LUMA = (0.299, 0.587, 0.114)  # what red, green and blue add to the grey that people see

# top, left, height, width in pixels; a box may reach beyond the picture, where all is black
Box = tuple[float, float, float, float]
Crop = Callable[[int, int, Sequence[float]], Box]  # of a picture's height, width, and four numbers from 0 to 1


def on_device(t: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device. The copy does not wait for the accelerator.

    >>> on_device(torch.arange(3), torch.device("cpu"))
    tensor([0, 1, 2])
    """
    pinned = t.pin_memory() if device.type == "cuda" and t.device.type == "cpu" else t
    return pinned.to(device, non_blocking=True)


# -- boxes ------------------------------------------------------------------------------------------------------------


def whole_box(share: float, height: int, width: int, draws: Sequence[float]) -> Box:
    """The square in the middle whose side is a share of the shorter side.

    >>> whole_box(0.5, 40, 60, [])
    (10.0, 20.0, 20.0, 20.0)
    """
    side = share * min(height, width)
    return (height - side) / 2, (width - side) / 2, side, side


def shifted_box(height: int, width: int, draws: Sequence[float]) -> Box:
    """The largest square, moved by at most an eighth of its side each way in whole pixels: pad and crop.

    >>> shifted_box(32, 32, [0.0, 0.99])
    (-4.0, 4.0, 32.0, 32.0)
    """
    top, left, side, _ = whole_box(1.0, height, width, draws)
    room = side // 8
    return top - room + int(draws[0] * (2 * room + 1)), left - room + int(draws[1] * (2 * room + 1)), side, side


def random_box(height: int, width: int, draws: Sequence[float]) -> Box:
    """8 to 100 % of the area, from 3:4 to 4:3: the crop of Inception. A side is cut to the picture's, not drawn again.

    >>> [round(x) for x in random_box(100, 100, [0.25, 0.5, 0.5, 1.0])]
    [22, 44, 56, 56]
    """
    area = height * width * (0.08 + 0.92 * draws[0])
    ratio = math.exp((2 * draws[1] - 1) * math.log(4 / 3))
    high, wide = min(height, math.sqrt(area / ratio)), min(width, math.sqrt(area * ratio))
    return (height - high) * draws[2], (width - wide) * draws[3], high, wide


@dataclass(frozen=True)
class Augmentation:
    """As in the papers of each; 0 and false are off.

    >>> Augmentation(mixup=0.0, cutmix=0.0).mixes
    False
    """

    # random: 8 to 100 % of the area, for photographs; shift: by an eighth, for small pictures
    crop: Literal["random", "shift", "none"] = "random"
    flip: bool = True  # left and right
    # strength of two operations, in tenths as its paper and timm count; torchvision counts in thirtieths
    randaugment: Annotated[float, Range(least=0, most=10)] = 9.0
    mixup: Amount = 0.8  # α of Beta(α, α); where cutmix is on as well, each takes half of the pairs
    cutmix: Amount = 1.0  # α of Beta(α, α)
    erase: Share = 0.25  # share of the pictures with a rectangle erased
    smoothing: Share = 0.1  # share of a label spread over all classes

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0

    @property
    def box(self) -> Crop:
        boxes: dict[str, Crop] = {"random": random_box, "shift": shifted_box, "none": partial(whole_box, 1.0)}
        return boxes[self.crop]

    @property
    def still_box(self) -> Crop:
        """The box for evaluation: the middle, and a little less than all of it where training sees parts."""
        return partial(whole_box, 0.875 if self.crop == "random" else 1.0)


@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of a batch of B rows, each from 0 to 1. Rows 2i and 2i + 1 are a pair, which mixtures mix.

    >>> draws = Draws.of(seed=0, step=7, rows=4, augmentation=Augmentation())
    >>> draws.crop.shape, draws[2:].crop.shape, bool((draws.share[0] == draws.share[1]).all())
    ((4, 4), (2, 4), True)
    """

    crop: np.ndarray  # (B, 4)
    flip: np.ndarray  # (B,)
    operations: np.ndarray  # (B, 2, 2): which, and in which direction
    erase: np.ndarray  # (B, 5): whether, and where
    mix: np.ndarray  # (B, 3): which kind, and where; the same in a pair
    share: np.ndarray  # (B, 2): the row's own share in mixup and in cutmix; the same in a pair

    @staticmethod
    def of(seed: int, step: int, rows: int, augmentation: Augmentation) -> Draws:
        random = np.random.default_rng((seed, step, 1))
        pairs = -(-rows // 2)
        crop, flip, operations, erase = (random.random((rows, *shape)) for shape in ((4,), (), (2, 2), (5,)))
        shares = np.stack(
            [random.beta(a, a, pairs) if a > 0 else np.ones(pairs) for a in (augmentation.mixup, augmentation.cutmix)],
            1,
        )
        mix, share = (values.repeat(2, 0)[:rows] for values in (random.random((pairs, 3)), shares))
        return Draws(crop, flip, operations, erase, mix, share)

    def __getitem__(self, rows: slice) -> Draws:
        return Draws(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def augment(
    images: Tensor, labels: np.ndarray, classes: int, draws: Draws, how: Augmentation, channels: int = 3
) -> tuple[Tensor, Tensor]:
    """Pictures as a training sees them, and the shares of the K classes in each.

    (B, 3, H, W) uint8, (B,) -> (B, channels, H, W) float32, (B, K)

    >>> how = Augmentation(randaugment=0)  # the rest needs no torchvision
    >>> images, labels = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), np.array([0, 2])
    >>> x, targets = augment(images, labels, 3, Draws.of(0, 0, 2, how), how)
    >>> x.shape, targets.sum(1)
    (torch.Size([2, 3, 8, 8]), tensor([1., 1.]))
    """
    device = images.device
    if how.flip:
        images = torch.where(
            on_device(torch.from_numpy(draws.flip < 0.5), device)[:, None, None, None], images.flip(-1), images
        )
    if how.randaugment:
        images = rand_augment(images, draws.operations, how.randaugment)
    x = normalise(in_channels(images, channels))
    if how.erase:
        x = x.masked_fill(_rectangles(_erased(draws.erase, how.erase, *x.shape[-2:]), x), 0.0)  # 0 is the mean colour
    targets = torch.full((len(labels), classes), how.smoothing / classes, device=device)
    targets.scatter_add_(
        1, on_device(torch.from_numpy(labels)[:, None], device), targets.new_full((len(labels), 1), 1 - how.smoothing)
    )
    return mix(x, targets, draws, how) if how.mixes else (x, targets)


def in_channels(images: Tensor, channels: int) -> Tensor:
    """In colour as they are, or grey: their luma (ITU-R 601).   (B, 3, H, W) uint8 -> (B, channels, H, W) uint8

    >>> in_channels(torch.tensor([200, 100, 0], dtype=torch.uint8).view(1, 3, 1, 1), 1).item()
    118
    """
    if channels == images.shape[1]:
        return images
    return (images.float() * _constant(LUMA, images.device)).sum(1, keepdim=True).round().to(torch.uint8)


def normalise(images: Tensor, mean: Channels = MEAN, std: Channels = STD) -> Tensor:
    """(x/255 - mean)/std by channel, by default ImageNet's; of grey pictures by the mean of its channels.

    (B, 3 or 1, H, W) uint8 -> float32

    >>> white = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
    >>> normalise(white).flatten()
    tensor([2.2489, 2.4286, 2.6400])
    """
    if images.shape[1] == 1:
        return (images.float() / 255 - sum(mean) / 3) / (sum(std) / 3)
    return (images.float() / 255 - _constant(mean, images.device)) / _constant(std, images.device)


@lru_cache
def _constant(values: Channels, device: torch.device) -> Tensor:
    """(3, 1, 1), made once for each device.

    A CUDA graph replays a captured copy, but the host's memory it copied from holds something else by then.
    """
    return torch.tensor(values, device=device).view(3, 1, 1)


def mix(x: Tensor, targets: Tensor, draws: Draws, how: Augmentation) -> tuple[Tensor, Tensor]:
    """w x + (1 - w) x' for x and its partner x': mixup has a constant w; cutmix 0 in a rectangle and 1 around it.

    (B, 3, H, W), (B, K) -> the same

    >>> how = Augmentation(mixup=0.0)
    >>> x, targets = mix(torch.rand(2, 3, 8, 8), torch.eye(2), Draws.of(0, 0, 2, how), how)
    >>> targets.sum(1)
    tensor([1., 1.])
    """
    height, width = x.shape[-2:]
    cut = draws.mix[:, 0] < (0.5 if how.mixup and how.cutmix else float(how.cutmix > 0))
    side = np.sqrt(1 - draws.share[:, 1])
    centre = draws.mix[:, 1:] * (height, width)
    edges = [
        (c + sign * side * s / 2).round().clip(0, s)
        for sign in (-1, 1)
        for c, s in ((centre[:, 0], height), (centre[:, 1], width))
    ]
    boxes = np.stack(edges, 1) * cut[:, None]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (height * width)
    share = np.where(cut, 1 - area, draws.share[:, 0])
    inside = _rectangles(boxes, x)
    w = on_device(torch.from_numpy(np.where(cut, 1.0, share)).float(), x.device)[:, None, None, None] * ~inside
    s = on_device(torch.from_numpy(share).float(), x.device)[:, None]
    return w * x + (1 - w) * _partner(x), s * targets + (1 - s) * _partner(targets)


def _partner(t: Tensor) -> Tensor:
    return t.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def _erased(draws: np.ndarray, chance: float, height: int, width: int) -> np.ndarray:
    """2 to 33 % of the area, from 3:10 to 10:3, as top, left, bottom, right; all 0 where nothing is erased.

    (B, 5) -> (B, 4)
    """
    area = height * width * (0.02 + 0.31 * draws[:, 1])
    ratio = np.exp((2 * draws[:, 2] - 1) * math.log(10 / 3))
    high, wide = np.minimum(height, np.sqrt(area * ratio)).round(), np.minimum(width, np.sqrt(area / ratio)).round()
    top, left = np.floor((height - high + 1) * draws[:, 3]), np.floor((width - wide + 1) * draws[:, 4])
    return np.stack([top, left, top + high, left + wide], 1) * (draws[:, :1] < chance)


def _rectangles(boxes: np.ndarray, x: Tensor) -> Tensor:
    """Which pixels lie in the boxes (top, left, bottom, right).   (B, 4), (B, C, H, W) -> (B, 1, H, W) bool"""
    top, left, bottom, right = on_device(torch.from_numpy(boxes).float(), x.device).T[:, :, None, None, None]
    y, z = (torch.arange(n, device=x.device) for n in x.shape[-2:])
    return ((y >= top) & (y < bottom)).transpose(-1, -2) & ((z >= left) & (z < right))


def rand_augment(images: Tensor, draws: np.ndarray, strength: float) -> Tensor:
    """Two of RandAugment's operations on each picture, by torchvision, at `strength` tenths of their ranges.

    (B, 3, H, W) uint8, (B, 2, 2) -> (B, 3, H, W) uint8. Pictures are sorted by operation, and those that share
    one go through it together.

    >>> how, images = Augmentation(), torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    >>> rand_augment(images, Draws.of(0, 0, 2, how).operations, how.randaugment).shape
    torch.Size([2, 3, 8, 8])
    """
    operations = _operations(strength / 10, *images.shape[-2:])
    for layer in range(draws.shape[1]):
        kind = (draws[:, layer, 0] * len(operations)).astype(np.int64) * 2 + (draws[:, layer, 1] < 0.5)
        order = np.argsort(kind, kind="stable")
        there, back = (on_device(torch.from_numpy(index), images.device) for index in (order, np.argsort(order)))
        kinds, counts = np.unique(kind, return_counts=True)
        parts = images[there].split(counts.tolist())
        images = torch.cat(
            [operations[k // 2](part, 1 - 2 * int(k % 2)) for k, part in zip(kinds.tolist(), parts, strict=True)]
        )[back]
    return images


def _operations(m: float, height: int, width: int) -> list[Callable[[Tensor, int], Tensor]]:
    """RandAugment's operations at a share m of their ranges. Each takes pictures and a sign, its direction."""
    require("torchvision")
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as T

    look: dict[str, Any] = {"interpolation": InterpolationMode.BILINEAR, "fill": [round(255 * c) for c in MEAN]}

    def moved(
        x: Tensor, shift: tuple[float, float] = (0, 0), lean: tuple[float, float] = (0, 0), **more: Any
    ) -> Tensor:
        angles = [math.degrees(math.atan(a)) for a in lean]
        return T.affine(x, angle=0.0, translate=[int(s) for s in shift], scale=1.0, shear=angles, **look, **more)

    far = 150 / 331 * m
    return [
        lambda x, sign: x,
        lambda x, sign: moved(x, lean=(sign * 0.3 * m, 0), center=[0, 0]),
        lambda x, sign: moved(x, lean=(0, sign * 0.3 * m), center=[0, 0]),
        lambda x, sign: moved(x, shift=(sign * far * width, 0)),
        lambda x, sign: moved(x, shift=(0, sign * far * height)),
        lambda x, sign: T.rotate(x, sign * 30.0 * m, **look),
        lambda x, sign: T.adjust_brightness(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_saturation(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_contrast(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_sharpness(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.posterize(x, 8 - round(4 * m)),
        lambda x, sign: T.solarize(x, 255 * (1 - m)),
        lambda x, sign: T.autocontrast(x),
        lambda x, sign: T.equalize(x),
    ]
