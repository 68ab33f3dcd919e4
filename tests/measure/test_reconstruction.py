from importlib import import_module

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.measure import reconstruction

from .reference import Table, reconstruction_of


@st.composite
def problems(draw):
    """Few whole numbers, full of ties, or real numbers without ties; noise on the diagonal as a GEMM leaves it."""
    n = draw(st.integers(2, 12))
    values = st.integers(0, draw(st.integers(0, 6))) if draw(st.booleans()) else st.floats(0, 10)
    rows = draw(st.lists(st.lists(values, min_size=n, max_size=n), min_size=n, max_size=n))
    node = st.integers(0, n - 1)
    relations = draw(st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), min_size=1))
    return torch.tensor(rows, dtype=torch.float64), relations


@given(problems(), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_equals_the_definition_with_ties_and_in_any_block(problem, block):
    distances, relations = problem
    table = Table(distances)
    score = reconstruction(table.points, table, torch.tensor(relations), block=block)
    assert (score.mean_rank, score.map) == pytest.approx(reconstruction_of(distances.tolist(), relations), abs=1e-12)
    assert score.nodes == len({u for u, _ in relations})


def test_more_points_than_memory_is_kept_for_are_ranked_one_by_one(monkeypatch):
    points, relations = (
        torch.randn(30, 2, generator=torch.Generator().manual_seed(0)),
        np.array([(0, 1), (3, 2), (3, 9)]),
    )
    whole = reconstruction(points, Euclidean(), relations)
    monkeypatch.setattr(import_module("horosphere.measure.reconstruction"), "ENTRIES", 7)
    assert reconstruction(points, Euclidean(), relations) == whole


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(), Poincare()])
def test_equals_the_definition_on_points(manifold):
    points = manifold.random(40, 3, generator=torch.Generator().manual_seed(0))
    relations = np.array(nx.gnp_random_graph(40, 0.2, seed=0, directed=True).edges)
    distances = manifold.pairwise(points.double(), points.double())
    score = reconstruction(points, manifold, relations)
    assert (score.mean_rank, score.map) == pytest.approx(
        reconstruction_of(distances.tolist(), list(map(tuple, relations)))
    )


def test_perfect_embedding_has_one_and_one():
    points = torch.arange(10.0)[:, None] + 100 * (torch.arange(10)[:, None] // 5)
    relations = [(u, v) for u in range(10) for v in range(10) if u != v and u // 5 == v // 5]
    score = reconstruction(points, Euclidean(), np.array(relations))
    assert (score.mean_rank, score.map, score.nodes) == (1, 1, 10)


def test_collapsed_embedding_is_the_worst():
    """All at one place: every unrelated node ties, and ties count against."""
    score = reconstruction(torch.ones(10, 2), Euclidean(), np.array([[0, 1], [3, 4]]))
    assert (score.mean_rank, score.map) == (9, pytest.approx(1 / 9))


def test_repeated_and_reflexive_relations_change_nothing():
    points = torch.randn(8, 2)
    plain, messy = np.array([[0, 1], [0, 2], [5, 1]]), np.array([[5, 1], [0, 2], [0, 1], [3, 3], [0, 2]])
    assert reconstruction(points, Euclidean(), plain) == reconstruction(points, Euclidean(), messy)


def test_average_over_chosen_nodes_is_that_of_the_parts():
    points, relations = torch.randn(30, 2), np.stack([np.arange(29), np.arange(1, 30)], axis=1)
    parts = [reconstruction(points, Euclidean(), relations, nodes=np.arange(a, b)) for a, b in ((0, 10), (10, 30))]
    whole = reconstruction(points, Euclidean(), relations)
    assert [part.nodes for part in parts] == [10, 19]  # the last node has no relation
    assert whole.mean_rank == pytest.approx(sum(part.mean_rank * part.nodes for part in parts) / 29)
    assert whole.map == pytest.approx(sum(part.map * part.nodes for part in parts) / 29)


def test_sample_of_nodes_is_drawn_by_its_seed():
    points, relations = torch.randn(30, 2), np.stack([np.arange(29), np.arange(1, 30)], axis=1)
    first, again, other = (reconstruction(points, Euclidean(), relations, nodes=5, seed=seed) for seed in (0, 0, 1))
    assert first.nodes == 5
    assert first == again != other
    assert reconstruction(points, Euclidean(), relations, nodes=99) == reconstruction(points, Euclidean(), relations)


def test_progress_ends_at_the_total():
    seen = []
    relations = np.array([[0, 1], [1, 2], [2, 0]])
    reconstruction(
        torch.randn(3, 2), Euclidean(), relations, block=2, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(2, 3), (3, 3)]


@pytest.mark.parametrize("relations", [np.zeros((0, 2), dtype=np.int64), np.array([[1, 1]])])
def test_no_relations(relations):
    with pytest.raises(UserError, match="no node has a relation"):
        reconstruction(torch.randn(3, 2), Euclidean(), relations)


def test_relation_beyond_the_points():
    with pytest.raises(UserError, match="node 3, but there are 3 points"):
        reconstruction(torch.randn(3, 2), Euclidean(), np.array([[0, 3]]))


def test_diverged_embedding():
    with pytest.raises(UserError, match="diverged"):
        reconstruction(torch.full((3, 2), torch.nan), Euclidean(), np.array([[0, 1]]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_as_on_the_cpu():
    points, relations = torch.randn(50, 3), np.array(nx.gnp_random_graph(50, 0.2, seed=0, directed=True).edges)
    there, here = (reconstruction(points, Lorentz(), relations, device=device) for device in ("cuda", "cpu"))
    assert (there.mean_rank, there.map) == pytest.approx((here.mean_rank, here.map))


@pytest.mark.parametrize("manifold", [Lorentz(), Poincare()])
def test_neighbours_far_from_the_origin_keep_their_order(manifold):
    """At radius 18 the matrix product reports distances of about 1 for points 0.01 apart, in float64."""
    generator = torch.Generator().manual_seed(0)
    base = torch.tensor([[18.0, 0, 0]], dtype=torch.float64)
    offsets = 0.02 * torch.randn(12, 3, generator=generator, dtype=torch.float64)
    points = manifold.lift(base)
    points = manifold.exp(points, manifold.transport(offsets, torch.zeros_like(base), points).expand(12, -1))
    distances = torch.stack([manifold.dist(p, points) for p in points])
    relations = [(u, v) for u in range(12) for v in distances[u].argsort()[1:4].tolist()]
    score = reconstruction(points, manifold, np.array(relations))
    assert (score.mean_rank, score.map) == (1, 1)
    noisy = manifold.pairwise(points, points)
    assert not torch.equal(noisy.argsort(-1), distances.argsort(-1))  # why the near ones are measured again
