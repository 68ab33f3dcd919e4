import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure import Delta, delta, delta_exact, delta_sampled

from .reference import Table, delta_of


def to_graph(g: nx.Graph) -> Graph:
    g = nx.convert_node_labels_to_integers(g)
    return Graph([str(i) for i in g], np.array(g.edges, dtype=np.int64).reshape(-1, 2), directed=False)


def path_lengths(g: nx.Graph) -> torch.Tensor:
    graph = to_graph(g)
    return torch.from_numpy(graph.distances(np.arange(len(graph))))


@pytest.mark.parametrize("n", [4, 30, 90])
def test_trees_have_delta_zero(n):
    d = delta(to_graph(nx.random_labeled_tree(n, seed=n)))
    assert (d.delta, d.relative, d.exact) == (0, 0, True)


def test_weighted_trees_have_delta_zero():
    g = nx.random_labeled_tree(25, seed=0)
    nx.set_edge_attributes(g, {edge: 1.0 + (7 * i) % 5 for i, edge in enumerate(g.edges)}, "weight")
    assert delta_exact(torch.from_numpy(np.asarray(nx.floyd_warshall_numpy(g)))).delta == 0


@pytest.mark.parametrize("n", range(4, 17))
def test_cycles(n):
    """n/4 rounded down, and a half less where n = 4k + 1."""
    distances = path_lengths(nx.cycle_graph(n))
    assert delta_exact(distances).delta == delta_of(distances.tolist()) == n // 4 - (n % 4 == 1) / 2


@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (4, 4), (5, 8)])
def test_grids_are_as_bad_as_their_short_side(rows, columns):
    assert delta(to_graph(nx.grid_2d_graph(rows, columns))).delta == min(rows, columns) - 1


@pytest.mark.parametrize("n", [12, 40])
def test_graphs_that_share_a_node_are_as_bad_as_the_worse(n):
    """Hundreds of pairs of one length come before the few long ones, or behind them."""
    two_sides, cycle = nx.complete_bipartite_graph(20, 20), nx.cycle_graph(n)
    glued = nx.compose(two_sides, nx.relabel_nodes(cycle, {i: i + 39 for i in cycle}))
    assert len(glued) == 39 + n
    assert delta_exact(path_lengths(two_sides)).delta == 1
    assert delta_exact(path_lengths(glued)).delta == n // 4


def test_complete_graph_is_a_star_without_its_centre():
    assert delta(to_graph(nx.complete_graph(12))).delta == 0


def test_four_cycle_is_the_worst_metric():
    assert delta(to_graph(nx.cycle_graph(4))).relative == 1


@st.composite
def metrics(draw):
    """Any distances between half a diameter and a diameter satisfy the triangle inequality; path lengths have ties."""
    n = draw(st.integers(4, 9))
    seed = draw(st.integers(0, 2**16))
    if draw(st.booleans()):
        return path_lengths(
            nx.compose(nx.random_labeled_tree(n, seed=seed), nx.gnp_random_graph(n, draw(st.floats(0, 0.5)), seed=seed))
        ).double()
    upper = torch.randint(6, 13, (n, n), generator=torch.Generator().manual_seed(seed)).double().triu(1)
    return upper + upper.T


@given(metrics())
@settings(max_examples=60, deadline=None)
def test_exact_is_the_maximum_over_all_quadruples(distances):
    assert delta_exact(distances).delta == delta_of(distances.tolist())


@given(metrics(), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_relative_delta_has_no_scale(distances, scale):
    assert delta_exact(scale * distances).relative == pytest.approx(delta_exact(distances).relative)


@given(metrics(), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_sampled_is_a_lower_bound_that_is_reached(distances, seed):
    exact = delta_exact(distances).delta
    assert delta_sampled(distances, 5, torch.Generator().manual_seed(seed)).delta <= exact
    assert delta_sampled(distances, 40_000, torch.Generator().manual_seed(seed)).delta == exact


def test_exact_over_several_chunks_of_pairs():
    points = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = torch.cdist(points, points)
    before = distances.clone()
    exact = delta_exact(distances)
    assert exact.delta == pytest.approx(
        delta_sampled(distances, 2_000_000, torch.Generator().manual_seed(0)).delta, rel=0.05
    )
    assert exact.quadruples == math.comb(60, 4)
    assert torch.equal(distances, before)


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("manifold", [Lorentz, Poincare])
def test_hyperbolic_plane_is_ln2_hyperbolic(manifold, c):
    """The bound ln 2/√c is sharp: the corners of a large square at the origin come close to it."""
    m = manifold(c=c)
    square = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    deltas = [delta(m.lift(r / c**0.5 * square), m).delta * c**0.5 for r in (1.0, 3.0, 8.0)]
    assert deltas == sorted(deltas)
    assert deltas[-1] == pytest.approx(math.log(2), abs=1e-5)
    cloud = delta(m.random(80, 2, std=3 / c**0.5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), m)
    assert cloud.delta <= math.log(2) / c**0.5 + 1e-9


def test_flat_delta_grows_with_the_diameter():
    points = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    small, large = delta(points), delta(10 * points, Euclidean())
    assert large.delta == pytest.approx(10 * small.delta, rel=1e-5)
    assert small.relative > 0.4  # √2 - 1 is that of a square: 0.59


def test_sample_of_a_graph_is_reproducible_and_bounded():
    graph = to_graph(nx.gnp_random_graph(400, 0.02, seed=1))
    d = delta(graph, nodes=250, samples=1000)
    assert d == delta(graph, nodes=250, samples=1000)
    assert (d.exact, d.quadruples) == (False, 1000)
    assert d.delta <= delta(graph, nodes=250, exact=True).delta


def test_disconnected_graph_is_measured_on_its_largest_component():
    d = delta(to_graph(nx.disjoint_union(nx.cycle_graph(8), nx.path_graph(2))))
    assert (d.delta, d.share) == (2, 0.8)


def test_directed_hierarchy_is_measured_without_its_directions():
    diamond = Graph(["a", "b", "c", "d"], np.array([[0, 1], [0, 2], [1, 3], [2, 3]]))
    assert delta(diamond).delta == 1


def test_points_that_coincide_have_no_scale_and_no_delta():
    assert delta(torch.ones(5, 2)) == Delta(0.0, 0.0, 5, exact=True)
    assert delta(torch.ones(5, 2)).relative == 0


def test_points_go_through_the_distance_of_their_manifold():
    table = Table(path_lengths(nx.cycle_graph(8)))
    assert delta(table.points, table).delta == 2


@pytest.mark.parametrize(
    "source", [torch.rand(3, 2), to_graph(nx.path_graph(3)), to_graph(nx.empty_graph(9)), Graph([], np.zeros((0, 2)))]
)
def test_fewer_than_four_nodes(source):
    with pytest.raises(UserError, match="at least 4"):
        delta(source)


def test_distances_that_are_not_finite():
    with pytest.raises(UserError, match="connected"):
        delta_exact(path_lengths(nx.empty_graph(5)))
