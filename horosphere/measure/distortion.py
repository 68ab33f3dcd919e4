"""How far distances in an embedding are from distances in its graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.graph import Graph
from horosphere.errors import NotFinite, UserError
from horosphere.geometry import Manifold
from horosphere.measure.reconstruction import reconstruction
from horosphere.measure.sample import sample

ENTRIES = 2**22  # distances at once: 32 MB in float64
CLEAR = 100  # times what noise makes of 0: a product of coordinates knows such a distance to a ten-thousandth


@dataclass(frozen=True)
class Distortion:
    """Ratios q = d_M/d_G over pairs of nodes. A perfect embedding has average 0, worst 1 and map 1 at any scale."""

    average: float  # mean |s q - 1|
    worst: float  # max q / min q
    map: float  # mean average precision of the graph's neighbours, ranked by distance
    scale: float  # s = Σq/Σq², which minimises Σ(s q - 1)²; 1 of ratios as they are

    def rows(self) -> list[list[str]]:
        """For a table."""
        return [
            ["average", f"{self.average:.3f}  (0 is perfect)"],
            ["worst", f"{self.worst:.2f}  (1 is perfect)"],
            ["mAP of edges", f"{self.map:.3f}  (1 is perfect)"],
            ["best scale", f"{self.scale:.3f}"],
        ]


@torch.no_grad()
def distortion(
    points: Tensor,
    manifold: Manifold,
    graph: Graph,
    *,
    nodes: np.ndarray | int = 1000,
    seed: int = 0,
    rescale: bool = True,
    lengths: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Distortion:
    """Distortion of points (N, d) against path lengths in the graph, whatever the direction of its edges.

    rescale: judge ratios at their best scale, for points that were not asked for distances; else as they are.
    lengths: gives path lengths from nodes (S,) -> (S, N) where they are known already.

    From these nodes, or at most so many drawn by `seed`, to all others they reach. Keeps nodes·N ratios in float32:
    330 MB for 1000 nodes of WordNet.

    >>> from horosphere.geometry import Euclidean
    >>> path = Graph(["a", "b", "c"], [(0, 1), (1, 2)])
    >>> distortion(torch.tensor([[0.0], [2.0], [4.0]]), Euclidean(), path)
    Distortion(average=0.0, worst=1.0, map=1.0, scale=0.5)
    """
    if len(points) != len(graph):
        raise UserError(
            f"{len(points)} points for a graph of {len(graph)} nodes. Give the graph these points were trained on."
        )
    if not len(graph.edges):
        raise UserError("the graph has no edges: there are no path lengths to compare with.")
    points = points.double()
    neighbours = np.stack(graph.adjacency().nonzero(), axis=1).astype(np.int64)
    sources = sample(np.unique(neighbours), nodes, seed) if isinstance(nodes, int) else nodes
    rows = max(1, ENTRIES // len(points))
    paths = lengths or graph.distances
    q = [_ratios(points, manifold, paths, sources[i : i + rows]) for i in range(0, len(sources), rows)]
    total, squares = (sum(float(chunk.double().pow(k).sum()) for chunk in q) for k in (1, 2))
    if not 0 < total < torch.inf:
        raise NotFinite("the points all coincide, or some distances are inf or nan: the embedding diverged.")
    scale = total / squares if rescale else 1.0
    error = sum(float((scale * chunk.double() - 1).abs().sum()) for chunk in q)
    smallest, largest = min(float(chunk.min()) for chunk in q), max(float(chunk.max()) for chunk in q)
    return Distortion(
        average=error / sum(map(len, q)),
        worst=largest / smallest if smallest else torch.inf,
        map=reconstruction(points, manifold, neighbours, nodes=sources).map,
        scale=scale,
    )


def _ratios(
    points: Tensor, manifold: Manifold, paths: Callable[[np.ndarray], np.ndarray], sources: np.ndarray
) -> Tensor:
    """d_M/d_G from the sources to all they reach but themselves.   (S,) -> (pairs,) float32"""
    lengths = torch.from_numpy(paths(sources)).to(points.device)
    reached = lengths.isfinite() & (lengths > 0)
    return _distances(points, manifold, torch.from_numpy(sources).to(points.device))[reached] / lengths[reached]


def _distances(points: Tensor, manifold: Manifold, sources: Tensor) -> Tensor:
    """From the sources to all, by one product; `dist` decides where its noise could show.   (S,) -> (S, N) float32"""
    x = points[sources]
    found = manifold.pairwise_sq(x, points).sqrt().float()
    noise = manifold.pairwise_reach(x, points, x.new_zeros(len(x)))
    row, other = ((found <= CLEAR * noise[:, None]) | found.isinf()).nonzero(as_tuple=True)
    for i, j in zip(row.split(ENTRIES), other.split(ENTRIES), strict=True):
        found[i, j] = manifold.dist(x[i], points[j]).float()
    return found
