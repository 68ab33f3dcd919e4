"""The measures as their definitions read, one loop a quantifier."""

from itertools import combinations

import torch
from torch import Tensor


def delta_of(distances: list[list[float]]) -> float:
    """max (S1 - S2)/2 over all quadruples."""
    worst = 0.0
    for a, b, c, d in combinations(range(len(distances)), 4):
        sums = [distances[a][b] + distances[c][d], distances[a][c] + distances[b][d], distances[a][d] + distances[b][c]]
        *_, second, first = sorted(sums)
        worst = max(worst, (first - second) / 2)
    return worst


def reconstruction_of(distances: list[list[float]], relations: list[tuple[int, int]]) -> tuple[float, float]:
    """Mean rank and mAP; an unrelated node at the same distance counts as closer."""
    ranks, precisions = [], []
    for u in range(len(distances)):
        related = {v for w, v in relations if w == u and v != u}
        row = distances[u]
        precision = []
        for v in related:
            ahead = sum(row[w] <= row[v] for w in related)
            wrong = sum(row[w] <= row[v] for w in range(len(row)) if w not in related and w != u)
            ranks.append(1 + wrong)
            precision.append(ahead / (ahead + wrong))
        if related:
            precisions.append(sum(precision) / len(precision))
    return sum(ranks) / len(ranks), sum(precisions) / len(precisions)


class Table:
    """A finite metric as a manifold: a point is its number, and the distances are given."""

    def __init__(self, distances: Tensor):
        self.distances = distances

    @property
    def points(self) -> Tensor:
        return torch.arange(len(self.distances))[:, None].float()

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distances[x[..., 0].long(), y[..., 0].long()]

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return self.dist(x[:, None], y[None])

    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        return self.pairwise(x, y).square()

    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        return dist
