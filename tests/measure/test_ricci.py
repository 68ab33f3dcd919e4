from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure import ricci
from horosphere.measure.ricci import Ricci, ollivier_ricci, point_ricci

from .reference import Table


def adjacency(g: nx.Graph) -> csr_array:
    return nx.to_scipy_sparse_array(nx.convert_node_labels_to_integers(g), format="csr")


def lengthened(g: nx.Graph, seed: int = 0) -> nx.Graph:
    lengths = np.random.default_rng(seed).uniform(0.2, 3, len(g.edges))
    nx.set_edge_attributes(g, dict(zip(g.edges, lengths.tolist(), strict=True)), "weight")
    return g


def curvature_of(a: csr_array, x: int, y: int, laziness: float, lengths: bool) -> float:
    """As the definition reads: all distances, all couplings."""
    g = nx.from_scipy_sparse_array(a)
    d = np.asarray(nx.floyd_warshall_numpy(g, weight="weight" if lengths else None))
    n = len(d)
    mass = np.zeros((2, n))
    for m, node in zip(mass, (x, y), strict=True):
        m[node] += laziness
        for other in g[node]:
            m[other] += (1 - laziness) / g.degree(node)
    marginals = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    cost = np.minimum(d, 1e3).ravel()  # other components: no mass goes there
    return 1 - linprog(cost, A_eq=marginals, b_eq=mass.ravel()).fun / d[x, y]


@pytest.fixture(params=["assignment", "linear program"])
def way(request, monkeypatch):
    """Every law holds whichever way the transport problem is solved."""
    monkeypatch.setattr(ricci, "COPIES", 10**4 if request.param == "assignment" else 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("laziness", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_definition(seed, lengths, laziness):
    a = adjacency(lengthened(nx.gnp_random_graph(13, 0.3, seed=seed)))
    ricci = ollivier_ricci(a, edges=8, laziness=laziness, lengths=lengths, seed=seed)
    expected = [curvature_of(a, x, y, laziness, lengths) for x, y in ricci.edges.tolist()]
    np.testing.assert_allclose(ricci.curvature, expected, atol=1e-8)


@pytest.mark.parametrize("laziness", [0.0, 1 / 3, 0.123456789])
def test_equals_the_definition_at_hubs(laziness):
    """Two stars joined at their centres and by some leaves: degrees without a common divisor, an odd laziness."""
    g = nx.union(nx.star_graph(12), nx.star_graph(16), rename=("a", "b"))
    g.add_edges_from([("a0", "b0"), ("a1", "b1"), ("a2", "b2"), ("a2", "b3"), ("a4", "a5"), ("a6", "b0")])
    a = adjacency(g)
    for lengths in (False, True):
        ricci = ollivier_ricci(a, edges=6, laziness=laziness, lengths=lengths)
        np.testing.assert_allclose(
            ricci.curvature, [curvature_of(a, x, y, laziness, lengths) for x, y in ricci.edges.tolist()], atol=1e-8
        )


@pytest.mark.usefixtures("way")
def test_trees():
    """-2 (1 - 1/dx - 1/dy), and 0 at leaves and along paths, where that is positive."""
    g = nx.random_labeled_tree(150, seed=0)
    ricci = ollivier_ricci(adjacency(g), edges=None)
    degree = np.array([g.degree(i) for i in range(len(g))])[ricci.edges]
    expected = -2 * np.maximum(0, 1 - (1 / degree).sum(1))
    np.testing.assert_allclose(ricci.curvature, expected, atol=1e-9)
    assert (ricci.share_negative, ricci.sampled) == (np.mean(expected < 0), False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("g", "laziness", "expected"),
    [
        *((nx.cycle_graph(n), 0.0, 0.0) for n in (4, 5, 6, 9)),
        *((nx.complete_graph(n), 0.0, (n - 2) / (n - 1)) for n in (3, 4, 9)),
        (nx.complete_graph(4), 0.25, 1.0),  # the same mass at both ends: nothing moves
        (nx.grid_2d_graph(6, 7, periodic=True), 0.0, 0.0),
        (nx.grid_2d_graph(6, 6, periodic=True), 0.5, 0.0),
        (nx.hypercube_graph(4), 0.0, 0.0),  # bipartite: without laziness everyone moves to the other side
        *((nx.hypercube_graph(d), laziness, (1 - laziness) * 2 / d) for d in (3, 4) for laziness in (0.25, 0.5)),
        (nx.star_graph(8), 0.0, 0.0),
    ],
)
def test_known_graphs(g, laziness, expected):
    ricci = ollivier_ricci(adjacency(g), edges=None, laziness=laziness)
    assert len(ricci.curvature) == len(g.edges)
    np.testing.assert_allclose(ricci.curvature, expected, atol=1e-9)
    assert ricci.mean == pytest.approx(expected, abs=1e-9)
    assert ricci.std == pytest.approx(0, abs=1e-9)
    assert ricci.share_negative == 0


def test_rounding_is_not_negative():
    assert Ricci(np.array([[0, 1], [1, 2]]), np.array([-1e-12, -0.5]), sampled=False).share_negative == 0.5


def test_laziness_is_linear_from_where_it_holds_the_most_mass():
    """κ/(1 - laziness) is the curvature of Lin, Lu and Yau from laziness 1/(1 + largest degree) on."""
    a = adjacency(nx.gnp_random_graph(30, 0.2, seed=3))
    one, two = (ollivier_ricci(a, edges=40, laziness=laziness).curvature / (1 - laziness) for laziness in (0.5, 0.875))
    np.testing.assert_allclose(one, two, atol=1e-8)


@pytest.mark.usefixtures("way")
def test_lengths_have_no_scale_and_ones_are_hops():
    a = adjacency(lengthened(nx.gnp_random_graph(40, 0.15, seed=1)))
    curvature = ollivier_ricci(a, edges=40, lengths=True).curvature
    for scale in (1e-9, 1e6):
        np.testing.assert_allclose(ollivier_ricci(scale * a, edges=40, lengths=True).curvature, curvature, atol=1e-8)
    ones = a.astype(bool).astype(float)
    hops = ollivier_ricci(a, edges=40).curvature
    np.testing.assert_allclose(ollivier_ricci(ones, edges=40, lengths=True).curvature, hops, atol=1e-8)
    assert not np.allclose(curvature, hops, atol=0.1)


def test_edge_longer_than_the_way_around_it():
    """d(x, y) is the shortest path, 2 here, not the edge of length 5."""
    a = csr_array(np.array([[0, 5.0, 1], [5, 0, 1], [1, 1, 0]]))
    ricci = ollivier_ricci(a, edges=None, lengths=True)
    np.testing.assert_allclose(ricci.curvature, [curvature_of(a, x, y, 0.0, True) for x, y in ricci.edges.tolist()])


def test_many_sources_are_searched_in_chunks(monkeypatch):
    a = adjacency(lengthened(nx.gnp_random_graph(30, 0.4, seed=1)))
    whole = ollivier_ricci(a, edges=10, lengths=True).curvature
    monkeypatch.setattr(ricci, "SOURCES", 2)
    np.testing.assert_array_equal(ollivier_ricci(a, edges=10, lengths=True).curvature, whole)


def test_sample_is_reproducible_and_part_of_the_whole():
    g = nx.gnp_random_graph(60, 0.1, seed=0)
    graph = Graph([str(i) for i in g], np.array(g.edges)[:, ::-1], directed=False)
    whole, some = ollivier_ricci(graph, edges=None), ollivier_ricci(graph, edges=20, seed=5)
    all_edges = dict(zip(map(tuple, whole.edges.tolist()), whole.curvature.tolist(), strict=True))
    assert set(all_edges) == {tuple(sorted(edge)) for edge in g.edges}
    assert (whole.sampled, some.sampled, len(some.edges)) == (False, True, 20)
    assert [all_edges[tuple(edge)] for edge in some.edges.tolist()] == some.curvature.tolist()
    np.testing.assert_array_equal(some.edges, ollivier_ricci(graph, edges=20, seed=5).edges)
    assert (some.edges != ollivier_ricci(graph, edges=20, seed=6).edges).any()


def test_the_adjacency_given_is_left_as_it_was():
    a = coo_array((np.ones(5), ([0, 1, 1, 2, 0], [1, 0, 2, 1, 2])), shape=(3, 3))
    a.data[4] = 0  # stored, and no edge
    assert ollivier_ricci(a).edges.tolist() == [[0, 1], [1, 2]]
    assert a.nnz == 5


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), "no edges"),
        (np.ones((2, 3)), "square"),
        (np.eye(3), "node 0 has an edge to itself"),
        (np.triu(np.ones((3, 3)), 1), "not symmetric"),
        (np.array([[0, -1.0], [-1, 0]]), "negative"),
        (np.array([[0, np.nan], [np.nan, 0]]), "nan"),
    ],
)
def test_no_adjacency(matrix, message):
    with pytest.raises(UserError, match=message):
        ollivier_ricci(csr_array(matrix))


@pytest.mark.parametrize("laziness", [-0.1, 1.0, float("nan")])
def test_laziness_out_of_range(laziness):
    with pytest.raises(UserError, match="laziness"):
        ollivier_ricci(adjacency(nx.path_graph(3)), laziness=laziness)


@pytest.mark.parametrize("block", [1, 2**20])
@pytest.mark.parametrize("m", [Euclidean(), Lorentz(c=0.1), Lorentz(c=4.0), Poincare(c=1.0)])
def test_points_are_joined_to_their_nearest(m, block, monkeypatch):
    monkeypatch.setattr(ricci, "ENTRIES", block)
    points = m.random(30, 3, generator=torch.Generator().manual_seed(0))
    distances = torch.stack([m.dist(point, points.double()) for point in points.double()]).fill_diagonal_(torch.inf)
    nearest = distances.argsort(1)[:, :4]
    joined = {tuple(sorted((i, j))) for i, row in enumerate(nearest.tolist()) for j in row}
    a = np.zeros((30, 30))
    for i, j in joined:
        a[i, j] = a[j, i] = distances[i, j]
    for lengths in (False, True):
        measured, expected = (
            f(edges=None, lengths=lengths, laziness=0.5)
            for f in (
                lambda **k: point_ricci(points, m, neighbours=4, **k),
                lambda **k: ollivier_ricci(csr_array(a), **k),
            )
        )
        np.testing.assert_array_equal(measured.edges, expected.edges)
        np.testing.assert_allclose(measured.curvature, expected.curvature, atol=1e-8)


def test_neighbours_far_out_where_the_product_cannot_order_them():
    """At radius 17 the noise of a product in float64 exceeds the steps of this line. Only its ends have a neighbour
    two steps away."""
    m = Lorentz()
    start = m.lift(torch.tensor([[17.0, 0.0]], dtype=torch.float64))
    steps = m.exp(
        start,
        m.transport(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.zeros_like(start), start)
        * 0.02
        * torch.arange(9)[:, None],
    )
    ricci = point_ricci(steps, m, neighbours=2, edges=None)
    assert ricci.edges.tolist() == sorted([*map(list, pairwise(range(9))), [0, 2], [6, 8]])


def test_points_go_through_the_distance_of_their_manifold():
    """A cycle's own metric, two nearest each, gives back the cycle."""
    table = Table(torch.tensor(nx.floyd_warshall_numpy(nx.cycle_graph(12)), dtype=torch.float64))
    ricci = point_ricci(table.points, table, neighbours=2, edges=None)
    assert (len(ricci.edges), ricci.mean) == (12, 0)


def test_sample_of_points_names_the_points_given():
    points = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    ricci = point_ricci(points, Euclidean(), neighbours=3, nodes=50, edges=20)
    assert ricci.sampled
    assert len(np.unique(ricci.edges)) <= 50
    assert ricci.edges.max() > 50
    nearer = (points[ricci.edges[:, 0]] - points[ricci.edges[:, 1]]).norm(dim=1)
    assert nearer.max() < 2  # neighbours in the plane: unshuffled indices would pair points anywhere
    np.testing.assert_array_equal(
        ricci.curvature, point_ricci(points, Euclidean(), neighbours=3, nodes=50, edges=20).curvature
    )


def test_sign_follows_dimension_not_only_curvature():
    """What the docstring warns of: tight balls are positive, and noise on a sphere of many dimensions negative."""
    noise = torch.randn(300, 32, generator=torch.Generator().manual_seed(0))
    balls = noise[:60, :2] * 0.01 + torch.arange(60)[:, None] % 6
    assert point_ricci(balls, Euclidean(), neighbours=8, edges=100).mean > 0.3
    assert point_ricci(noise / noise.norm(dim=1, keepdim=True), Euclidean(), neighbours=5, edges=100).mean < -0.3


def test_points_that_do_not_fit():
    points = torch.randn(10, 2)
    for neighbours in (0, 10):
        with pytest.raises(UserError, match="neighbours among 10 points"):
            point_ricci(points, Euclidean(), neighbours=neighbours)
    with pytest.raises(UserError, match="coincide"):
        point_ricci(points.repeat(2, 1), Euclidean(), neighbours=3, lengths=True)
    assert len(point_ricci(points.repeat(2, 1), Euclidean(), neighbours=3).curvature)
    points[3, 1] = torch.nan
    with pytest.raises(UserError, match="inf or nan"):
        point_ricci(points, Euclidean(), neighbours=3)
