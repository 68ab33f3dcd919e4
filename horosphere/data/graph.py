"""Hierarchies and graphs: labels, edges, and what follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.files import write_whole
from horosphere.foreign import LARGE, Unreadable, read_json, read_tensors

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LABELS, EDGES = "labels.json", "edges.safetensors"
RELATIONS = 10**8  # pairs of a closure, at most: to make them takes six gigabytes
SHOWN = 6  # nodes of a cycle named in the error


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes and edges. A hierarchy (directed, acyclic, edges child -> parent) or an undirected graph.

    >>> graph = Graph(["animal", "dog", "cat", "poodle"], [(1, 0), (2, 0), (3, 1)])
    >>> graph, graph.depth()
    (Graph(4 nodes, 3 edges, directed), array([0, 1, 1, 2]))
    >>> graph.closure().tolist()  # poodle (3) lies below dog (1) and animal (0)
    [[1, 0], [2, 0], [3, 0], [3, 1]]
    """

    labels: list[str]  # N
    edges: np.ndarray  # (E, 2) int64, no duplicates, no self loops
    directed: bool = True  # True: (child, parent); False: each edge once, either order
    lengths: np.ndarray | None = None  # (E,) float64, positive, of the edges; None: all are 1

    def __post_init__(self) -> None:
        edges = np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "edges", edges)
        if (outside := edges[(edges < 0) | (edges >= len(self))]).size:
            raise UserError(f"an edge names node {outside[0]}, but there are {len(self)} labels. Number nodes from 0.")
        if (loops := edges[:, 0] == edges[:, 1]).any():
            raise UserError(f'"{one_line(self.labels[edges[loops.argmax(), 0]])}" has an edge to itself. Remove it.')
        if (again := repeats(edges, self.directed) >= 0).any():
            raise UserError(
                "the edge {} -> {} is there twice. Remove one.".format(
                    *(one_line(self.labels[i]) for i in edges[again.argmax()])
                )
            )
        if self.lengths is not None:
            self._check_lengths()
        if self.directed and len(self._order) < len(self):
            raise UserError(
                f"a cycle, {self._cycle()}; a hierarchy has none. "
                "Fix it, or pass --graph to read it as an undirected graph."
            )

    def _check_lengths(self) -> None:
        lengths = np.asarray(self.lengths, dtype=np.float64)
        object.__setattr__(self, "lengths", lengths)
        if lengths.shape != (len(self.edges),):
            raise UserError(f"lengths of shape {lengths.shape} for {len(self.edges)} edges: give one of each.")
        if (wrong := ~((lengths > 0) & (lengths < np.inf))).any():
            i = int(wrong.argmax())
            child, parent = (one_line(self.labels[node]) for node in self.edges[i])
            raise UserError(
                f"the edge {child} -> {parent} has the length {lengths[i]:g}; lengths are positive numbers."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Graph({len(self)} nodes, {len(self.edges)} edges, {'directed' if self.directed else 'undirected'})"

    def closure(self) -> np.ndarray:
        """Every (node, ancestor), sorted.   -> (P, 2)"""
        parents, starts = self._parents()
        if (least := int(self.depth().sum())) > RELATIONS:  # a node has at least as many ancestors as it is deep
            raise _too_many(f"{least:,}")
        above: list[np.ndarray] = [parents[:0]] * len(self)
        count = 0
        for node in self._order:
            own = parents[starts[node] : starts[node + 1]]
            if len(own):
                above[node] = np.concatenate([own, *(above[parent] for parent in own)])
            if len(own) > 1:
                above[node] = np.unique(above[node])
            count += len(above[node])
            if count > RELATIONS:
                raise _too_many(f"more than {RELATIONS:,}")
        nodes = np.repeat(np.arange(len(self)), [len(ancestors) for ancestors in above])
        return _sorted(np.stack([nodes, np.concatenate([parents[:0], *above])], axis=1), len(self))

    def relations(self) -> np.ndarray:
        """The pairs to learn: the closure of a hierarchy, else both directions of every edge, sorted.   -> (P, 2)"""
        if self.directed:
            return self.closure()
        return _sorted(np.concatenate([self.edges, self.edges[:, ::-1]]), len(self))

    def adjacency(self) -> csr_array:
        """Symmetric, 1 for each edge, whatever its direction and length.   -> (N, N)"""
        return self._symmetric(np.ones(len(self.edges)))

    def _symmetric(self, values: np.ndarray) -> csr_array:
        """Each edge's value, whatever its direction.   (E,) -> (N, N)"""
        from scipy.sparse import csr_array

        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        rows, columns = both.T.astype(np.int32)  # csgraph would copy int64 indices at every call
        return csr_array((np.concatenate([values, values]), (rows, columns)), shape=(len(self), len(self)))

    def distances(self, sources: np.ndarray) -> np.ndarray:
        """Lengths of shortest paths, whatever the direction of edges; inf where there is none.   (S,) -> (S, N) float32

        >>> graph = Graph(["a", "b", "c"], [(0, 1), (1, 2), (0, 2)], directed=False, lengths=[1.0, 2.0, 5.0])
        >>> graph.distances([0])
        array([[0., 1., 3.]], dtype=float32)
        """
        from scipy.sparse.csgraph import dijkstra

        sources = np.asarray(sources, dtype=np.int64)
        if self.lengths is None:
            return self._steps(sources)
        return dijkstra(self._symmetric(self.lengths), indices=sources).astype(np.float32)

    def _steps(self, sources: np.ndarray) -> np.ndarray:
        """Edges on shortest paths.   (S,) -> (S, N) float32"""
        from scipy.sparse.csgraph import breadth_first_order  # four times as fast here as dijkstra(unweighted=True)

        adjacency = self.adjacency()
        lengths = np.full((len(sources), len(self)), np.inf, dtype=np.float32)
        place = np.empty(len(self), dtype=np.int64)
        for row, source in zip(lengths, sources, strict=True):
            order, reached_from = breadth_first_order(adjacency, source)
            place[order] = np.arange(len(order))
            # ends[i]: where the nodes reached from the first i + 1 nodes of the order end
            ends = 1 + np.cumsum(np.bincount(place[reached_from[order[1:]]], minlength=len(order)))
            starts = [0, 1]  # where the nodes at distance 0, 1, … start in the order
            while ends[starts[-1] - 1] > starts[-1]:
                starts.append(ends[starts[-1] - 1])
            row[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return lengths

    def depth(self) -> np.ndarray:
        """Fewest steps to a root.   -> (N,)"""
        parents, starts = (array.tolist() for array in self._parents())
        depth = [0] * len(self)
        for node in self._order:
            if own := parents[starts[node] : starts[node + 1]]:
                depth[node] = 1 + min(depth[parent] for parent in own)
        return np.array(depth, dtype=np.int64)

    # -- around one node --------------------------------------------------------------------------------------------

    def parents_of(self, node: int) -> list[int]:
        parents, starts = self._up
        return parents[starts[node] : starts[node + 1]].tolist()

    def children_of(self, node: int) -> list[int]:
        children, starts = self._down
        return children[starts[node] : starts[node + 1]].tolist()

    def linked_to(self, node: int) -> list[int]:
        """The other ends of its edges, whatever their direction."""
        here = (self.edges == node)[:, ::-1]
        return sorted(set(self.edges[here].tolist()))

    def ancestors_of(self, node: int) -> list[int]:
        """The nearest first.

        >>> Graph(["animal", "dog", "cat", "poodle"], [(1, 0), (2, 0), (3, 1)]).ancestors_of(3)
        [1, 0]
        """
        return list(self._climb(node))[1:]

    def path_up(self, node: int) -> list[int]:
        """From the node to a root, by the fewest steps.

        >>> Graph(["animal", "dog", "pet", "poodle"], [(1, 0), (3, 1), (3, 2)]).path_up(3)  # a pet is no animal here
        [3, 2]
        """
        came_from = self._climb(node)
        path = [next(other for other in came_from if not self.parents_of(other))]
        while path[-1] != node:
            path.append(came_from[path[-1]])
        return path[::-1]

    def _climb(self, node: int) -> dict[int, int]:
        """{reached: from where}, the node itself and all above it, the nearest first."""
        came_from = {node: node}
        queue = [node]
        for here in queue:  # grows while we walk it
            for parent in self.parents_of(here):
                if parent not in came_from:
                    came_from[parent] = here
                    queue.append(parent)
        return came_from

    def kin_of(self, node: int) -> dict[str, list[int]]:
        """Its path, parents, ancestors and children; of an undirected graph, what it is linked to.

        >>> Graph(["animal", "dog", "cat"], [(1, 0), (2, 0)]).kin_of(1)
        {'path': [1, 0], 'parents': [0], 'ancestors': [0], 'children': []}
        """
        if not self.directed:
            return {"linked": self.linked_to(node)}
        up = {"path": self.path_up(node), "parents": self.parents_of(node), "ancestors": self.ancestors_of(node)}
        return {**up, "children": self.children_of(node)}

    def kinship(self, node: int, other: int) -> str:
        """What the other is to the node: parent, child, ancestor, descendant, sibling, linked; "" where it is none.

        >>> graph = Graph(["animal", "dog", "cat", "poodle"], [(1, 0), (2, 0), (3, 1)])
        >>> [graph.kinship(1, other) for other in (0, 2, 3)], graph.kinship(3, 2)
        (['parent', 'sibling', 'child'], '')
        """
        if not self.directed:
            return "linked" if other in self.linked_to(node) else ""
        above, below = self.parents_of(node), self.parents_of(other)
        kinds = {
            "parent": other in above,
            "child": node in below,
            "ancestor": other in self.ancestors_of(node),
            "descendant": node in self.ancestors_of(other),
            "sibling": not set(above).isdisjoint(below),
        }
        return next((kind for kind, holds in kinds.items() if holds), "")

    def several_parents(self) -> int:
        """How many nodes have more than one parent: 0 of a tree or forest."""
        return int((np.diff(self._up[1]) > 1).sum())

    @cached_property
    def _up(self) -> tuple[np.ndarray, np.ndarray]:
        return self._parents()

    @cached_property
    def _down(self) -> tuple[np.ndarray, np.ndarray]:
        """Children of node i are children[starts[i]:starts[i + 1]]."""
        return _grouped(self.edges[:, 1], self.edges[:, 0], len(self))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _parents(self) -> tuple[np.ndarray, np.ndarray]:
        """Parents of node i are parents[starts[i]:starts[i + 1]]."""
        if not self.directed:
            raise UserError(
                "an undirected graph has no ancestors and no depth. "
                "Read it without --graph if its edges are (child, parent)."
            )
        return _grouped(self.edges[:, 0], self.edges[:, 1], len(self))

    @cached_property
    def _order(self) -> list[int]:
        """Parents before children. Nodes on or below a cycle are missing."""
        children, starts = (array.tolist() for array in self._down)
        waiting = np.bincount(self.edges[:, 0], minlength=len(self)).tolist()
        order = [node for node, parents in enumerate(waiting) if not parents]
        for node in order:  # grows while we walk it
            for child in children[starts[node] : starts[node + 1]]:
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
        return order

    def _cycle(self) -> str:
        """One cycle, in words. A node missing from the order has a missing parent: walk up until a node returns."""
        missing = set(range(len(self))).difference(self._order)
        up = {child: parent for child, parent in self.edges.tolist() if child in missing and parent in missing}
        seen: dict[int, None] = {}
        node = min(missing)
        while node not in seen:
            seen[node] = None
            node = up[node]
        path = list(seen)[list(seen).index(node) :]
        first = path.index(min(path))
        names = [one_line(self.labels[i]) for i in path[first:] + path[:first]]
        return " -> ".join([*names[:SHOWN], *["…"] * (len(names) > SHOWN), names[0]])


def _too_many(pairs: str) -> UserError:
    what = f"its closure has {pairs} pairs of a node and an ancestor"
    return UserError(f"{what}, and may have at most {RELATIONS:,}. Relate nodes to their parents only: --on edges.")


def repeats(edges: np.ndarray, directed: bool) -> np.ndarray:
    """For each edge, the position of the first edge equal to it, -1 if that is itself.   (E, 2) -> (E,)

    >>> repeats(np.array([(0, 1), (1, 0), (0, 1)]), directed=True)
    array([-1, -1,  0])
    """
    pairs = edges if directed else np.sort(edges, axis=1)
    keys = pairs[:, 0] * (pairs.max(initial=0) + 1) + pairs[:, 1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.where(first[inverse] < np.arange(len(edges)), first[inverse], -1)


def _grouped(keys: np.ndarray, values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Values in order of their keys, and where each key starts.   (E,), (E,) -> (E,), (n + 1,)"""
    return values[np.argsort(keys, kind="stable")], np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))])


def _sorted(pairs: np.ndarray, n: int) -> np.ndarray:
    """Pairs of numbers below n, sorted by the first, then by the second.   (P, 2) -> (P, 2)"""
    return np.stack(np.divmod(np.sort(pairs[:, 0] * n + pairs[:, 1]), n), axis=1)


# -- beside points ----------------------------------------------------------------------------------------------------


def write_labels(folder: Path, labels: list[str]) -> None:
    write_whole(folder / LABELS, json.dumps(labels, ensure_ascii=False, indent=0).encode())


def read_labels(folder: Path) -> list[str]:
    try:
        labels = read_json(folder / LABELS, list, LARGE)
        if not all(isinstance(label, str) for label in labels):
            raise Unreadable("it holds labels that are no text")
    except Unreadable as error:
        raise UserError(f"{folder / LABELS}: a damaged file ({error}); embed the graph again") from error
    return labels


def write_edges(folder: Path, graph: Graph) -> None:
    from safetensors.numpy import save

    lengths = {} if graph.lengths is None else {"lengths": graph.lengths}
    write_whole(folder / EDGES, save({"edges": np.ascontiguousarray(graph.edges), **lengths}))


def read_edges(folder: Path, labels: list[str], directed: bool) -> Graph | None:
    """The graph of these labels; None where its edges were not kept."""
    file = folder / EDGES
    if not file.is_file():
        return None
    try:
        tensors = read_tensors(file)
        edges = tensors["edges"].numpy()
        if edges.dtype != np.int64 or edges.ndim != 2 or edges.shape[1] != 2:
            raise ValueError(f"edges of shape {edges.shape}")
        return Graph(labels, edges, directed, tensors["lengths"].numpy() if "lengths" in tensors else None)
    except (LookupError, ValueError, RuntimeError, UserError) as error:
        how = "delete it to do without, or embed the graph again"
        raise UserError(f"{file}: damaged or foreign edges ({one_line(error)}); {how}") from error
