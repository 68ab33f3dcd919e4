"""Trees of classes: distances along edges, mistakes weighed by them, and points beside their parents'."""

import math
import time

import numpy as np
import pytest
import torch

from horosphere.data.classes import ClassTree, read_classes
from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure.hierarchy import class_distances

TWO = ClassTree.of_groups([0, 0, 1, 1, 1])  # classes 0 … 4, groups 5 and 6, root 7


def random_tree(seed, classes=12, inner=7):
    """Every inner node has a child; depths differ."""
    random = np.random.default_rng(seed)
    nodes = classes + inner
    parents = np.full(nodes, -1)
    parents[classes + 1 :] = [random.integers(classes, node) for node in range(classes + 1, nodes)]
    childless = np.setdiff1d(np.arange(classes, nodes), parents)
    parents[:classes] = np.concatenate([childless, random.integers(classes, nodes, classes - len(childless))])
    return ClassTree(parents, classes)


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_along_the_edges(seed):
    tree = random_tree(seed)
    child = np.flatnonzero(tree.parents >= 0)
    graph = Graph([str(i) for i in range(len(tree.parents))], np.stack([child, tree.parents[child]], 1))
    np.testing.assert_array_equal(tree.distances, graph.distances(np.arange(tree.classes))[:, : tree.classes])
    np.testing.assert_array_equal(tree.depth, graph.depth())


def test_groups_make_a_tree_of_two_levels():
    assert TWO.parents.tolist() == [5, 5, 6, 6, 6, 7, 7, -1]
    assert ClassTree.of_groups(np.array([0, 1], dtype=np.uint8)).parents.tolist() == [2, 3, 4, 4, -1]


def test_a_mistake_within_the_group_is_half_as_bad():
    truth = torch.tensor([0, 1, 2, 3])
    right, near, far = (
        hierarchy_scores(p, truth, TWO) for p in (truth, torch.tensor([1, 0, 3, 4]), torch.tensor([2, 3, 0, 1]))
    )
    assert (right.fine, right.coarse, right.tree_error, right.mistake) == (1, 1, 0, 0)
    assert (near.fine, near.coarse, near.tree_error, near.mistake) == (0, 1, 2, 2)
    assert (far.fine, far.coarse, far.tree_error, far.mistake) == (0, 0, 4, 4)
    mixed = hierarchy_scores(np.array([0, 1, 3, 0]), truth, TWO)
    assert (mixed.fine, mixed.coarse, mixed.tree_error, mixed.mistake) == (0.5, 0.75, 1.5, 3)


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(0.5), Lorentz(2.0), Poincare(1.0)])
@pytest.mark.parametrize("seed", [0, 1])
def test_distances_of_points_are_means_over_pairs(manifold, seed):
    tree = random_tree(seed)
    count = len(tree.parents)
    x = manifold.random(count, 4, std=0.5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    distances = class_distances(x, tree, manifold)
    pairs = [(i, j) for i in range(tree.classes) for j in range(i)]
    kin = [manifold.dist(x[i], x[j]) for i, j in pairs if tree.parents[i] == tree.parents[j]]
    strange = [manifold.dist(x[i], x[j]) for i, j in pairs if tree.parents[i] != tree.parents[j]]
    up = [manifold.dist(x[i], x[p]) for i, p in enumerate(tree.parents[: tree.classes])]
    for value, expected in ((distances.parent, up), (distances.sibling, kin), (distances.stranger, strange)):
        assert value == pytest.approx(float(torch.stack(expected).mean()), rel=1e-6)


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(0.5)])
def test_classes_alone_have_parents_in_their_midst(manifold):
    x = manifold.random(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups = torch.stack([manifold.midpoint(x[:2]), manifold.midpoint(x[2:])])
    whole = torch.cat([x, groups, manifold.midpoint(groups)[None]])
    assert class_distances(x, TWO, manifold) == class_distances(whole, TWO, manifold)


def test_groups_that_lie_together_are_seen_and_shuffled_ones_are_not():
    centres = torch.tensor([[5.0, 0.0], [-5.0, 0.0]])
    x = centres[[0, 0, 1, 1, 1]] + 0.3 * torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    distances = class_distances(x, TWO)
    assert distances.sibling < distances.stranger / 10
    shuffled = class_distances(x[[0, 2, 1, 3, 4]], TWO)
    assert shuffled.sibling > distances.sibling * 3


def test_one_group_has_no_strangers():
    assert math.isnan(class_distances(torch.randn(3, 2), ClassTree.of_groups([0, 0, 0])).stranger)


@pytest.mark.parametrize(
    ("parents", "classes", "remedy"),
    [
        ([1, 0, -1], 1, "class 0 is the parent"),
        ([3, 2, 1, -1], 1, "go round in a circle"),
        ([-1, -1], 1, "one root"),
        ([0, 0], 1, "one root"),
        ([5, -1], 1, "Number them from 0"),
        ([2, -1], 1, "node 0 has parent 2, but there are 2 nodes"),
        ([1, -1], 3, "3 classes in a tree of 2"),
        ([1, -1], 0, "0 classes"),
        ([0.5, -1], 1, "whole numbers"),
    ],
)
def test_what_is_no_tree_is_refused(parents, classes, remedy):
    with pytest.raises(UserError, match=remedy):
        ClassTree(np.array(parents), classes)


def test_wrong_shapes_are_refused():
    with pytest.raises(UserError, match="as many"):
        hierarchy_scores(torch.tensor([0]), torch.tensor([0, 1]), TWO)
    with pytest.raises(UserError, match="class 5 in a tree of 5"):
        hierarchy_scores(torch.tensor([5]), torch.tensor([0]), TWO)
    with pytest.raises(UserError, match="one for each class"):
        class_distances(torch.randn(4, 2), TWO)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "",
        '{"classes": 3, "parents": null}',
        '{"classes": [1, 2], "parents": null}',
        '{"classes": ["a", "b"], "parents": {}}',
        '{"classes": ["a", "b"], "parents": [2, 2, "x"]}',
        '{"classes": ["a", "b"], "parents": [2, 2, 0.5]}',
        '{"classes": ["a", "b"], "parents": [2, 2, [1]]}',
        '{"classes": ["a", "b"], "parents": [2, 2, 99999999999999999999999]}',
        '{"classes": ["a", "b"], "parents": [2, 2, 2]}',
        '{"classes": ["a", "b"], "parents": []}',
        '{"classes": [], "parents": [-1]}',
    ],
)
def test_classes_of_another_kind_are_named(tmp_path, content):
    (tmp_path / "classes.json").write_text(content)
    with pytest.raises(UserError, match=r"classes\.json: a damaged file .*; train the model again") as error:
        read_classes(tmp_path)
    assert str(error.value).isprintable()


def test_a_long_chain_of_groups_is_walked_in_time():
    nodes = 200_000
    tree = ClassTree(np.r_[np.arange(1, nodes), -1], 1)
    start = time.process_time()
    assert tree.depth[0] == nodes - 1
    assert time.process_time() - start < 2
