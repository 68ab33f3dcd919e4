"""Does a classifier know how its classes are related? Mistakes weighed on the tree of classes, and the places of classes beside their parents'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold


@dataclass(frozen=True, eq=False, repr=False)
class ClassTree:
    """A rooted tree of M nodes whose leaves are the K classes: nodes 0 … K - 1."""

    parents: np.ndarray  # (M,) int64: the parent of each node, -1 for the root
    classes: int  # K

    def __post_init__(self) -> None:
        parents = np.asarray(self.parents)
        if parents.ndim != 1 or not np.issubdtype(parents.dtype, np.integer):
            raise UserError(
                f"a tree is a list of parents, whole numbers; this one has shape {parents.shape} and type {parents.dtype}."
            )
        parents = parents.astype(np.int64)
        object.__setattr__(self, "parents", parents)
        roots = np.flatnonzero(parents < 0)
        if len(roots) != 1:
            raise UserError(f"the tree has {len(roots)} nodes without a parent (-1): give it one root.")
        if parents.max(initial=-1) >= len(parents):
            raise UserError(
                f"node {parents.argmax()} has parent {parents.max()}, but there are {len(parents)} nodes. Number them from 0."
            )
        if not 0 < self.classes <= len(parents):
            raise UserError(
                f"{self.classes} classes in a tree of {len(parents)} nodes: the classes are its first nodes, at least one."
            )
        if (inner := parents[(parents >= 0) & (parents < self.classes)]).size:
            raise UserError(
                f"class {inner[0]} is the parent of another node: the classes, nodes 0 to {self.classes - 1}, must be leaves."
            )
        if len(self.depth) and self.depth.min() < 0:
            raise UserError(
                f"node {self.depth.argmin()} does not lead to the root: its ancestors go round in a circle."
            )

    def __repr__(self) -> str:
        return f"ClassTree({self.classes} classes, {len(self.parents)} nodes)"

    @staticmethod
    def of_groups(groups: Sequence[int] | np.ndarray) -> ClassTree:
        """Classes, their groups, a root: groups[k] is the group of class k, numbered from 0.   (K,) -> ClassTree"""
        groups = np.asarray(groups).astype(np.int64)
        if groups.ndim != 1 or not groups.size or groups.min() < 0:
            raise UserError("groups of classes are a list of numbers from 0, one for each class.")
        classes, count = len(groups), int(groups.max()) + 1
        return ClassTree(np.concatenate([groups + classes, np.full(count, classes + count), [-1]]), classes)

    @cached_property
    def depth(self) -> np.ndarray:
        """Edges to the root; -1 where there is no way.   -> (M,)"""
        depth = np.where(self.parents < 0, 0, -1)
        while True:
            new = np.where((depth < 0) & (depth[self.parents] >= 0), depth[self.parents] + 1, depth)
            if (new == depth).all():
                return depth
            depth = new

    @cached_property
    def distances(self) -> np.ndarray:
        """Edges on the way from class to class, depth_a + depth_b - 2·depth of the last ancestor they share.   -> (K, K) int64"""
        on_path = np.zeros((self.classes, len(self.parents)), dtype=np.float32)
        node = np.arange(self.classes)
        while (node >= 0).any():
            at = np.flatnonzero(node >= 0)
            on_path[at, node[at]] = 1
            node = np.where(node >= 0, self.parents[node], -1)
        shared = (on_path @ on_path.T).astype(np.int64) - 1
        depth = self.depth[: self.classes]
        return depth[:, None] + depth[None, :] - 2 * shared


# -- mistakes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HierarchyScores:
    fine: float  # share of samples whose class is right
    coarse: float  # share of samples whose class has the right parent
    tree_error: float  # mean distance in the tree from the prediction to the truth, in edges

    @property
    def mistake(self) -> float:
        """Mean distance in the tree of the mistakes alone; 0 where there are none."""
        return self.tree_error / (1 - self.fine) if self.fine < 1 else 0.0


def hierarchy_scores(predicted: Tensor | np.ndarray, truth: Tensor | np.ndarray, tree: ClassTree) -> HierarchyScores:
    """Predictions judged on the tree of their classes.   (N,), (N,) -> HierarchyScores"""
    a, b = (torch.as_tensor(values).cpu().numpy() for values in (predicted, truth))
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise UserError(
            f"predictions {a.shape} and truths {b.shape}: give as many of one as of the other, and at least one."
        )
    if min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= tree.classes:
        raise UserError(
            f"class {max(a.max(), b.max())} in a tree of {tree.classes}: number classes from 0 in the order of the tree."
        )
    coarse = tree.parents[a] == tree.parents[b]
    return HierarchyScores(float((a == b).mean()), float(coarse.mean()), float(tree.distances[a, b].mean()))


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassDistances:
    """Mean distances of the points of classes. In a good hierarchy parent < sibling < stranger."""

    parent: float  # of a class and its parent
    sibling: float  # of two classes with one parent; NaN where there are none, as for strangers
    stranger: float  # of two classes with different parents


@torch.no_grad()
def class_distances(points: Tensor, tree: ClassTree, manifold: Manifold | None = None) -> ClassDistances:
    """Are classes near their parents and their siblings?   (M, d) or (K, d) -> ClassDistances

    Of classes alone (K, d), a parent's point is the midpoint of its children's. The manifold is flat space by default.
    """
    manifold = manifold or Euclidean()
    points = points.detach().double()
    if points.ndim != 2 or len(points) not in (tree.classes, len(tree.parents)):
        raise UserError(f"points {tuple(points.shape)} for {tree}: give one for each class, or one for each node.")
    if len(points) < len(tree.parents):
        points = _with_parents(points, tree, manifold)
    parents = torch.as_tensor(tree.parents[: tree.classes], device=points.device)
    classes = points[: tree.classes]
    lengths = manifold.pairwise(classes, classes)
    pair = torch.ones_like(lengths, dtype=torch.bool).triu(1)
    kin = parents[:, None] == parents
    return ClassDistances(
        float(manifold.dist(classes, points[parents]).mean()),
        float(lengths[pair & kin].mean()),
        float(lengths[pair & ~kin].mean()),
    )


def _with_parents(points: Tensor, tree: ClassTree, manifold: Manifold) -> Tensor:
    """Points for all nodes, from the deepest parents up.   (K, d) -> (M, d)"""
    found = points.new_zeros(len(tree.parents), points.shape[1])
    found[: tree.classes] = points
    for node in sorted(range(tree.classes, len(tree.parents)), key=lambda node: -tree.depth[node]):
        children = np.flatnonzero(tree.parents == node)
        if not len(children):
            raise UserError(
                f"node {node} of the tree has no children and is no class: leave it out, or give a point for each node."
            )
        found[node] = manifold.midpoint(found[children])
    return found
