"""Which branch of a hierarchy each node belongs to: what its points are coloured by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def branch_of(edges: np.ndarray, depth: np.ndarray, labels: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The branch of each node, and how many nodes are below it, itself included.   (E, 2), (N,) -> names, (N,)

    Branches begin at the roots. One that holds more than half of all nodes is replaced by its children, so that colours
    tell something; what lies above all branches has none ("").  A node with several parents belongs to the first.

    >>> edges, depth = np.array([(1, 0), (2, 0), (3, 1), (4, 2)]), np.array([0, 1, 1, 2, 2])
    >>> branch_of(edges, depth, list("abcde"))[0]
    ['', 'b', 'c', 'b', 'c']
    """
    count = len(depth)
    parent = np.full(count, -1)
    children: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges.tolist():
        low, high = (a, b) if depth[a] > depth[b] else (b, a)
        if depth[low] > depth[high] and parent[low] < 0:
            parent[low] = high
            children[high].append(low)
    size = np.ones(count, np.int64)
    deepest_first = np.argsort(-depth, kind="stable")
    for node in deepest_first:
        if parent[node] >= 0:
            size[parent[node]] += size[node]
    tops = np.flatnonzero(parent < 0).tolist()
    while tops and size[largest := max(tops, key=lambda node: size[node])] > count / 2 and children[largest]:
        tops.remove(largest)
        tops += children[largest]
    branch = [""] * count
    for node in tops:
        branch[node] = labels[node]
    for node in deepest_first[::-1]:
        branch[node] = branch[node] or (branch[parent[node]] if parent[node] >= 0 else "")
    return branch, size
