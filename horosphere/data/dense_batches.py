"""Batches of pictures with masks: cut, turned and put together, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def framed(
    image: np.ndarray, objects: Instances, size: int, scale: tuple[float, float], flip: bool, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A window of a picture, brought to a square, and the objects whose middle lies in it.

    The window has the picture's sides divided by a number of `scale`: a part of it; or more, filled with the mean
    colour.
    draws (4,), from 0 to 1: scale (evenly in its logarithm), top, left, flip.
    -> (size, size, 3) uint8, (T, 5) float32: class, left, top, right, bottom in shares of the window
    """
    zoom = scale[0] * (scale[1] / scale[0]) ** float(draws[0])
    height, width = (max(1, round(side / zoom)) for side in image.shape[:2])
    # within the picture where the window is smaller; around it where it is larger
    top, left = round(float(draws[1]) * (image.shape[0] - height)), round(float(draws[2]) * (image.shape[1] - width))
    window = np.empty((height, width, 3), dtype=np.uint8)
    window[:] = [round(255 * c) for c in MEAN]
    y, x = max(0, top), max(0, left)
    seen = image[y : top + height, x : left + width]
    window[y - top : y - top + seen.shape[0], x - left : x - left + seen.shape[1]] = seen
    boxes = (objects.boxes - np.array([left, top, left, top])) / np.array([width, height, width, height])
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = ((middle >= 0) & (middle <= 1)).all(1) & ~objects.crowd
    boxes, square = boxes[inside].clip(0, 1), resized(window, size, size)
    if flip and draws[3] < 0.5:
        square, boxes = square[:, ::-1], flipped_boxes(boxes, 1)
    return square, np.concatenate((objects.labels[inside, None], boxes), 1).astype(np.float32)


def flipped_boxes(boxes: np.ndarray, width: float) -> np.ndarray:
    """Left and right exchanged in a picture of this width.   (N, 4) -> (N, 4)

    >>> flipped_boxes(np.array([[1.0, 2.0, 4.0, 6.0]]), 10)
    array([[6., 2., 9., 6.]])
    """
    left, top, right, bottom = boxes.T
    return np.stack((width - right, top, width - left, bottom), 1)


def collate_boxes(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Tensor]:
    """images (B, 3, s, s), truth (B, M, 5), M the next power of 2: a step is captured anew for few of them."""
    most = 1 << (max([1, *(len(objects) for _, objects in rows)]) - 1).bit_length()
    truth = torch.zeros(len(rows), most, 5)
    for row, (_, objects) in zip(truth, rows, strict=True):
        row[: len(objects)] = torch.from_numpy(objects)
    images = torch.from_numpy(np.stack([image for image, _ in rows]))
    return {"images": images.permute(0, 3, 1, 2), "truth": truth}


def collate_instances(rows: Sequence[tuple[Any, ...]], masks: bool = True) -> dict[str, Tensor]:
    """Rows (image, Instances), or (image, Instances, proposals)."""
    height, width = (max(row[0].shape[axis] for row in rows) for axis in (0, 1))
    images = np.zeros((len(rows), height, width, 3), dtype=np.uint8)
    for place, (image, *_) in zip(images, rows, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    found = [row[1] for row in rows]
    batch = {
        "images": torch.from_numpy(images).permute(0, 3, 1, 2),
        "sizes": torch.tensor([row[0].shape[:2] for row in rows]),
        "counts": torch.tensor([len(objects.labels) for objects in found]),
        "boxes": torch.from_numpy(np.concatenate([objects.boxes for objects in found])),
        "labels": torch.from_numpy(np.concatenate([objects.labels for objects in found])),
    }
    if masks:
        every = np.zeros((len(batch["labels"]), height, width), dtype=np.uint8)
        for place, mask in zip(every, (mask for objects in found for mask in objects.masks), strict=True):
            place[: mask.shape[0], : mask.shape[1]] = mask
        batch["masks"] = torch.from_numpy(every)
    if len(rows[0]) > 2:
        batch["proposals"] = torch.from_numpy(np.concatenate([row[2] for row in rows]))
        batch["proposal_counts"] = torch.tensor([len(row[2]) for row in rows])
    return batch


def separated(batch: dict[str, Tensor]) -> tuple[list[Any], ...]:
    """A batch of `collate_instances` as R-CNNs take it: pictures (3, H, W) from 0 to 1, targets, and proposals."""
    sizes, counts = batch["sizes"].tolist(), batch["counts"].tolist()
    images = [image[:, :high, :wide].float() / 255 for image, (high, wide) in zip(batch["images"], sizes, strict=True)]
    names = [name for name in ("boxes", "labels", "masks") if name in batch]
    parts = [batch[name].split(counts) for name in names]
    targets = [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
    for target, (high, wide) in zip(targets, sizes, strict=True):
        if "masks" in target:
            target["masks"] = target["masks"][:, :high, :wide]
    if "proposals" not in batch:
        return images, targets
    return images, targets, list(batch["proposals"].split(batch["proposal_counts"].tolist()))
