"""Does a classifier know how its classes are related? Distances of classes to their parents and siblings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.classes import ClassTree
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold


@dataclass(frozen=True)
class ClassDistances:
    """Mean distances of classes. In a good hierarchy parent < sibling < stranger. NaN where there is no such pair."""

    parent: float  # of a class and its parent
    sibling: float  # of two classes with one parent
    stranger: float  # of two classes with different parents

    def in_strangers(self) -> dict[str, float]:
        """parent and sibling in units of strangers; not where a class has no pictures, or no siblings."""
        shares = {"parent": self.parent / self.stranger, "sibling": self.sibling / self.stranger}
        return {name: share for name, share in shares.items() if math.isfinite(share)}


@torch.no_grad()
def class_distances(points: Tensor, tree: ClassTree, manifold: Manifold | None = None) -> ClassDistances:
    """Are classes near their parents and their siblings?   (M, d) or (K, d) -> ClassDistances

    Where only classes have points (K, d), a parent's point is the midpoint of its children's. The manifold is flat
    space by default.

    >>> tree = ClassTree.of_groups([0, 0, 1, 1])
    >>> class_distances(torch.tensor([[0.0], [1.0], [4.0], [5.0]]), tree)
    ClassDistances(parent=0.5, sibling=1.0, stranger=4.0)
    """
    manifold = manifold or Euclidean()
    points = points.detach().double()
    if points.ndim != 2 or len(points) not in (tree.classes, len(tree.parents)):
        raise UserError(f"points {tuple(points.shape)} for {tree}: give one for each class, or one for each node.")
    if len(points) < len(tree.parents):
        points = with_parents(points, tree, manifold)
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


def with_parents(points: Tensor, tree: ClassTree, manifold: Manifold) -> Tensor:
    """Points for all nodes: a parent is the midpoint of its children.   (K, d) -> (M, d)

    >>> with_parents(torch.tensor([[0.0], [1.0], [4.0]]), ClassTree.of_groups([0, 0, 1]), Euclidean())[:, 0]
    tensor([0.0000, 1.0000, 4.0000, 0.5000, 4.0000, 2.2500])
    """
    places = points.new_zeros(len(tree.parents), points.shape[1])
    places[: tree.classes] = points
    for node in sorted(range(tree.classes, len(tree.parents)), key=lambda node: -tree.depth[node]):
        children = np.flatnonzero(tree.parents == node)
        if not len(children):
            raise UserError(
                f"node {node} of the tree has no children and is no class: leave it out, or give a point for each node."
            )
        places[node] = manifold.midpoint(places[children])
    return places
