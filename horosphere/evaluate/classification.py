"""How often a classifier is right, and how far off on the tree of classes where it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.classes import ClassTree
from horosphere.errors import UserError


@dataclass(frozen=True)
class HierarchyScores:
    """How a classifier does on a tree of classes.

    >>> HierarchyScores(fine=0.75, coarse=0.9, tree_error=0.5).mistake
    2.0
    """

    fine: float  # share of samples whose class is right
    coarse: float  # share of samples whose class has the right parent
    tree_error: float  # mean distance in the tree from the prediction to the truth, in edges

    @property
    def mistake(self) -> float:
        """Mean distance in the tree of the mistakes alone; 0 where there are none."""
        return self.tree_error / (1 - self.fine) if self.fine < 1 else 0.0


def hierarchy_scores(predicted: Tensor | np.ndarray, truth: Tensor | np.ndarray, tree: ClassTree) -> HierarchyScores:
    """Predictions judged on the tree of their classes.   (N,), (N,) -> HierarchyScores

    >>> tree = ClassTree.of_groups([0, 0, 1])
    >>> hierarchy_scores(np.array([0, 1, 2, 2]), np.array([0, 0, 0, 2]), tree)
    HierarchyScores(fine=0.5, coarse=0.75, tree_error=1.5)
    """
    a, b = (torch.as_tensor(values).cpu().numpy() for values in (predicted, truth))
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise UserError(
            f"predictions {a.shape} and truths {b.shape}: give as many of one as of the other, and at least one."
        )
    lowest, highest = min(a.min(), b.min()), max(a.max(), b.max())
    if lowest < 0 or highest >= tree.classes:
        raise UserError(f"class {highest} in a tree of {tree.classes}: number classes from 0 in the order of the tree.")
    coarse = tree.parents[a] == tree.parents[b]
    return HierarchyScores(float((a == b).mean()), float(coarse.mean()), float(tree.distances[a, b].mean()))
