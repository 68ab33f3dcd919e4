"""Points for nodes that come later: each finds its place among points that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold, matched_curvature
from horosphere.models.node_embedding import among, contrast
from horosphere.optim import RiemannianAdam
from horosphere.optim.schedules import share_of_peak

STEPS = 300
PACE = 0.07  # the longest step, in curvature radii: the learning rate of the recipe `embedding`
FINAL = 0.02  # the share of it at the end: what random negatives still move is averaged away
AT_ONCE = 4096  # new points; each is placed by itself, so it does not matter how they are cut


def place_new(
    points: Tensor,
    manifold: Manifold,
    neighbours: Sequence[Sequence[int]],
    *,
    negatives: int = 256,
    steps: int = STEPS,
    pace: float | None = None,
    seed: int = 0,
) -> Tensor:
    """A point for each new node, from the fixed points of its neighbours.   (N, d), M lists of numbers -> (M, d)

    It minimises the loss of `node_embedding` over its own coordinates only:
    Σ_v -log e^{-d(u,v)}/(e^{-d(u,v)} + Σ_n e^{-d(u,n)}) over its neighbours v and random other nodes n.

    It begins at the midpoint of its neighbours. Riemannian Adam moves it, in float64; the result has the dtype of
    `points`. A seed decides everything. New nodes do not see each other: it does not matter which come together, and
    two with the same neighbours get one place.

    neighbours: of each new node the rows of `points` that it is related to, at least one.
    negatives: random rows that a step pushes away, at most as many as there are.
    pace: the longest step; none: PACE/√c with the c that suits d dimensions (`matched_curvature`).

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> points = L.exp0(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, -3.0]]))
    >>> new = place_new(points, L, [[0], [2]])
    >>> L.pairwise(new, points).argmin(1)  # each lies by its neighbour
    tensor([0, 2])
    """
    rows = _rows(neighbours, len(points))
    pace = PACE / math.sqrt(matched_curvature(points.shape[1])) if pace is None else pace
    fixed, draws = points.detach().double(), min(negatives, len(points))
    parts = [
        _placed(fixed, manifold, rows[i : i + AT_ONCE], draws, steps, pace, seed) for i in range(0, len(rows), AT_ONCE)
    ]
    return torch.cat([fixed[:0], *parts]).to(points.dtype)


def _placed(
    fixed: Tensor, manifold: Manifold, rows: list[np.ndarray], draws: int, steps: int, pace: float, seed: int
) -> Tensor:
    count, device = len(rows), fixed.device
    row = torch.from_numpy(np.repeat(np.arange(count), [len(own) for own in rows])).to(device)
    related = torch.from_numpy(np.concatenate(rows)).to(device)
    new = nn.Parameter(_midpoints(fixed, manifold, rows))
    optimizer = RiemannianAdam([{"params": [new], "manifold": manifold}], lr=pace)
    with torch.enable_grad():
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = pace * share_of_peak(step, steps, warmup=0.1, final=FINAL)
            chosen = np.random.default_rng((seed, step)).permutation(len(fixed))[:draws]
            others = torch.from_numpy(chosen).to(device)
            loss = contrast(
                manifold.dist(new[row], fixed[related]),
                manifold.pairwise(new, fixed[others]),
                row,
                among(others, row, related, count, len(fixed)),
            ).sum()
            (new.grad,) = torch.autograd.grad(loss, new)
            optimizer.step()
    return new.detach()


def _midpoints(fixed: Tensor, manifold: Manifold, rows: list[np.ndarray]) -> Tensor:
    """Lists of one length at a time.   -> (M, d)"""
    out = fixed.new_empty(len(rows), fixed.shape[1])
    sizes = np.array([len(own) for own in rows])
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        numbers = torch.from_numpy(np.stack([rows[i] for i in which])).to(fixed.device)
        out[torch.from_numpy(which).to(fixed.device)] = manifold.midpoint(fixed[numbers])
    return out


def _rows(neighbours: Sequence[Sequence[int]], n: int) -> list[np.ndarray]:
    """Each number once, all of them rows that there are."""
    rows = [np.unique(np.asarray(own, dtype=np.int64)) for own in neighbours]
    for place, own in enumerate(rows):
        if not len(own):
            raise UserError(f"new node {place} has no neighbours, so it has no place; give at least one that is there")
        if own[0] < 0 or own[-1] >= n:
            wrong = own[0] if own[0] < 0 else own[-1]
            raise UserError(f"new node {place} names the neighbour {wrong}, but there are {n} points; number from 0")
    return rows
