"""Scores of exact trees: the same as those of points, where points can be had."""

import numpy as np
import pytest

from horosphere.data import Graph
from horosphere.data.builtin import trove_classifiers
from horosphere.errors import UserError
from horosphere.geometry import Lorentz
from horosphere.measure import exactness
from horosphere.models.exact_tree import ExactTree
from tests.data.test_spanning import DAG, random_tree

L = Lorentz(1.0)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("length", [0.5, 1.0, 2.0])
def test_scores_are_those_of_the_points(dim, length):
    graph = random_tree(90, reach=40)
    tree = ExactTree(graph, dim, length)
    score, points = exactness(tree), tree.points(L)
    distances, steps = L.dist(points[:, None], points[None]).numpy(), graph.distances(np.arange(90))
    q = (distances / (length * np.where(steps, steps, 1)))[steps > 0]
    before = ((steps > 1) & (distances <= length)).sum(1)  # neighbours are equally far: one precision is that of all
    degree = (steps == 1).sum(1)
    assert score.map == pytest.approx((degree / (degree + before)).mean(), rel=1e-12)
    assert score.average == pytest.approx(np.abs(q - 1).mean(), rel=1e-6)
    assert score.worst == pytest.approx(q.max() / q.min(), rel=1e-6)


def test_dropped_edges_count_in_the_score_of_the_graph():
    score = exactness(ExactTree(DAG))
    assert score.map == 1
    assert score.map_of_graph < 1
    assert "with the dropped edges" in score.rows()[0][1]
    assert "dropped" not in exactness(ExactTree(random_tree(9))).rows()[0][1]


def test_a_sample_of_nodes_says_nearly_the_same():
    tree = ExactTree(random_tree(400, reach=200), 2, 1.5)
    told = []
    few = exactness(tree, nodes=150, progress=lambda done, total: told.append((done, total)))
    assert few.map == pytest.approx(exactness(tree).map, abs=0.05)
    assert told[-1] == (150, 150)


def test_the_classifiers_are_kept_in_two_dimensions():
    score = exactness(ExactTree(trove_classifiers()))
    assert score.map > 0.99
    assert score.worst < 1.1


def test_without_edges_there_is_nothing_to_say():
    with pytest.raises(UserError, match="no edges"):
        exactness(ExactTree(Graph(["a", "b"], np.zeros((0, 2)))))
