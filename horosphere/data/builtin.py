"""Hierarchies that come with a dependency: real data without a download."""

import numpy as np

from horosphere.data.graph import Graph
from horosphere.errors import UserError, choices
from horosphere.extras import require

BUILTIN = "builtin:"  # what names of data that come with a package begin with


def builtin_graph(name: str) -> Graph:
    """The hierarchy of this name: "builtin:trove".

    >>> builtin_graph("builtin:trove").labels[0]
    'PyPI'
    """
    known = {f"{BUILTIN}trove": trove_classifiers}
    if name not in known:
        raise UserError(f"{name}: no such data comes with a package; {choices(name, known)}")
    return known[name]()


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
