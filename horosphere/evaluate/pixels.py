"""A class for every pixel: how well the classes of a picture are covered."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import normalise, on_device
from horosphere.data.dense import IGNORED, DenseData
from horosphere.data.dense_batches import resized, short_side
from horosphere.data.read_ahead import ahead
from horosphere.evaluate.sharing import Shared
from horosphere.models.backbones import laid_out
from horosphere.nn.eager import eager

EVAL_ROWS = 16  # pictures at once, those of one size together


@dataclass(frozen=True)
class SemanticScores:
    miou: float  # mean over the classes that occur, in truth or prediction
    accuracy: float  # share of the pixels that count
    by_class: dict[str, float]  # IoU

    def mean_over(self, names: Collection[str]) -> float | None:
        """mIoU of these classes; None where none of them occurs.

        >>> SemanticScores(0.5, 0.9, {"cat": 0.75, "dog": 0.25}).mean_over(["dog", "emu"])
        0.25
        """
        among = [iou for name, iou in self.by_class.items() if name in names]
        return sum(among) / len(among) if among else None


def confusion(truth: Tensor, answer: Tensor, classes: int, ignored: int) -> Tensor:
    """How many pixels of each class got which answer; the `ignored` count for nothing.   (...), (...) -> (K, K)

    >>> confusion(torch.tensor([0, 1, 1, 9]), torch.tensor([0, 1, 0, 0]), 2, ignored=9).tolist()
    [[1, 0], [1, 1]]
    """
    counted = truth != ignored
    pairs = truth[counted].long() * classes + answer[counted]  # a mask of bytes would overflow
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def semantic_scores(counts: Tensor, classes: Sequence[str]) -> SemanticScores:
    """Of a table of counts, truth by answer: IoU = right/(truth + answers - right).   (K, K) -> SemanticScores

    >>> semantic_scores(torch.tensor([[3, 1], [0, 4]]), ["cat", "dog"]).miou
    0.775
    """
    counts = counts.double()
    right, union = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
    by_class = {
        name: float(r / u) for name, r, u in zip(classes, right.tolist(), union.tolist(), strict=False) if u > 0
    }
    accuracy = float(right.sum() / counts.sum().clamp(min=1))
    return SemanticScores(sum(by_class.values()) / max(1, len(by_class)), accuracy, by_class)


def evaluate_semantic(model: nn.Module, data: DenseData[np.ndarray], size: int, world: Shared) -> SemanticScores:
    """Of a model of `normalise`d pictures."""
    counts = count_answers(lambda images: model(laid_out(normalise(images))), data, size, world)
    return semantic_scores(counts, data.classes)


@torch.no_grad()
def count_answers(answer: Callable[[Tensor], Tensor], data: DenseData[np.ndarray], size: int, world: Shared) -> Tensor:
    """Whole pictures with their shorter side at `size`, compared with their masks at the masks' own size.   -> (K, K)

    answer: (B, 3, H, W) uint8 -> logits (B, K, h, w)
    Several processes share them, one at a time and all as many: what fills up the last round counts for nothing.
    """
    held, classes = data.valid, len(data.classes)
    counts = torch.zeros(classes, classes, dtype=torch.int64, device=world.device)
    rows = EVAL_ROWS if world.size == 1 else 1
    mine = np.arange(-(-len(held) // world.size) * world.size)[world.rank :: world.size]
    chunks = [mine[i : i + rows] for i in range(0, len(mine), rows)]

    def shrunk(image: np.ndarray, mask: np.ndarray, _: int) -> tuple[np.ndarray, np.ndarray]:
        return resized(image, *short_side(mask.shape[0], mask.shape[1], size)), mask

    read = ahead(lambda number: held.later(chunks[number] % len(held), shrunk), len(chunks))
    for chunk, pictures in zip(chunks, read, strict=True):
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, (image, mask) in enumerate(pictures):
            groups.setdefault((*image.shape, *mask.shape), []).append(place)
        for places in groups.values():
            stacked = torch.from_numpy(np.stack([pictures[p][0] for p in places]))
            images = on_device(stacked, world.device).permute(0, 3, 1, 2)
            # each size of pictures would be compiled anew
            with eager():
                logits = answer(images).float()
            for logit, place in zip(logits, places, strict=True):
                if chunk[place] < len(held):
                    truth = on_device(torch.from_numpy(pictures[place][1]).long(), world.device)
                    best = F.interpolate(logit[None], truth.shape, mode="bilinear", align_corners=False).argmax(1)[0]
                    counts += confusion(truth, best, classes, IGNORED)
    return world.sum(counts)
