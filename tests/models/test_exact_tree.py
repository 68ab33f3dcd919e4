"""Sarkar's placement: distances against an oracle of a thousand digits, edges of one length, at any depth."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mp
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from horosphere.data import Graph
from horosphere.data.spanning import first_parents
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Sphere
from horosphere.geometry.codes import spherical_code
from horosphere.measure import exactness
from horosphere.models import exact_tree
from horosphere.models.exact_tree import FARTHEST, WORST, ExactTree, starting_tree
from tests.data.test_spanning import DAG, random_tree

L = Lorentz(1.0)
TERNARY = Graph([f"n{i}" for i in range(40)], [(i, (i - 1) // 3) for i in range(1, 40)])
FOREST = Graph([f"n{i}" for i in range(41)], [(i, (i - 2) // 3) for i in range(2, 41)])


def chain(count, branches=()):
    """A path of `count` nodes, and below each node of `branches` one more."""
    edges = [(i, i - 1) for i in range(1, count)] + [(count + k, node) for k, node in enumerate(branches)]
    return Graph([str(i) for i in range(len(edges) + 1)], edges)


# -- the oracle -------------------------------------------------------------------------------------------------------


def oracle(tree, pairs, digits):
    """Distances of pairs of nodes, from matrices that carry the root's frame to each node's."""
    with mp.workdps(digits):
        d, length, parent = tree.dim, mpmath.mpf(tree.edge_length), tree.tree.parent
        go = mp.eye(d + 1)
        go[0, 0] = go[1, 1] = mpmath.cosh(length)
        go[0, 1] = go[1, 0] = mpmath.sinh(length)
        frames = {}
        for nodes in tree.tree.levels:
            for place, node in enumerate(nodes.tolist()):
                if parent[node] < 0:
                    frames[node] = mp.eye(d + 1)
                    continue
                family = nodes[parent[nodes] == parent[node]]
                back = int(parent[parent[node]] >= 0)
                code = spherical_code(len(family) + back, d)
                u = mp.matrix(code[back + place - nodes.tolist().index(family[0])].tolist())
                frames[node] = frames[parent[node]] * mirrored(u / mp.norm(u)) * go
        points = [list(frames[node][:, 0]) for node in range(len(tree))]
        products = [2 * points[a][0] * points[b][0] - mp.fdot(points[a], points[b]) for a, b in pairs]
        return [float(mpmath.acosh(max(product, mp.one))) for product in products]


def mirrored(u):
    """The reflection of space that takes u to e1 and back; of u = e1 itself, one across."""
    d = len(u)
    h = u - mp.matrix([1] + [0] * (d - 1))
    h = h / mp.norm(h) if mp.norm(h) else mp.matrix([0] * (d - 1) + [1])
    out = mp.eye(d + 1)
    for i in range(d):
        for j in range(d):
            out[i + 1, j + 1] -= 2 * h[i] * h[j]
    return out


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("length", [0.5, 5.0])
def test_distances_are_right_to_twelve_digits_in_a_deep_tree(dim, length):
    tree = ExactTree(chain(200, branches=[0, 1, 1, 7, 50, 50, 50, 51, 120, 198, 199]), dim, length)
    pairs = np.random.default_rng(0).integers(len(tree), size=(150, 2))
    pairs = np.concatenate([pairs, [(0, 199), (201, 202), (205, 207), (208, 209), (210, 203), (198, 209)]])
    found = tree.distances(range(len(tree)))[pairs[:, 0], pairs[:, 1]]
    true = torch.tensor(oracle(tree, pairs.tolist(), digits=60 + int(2 * 200 * length / 2.3)), dtype=torch.float64)
    assert_close(found, true, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("length", [0.2, 1.5])
def test_distances_are_right_where_branches_cross(dim, length):
    tree = ExactTree(random_tree(60, reach=12), dim, length)
    pairs = [(a, b) for a in range(0, 60, 3) for b in range(a + 1, 60, 5)]
    found = tree.distances(range(60))[tuple(np.array(pairs).T)]
    assert_close(found, torch.tensor(oracle(tree, pairs, 120), dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_a_family_of_thousands_keeps_ten_digits():
    star = Graph([str(i) for i in range(3001)], [(i, 0) for i in range(1, 3001)])
    tree = ExactTree(star, 2, 20.0)
    with mp.workdps(60):
        near = 2 * mpmath.asinh(mpmath.sinh(20) * mpmath.sin(mpmath.pi / 3000))
    assert_close(tree.distances([1])[0, 2], torch.tensor(float(near), dtype=torch.float64), rtol=1e-12, atol=0)


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph", [TERNARY, FOREST, DAG, chain(500, [3, 3, 400])], ids=["tree", "forest", "dag", "deep"]
)
@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("length", [2.5, None, 500.0])
def test_every_edge_has_the_edge_length(graph, dim, length):
    tree = ExactTree(graph, dim, length)
    child, above = tree.tree.edges.T
    found = tree.distances(child)[range(len(child)), above]
    assert_close(found, torch.full_like(found, tree.edge_length), rtol=1e-14, atol=0)


def test_a_path_is_straight_at_any_depth():
    tree = ExactTree(chain(500), 3, 7.0)
    steps = torch.arange(500, dtype=torch.float64)
    assert_close(tree.distances([0, 499]), 7.0 * torch.stack([steps, steps.flip(0)]), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dim", [2, 5])
def test_distances_are_a_metric_no_longer_than_paths(dim):
    graph = random_tree(70)
    tree = ExactTree(graph, dim, 1.3)
    d = tree.distances(range(70))
    assert_close(d, d.T, rtol=1e-13, atol=1e-13)
    assert (d.diagonal() == 0).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None] + 1e-12).all()
    assert (d <= 1.3 * torch.from_numpy(graph.distances(np.arange(70))).double() + 1e-12).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dim", [2, 3, 6])
def test_at_the_separating_length_neighbours_are_nearest(seed, dim):
    graph = random_tree(120, seed, reach=60)
    tree = ExactTree(graph, dim)
    tree = tree.at(tree.separating_length)
    d, steps = tree.distances(range(120)), torch.from_numpy(graph.distances(np.arange(120)))
    assert d[steps > 1].min() > tree.edge_length
    assert exactness(tree).map == 1


def test_edges_far_too_short_lose_neighbours():
    tree = ExactTree(random_tree(300, reach=200))
    assert exactness(tree.at(0.2 * tree.separating_length)).map < 0.9


@pytest.mark.parametrize("dim", [2, 3])
def test_the_worst_distortion_goes_to_1_with_the_length(dim):
    tree = ExactTree(random_tree(150, reach=50), dim)
    scores = [exactness(tree.at(length)) for length in (5.0, 20.0, 80.0, 320.0, 1280.0)]
    worst = [score.worst - 1 for score in scores]
    assert all(4.5 > now / then > 3.5 for now, then in pairwise(worst[1:]))  # like 1/ℓ
    assert worst[-1] < 0.01
    assert [s.average for s in scores] == sorted((s.average for s in scores), reverse=True)


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_the_length_it_chooses_keeps_what_it_promises(dim):
    tree = ExactTree(random_tree(200, reach=100), dim)
    score = exactness(tree)
    assert score.map == 1
    assert 1 < score.worst <= WORST


def test_families_stand_evenly_around_their_parent():
    x = ExactTree(TERNARY, 2, 2.5).points(L)
    family = [0, *np.flatnonzero(first_parents(TERNARY) == 1)]
    centred = L.log(x[1].expand(4, -1), x[family])
    own = L.inner(x[1].expand(4, 4, -1), centred[:, None].expand(4, 4, -1), centred[None].expand(4, 4, -1)) / 2.5**2
    angles = own.clamp(-1, 1).acos()
    assert_close(angles[0].sort().values[1:], torch.tensor([np.pi / 2, np.pi / 2, np.pi]).double(), rtol=0, atol=1e-6)


# -- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Lorentz(3.0), Poincare(0.5)], ids=repr)
@pytest.mark.parametrize("graph", [TERNARY, FOREST], ids=["tree", "forest"])
@pytest.mark.parametrize("dim", [2, 3])
def test_points_are_as_far_apart_as_it_says(manifold, graph, dim):
    tree = ExactTree(graph, dim, 2.0)
    x, d = tree.points(manifold), tree.distances(range(len(graph)))
    assert x.shape == (len(graph), dim)
    assert_close(manifold.dist(x[:, None], x[None]) * float(manifold.c) ** 0.5, d, rtol=1e-8, atol=1e-8)


def test_points_within_reach_no_farther_than_float64_holds():
    tree = ExactTree(chain(200, [5]))
    held = tree.within()
    assert held.edge_length == FARTHEST / 199 < tree.edge_length
    assert float(L.dist0(held.points(L)).max()) == pytest.approx(held.radius)
    assert held.radius <= FARTHEST
    assert ExactTree(TERNARY, edge_length=1.0).within().edge_length == 1.0


def test_a_start_is_a_shorter_tree():
    tree = starting_tree(TERNARY, 2)
    assert tree.edge_length < tree.separating_length


@pytest.mark.parametrize("manifold", [Euclidean(), Sphere(1.0)], ids=repr)
def test_other_spaces_are_refused(manifold):
    with pytest.raises(UserError, match="use geometry=lorentz or poincare"):
        ExactTree(TERNARY).points(manifold)


# -- cost and care ----------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor had that was made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.numbers = max(self.numbers, out.numel())
        return out


def test_memory_does_not_grow_with_what_is_asked_for(monkeypatch):
    monkeypatch.setattr(exact_tree, "ENTRIES", 3_000)
    tree = ExactTree(random_tree(300, reach=100))
    with Largest() as seen:
        rows = [len(block) for block in tree.blocks(range(300))]
    assert sum(rows) == 300
    assert seen.numbers <= 3 * 3_000  # two coordinates, and a distance


def test_it_is_the_same_every_time_and_in_any_blocks(monkeypatch):
    first, again = (ExactTree(random_tree(150), 3).distances(range(150)) for _ in range(2))
    assert torch.equal(first, again)
    monkeypatch.setattr(exact_tree, "ENTRIES", 1)
    assert_close(ExactTree(random_tree(150), 3).distances([7, 140]), first[[7, 140]], rtol=1e-14, atol=0)


def test_nothing_is_asked_for():
    assert ExactTree(TERNARY).distances([]).shape == (0, 40)


def test_a_node_alone():
    tree = ExactTree(Graph(["a"], np.zeros((0, 2))))
    assert tree.distances([0]).tolist() == [[0.0]]
    assert tree.points(L).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ExactTree(TERNARY, 1), "no room on a line: dim=1; give 2 or more"),
        (lambda: ExactTree(TERNARY, edge_length=0.0), "must be positive and finite"),
        (lambda: ExactTree(TERNARY).distances([40]), "there is no node 40: the 40 nodes count from 0"),
        (lambda: ExactTree(TERNARY).distances([-1]), "there is no node -1"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(UserError, match=words):
        make()
