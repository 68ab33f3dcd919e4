"""Graphs that Python holds already: networkx's, scipy's sparse matrices, pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from horosphere.data.graph import Graph
from horosphere.data.read import WEIGHTS
from horosphere.errors import UserError, one_line

KINDS = "a networkx graph, a sparse adjacency matrix, an array of edges (E, 2), or a list of pairs"


def graph_in_memory(given: Any, directed: bool | None = None) -> tuple[list[Hashable], Graph]:
    """The nodes as they are called, and their graph, in which node i is the i-th of them.

    given: a networkx graph; a sparse adjacency matrix (N, N); an array (E, 2) or a list of pairs, which may have any
    names. directed: whether edges lead from a child to its parent. None: networkx's graphs say it themselves, a matrix
    does unless it is symmetric, pairs do. Weights of edges are refused unless all are 1.

    >>> graph_in_memory([("dog", "animal"), ("cat", "animal")])
    (['dog', 'animal', 'cat'], Graph(3 nodes, 2 edges, directed))
    >>> graph_in_memory(np.array([(7, 3), (8, 3)]), directed=False)
    ([3, 7, 8], Graph(3 nodes, 2 edges, undirected))
    """
    from scipy.sparse import issparse

    if hasattr(given, "is_directed") and hasattr(given, "edges"):
        return _of_networkx(given, directed)
    if issparse(given):
        return _of_matrix(given, directed)
    pairs = _pairs(given)
    if isinstance(given, np.ndarray) and given.dtype != object:
        names, numbers = np.unique(given, return_inverse=True)
        nodes: list[Hashable] = names.tolist()
        edges = numbers.reshape(-1, 2)
    else:
        nodes = list(dict.fromkeys(name for pair in pairs for name in pair))
        number = {name: i for i, name in enumerate(nodes)}
        edges = np.array([[number[a], number[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return nodes, _graph(nodes, edges, directed is not False)


def _pairs(given: Any) -> list[tuple[Any, ...]]:
    if isinstance(given, np.ndarray) and (given.ndim != 2 or given.shape[1] != 2):
        raise UserError(f"an array of shape {given.shape} is no graph; give {KINDS}")
    try:
        pairs = [(pair,) if isinstance(pair, str) else tuple(pair) for pair in given]
        set().union(*pairs)  # names must be hashable
    except TypeError:
        raise UserError(f"{type(given).__name__} is no graph; give {KINDS}") from None
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise UserError(f"{one_line(wrong[0], 60)} is no edge; give pairs (child, parent)")
    return pairs


def _of_networkx(given: Any, directed: bool | None) -> tuple[list[Hashable], Graph]:
    if directed and not given.is_directed():
        raise UserError("directed=True: the graph is undirected; give a DiGraph whose edges are (child, parent)")
    weights = {data[name] for *_, data in given.edges(data=True) for name in WEIGHTS if name in data}
    _refuse_weights(weights, "give nx.Graph(graph.edges()) to drop them")
    nodes = list(given)
    number = {node: i for i, node in enumerate(nodes)}
    edges = np.array([[number[a], number[b]] for a, b in given.edges()], dtype=np.int64).reshape(-1, 2)
    return nodes, _graph(nodes, edges, given.is_directed() if directed is None else directed)


def _of_matrix(given: Any, directed: bool | None) -> tuple[list[Hashable], Graph]:
    matrix = given.tocsr(copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"an adjacency matrix of shape {matrix.shape}; give a square one")
    _refuse_weights(matrix.data.tolist(), "give (matrix != 0).astype(int) to drop them")
    mirrored = (matrix != matrix.T).nnz == 0
    if directed is False and not mirrored:
        matrix = matrix.maximum(matrix.T)
    directed = not mirrored if directed is None else directed
    rows, columns = matrix.nonzero()
    edges = np.stack([rows, columns], 1).astype(np.int64)
    edges = edges if directed else edges[edges[:, 0] <= edges[:, 1]]
    nodes: list[Hashable] = list(range(matrix.shape[0]))
    return nodes, _graph(nodes, edges, directed)


def _refuse_weights(weights: Iterable[Any], how: str) -> None:
    if other := [weight for weight in weights if weight != 1]:
        raise UserError(f"an edge has the weight {one_line(other[0], 20)}, and weights are not read; {how}")


def _graph(nodes: list[Hashable], edges: np.ndarray, directed: bool) -> Graph:
    for node in nodes:
        if _is_missing(node):
            what = "an empty text" if isinstance(node, str) else one_line(node, 20)
            raise UserError(f"{what} is no name of a node; leave out the edges that have none")
    if not len(edges):
        raise UserError("the graph has no edges, so there is nothing to learn")
    try:
        return Graph([str(node) for node in nodes], edges, directed)
    except UserError as error:
        raise UserError(str(error).replace("pass --graph", "pass directed=False")) from None


def _is_missing(node: Any) -> bool:
    """None, NaN and the like, which no name is equal to, and texts with nothing in them."""
    try:
        return node is None or (not node.strip() if isinstance(node, str) else bool(node != node))
    except (TypeError, ValueError):  # of pandas' NA there is no truth
        return True
