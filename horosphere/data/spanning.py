"""The tree in a graph: one parent for each node, one root for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from horosphere.data.graph import Graph
from horosphere.errors import UserError


@dataclass(frozen=True, eq=False)
class SpanningTree:
    """One parent for each node of a graph. Several roots have a common one, which comes last and has no label.

    >>> tree = SpanningTree.of(Graph(["animal", "dog", "pet", "poodle"], [(1, 0), (3, 1), (3, 2)]))
    >>> tree.parent, tree.dropped  # a pet is no animal here: node 4 joins them. A poodle stays a dog
    (array([ 4,  0,  4,  1, -1]), 1)
    """

    graph: Graph
    parent: np.ndarray  # (N,), or (N + 1,) with a common root; -1 of the root
    dropped: int  # edges of the graph that the tree has not

    @staticmethod
    def of(graph: Graph) -> SpanningTree:
        """Of a hierarchy each node's first parent; of an undirected graph without cycles, hung up by its middle."""
        parent = first_parents(graph) if graph.directed else _hung_up(graph)
        roots = np.flatnonzero(parent < 0)
        dropped = len(graph.edges) - (len(graph) - len(roots))
        if len(roots) > 1:
            parent[roots] = len(graph)
            parent = np.append(parent, -1)
        return SpanningTree(graph, parent, dropped)

    @property
    def joined(self) -> bool:
        """Whether there is a common root, which is no node of the graph."""
        return len(self.parent) > len(self.graph)

    @cached_property
    def levels(self) -> list[np.ndarray]:
        """Nodes by depth, the root alone first; children of one parent stand side by side."""
        order = np.argsort(self.parent, kind="stable")
        starts = np.searchsorted(self.parent[order], np.arange(len(self.parent) + 1))
        levels, nodes = [], order[:1]  # the root's parent is the least
        while len(nodes):
            levels.append(nodes)
            counts = starts[nodes + 1] - starts[nodes]
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            nodes = order[np.repeat(starts[nodes], counts) + within]
        return levels

    @cached_property
    def depth(self) -> np.ndarray:
        """Steps to the root.   -> (N,)"""
        depth = np.empty(len(self.parent), np.int64)
        for level, nodes in enumerate(self.levels):
            depth[nodes] = level
        return depth

    def steps(self, sources: np.ndarray) -> np.ndarray:
        """Edges between these nodes and all, the common root's among them.   (S,) -> (S, N) int32"""
        climbing, above = np.arange(len(sources)), sources
        steps = np.full((len(sources), len(self.parent)), -1, np.int32)
        while len(climbing):
            steps[climbing, above] = self.depth[sources[climbing]] - self.depth[above]
            above = self.parent[above]
            climbing, above = climbing[above >= 0], above[above >= 0]
        for nodes in self.levels[1:]:
            steps[:, nodes] = np.where(steps[:, nodes] < 0, steps[:, self.parent[nodes]] + 1, steps[:, nodes])
        return steps[:, : len(self.graph)]

    @cached_property
    def edges(self) -> np.ndarray:
        """(child, parent) between nodes of the graph.   -> (E, 2)"""
        below = np.flatnonzero((self.parent >= 0) & (self.parent < len(self.graph)))
        return np.stack([below, self.parent[below]], 1)

    def kept(self) -> Graph:
        """The graph with the edges of the tree alone."""
        return Graph(self.graph.labels, self.edges, self.graph.directed)


def first_parents(graph: Graph) -> np.ndarray:
    """The first parent of each node, -1 of a root.   -> (N,)

    >>> first_parents(Graph(["animal", "dog", "cat"], [(1, 0), (2, 0)]))
    array([-1,  0,  0])
    """
    parent = np.full(len(graph), -1)
    child, above = graph.edges.T
    parent[child[::-1]] = above[::-1]  # of several the first is written last
    return parent


def _hung_up(graph: Graph) -> np.ndarray:
    """Parents in an undirected graph whose parts hang from the middle of a longest path; -1 of these.   -> (N,)"""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    adjacency = graph.adjacency()
    count, part = connected_components(adjacency, directed=False)
    if len(graph.edges) > len(graph) - count:
        more = len(graph.edges) - (len(graph) - count)
        what = f"the graph has cycles ({more:,} edge{'s' * (more > 1)} more than a tree)"
        raise UserError(f"{what}, and only a tree can be placed exactly; train it instead: leave --exact out")
    parent = np.full(len(graph), -1)
    for first in np.unique(part, return_index=True)[1]:
        end = breadth_first_order(adjacency, first, return_predecessors=False)[-1]
        order, above = breadth_first_order(adjacency, end)
        path = [order[-1]]
        while above[path[-1]] >= 0:
            path.append(above[path[-1]])
        order, above = breadth_first_order(adjacency, path[len(path) // 2])
        parent[order[1:]] = above[order[1:]]
    return parent
