"""How often a classifier is right, and how far off on the tree of classes where it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import Augmentation, in_channels, normalise, on_device
from horosphere.data.classes import ClassTree
from horosphere.data.images import ImageData, Later
from horosphere.data.read_ahead import ahead
from horosphere.errors import UserError
from horosphere.evaluate.sharing import Shared
from horosphere.models.backbones import laid_out
from horosphere.nn.eager import eager

EVAL_ROWS = 256  # pictures at once
PLACED = 2000  # classes whose places are compared at most: all pairs of them are in memory


@dataclass(frozen=True)
class HierarchyScores:
    """How a classifier does on a tree of classes.

    >>> HierarchyScores(fine=0.75, coarse=0.9, tree_error=0.5, ancestor=1.0).mistake
    2.0
    """

    fine: float  # share of samples whose class is right
    coarse: float  # share of samples whose class has the right parent
    tree_error: float  # TIE: mean distance in the tree from the prediction to the truth, in edges
    ancestor: float  # LCA: mean height of the last ancestor that a mistake shares with the truth; 0 without mistakes

    @property
    def mistake(self) -> float:
        """Mean distance in the tree of the mistakes alone; 0 where there are none."""
        return self.tree_error / (1 - self.fine) if self.fine < 1 else 0.0


def hierarchy_scores(predicted: Tensor | np.ndarray, truth: Tensor | np.ndarray, tree: ClassTree) -> HierarchyScores:
    """Predictions judged on the tree of their classes.   (N,), (N,) -> HierarchyScores

    >>> tree = ClassTree.of_groups([0, 0, 1])
    >>> hierarchy_scores(np.array([0, 1, 2, 2]), np.array([0, 0, 0, 2]), tree)
    HierarchyScores(fine=0.5, coarse=0.75, tree_error=1.5, ancestor=1.5)
    """
    a, b = (torch.as_tensor(values).cpu().numpy() for values in (predicted, truth))
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise UserError(
            f"predictions {a.shape} and truths {b.shape}: give as many of one as of the other, and at least one."
        )
    lowest, highest = min(a.min(), b.min()), max(a.max(), b.max())
    if lowest < 0 or highest >= tree.classes:
        wrong = lowest if lowest < 0 else highest
        raise UserError(f"class {wrong} in a tree of {tree.classes}: number classes from 0 in the order of the tree.")
    coarse, heights = tree.parents[a] == tree.parents[b], tree.height[tree.common[a, b]]
    return HierarchyScores(
        fine=float((a == b).mean()),
        coarse=float(coarse.mean()),
        tree_error=float(tree.distances[a, b].mean()),
        ancestor=float(heights[a != b].mean()) if (a != b).any() else 0.0,
    )


class Judged:
    """The answers of a classifier, batch by batch. Sums of several processes add up."""

    def __init__(self, tree: ClassTree | None, device: torch.device):
        self.tree = tree
        self.total = torch.zeros(
            3, dtype=torch.float64, device=device
        )  # of the loss, of right and nearly right answers
        self.predicted: list[Tensor] = []
        self.truths: list[Tensor] = []

    def add(self, logits: Tensor, truth: Tensor, counted: Tensor) -> None:
        """Of pictures that are not `counted`, which only fill up a batch, nothing is kept.   (B, K), (B,), (B,) bool"""
        best = logits.topk(min(5, logits.shape[1])).indices
        right = best == truth[:, None]
        costs = F.cross_entropy(logits, truth, reduction="none")
        seen = torch.stack([costs, right[:, 0].float(), right.any(1).float()])
        self.total += torch.where(counted, seen, 0).double().sum(1)  # not seen · counted: 0 · NaN is NaN
        self.predicted.append(torch.where(counted, best[:, 0], -1))
        self.truths.append(truth)

    def sums(self) -> Tensor:
        """loss, top1, top5, and on a tree coarse, tree_error; last how many.   -> (6,)"""
        predicted, truths = (torch.cat(parts).cpu() for parts in (self.predicted, self.truths))
        predicted, truths = predicted[predicted >= 0], truths[predicted >= 0]
        count = len(truths)
        on_tree = [0.0, 0.0]
        if self.tree is not None and count:
            scores = hierarchy_scores(predicted, truths, self.tree)
            on_tree = [scores.coarse * count, scores.tree_error * count]
        more = torch.tensor([*on_tree, float(count)], dtype=torch.float64, device=self.total.device)
        return torch.cat([self.total, more])

    def scores(self, sums: Tensor) -> dict[str, float]:
        """Means, of the sums of all processes."""
        names = ("loss", "top1", "top5", *(("coarse", "tree_error") if self.tree is not None else ()))
        return dict(zip(names, (sums[:-1] / sums[-1]).tolist(), strict=False))


@torch.no_grad()
def judge_pictures(
    model: nn.Module, data: ImageData, size: int, augmentation: Augmentation, world: Shared, channels: int = 3
) -> tuple[dict[str, float], Tensor]:
    """How well a model in eval mode knows the pictures held out: loss, top1, top5; on a tree coarse and tree_error.

    Beside the scores, on a tree of not too many classes, the sums of its answers to each, and how many they are.
    -> (K, K + 1), or (0, 1)
    All processes share the work, in as many batches of one shape: what fills up the last ones counts for nothing.
    """
    held = data.valid
    rows = min(EVAL_ROWS, -(-len(held) // world.size))
    rounds = -(-len(held) // (rows * world.size))
    places = np.arange(rounds * rows * world.size).reshape(-1, world.size, rows)[:, world.rank]
    still = np.zeros((rows, 4))

    def start(number: int) -> Later:
        return held.pictures.crops(held.numbers[places[number] % len(held)], augmentation.still_box, still, size)

    judged = Judged(data.tree, world.device)
    count = len(data.classes) if data.tree is not None and len(data.classes) <= PLACED else 0
    answers = torch.zeros(count, count + 1, dtype=torch.float64, device=world.device)
    for place, pixels in zip(places, ahead(start, len(places)), strict=True):
        images = on_device(pixels, world.device)
        truth = on_device(torch.from_numpy(held.labels[place % len(held)]), world.device)
        counted = on_device(torch.from_numpy(place < len(held)), world.device)
        with eager():  # to compile every block once more takes longer than to do without
            logits = model(laid_out(normalise(in_channels(images, channels)))).float()
        judged.add(logits, truth, counted)
        if count:
            answers.index_add_(0, truth[counted], F.pad(logits, (0, 1), value=1.0).double()[counted])
    return judged.scores(world.sum(judged.sums())), world.sum(answers).cpu()
