"""Nodes of a graph as points whose distances are those of the graph, in any geometry (Gu et al. 2019).

    loss(u, v) = |d_M(u, v)/d_G(u, v) - 1|^p        over pairs (u, v) with a path

A step takes some nodes, and the pairs of each with one set of others: one matrix product a factor of the manifold.
With p = 1 few pairs may be far off for the good of the others: leaves of one parent end at one place. A larger p keeps
them apart. The paper has |(d_M/d_G)² - 1|, which stops pulling at pairs that have come to one place.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig

TABLE = 2**27  # path lengths kept at most, half a gigabyte: of 11,585 nodes
EXPONENT = 1.25  # p, unless a run says otherwise: docs/results/embedding.md
SAMPLE = 1000  # nodes whose paths a graph without a table is measured by
START = 0.1  # how far points begin from the origin, in mean path lengths
LEAST, MOST = 1e-15, 1e15  # of an edge: squares of paths are float32
TINY = 1e-6  # ratio of a pair at one place: a root of 0 has no gradient


class DistanceEmbedding(NodeEmbedding):
    """A table of N points, and how far their distances are from those of the graph.

    unit: the mean path length. Points begin within a tenth of it, and the curvature with a radius of it. exponent: p.

    >>> model = DistanceEmbedding(4, NodeEmbeddingConfig("lorentz", dim=2), unit=3.0)
    >>> ends = torch.arange(4)
    >>> losses = model(ends, ends, torch.full((4, 4), 5.0))
    >>> losses.shape, bool((losses > 0.7).all())  # at the start all distances are nearly 0
    (torch.Size([4]), True)
    """

    def __init__(self, nodes: int, config: NodeEmbeddingConfig, unit: float, exponent: float = EXPONENT):
        super().__init__(nodes, at_scale(config, unit), START * unit / math.sqrt(config.dim))
        self.unit, self.exponent = unit, exponent

    def forward(self, sources: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """The mean loss of each source (B,) over targets (T,), at these path lengths (B, T).   -> (B,)"""
        squares = self.manifold.pairwise_sq(self.table(sources), self.table(targets))
        return misfit(squares, lengths, self.exponent)


def at_scale(config: NodeEmbeddingConfig, unit: float) -> NodeEmbeddingConfig:
    """With a curvature to begin with: as it was given, else 1/unit².

    >>> at_scale(NodeEmbeddingConfig(), unit=2.0).curvature
    0.25
    """
    return replace(config, curvature=config.curvature or unit**-2)


def misfit(squares: Tensor, lengths: Tensor, exponent: float) -> Tensor:
    """The mean of |√square/length - 1|^p in each row, without pairs of length 0 (themselves) or inf (no path).

    (B, T), (B, T) -> (B,), 0 where a row has no pair.

    >>> misfit(torch.tensor([[0.0, 4.0, 9.0]]), torch.tensor([[0.0, 2.0, 2.0]]), 2.0)  # 0 and 1/4
    tensor([0.1250])
    """
    known = (lengths > 0) & lengths.isfinite()
    per = torch.where(known, lengths.reciprocal().square(), 0.0).to(squares.dtype)
    off = torch.where(known, (squares * per + TINY**2).sqrt() - 1, 0.0)
    return off.abs().pow(exponent).sum(1) / known.sum(1).clamp_min(1)


class PathLengths:
    """Lengths of shortest paths from any nodes: of all at once where a table of them fits, else as they are asked for.

    >>> lengths = PathLengths(Graph(["a", "b", "c"], [(0, 1), (1, 2)]))
    >>> lengths.rows(np.array([0])), lengths.mean
    (array([[0., 1., 2.]], dtype=float32), 1.3333333333333333)
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        every = np.arange(len(graph))
        if graph.lengths is not None and not LEAST <= min(graph.lengths) <= max(graph.lengths) <= MOST:
            extent = f"from {min(graph.lengths):g} to {max(graph.lengths):g}"
            raise UserError(
                f"lengths of edges go {extent}, and float32 has room from {LEAST:g} to {MOST:g}: scale them"
            )
        self.table = graph.distances(every) if len(graph) ** 2 <= TABLE else None

    @cached_property
    def mean(self) -> float:
        """Over pairs with a path; of a graph without a table, from SAMPLE nodes drawn at random."""
        some = np.random.default_rng(0).choice(len(self.graph), min(SAMPLE, len(self.graph)), replace=False)
        lengths = self.rows(some) if self.table is None else self.table
        known = (lengths > 0) & (lengths < np.inf)
        return float(lengths.mean(where=known, dtype=np.float64))

    def without(self) -> int:
        """How many pairs have no path."""
        from scipy.sparse.csgraph import connected_components

        _, part = connected_components(self.graph.adjacency(), directed=False)
        return int(len(part) ** 2 - np.square(np.bincount(part)).sum()) // 2

    def rows(self, sources: np.ndarray) -> np.ndarray:
        """(S,) -> (S, N) float32"""
        return self.graph.distances(sources) if self.table is None else self.table[sources]

    def block(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(S,), (T,) -> (S, T) float32"""
        if self.table is None:
            return self.rows(sources)[:, targets]
        return self.table[sources[:, None], targets]
