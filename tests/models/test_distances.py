"""Distances fitted: the loss is its definition, and a step measures the pairs it should."""

import numpy as np
import pytest
import torch

from horosphere.data import Graph
from horosphere.errors import UserError
from horosphere.models import distances
from horosphere.models.distances import DistanceEmbedding, PathLengths, misfit
from horosphere.models.node_embedding import NodeEmbeddingConfig
from tests.data.graphs import binary_tree, ring


@pytest.mark.parametrize("exponent", [1.0, 1.25, 2.0])
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "sphere", "lorentz:2+sphere:1+euclidean:2"])
def test_the_loss_is_the_mean_of_its_definition_over_pairs(geometry, exponent):
    graph = binary_tree(3)
    paths = PathLengths(graph)
    model = DistanceEmbedding(len(graph), NodeEmbeddingConfig(geometry, dim=5), paths.mean, exponent)
    every, far = np.arange(len(graph)), torch.randn(len(graph), 5, dtype=torch.float64)
    model.table.weight.data.copy_(model.manifold.lift(far * paths.mean / 3))
    ends = torch.from_numpy(every)
    got = model(ends, ends, torch.from_numpy(paths.rows(every))).mean()
    points, terms = model.points, []
    for u in range(len(graph)):
        for v in range(len(graph)):
            if u != v:
                ratio = model.manifold.dist(points[u], points[v]).detach() / float(paths.rows(np.array([u]))[0, v])
                terms.append(abs(float(ratio) - 1) ** exponent)
    assert float(got) == pytest.approx(np.mean(terms), rel=2e-6)


def test_pairs_without_a_path_count_for_nothing():
    squares, lengths = torch.rand(2, 3), torch.tensor([[0.0, 2.0, torch.inf], [torch.inf] * 3])
    losses = misfit(squares, lengths, 1.0)
    assert float(losses[0]) == pytest.approx(1 - float(squares[0, 1]) ** 0.5 / 2)
    assert float(losses[1]) == 0


@pytest.mark.parametrize("exponent", [1.0, 1.25])
def test_points_at_one_place_have_a_finite_gradient(exponent):
    model = DistanceEmbedding(3, NodeEmbeddingConfig("lorentz", dim=2), 1.0, exponent)
    torch.nn.init.zeros_(model.table.weight)
    model(torch.arange(3), torch.arange(3), torch.ones(3, 3)).sum().backward()
    assert model.table.weight.grad.isfinite().all()


def test_paths_are_the_same_without_a_table(monkeypatch):
    graph = ring(9)
    whole = PathLengths(graph)
    monkeypatch.setattr(distances, "TABLE", 9)
    apart, sources, targets = PathLengths(graph), np.array([3, 1]), np.array([8, 0, 4])
    assert apart.table is None
    for paths in (whole, apart):
        assert paths.block(sources, targets).tolist() == graph.distances(sources)[:, targets].tolist()
    assert apart.mean == pytest.approx(whole.mean)


@pytest.mark.parametrize("length", [1e-300, 1e300])
def test_lengths_beyond_float32_are_refused(length):
    graph = Graph(["a", "b", "c"], [(0, 1), (1, 2)], directed=False, lengths=[1.0, length])
    with pytest.raises(UserError, match=r"lengths of edges go from .* scale them"):
        PathLengths(graph)


def test_pairs_without_a_path_are_counted():
    two = Graph([str(i) for i in range(5)], [(0, 1), (1, 2), (3, 4)], directed=False)
    assert PathLengths(two).without() == 3 * 2
    assert PathLengths(ring(5)).without() == 0


def test_the_curvature_begins_at_the_scale_of_the_graph():
    model = DistanceEmbedding(3, NodeEmbeddingConfig("sphere", dim=2, learn_curvature=True), 5.0)
    assert float(model.manifold.c) == pytest.approx(1 / 25)
    given = DistanceEmbedding(3, NodeEmbeddingConfig("sphere", dim=2, curvature=0.5), 5.0)
    assert given.manifold.c == 0.5
