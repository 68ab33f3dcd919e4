"""Points for nodes that come later: each finds its place among points that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from horosphere.errors import UserError
from horosphere.geometry import Manifold, matched_curvature
from horosphere.models.node_embedding import Relations, among, contrast
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
    relations: np.ndarray | None = None,
    negatives: int = 256,
    steps: int = STEPS,
    pace: float | None = None,
    seed: int = 0,
) -> Tensor:
    """A point for each new node, from the fixed points of its neighbours.   (N, d), M lists of numbers -> (M, d)

    It minimises the loss of `node_embedding` over its own coordinates only:
    Σ_v -log e^{-d(u,v)}/(e^{-d(u,v)} + Σ_n e^{-d(u,n)}) over its neighbours v and random other nodes n.
    With `relations`, also the losses of the fixed nodes, to which it is one of the others. That keeps it off them:
    without, the best place of a node with one neighbour is that neighbour's.

    It begins at the midpoint of its neighbours. Riemannian Adam moves it, in float64; the result has the dtype of
    `points`. A seed decides everything. New nodes do not see each other: it does not matter which come together, and
    two with the same neighbours get one place.

    neighbours: of each new node the rows of `points` that it is related to, at least one.
    relations: (P, 2), those that the points were trained on; both directions of each where it is mutual.
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
    fixed, draws = points.detach().double(), min(negatives, len(points))
    crowd = _Crowd.without(fixed) if relations is None else _Crowd.of(fixed, manifold, relations, draws, seed)
    pace = PACE / math.sqrt(matched_curvature(points.shape[1])) if pace is None else pace
    placed = [fixed[:0]]
    for i in range(0, len(rows), AT_ONCE):
        part = rows[i : i + AT_ONCE]
        row = torch.from_numpy(np.repeat(np.arange(len(part)), [len(own) for own in part])).to(fixed.device)
        related = torch.from_numpy(np.concatenate(part)).to(fixed.device)
        new = nn.Parameter(_midpoints(fixed, manifold, part))
        optimizer = RiemannianAdam([{"params": [new], "manifold": manifold}], lr=pace)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = pace * share_of_peak(step, steps, warmup=0.1, final=FINAL)
            others = _draw(len(fixed), draws, (seed, step), fixed.device)
            with torch.enable_grad():
                near = manifold.dist(new[row], fixed[related])
                far = manifold.pairwise(new, fixed[others])
                excluded = among(others, row, related, len(part), len(fixed))
                own = contrast(near, far, row, excluded).sum()
                loss = own + crowd.loss(near, far.masked_fill(excluded, torch.inf), related, others)
            (new.grad,) = torch.autograd.grad(loss, new)
            optimizer.step()
        placed.append(new.detach())
    return torch.cat(placed).to(points.dtype)


@dataclass(frozen=True)
class _Crowd:
    """The losses of the fixed nodes s, as far as they depend on one more node u among their negatives:

    w_s log(1 + e^{-d(s,u)}/A_s),   A_s = e^{-d(s,v)} + Σ_n e^{-d(s,n)}, the geometric mean over its w_s relations v
    """

    weight: Tensor  # (N,) w
    level: Tensor  # (N,) log A
    parents: float  # how often a neighbour of u, which is related to u and not u to it, has u among its negatives

    @staticmethod
    def without(fixed: Tensor) -> _Crowd:
        nothing = fixed.new_zeros(len(fixed))
        return _Crowd(nothing, nothing, 0.0)

    @staticmethod
    @torch.no_grad()
    def of(fixed: Tensor, manifold: Manifold, relations: np.ndarray, draws: int, seed: int) -> _Crowd:
        n, table = len(fixed), Relations(relations, len(fixed), fixed.device)
        others = _draw(n, draws, (seed,), fixed.device)
        level = fixed.new_zeros(n)
        for nodes in table.subjects.split(AT_ONCE):
            batch = table.batch(nodes)
            row, itself = batch["row"], torch.arange(len(nodes), device=nodes.device)
            left_out = torch.cat([row, itself]), torch.cat([batch["related"], nodes])
            far = manifold.pairwise(fixed[nodes], fixed[others]).masked_fill(
                among(others, *left_out, len(nodes), n), torch.inf
            )
            near = manifold.dist(fixed[nodes[row]], fixed[batch["related"]])
            every = torch.logaddexp(-near, (-far).logsumexp(-1)[row])
            level[nodes] = torch.zeros_like(level[nodes]).index_add_(0, row, every) / table.counts[nodes]
        there, back = (np.sort(relations[:, i] * n + relations[:, 1 - i]) for i in (0, 1))
        mutual = np.array_equal(there, back)
        return _Crowd(table.counts.double(), level, 0.0 if mutual else draws / n)

    def loss(self, near: Tensor, far: Tensor, related: Tensor, others: Tensor) -> Tensor:
        """near (P,) to `related`, far (M, K) to `others`, infinite to neighbours."""
        crowd = self.weight[others] * softplus(-far - self.level[others])
        above = self.weight[related] * softplus(-near - self.level[related])
        return crowd.sum() + self.parents * above.sum()


def _draw(n: int, draws: int, seed: tuple[int, ...], device: torch.device) -> Tensor:
    """Distinct rows.   -> (draws,)"""
    return torch.from_numpy(np.random.default_rng(seed).choice(n, draws, replace=False)).to(device)


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
