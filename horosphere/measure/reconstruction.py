"""Does an embedding still know its graph? Mean rank and mAP of the related nodes (Nickel and Kiela 2017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure.sample import sample

# distances at once: 8 MB in float64, which stays in cache, and ten times that for an embedding that learned nothing
ENTRIES = 2**20
GPU_ENTRIES = 2**24  # more on a GPU: a kernel launch costs more than the cache saves


@dataclass(frozen=True)
class Reconstruction:
    """1 and 1 are perfect: every node is closer to all its relations than to any other node."""

    mean_rank: float
    map: float
    nodes: int  # how many were evaluated

    def rows(self) -> list[list[str]]:
        """For a table."""
        return [
            ["mean rank", f"{self.mean_rank:.2f}  (1 is perfect)"],
            ["mAP", f"{self.map:.3f}  (1 is perfect)"],
            ["nodes ranked", f"{self.nodes:,}"],
        ]


@torch.no_grad()
def reconstruction(
    points: Tensor,
    manifold: Manifold,
    relations: np.ndarray | Tensor,
    *,
    nodes: np.ndarray | int | None = None,
    seed: int = 0,
    block: int | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Mean rank and mAP of the relations (P, 2) among points (N, d).

    R(u,v), W(u,v): the related and the unrelated nodes at most as far from u as v is, u itself aside.
    rank(u,v) = 1 + W, averaged over pairs;   AP(u) = mean over v of R/(R + W), averaged over nodes.
    A tie with an unrelated node counts against, as in scikit-learn: points that all coincide must not look perfect.

    nodes: evaluate these only, or that many drawn by `seed`. Those without relations are left out.
    block: nodes evaluated at once, in float64, by one matrix product, and `dist` for the near ones.

    >>> from horosphere.geometry import Euclidean
    >>> points = torch.tensor([[0.0], [1.0], [3.0]])  # 2 is related to 0, but 1 is nearer
    >>> reconstruction(points, Euclidean(), np.array([(0, 1), (2, 0)]))
    Reconstruction(mean_rank=1.5, map=0.75, nodes=2)
    """
    points = points.to(device=device, dtype=torch.float64)
    subject, target = _pairs(relations, len(points))
    # the relations of u are target[starts[u]:starts[u + 1]]
    starts = torch.searchsorted(subject, torch.arange(len(points) + 1))
    chosen = _choose(starts.diff().nonzero()[:, 0], nodes, seed)
    block = block or max(1, (GPU_ENTRIES if points.is_cuda else ENTRIES) // len(points))
    ranks = precisions = torch.zeros((), dtype=torch.float64, device=points.device)
    count = 0
    for i in range(0, len(chosen), block):
        rows = chosen[i : i + block]
        sizes = starts[rows + 1] - starts[rows]
        row = torch.arange(len(rows)).repeat_interleave(sizes)
        related = target[(starts[rows + 1] - sizes.cumsum(0))[row] + torch.arange(len(row))]
        rows, row, related, sizes = (index.to(points.device) for index in (rows, row, related, sizes))
        rank, precision = _rank_block(points, manifold, rows, row, related)
        ranks = ranks + rank.sum()
        totals = torch.zeros_like(sizes, dtype=precision.dtype).index_add_(0, row, precision)
        precisions = precisions + (totals / sizes).sum()
        count += len(row)
        if progress:
            progress(i + len(rows), len(chosen))
    return Reconstruction(float(ranks) / count, float(precisions) / len(chosen), len(chosen))


def _rank_block(
    points: Tensor, manifold: Manifold, rows: Tensor, row: Tensor, related: Tensor
) -> tuple[Tensor, Tensor]:
    """Rank 1 + W and precision R/(R + W) of each related node, row by row, nearest first.

    (N, d), (B,), (P,), (P,) -> (P,), (P,)
    rows: the node that each row belongs to. row (sorted, every row at least once), related: the P pairs.
    Nodes beyond a row's farthest relation change nothing. One matrix product finds the few that may be before it, and
    `dist` decides: the product alone cannot order neighbours far from the origin. No row is sorted.
    """
    here = torch.arange(len(rows), device=rows.device)
    length = manifold.dist(points[rows[row]], points[related])
    if not length.sum().isfinite():
        raise UserError(
            "some distances are inf or nan: the embedding diverged, or touches the boundary of its ball. "
            "Lower the learning rate."
        )
    farthest = length.new_zeros(len(rows)).scatter_reduce_(0, row, length, "amax")
    near = manifold.pairwise(points[rows], points) <= manifold.pairwise_reach(points[rows], points, farthest)[:, None]
    near[row, related] = near[here, rows] = False
    other_row, other = near.nonzero(as_tuple=True)
    other_length = torch.cat(
        [
            manifold.dist(points[rows[i]], points[j])
            for i, j in zip(other_row.split(ENTRIES), other.split(ENTRIES), strict=True)
        ]
    )

    before = other_length <= farthest[other_row]
    return placed(row, length, other_row[before], other_length[before])


def placed(row: Tensor, length: Tensor, other_row: Tensor, other_length: Tensor) -> tuple[Tensor, Tensor]:
    """Rank 1 + W and precision R/(R + W) of each related node, row by row, nearest first.

    row (P,) sorted, length (P,): the distances of the related nodes. other_row (Q,), other_length (Q,): of unrelated
    nodes, those that may be before some related one of their row.

    >>> row, length = torch.tensor([0, 0]), torch.tensor([1.0, 3.0])
    >>> placed(row, length, torch.tensor([0]), torch.tensor([2.0]))  # one other lies between the two
    (tensor([1, 2]), tensor([1.0000, 0.6667], dtype=torch.float64))
    """
    # (row, distance) becomes one integer: a distance is the number of relations in the whole block that are closer.
    # That orders it exactly against every relation of its row; a node beyond all of them counts for none.
    levels, width = length.sort().values, len(length) + 1
    order = (row * width + torch.searchsorted(levels, length)).sort().values
    others = other_row * width + torch.searchsorted(levels, other_length)

    first = torch.searchsorted(row, row)
    related_before = torch.searchsorted(order, order, right=True) - first
    counted = torch.bincount(torch.searchsorted(order, others), minlength=len(order)).cumsum(0)
    unrelated_before = counted - torch.cat([counted.new_zeros(1), counted])[first]
    return 1 + unrelated_before, related_before / (related_before + unrelated_before).double()


def _pairs(relations: np.ndarray | Tensor, n: int) -> Tensor:
    """The relations, sorted, each once, without those of a node with itself.   (P, 2) -> (2, P')"""
    pairs = torch.as_tensor(relations).cpu()
    if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < n:
        raise UserError(
            f"a relation names node {int(pairs.max())}, but there are {n} points. "
            "Give the graph these points were trained on."
        )
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    code = (pairs[:, 0] * n + pairs[:, 1]).unique()
    return torch.stack([code // n, code % n])


def _choose(related: Tensor, nodes: np.ndarray | int | None, seed: int) -> Tensor:
    """The nodes to evaluate, of those with relations."""
    if isinstance(nodes, int):
        related = torch.from_numpy(sample(related.numpy(), nodes, seed))
    elif nodes is not None:
        related = related[torch.isin(related, torch.as_tensor(nodes))]
    if not len(related):
        raise UserError("no node has a relation: there is nothing to rank. Give a graph with edges, or other nodes.")
    return related
