"""What the page of a study says of a graph: how tree-like it is, what its nodes are related to, and where they went."""

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.data import Graph
from horosphere.geometry import Euclidean, Lorentz
from horosphere.measure import delta
from horosphere.models.node_embedding import NodeEmbeddingConfig
from horosphere.plots import report as report_module
from horosphere.plots.nodes import add_nodes
from horosphere.plots.report import Report
from horosphere.tasks.nodes import Charted, Embedded, Nodes
from tests.data.graphs import binary_tree, ring


@pytest.fixture(autouse=True)
def _coarse(monkeypatch):
    monkeypatch.setattr(report_module, "render", lambda figure, **_: b"a picture")


def page(graph, **task):
    torch.manual_seed(0)
    points, config = 0.3 * torch.randn(len(graph), 2, dtype=torch.float64), NodeEmbeddingConfig(dim=2)
    manifolds = {"lorentz": Lorentz(), "euclidean": Euclidean()}
    embedded = {
        name: Embedded(points, graph.labels, m, config, Nodes(data="", **task)) for name, m in manifolds.items()
    }
    report = Report("a study")
    add_nodes(report, None, Charted(graph, delta(graph), embedded))
    return report.html()


def test_both_embeddings_are_shown():
    html = page(binary_tree(3))
    assert html.count("<img ") == 2
    for name in ("euclidean", "lorentz"):
        assert f'alt="{name} embedding"' in html
    assert "computed over all quadruples of nodes." in html
    assert "<dt>depth</dt><dd>3</dd>" in html


@pytest.mark.parametrize(("task", "related"), [({}, "ancestors"), ({"on": "edges"}, "parents")])
def test_it_says_what_a_node_is_related_to(task, related):
    assert f"A node is related to its {related}." in page(binary_tree(3), **task)


def test_an_undirected_graph_has_neighbours_and_no_depth():
    html = page(ring(8))
    assert "A node is related to its neighbours." in html
    assert "<dt>depth" not in html
    assert "at the rim" not in html


def test_a_graph_in_parts_says_what_was_measured():
    tree = binary_tree(2)
    parts = Graph([*tree.labels, "a", "b", "c"], np.concatenate([tree.edges, [[8, 7], [9, 7]]]))
    assert "of the largest connected part, which has 70% of the nodes." in page(parts)


def test_names_are_escaped():
    tree = Graph(["<b>", "c", "d", "e"], np.array([[1, 0], [2, 0], [3, 1]]))
    assert "<b>" not in page(tree)
