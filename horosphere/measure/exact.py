"""How well a tree that was placed without a training keeps its distances and neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.measure.reconstruction import placed
from horosphere.measure.sample import sample
from horosphere.models.exact_tree import ExactTree


@dataclass(frozen=True)
class Exactness:
    """Ratios q = d/(ℓ·steps) of distances to paths in the tree. A perfect placement has average 0 and the rest 1."""

    average: float  # mean |q - 1|
    worst: float  # max q / min q
    map: float  # mean average precision of neighbours in the tree, ranked by distance
    map_of_graph: float  # of neighbours in the graph: edges that the tree has dropped count too

    def rows(self) -> list[list[str]]:
        """For a table."""
        beside = f"; with the dropped edges {self.map_of_graph:.3f}" * (self.map_of_graph != self.map)
        return [
            ["mAP of edges", f"{self.map:.3f}  (1 is perfect{beside})"],
            ["average distortion", f"{self.average:.3f}  (0 is perfect)"],
            ["worst distortion", f"{self.worst:.2f}  (1 is perfect)"],
        ]


@torch.no_grad()
def exactness(
    exact: ExactTree, *, nodes: int = 1000, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Exactness:
    """All distances from at most `nodes` nodes, drawn by `seed`, against the tree. Memory for a few rows at once.

    As `measure.distortion` has it, but the scale is 1/ℓ: an edge has length 1.

    >>> from horosphere.data import Graph
    >>> exactness(ExactTree(Graph(["a", "b", "c"], [(1, 0), (2, 1)])))
    Exactness(average=0.0, worst=1.0, map=1.0, map_of_graph=1.0)
    """
    tree = exact.tree
    if not len(tree.edges):
        raise UserError("the graph has no edges: there are no path lengths to compare with.")
    neighbours = [graph.adjacency() for graph in (tree.kept(), tree.graph)]
    sources = sample(np.arange(len(exact)), nodes, seed)
    precisions: list[list[Tensor]] = [[], []]
    error, pairs, least, most, done = 0.0, 0, math.inf, 0.0, 0
    for block in exact.blocks(sources):
        here = sources[done : done + len(block)]
        steps = torch.from_numpy(tree.steps(here))
        block[steps == 1] = exact.edge_length  # neighbours are equally far: rounding must not rank them
        q = (block / (exact.edge_length * steps))[steps > 0]
        error, pairs = error + float((q - 1).abs().sum()), pairs + len(q)
        least, most = min(least, float(q.min())), max(most, float(q.max()))
        for adjacency, found in zip(neighbours, precisions, strict=True):
            row, related = (torch.from_numpy(index.astype(np.int64)) for index in adjacency[here].nonzero())
            found.append(_precisions(block, here, row, related))
        done += len(block)
        if progress:
            progress(done, len(sources))
    in_tree, in_graph = (float(torch.cat(found).mean()) for found in precisions)
    return Exactness(error / pairs, most / least, in_tree, in_graph)


def _precisions(lengths: Tensor, sources: np.ndarray, row: Tensor, related: Tensor) -> Tensor:
    """Average precision of each source that has neighbours: row (P,) sorted, related (P,).   (S, N) -> (≤ S,)"""
    length, sizes = lengths[row, related], torch.bincount(row, minlength=len(lengths))
    farthest = length.new_zeros(len(lengths)).scatter_reduce_(0, row, length, "amax")
    near = lengths <= farthest[:, None]
    near[row, related] = near[torch.arange(len(sources)), torch.from_numpy(sources)] = False
    other = near.nonzero(as_tuple=True)
    _, precision = placed(row, length, other[0], lengths[other])
    totals = torch.zeros(len(lengths), dtype=torch.float64).index_add_(0, row, precision)
    return (totals / sizes)[sizes > 0]
