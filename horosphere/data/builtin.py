"""Hierarchies that come with a dependency: real data without a download."""

import numpy as np

from horosphere.data.graph import Graph
from horosphere.extras import require


def trove_classifiers() -> Graph:
    """The tree of PyPI's package classifiers: "Topic :: Internet" lies below "Topic", and that below "PyPI".

    >>> trove_classifiers().labels[:2]
    ['PyPI', 'Development Status']
    """
    require("trove")
    from trove_classifiers import sorted_classifiers

    number = {"PyPI": 0}
    edges = []
    for classifier in sorted_classifiers:
        parts = classifier.split(" :: ")
        for depth in range(1, len(parts) + 1):
            name, above = " :: ".join(parts[:depth]), " :: ".join(parts[: depth - 1]) or "PyPI"
            if name not in number:
                number[name] = len(number)
                edges.append((number[name], number[above]))
    return Graph(list(number), np.array(edges))
