"""Data: hierarchies and graphs."""

from horosphere.data.graph import Graph
from horosphere.data.read import read_graph

__all__ = ["Graph", "read_graph"]
