"""Gromov's δ: how far a metric is from that of a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold
from horosphere.measure.sample import sample

EXACT_NODES = 200  # up to so many, all quadruples take about a second in any metric
PAIRS, EARLIER = 256, 1024  # pairs against pairs at once: 2 MB in float64, which stays in cache
QUADRUPLES = 2**18  # sampled at once
SOURCES = 64  # searches of the graph at once: 21 MB on WordNet


@dataclass(frozen=True)
class Delta:
    """max (S1 - S2)/2 over quadruples, with S1 >= S2 >= S3 the three sums of opposite distances.

    0: a tree. At most ln 2/√c: the hyperbolic plane of curvature -c. Grows with the diameter: flat space.

    >>> Delta(delta=0.5, diameter=4.0, quadruples=1, exact=True).relative
    0.25
    """

    delta: float
    diameter: float
    quadruples: int
    exact: bool  # no quadruple of the nodes given is worse; else δ is a lower bound
    share: float = 1.0  # share of the graph's nodes in its largest component, the only one measured
    sampled: int | None = None  # nodes drawn of those; None: all

    @property
    def relative(self) -> float:
        """2δ/diameter, free of scale: 0 for a tree, 1 for the worst metric."""
        return 2 * self.delta / self.diameter if self.diameter else 0.0

    def rows(self, nodes: int) -> list[list[str]]:
        """For a table; `nodes`: of the whole graph."""
        how = "exact" if self.exact else f"largest of {self.quadruples:,} sampled quadruples: a lower bound"
        if self.sampled is not None:
            how = f"among {self.sampled:,} nodes drawn at random: a lower bound"
        part = f"  ({self.share:.0%} of them in the largest connected part, the one measured)" * (self.share < 1)
        return [
            ["nodes", f"{nodes:,}{part}"],
            ["δ", f"{self.delta:.3f}  ({how})"],
            ["diameter", f"{self.diameter:.3f}"],
            ["2δ/diameter", f"{self.relative:.3f}  (0 is a tree, 1 the least tree-like)"],
        ]


def delta(
    source: Graph | Tensor,
    manifold: Manifold | None = None,
    *,
    exact: bool | None = None,
    nodes: int = 1000,
    samples: int = 1_000_000,
    seed: int = 0,
) -> Delta:
    """δ of a graph's path lengths, or of points (N, d) on a manifold, by default Euclidean.

    It is taken among at most `nodes` nodes, drawn by `seed`. A disconnected graph is measured on its largest component.
    exact=None: all quadruples up to 200 nodes, `samples` random ones beyond.

    >>> path = Graph(["a", "b", "c", "d", "e"], [(0, 1), (1, 2), (2, 3), (3, 4)])
    >>> square = Graph(["a", "b", "c", "d"], [(0, 1), (1, 2), (2, 3), (3, 0)], directed=False)
    >>> delta(path).delta, delta(square).delta
    (0.0, 1.0)
    """
    everything = _largest_component(source) if isinstance(source, Graph) else np.arange(len(source))
    _require_four(len(everything))
    drawn = sample(everything, nodes, seed)
    if isinstance(source, Graph):
        distances = _path_lengths(source, drawn)
    else:
        distances = _distances(source[drawn], manifold or Euclidean())
    part: Any = {"share": len(everything) / len(source)}
    part["sampled"] = len(drawn) if len(drawn) < len(everything) else None
    if exact or (exact is None and len(distances) <= EXACT_NODES):
        return replace(delta_exact(distances), **part)
    return replace(delta_sampled(distances, samples, torch.Generator().manual_seed(seed)), **part)


@torch.no_grad()
def delta_exact(distances: Tensor) -> Delta:
    """δ over all quadruples of a metric.   (n, n) -> Delta

    Pairs by decreasing distance, each against the earlier ones (Cohen, Coudert, Lancin 2015). Because
    2δ(a,b,c,d) <= min(ab, cd), the search ends early. The worst case, O(n⁴), is a metric close to a tree's.

    >>> delta_exact((torch.arange(5.0) - torch.arange(5.0)[:, None]).abs())  # five points on a line
    Delta(delta=0.0, diameter=4.0, quadruples=5, exact=True, share=1.0, sampled=None)
    """
    distances = _checked(distances)
    a, b = _far_apart(distances).nonzero(as_tuple=True)
    length, order = distances[a, b].sort(descending=True)
    a, b = a[order], b[order]
    twice = 0.0
    for i in range(0, len(length), PAIRS):
        if length[i] <= twice:
            break
        now = slice(i, i + PAIRS)
        to_a, to_b = distances[:, a[now]], distances[:, b[now]]  # (n, pairs): gathering whole rows is a plain copy
        for j in range(0, min(i + PAIRS, len(length)), EARLIER):
            c, d = a[j : j + EARLIER], b[j : j + EARLIER]
            others = torch.maximum(to_a[c].add_(to_b[d]), to_a[d].add_(to_b[c]))
            excess = (length[j : j + EARLIER, None] - others).amax(0) + length[now]
            twice = max(twice, float(excess.max()))
    return Delta(twice / 2, float(distances.max()), comb(len(distances), 4), exact=True)


@torch.no_grad()
def delta_sampled(distances: Tensor, samples: int = 1_000_000, generator: torch.Generator | None = None) -> Delta:
    """δ over random quadruples: a lower bound of the exact one.   (n, n) -> Delta

    >>> square = torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
    >>> delta_sampled(square, samples=1000, generator=torch.Generator().manual_seed(0)).delta
    1.0
    """
    distances = _checked(distances)
    twice = 0.0
    for done in range(0, samples, QUADRUPLES):
        size = (4, min(QUADRUPLES, samples - done))
        a, b, c, d = torch.randint(len(distances), size, generator=generator).to(distances.device)
        x, y, z = (distances[p, q] + distances[r, s] for p, q, r, s in ((a, b, c, d), (a, c, b, d), (a, d, b, c)))
        low, high = torch.minimum(x, y), torch.maximum(x, y)
        twice = max(twice, float((torch.maximum(high, z) - torch.maximum(low, torch.minimum(high, z))).max()))
    return Delta(twice / 2, float(distances.max()), samples, exact=False)


def _far_apart(distances: Tensor) -> Tensor:
    """Pairs a < b that no c prolongs, by ac = ab + bc or cb = ca + ab.   (n, n) -> (n, n) bool

    Other pairs need no look: moving b out to c adds bc to S1, and at most bc to S2 and S3.
    """
    kept = torch.stack([~((row[:, None] + distances == row) & (row > row[:, None])).any(1) for row in distances])
    return (kept & kept.T).triu(1)


def _require_four(n: int) -> None:
    if n < 4:
        raise UserError(f"δ is a property of four connected points, and there are {n}. Give at least 4.")


def _checked(distances: Tensor) -> Tensor:
    _require_four(len(distances))
    if not distances.isfinite().all():
        raise UserError("some distances are inf or nan. δ needs a connected graph, or points inside their manifold.")
    return distances.to(torch.float64, copy=True, memory_format=torch.contiguous_format).fill_diagonal_(0)


def _largest_component(graph: Graph) -> np.ndarray:
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(graph.adjacency(), directed=False)
    return np.flatnonzero(component == np.bincount(component, minlength=1).argmax())


def _path_lengths(graph: Graph, nodes: np.ndarray) -> Tensor:
    """(n,) -> (n, n)"""
    chunks = [graph.distances(nodes[i : i + SOURCES])[:, nodes] for i in range(0, len(nodes), SOURCES)]
    return torch.from_numpy(np.concatenate(chunks))


@torch.no_grad()
def _distances(points: Tensor, manifold: Manifold) -> Tensor:
    """All distances, row by row with `dist`: the noise of `pairwise` grows with the radius, δ does not.   -> (n, n)"""
    points = points.double()
    return torch.stack([manifold.dist(point, points) for point in points])
