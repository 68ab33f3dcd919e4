import networkx as nx
import numpy as np
import pytest
import torch

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.measure import distortion

from .reference import Table, reconstruction_of


def to_graph(g: nx.Graph) -> Graph:
    return Graph([str(i) for i in g], np.array(g.edges, dtype=np.int64).reshape(-1, 2), directed=False)


@pytest.mark.parametrize("scale", [0.01, 1.0, 7.0])
def test_path_on_a_line_is_perfect_at_any_scale(scale):
    d = distortion(scale * torch.arange(20.0, dtype=torch.float64)[:, None], Euclidean(), to_graph(nx.path_graph(20)))
    assert d.average == pytest.approx(0, abs=1e-6)
    assert d.worst == pytest.approx(1)
    assert d.scale == pytest.approx(1 / scale)
    assert d.map == 1


def test_equals_the_definition():
    g = nx.compose(nx.path_graph(15), nx.gnp_random_graph(15, 0.2, seed=0))
    graph, m = to_graph(g), Lorentz()
    points = m.random(15, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths, steps = m.pairwise(points, points), torch.from_numpy(graph.distances(np.arange(15)))
    q = torch.tensor([lengths[i, j] / steps[i, j] for i in range(15) for j in range(15) if i != j], dtype=torch.float64)
    d = distortion(points, m, graph)
    assert d.scale == pytest.approx(float(q.sum() / q.square().sum()))
    assert d.average == pytest.approx(float((d.scale * q - 1).abs().mean()))
    assert d.worst == pytest.approx(float(q.max() / q.min()))
    neighbours = [*g.edges, *(edge[::-1] for edge in g.edges)]
    assert d.map == pytest.approx(reconstruction_of(lengths.tolist(), neighbours)[1])


def test_scale_is_the_least_squares_one():
    """Any other scale has a larger Σ(s q - 1)²."""
    graph, points = to_graph(nx.cycle_graph(12)), torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    scale = distortion(points, Euclidean(), graph).scale
    steps = torch.from_numpy(graph.distances(np.arange(12)))
    q = (torch.cdist(points, points) / steps)[steps > 0].double()
    loss = [(s * scale * q - 1).square().sum() for s in (0.99, 1.0, 1.01)]
    assert min(loss) == loss[1]


def test_every_graph_is_perfect_in_its_own_metric():
    graph = to_graph(nx.petersen_graph())
    table = Table(torch.from_numpy(graph.distances(np.arange(10))))
    d = distortion(table.points, table, graph)
    assert (d.average, d.worst, d.map, d.scale) == (0, 1, 1, 1)


def test_pairs_without_a_path_are_left_out():
    two = to_graph(nx.disjoint_union(nx.path_graph(5), nx.path_graph(3)))
    points = torch.tensor([0, 1, 2, 3, 4, 100, 101, 102.0])[:, None]
    assert distortion(points, Euclidean(), two).worst == pytest.approx(1)


@pytest.mark.parametrize("radius", [15.0, 20.0, 30.0])
def test_points_far_out_have_their_distances(radius):
    """Where a product of coordinates has lost them: its noise is e^(2 radius) times that of a float."""
    m = Lorentz()
    middle = m.exp0(torch.tensor([[radius, 0.0, 0.0]], dtype=torch.float64))
    ahead = m.log(middle, torch.zeros_like(middle)) / radius  # towards the origin, and away from it
    points = torch.cat([m.exp(middle, -2 * ahead), middle, m.exp(middle, 2 * ahead)])
    d = distortion(points, m, to_graph(nx.path_graph(3)), rescale=False)
    assert (d.average, d.worst) == pytest.approx((1, 1), rel=1e-5)


def test_sample_of_sources_is_drawn_by_its_seed():
    graph, points = to_graph(nx.cycle_graph(50)), torch.randn(50, 2)
    first, again, other = (distortion(points, Euclidean(), graph, nodes=4, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_two_points_at_one_place_have_the_worst_distortion():
    assert distortion(torch.tensor([[0.0], [0.0], [1.0]]), Euclidean(), to_graph(nx.path_graph(3))).worst == np.inf


@pytest.mark.parametrize("points", [torch.zeros(3, 1), torch.full((3, 1), torch.nan)])
def test_embedding_without_distances(points):
    with pytest.raises(UserError, match="coincide"):
        distortion(points, Euclidean(), to_graph(nx.path_graph(3)))


@pytest.mark.parametrize(
    ("graph", "words"), [(nx.path_graph(4), "3 points for a graph of 4"), (nx.empty_graph(3), "no edges")]
)
def test_graph_that_does_not_fit(graph, words):
    with pytest.raises(UserError, match=words):
        distortion(torch.randn(3, 1), Euclidean(), to_graph(graph))
