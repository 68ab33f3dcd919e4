"""Ollivier's Ricci curvature: are the neighbours of two neighbours closer together than the two, or farther apart?"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure.sample import sample

if TYPE_CHECKING:
    from scipy.sparse import csr_array, sparray, spmatrix

COPIES = 256  # units of mass up to which assigning them one by one is faster than a linear program
SOURCES = 64  # searches of the graph at once: 26 MB among 50,000 tokens
ENTRIES = 2**20  # distances, or coordinates, at once: 8 MB in float64
ROUNDING = 1e-9  # what linear programs and sums of lengths leave of a zero


@dataclass(frozen=True, eq=False)
class Ricci:
    """κ(x, y) = 1 - W₁(m_x, m_y)/d(x, y) of each edge.

    Negative: a tree (its edges are bridges). 0: a grid, flat space. Positive: a clique, a sphere.

    >>> ricci = Ricci(np.array([(0, 1), (1, 2)]), np.array([-0.5, 0.25]), sampled=False)
    >>> ricci.mean, ricci.share_negative
    (-0.125, 0.5)
    """

    edges: np.ndarray  # (E, 2) int64
    curvature: np.ndarray  # (E,)
    sampled: bool  # there were more edges than these

    @property
    def mean(self) -> float:
        return float(self.curvature.mean())

    @property
    def std(self) -> float:
        return float(self.curvature.std())

    @property
    def share_negative(self) -> float:
        return float((self.curvature < -ROUNDING).mean())


def ollivier_ricci(
    graph: Graph | sparray | spmatrix,
    *,
    edges: int | None = 1000,
    laziness: float = 0.0,
    lengths: bool = False,
    seed: int = 0,
) -> Ricci:
    """Curvature of at most `edges` edges, drawn by `seed` (None: of all), of a graph or a symmetric adjacency (N, N).

    m_x has the mass `laziness` at x and the rest spread evenly over the neighbours of x, whatever the direction of
    edges. W₁ is the exact cost of moving m_x to m_y. Distances count edges; with `lengths` they add up the entries of
    the adjacency.

    >>> triangle = Graph(["a", "b", "c"], [(0, 1), (1, 2), (2, 0)], directed=False)
    >>> tree = Graph(["root", "a", "b", "c", "aa", "ab"], [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)])
    >>> ollivier_ricci(triangle).mean, ollivier_ricci(tree).curvature.round(3)
    (0.5, array([-0.667,  0.   ,  0.   ,  0.   ,  0.   ]))
    """
    if not 0 <= laziness < 1:
        raise UserError(
            f"laziness {laziness} is the share of mass that stays where it is. Give 0 or more, and less than 1."
        )
    adjacency = graph.adjacency() if isinstance(graph, Graph) else _checked(graph)
    above = adjacency.indices > (row := np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr)))
    pairs = np.stack([row[above], adjacency.indices[above]], axis=1).astype(np.int64)
    if not len(pairs):
        raise UserError("the graph has no edges: there is no curvature to measure.")
    chosen = pairs if edges is None else pairs[sample(np.arange(len(pairs)), edges, seed)]
    share = Fraction(str(laziness))  # 0.1 is meant as 1/10, not as the nearest binary fraction: its units stay few
    curvature = [_curvature(adjacency, x, y, share, lengths) for x, y in chosen.tolist()]
    return Ricci(chosen, np.array(curvature), sampled=len(chosen) < len(pairs))


def point_ricci(
    points: Tensor,
    manifold: Manifold,
    *,
    neighbours: int = 10,
    nodes: int = 2000,
    edges: int | None = 1000,
    laziness: float = 0.0,
    lengths: bool = False,
    seed: int = 0,
) -> Ricci:
    """Curvature of the graph that joins points (N, d) to their nearest `neighbours`, among at most `nodes` of them.

    Two points are joined if one of them is among the other's nearest. Distances count edges; with `lengths` they add
    up distances on the manifold. `seed` draws the points and the edges.
    The sign alone says nothing of hierarchy. Two points in many dimensions have few neighbours in common, so flat
    noise, and even a sphere, is negative too. Compare with `Euclidean().random` of the same shape.

    >>> from horosphere.geometry import Euclidean
    >>> points = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> point_ricci(points, Euclidean(), neighbours=5).mean < 0
    True
    """
    from scipy.sparse import csr_array

    chosen = sample(np.arange(len(points)), nodes, seed)
    if not 0 < neighbours < len(chosen):
        raise UserError(
            f"{neighbours} neighbours among {len(chosen)} points: "
            "give at least 1 neighbour, and more points than neighbours."
        )
    nearest, length = _nearest(points[torch.from_numpy(chosen)].double(), manifold, neighbours)
    if lengths and not length.all():
        raise UserError(
            "some points coincide, and an edge of length 0 has no curvature. "
            "Drop the copies, or count edges (lengths=False)."
        )
    entries = length.ravel() if lengths else np.ones(nearest.size)
    places = np.repeat(np.arange(len(chosen)), neighbours), nearest.ravel()
    directed = csr_array((entries, places), shape=(len(chosen),) * 2)
    ricci = ollivier_ricci(directed.maximum(directed.T), edges=edges, laziness=laziness, lengths=lengths, seed=seed)
    return Ricci(chosen[ricci.edges], ricci.curvature, ricci.sampled)


# -- one edge ---------------------------------------------------------------------------------------------------------


def _curvature(adjacency: csr_array, x: int, y: int, laziness: Fraction, lengths: bool) -> float:
    indices, indptr = adjacency.indices, adjacency.indptr
    x, y = sorted((x, y), key=lambda node: indptr[node + 1] - indptr[node])  # y has more neighbours: see _transport
    to_x, to_y = (slice(indptr[node], indptr[node + 1]) for node in (x, y))
    sizes = (1, len(indices[to_x]), 1, len(indices[to_y]))
    units = lcm(*sizes) * laziness.denominator  # every mass is a whole number of units
    stay, go = float(units * laziness), float(units * (1 - laziness))
    nodes, place = np.unique(np.concatenate([[x], indices[to_x], [y], indices[to_y]]), return_inverse=True)
    # m_x - m_y: the mass they share stays where it is
    excess = np.bincount(place, np.repeat([stay, go / sizes[1], -stay, -go / sizes[3]], sizes))
    give, take = excess > ROUNDING * units, excess < -ROUNDING * units
    if not give.any():
        return 1.0
    supply, demand, sources, targets = excess[give], -excess[take], nodes[give], nodes[take]
    if lengths:
        way = adjacency.data[to_x].max() + adjacency.data[to_y].max() + adjacency[x, y]  # by x and y
        limit = way * (1 + ROUNDING)
        distance, cost = _paths(adjacency, [x], [y], limit).item(), _paths(adjacency, sources, targets, limit)
    else:
        distance, cost = 1.0, _hops(adjacency, sources, targets)
    if units <= COPIES:
        return 1 - _assign(cost, supply, demand) / (units * distance)
    return 1 - _transport(cost, supply, demand, adjacency[[y]][:, targets].toarray()[0]) / (units * distance)


def _hops(adjacency: csr_array, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Edges between different nodes near x and near y: never more than 3, by way of x and y.   (S,), (T,) -> (S, T)"""
    rows = adjacency[sources]
    joined, share_neighbour = rows[:, targets].toarray() > 0, (rows @ adjacency[targets].T).toarray() > 0
    return np.where(joined, 1.0, np.where(share_neighbour, 2.0, 3.0))


def _paths(
    adjacency: csr_array, sources: np.ndarray | list[int], targets: np.ndarray | list[int], limit: float
) -> np.ndarray:
    """Shortest paths no longer than the limit, from the side with fewer nodes.   (S,), (T,) -> (S, T)"""
    from scipy.sparse.csgraph import dijkstra

    if len(targets) < len(sources):
        return _paths(adjacency, targets, sources, limit).T
    chunks = [
        dijkstra(adjacency, indices=sources[i : i + SOURCES], limit=limit)[:, targets]
        for i in range(0, len(sources), SOURCES)
    ]
    return np.concatenate(chunks)


def _assign(cost: np.ndarray, supply: np.ndarray, demand: np.ndarray) -> float:
    """Least cost of moving whole units, each on its own.   (S, T), (S,), (T,) -> float"""
    from scipy.optimize import linear_sum_assignment

    cost = cost.repeat(supply.round().astype(int), 0).repeat(demand.round().astype(int), 1)
    return float(cost[linear_sum_assignment(cost)].sum())


def _transport(cost: np.ndarray, supply: np.ndarray, demand: np.ndarray, last: np.ndarray) -> float:
    """Least cost of moving supply to demand: the cost of going by y, less what direct ways save.

    (S, T), (S,), (T,), (T,) -> float.  last: the step from y to each target.
    With detour_ij = first_i + last_j >= cost_ij and saved = detour - cost, it is
        Σ supply·first + Σ demand·last - max Σ f_ij saved_ij   over f >= 0 within supply and demand.
    We solve the dual, min supply·p + demand·q over p, q >= 0 with p_i + q_j >= saved_ij. It has S + T variables, and
    a constraint only for pairs that save something, which are few when y is a hub or a bridge.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    first = (cost - last).max(1)
    saved = first[:, None] + last - cost
    scale, mass, price = cost.max(), np.concatenate([supply, demand]), 0.0
    i, j = (saved > ROUNDING * scale).nonzero()
    if len(i):
        columns = np.stack([i, len(supply) + j], axis=1).ravel()
        pairs = csr_array(
            (-np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, 2)), shape=(len(i), len(mass))
        )
        # masses and costs are scaled to 1 because the solver's tolerances are absolute
        solved = linprog(mass / mass.sum(), A_ub=pairs, b_ub=-saved[i, j] / scale, method="highs")
        if not solved.success:
            raise RuntimeError(f"the transport problem of an edge was not solved: {solved.message}")
        price = solved.fun * mass.sum() * scale
    return float(supply @ first + demand @ last - price)


# -- the graph --------------------------------------------------------------------------------------------------------


def _checked(adjacency: sparray | spmatrix) -> csr_array:
    """A copy of the adjacency, checked: symmetric, positive, no loops. Its indices are int32, as csgraph wants them."""
    from scipy.sparse import csr_array

    if adjacency.shape[0] != adjacency.shape[1]:
        raise UserError(f"an adjacency is square, and this has shape {adjacency.shape}.")
    checked = csr_array(adjacency, dtype=np.float64, copy=True)
    checked.sum_duplicates()
    checked.eliminate_zeros()
    if not (np.isfinite(checked.data) & (checked.data > 0)).all():
        raise UserError(
            "some entries of the adjacency are negative, inf or nan. Give positive lengths, or 1 for each edge."
        )
    if (loops := checked.diagonal().nonzero()[0]).size:
        raise UserError(f"node {loops[0]} has an edge to itself. Set the diagonal of the adjacency to 0.")
    if (checked != checked.T).nnz:
        raise UserError("the adjacency is not symmetric. Give a.maximum(a.T) to ignore the direction of edges.")
    checked.indices, checked.indptr = checked.indices.astype(np.int32), checked.indptr.astype(np.int32)
    return checked


def _nearest(points: Tensor, manifold: Manifold, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest other points of each, and how far they are.   (N, d) -> (N, k), (N, k)

    One matrix product a block finds the few that may be among them, and `dist` decides: the product cannot order
    neighbours far from the origin.
    """
    rows = torch.arange(len(points)).split(max(1, ENTRIES // len(points)))
    blocks = [_nearest_block(points, manifold, block, k) for block in rows]
    nearest, length = (torch.cat(parts).cpu().numpy() for parts in zip(*blocks, strict=True))
    return nearest, length


@torch.no_grad()
def _nearest_block(points: Tensor, manifold: Manifold, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, d), (B,) -> (B, k), (B, k)"""
    rows = rows.to(points.device)
    here = torch.arange(len(rows), device=points.device)
    rough = manifold.pairwise(points[rows], points)
    rough[here, rows] = torch.inf
    candidates = rough.topk(k, largest=False).indices
    farthest = _lengths(points, manifold, rows.repeat_interleave(k), candidates.flatten()).view(-1, k).amax(1)
    if not farthest.isfinite().all():
        raise UserError("some distances are inf or nan: points must be finite, and inside their manifold.")
    row, other = (rough <= manifold.pairwise_reach(points[rows], points, farthest)[:, None]).nonzero(as_tuple=True)
    exact = torch.full_like(rough, torch.inf)
    exact[row, other] = _lengths(points, manifold, rows[row], other)
    length, nearest = exact.topk(k, largest=False)
    return nearest, length


def _lengths(points: Tensor, manifold: Manifold, i: Tensor, j: Tensor) -> Tensor:
    """(N, d), (P,), (P,) -> (P,)"""
    size = max(1, ENTRIES // points.shape[1])
    return torch.cat([manifold.dist(points[a], points[b]) for a, b in zip(i.split(size), j.split(size), strict=True)])
