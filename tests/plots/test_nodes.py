"""What the page of a study says of a graph: how tree-like it is, what its nodes are related to, and where they went."""

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.data import Graph
from horosphere.geometry import Euclidean, Lorentz
from horosphere.measure import delta
from horosphere.models.node_embedding import NodeEmbeddingConfig
from horosphere.plots import layout
from horosphere.plots.nodes import add_nodes
from horosphere.plots.report import Report
from horosphere.tasks.nodes import Charted, Embedded, Nodes
from tests.data.graphs import binary_tree, ring
from tests.plots.reading import order_of, read_page


def charted(graph, **task):
    """Two embeddings, each with points of its own."""
    torch.manual_seed(0)
    manifolds = {"lorentz": Lorentz(), "euclidean": Euclidean()}
    points = {name: 0.5 * torch.randn(len(graph), 2, dtype=torch.float64) for name in manifolds}
    config = NodeEmbeddingConfig(dim=2)
    embedded = {
        name: Embedded(points[name], graph.labels, m, config, Nodes(data="", **task)) for name, m in manifolds.items()
    }
    return Charted(graph, delta(graph), embedded)


@pytest.fixture
def page(album):
    """page(graph): the page as it is read."""

    def made(graph, **task):
        report = Report("a study")
        add_nodes(report, None, charted(graph, **task))
        return read_page(report.html())

    return made


def sentences(page):
    return " ".join(page.of("p"))


def test_each_embedding_is_shown_by_its_own_picture(page, album):
    graph = binary_tree(3)
    pictures = page(graph).of("img")
    assert [(img.alt, img.caption) for img in pictures] == [
        ("lorentz embedding", "Lorentz space, 2 dimensions."),
        ("euclidean embedding", "Euclidean space, 2 dimensions."),
    ]
    for (name, embedded), img in zip(charted(graph).points.items(), pictures, strict=True):
        figure = album[img.content]
        assert figure.texts[0].get_text() == name.capitalize()
        position, _ = layout(embedded.points, embedded.manifold)
        drawn = next(c for c in figure.axes[0].collections if len(c.get_offsets()) == len(graph))
        assert sorted(order_of(drawn.get_offsets(), position)) == list(range(len(graph)))
        assert len(figure.axes[0].texts) > 3
        for text in figure.axes[0].texts:  # a name is at its own node
            np.testing.assert_allclose(text.xy, position[graph.labels.index(text.get_text())])
        edges = next(c for c in figure.axes[0].collections if not len(c.get_offsets()) or hasattr(c, "get_segments"))
        ends = np.array([segment[[0, -1]] for segment in edges.get_segments()])
        np.testing.assert_allclose(ends, position[graph.edges], atol=1e-9)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["node 1", "node 2", "other"]


def test_facts_of_the_data(page):
    read = page(binary_tree(3))
    assert read.of("h2") == ["The data", "Where the nodes went"]
    facts = dict(zip(read.of("dt"), read.of("dd"), strict=True))
    assert facts == {"nodes": "15", "edges": "14", "depth": "3", "2δ/diameter": "0.00"}
    assert "It is 0.00 here, computed over all quadruples of nodes." in sentences(read)


@pytest.mark.parametrize(("task", "related"), [({}, "ancestors"), ({"on": "edges"}, "parents")])
def test_it_says_what_a_node_is_related_to(page, task, related):
    assert f"A node is related to its {related}." in sentences(page(binary_tree(3), **task))


def test_an_undirected_graph_has_neighbours_and_no_depth(page, album):
    read = page(ring(8))
    assert "A node is related to its neighbours." in sentences(read)
    assert read.of("dt") == ["nodes", "edges", "2δ/diameter"]
    assert not album[read.of("img")[0].content].legends
    assert "at the rim" not in sentences(read)


def test_a_graph_in_parts_says_what_was_measured(page):
    tree = binary_tree(2)
    parts = Graph([*tree.labels, "a", "b", "c"], np.concatenate([tree.edges, [[8, 7], [9, 7]]]))
    assert "of the largest connected part, which has 70% of the nodes." in sentences(page(parts))


def test_names_are_escaped(album):
    tree = Graph(["<b>", "c", "d", "e"], np.array([[1, 0], [2, 0], [3, 1]]))
    report = Report("a study")
    add_nodes(report, None, charted(tree))
    assert "<b>" not in report.html()
