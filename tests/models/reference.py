"""The loss of a node embedding as its definition reads, one loop a quantifier."""

import math

import torch
from torch import Tensor

from horosphere.geometry import Manifold


def loss_of(
    points: Tensor, manifold: Manifold, relations: list[tuple[int, int]], nodes: list[int], negatives: list[int]
) -> float:
    """Mean over relations (u, v) of -log e^{-d(u,v)} / (e^{-d(u,v)} + Σ e^{-d(u,n)}), n neither u nor related to u."""

    def near(u: int, v: int) -> float:
        return math.exp(-float(manifold.dist(points[u], points[v])))

    losses = []
    for u in nodes:
        related = [v for w, v in relations if w == u]
        others = sum(near(u, n) for n in negatives if n != u and n not in related)
        losses += [-math.log(near(u, v) / (near(u, v) + others)) for v in related]
    return float(torch.tensor(losses, dtype=torch.float64).mean())
