"""Small graphs to train on."""

import numpy as np

from horosphere.data import Graph


def binary_tree(depth: int) -> Graph:
    """Node i lies below node (i - 1)//2."""
    nodes = np.arange(2 ** (depth + 1) - 1)
    return Graph([f"node {i}" for i in nodes], np.stack([nodes[1:], (nodes[1:] - 1) // 2], axis=1))


def ring(size: int) -> Graph:
    nodes = np.arange(size)
    return Graph([str(i) for i in nodes], np.stack([nodes, (nodes + 1) % size], axis=1), directed=False)
