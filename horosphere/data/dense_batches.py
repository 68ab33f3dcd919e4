"""Batches of pictures with masks: cut, turned and put together, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from horosphere.data.augment import MEAN
from horosphere.data.dense import IGNORED, Instances


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """(H, W, 3) uint8 -> (height, width, 3), bilinear, averaged where it shrinks"""
    from PIL import Image

    return (
        image
        if image.shape[:2] == (height, width)
        else np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    )


def short_side(height: int, width: int, size: float) -> tuple[int, int]:
    """Height and width with the shorter one `size`."""
    factor = size / min(height, width)
    return max(1, round(height * factor)), max(1, round(width * factor))


def cut(
    image: np.ndarray, mask: np.ndarray, size: int, scale: tuple[float, float], flip: bool, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A square of a resized picture and of its mask; beyond their edges the mean colour, and nothing that counts.

    draws (4,), from 0 to 1: scale (evenly in its logarithm), top, left, flip.
    -> (size, size, 3) uint8, (size, size) int16
    """
    height, width = short_side(mask.shape[0], mask.shape[1], size * scale[0] * (scale[1] / scale[0]) ** float(draws[0]))
    y, x = ((np.arange(n) + 0.5) * old / n for n, old in ((height, mask.shape[0]), (width, mask.shape[1])))
    image, mask = (
        resized(image, height, width),
        mask[y.astype(int)[:, None], x.astype(int)],
    )  # nearest: numbers of classes have no mean
    top, left = (
        int(u * (max(0, side - size) + 1)) for u, side in zip(draws[1:3].tolist(), (height, width), strict=True)
    )
    image, mask = image[top : top + size, left : left + size], mask[top : top + size, left : left + size]
    square = np.empty((size, size, 3), dtype=np.uint8)
    square[:] = [round(255 * c) for c in MEAN]
    classes = np.full((size, size), IGNORED, dtype=np.int16)
    square[: image.shape[0], : image.shape[1]], classes[: mask.shape[0], : mask.shape[1]] = image, mask
    return (square[:, ::-1], classes[:, ::-1]) if flip and draws[3] < 0.5 else (square, classes)


def flipped(image: np.ndarray, objects: Instances, really: bool) -> tuple[np.ndarray, Instances]:
    """A picture and the objects to learn from it, which heaps are not, left and right exchanged or as they are."""
    masks, labels = objects.masks[~objects.crowd], objects.labels[~objects.crowd]
    if really:
        image, masks = image[:, ::-1], masks[:, :, ::-1]
    return image, Instances(masks, labels, np.zeros(len(labels), dtype=bool))


def collate_masks(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Tensor]:
    images, masks = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
    return {"images": images.permute(0, 3, 1, 2), "masks": masks}


def collate_instances(rows: Sequence[tuple[np.ndarray, Instances]]) -> dict[str, Tensor]:
    height, width = (max(image.shape[axis] for image, _ in rows) for axis in (0, 1))
    counts = [len(objects.labels) for _, objects in rows]
    images = np.zeros((len(rows), height, width, 3), dtype=np.uint8)
    masks = np.zeros((sum(counts), height, width), dtype=np.uint8)
    for number, (image, objects) in enumerate(rows):
        (high, wide), first = image.shape[:2], sum(counts[:number])
        images[number, :high, :wide] = image
        masks[first : first + counts[number], :high, :wide] = objects.masks
    return {
        "images": torch.from_numpy(images).permute(0, 3, 1, 2),
        "sizes": torch.tensor([image.shape[:2] for image, _ in rows]),
        "counts": torch.tensor(counts),
        "boxes": torch.from_numpy(np.concatenate([objects.boxes for _, objects in rows])),
        "labels": torch.from_numpy(np.concatenate([objects.labels for _, objects in rows])),
        "masks": torch.from_numpy(masks),
    }


def separated(batch: dict[str, Tensor]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """A batch of `collate_instances` as torchvision takes it: pictures (3, H, W) from 0 to 1, and their targets."""
    sizes, counts = batch["sizes"].tolist(), batch["counts"].tolist()
    images = [image[:, :high, :wide].float() / 255 for image, (high, wide) in zip(batch["images"], sizes, strict=True)]
    parts = [batch[name].split(counts) for name in ("boxes", "labels", "masks")]
    targets = [
        {"boxes": boxes, "labels": labels, "masks": masks[:, :high, :wide]}
        for boxes, labels, masks, (high, wide) in zip(*parts, sizes, strict=True)
    ]
    return images, targets
