"""The tree in a graph: a parent each, and what was left out is counted."""

import numpy as np
import pytest

from horosphere.data import Graph
from horosphere.data.spanning import SpanningTree, first_parents
from horosphere.errors import UserError


def random_tree(count, seed=0, reach=6, directed=True):
    draw = np.random.default_rng(seed)
    edges = [(i, int(draw.integers(max(0, i - reach), i))) for i in range(1, count)]
    return Graph([str(i) for i in range(count)], edges, directed)


DAG = Graph(list("abcdef"), [(2, 0), (2, 1), (3, 2), (4, 2), (4, 3)])  # f stands alone, a and b are roots


def test_of_several_parents_the_first_counts():
    tree = SpanningTree.of(DAG)
    assert first_parents(DAG).tolist() == [-1, -1, 0, 2, 2, -1]
    assert tree.parent.tolist() == [6, 6, 0, 2, 2, 6, -1]
    assert (tree.dropped, tree.joined) == (2, True)
    assert [sorted(level.tolist()) for level in tree.levels] == [[6], [0, 1, 5], [2], [3, 4]]
    assert tree.kept().edges.tolist() == [[2, 0], [3, 2], [4, 2]]


@pytest.mark.parametrize("directed", [True, False])
def test_steps_are_those_of_the_graph(directed):
    graph = random_tree(80, directed=directed)
    tree, nodes = SpanningTree.of(graph), np.array([0, 3, 79, 40])
    assert tree.dropped == 0
    assert not tree.joined
    np.testing.assert_array_equal(tree.steps(nodes), graph.distances(nodes))


def test_a_common_root_is_a_step_away():
    np.testing.assert_array_equal(
        SpanningTree.of(DAG).steps(np.array([0, 5])), [[0, 2, 1, 2, 2, 2], [2, 2, 3, 4, 4, 0]]
    )


def test_levels_keep_families_together():
    tree = SpanningTree.of(random_tree(200, reach=100))
    for nodes in tree.levels[1:]:
        above = tree.parent[nodes]
        assert (np.diff(above) != 0).sum() + 1 == len(np.unique(above))
    assert sorted(np.concatenate(tree.levels).tolist()) == list(range(200))


def test_an_undirected_tree_hangs_by_its_middle():
    path = Graph([str(i) for i in range(9)], [(i, i + 1) for i in range(8)], directed=False)
    assert len(SpanningTree.of(path).levels) == 5
    parts = Graph(list("abcde"), [(0, 1), (2, 3), (3, 4)], directed=False)
    assert SpanningTree.of(parts).steps(np.array([3]))[0].tolist() in ([2, 3, 1, 0, 1], [3, 2, 1, 0, 1])


def test_cycles_are_refused_with_the_way_on():
    ring = Graph(list("abc"), [(0, 1), (1, 2), (2, 0)], directed=False)
    with pytest.raises(UserError, match=r"cycles \(1 edge more than a tree\).*leave --exact out"):
        SpanningTree.of(ring)


def test_a_node_alone_is_a_tree():
    tree = SpanningTree.of(Graph(["a"], np.zeros((0, 2))))
    assert (tree.parent.tolist(), len(tree.levels), tree.steps(np.array([0])).tolist()) == ([-1], 1, [[0]])
