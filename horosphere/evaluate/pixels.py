"""A class for every pixel: how well the classes of a picture are covered."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SemanticScores:
    miou: float  # mean over the classes that occur, in truth or prediction
    accuracy: float  # share of the pixels that count
    by_class: dict[str, float]  # IoU


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
