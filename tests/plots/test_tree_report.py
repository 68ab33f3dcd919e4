"""The report of a comparison holds its numbers, its verdict and its pictures, and describes what was done."""

import re
from dataclasses import replace

import numpy as np
import pytest

from horosphere.data import Graph
from horosphere.plots.tree_report import tree_report
from horosphere.train.compare import compare
from horosphere.train.config import EmbedConfig
from tests.train.graphs import binary_tree, ring

CONFIG = EmbedConfig(dim=2, epochs=2, batch=16, negatives=20)


def page(graph, geometries=("euclidean", "lorentz"), seeds=2, name="birds", **changed):
    comparison = compare(graph, replace(CONFIG, **changed), geometries, seeds)
    return comparison, tree_report(name, graph, comparison).html()


@pytest.fixture(scope="module")
def tree():
    return page(binary_tree(3))


def test_the_numbers_and_the_verdict_are_those_of_the_comparison(tree):
    comparison, html = tree
    _, cells = comparison.cells()
    for row in cells:
        assert all(f">{cell}<" in html for cell in row)
    assert comparison.verdict() in html
    assert "Does curvature pay on birds?" in html
    assert "15 nodes in 2 geometries, 2 dimensions each" in html
    assert "standard deviation over 2 seeds" in html
    assert "computed over all quadruples of nodes." in html


def test_pictures_of_the_best_and_its_rival(tree):
    _, html = tree
    assert html.count("<img ") == 3  # the metrics, and two disks
    for name in ("euclidean", "lorentz"):
        assert f'alt="{name} embedding"' in html


def test_the_page_needs_nothing_else(tree):
    _, html = tree
    assert not re.search(r"""src=(?!"data:)|href|url\(|@import|<script|<link""", html)


def test_one_run_of_one_geometry():
    _, html = page(binary_tree(3), ("lorentz",), seeds=1)
    assert "One seed. Each geometry" in html
    assert "±" not in html
    assert html.count("<img ") == 2


@pytest.mark.parametrize(("changed", "related"), [({}, "ancestors"), ({"on": "edges"}, "parents")])
def test_it_says_what_a_node_is_related_to(changed, related):
    assert f"A node is related to its {related}." in page(binary_tree(3), seeds=1, **changed)[1]


def test_an_undirected_graph_has_neighbours_and_no_depth():
    _, html = page(ring(8), seeds=1)
    assert "A node is related to its neighbours." in html
    assert "<dt>depth" not in html
    assert "at the rim" not in html


def test_a_graph_in_parts_says_what_was_measured():
    tree = binary_tree(2)
    parts = Graph([*tree.labels, "a", "b", "c"], np.concatenate([tree.edges, [[8, 7], [9, 7]]]))
    assert (
        "computed over all quadruples of nodes of the largest connected part, which has 70% of the nodes."
        in page(parts, seeds=1)[1]
    )


def test_names_are_escaped():
    assert "<b>" not in page(binary_tree(2), ("lorentz",), seeds=1, name="<b>")[1]
