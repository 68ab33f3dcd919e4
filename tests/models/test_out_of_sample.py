"""New nodes among fixed points: where the loss is least, by a seed, each by itself."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import GEOMETRIES, geometry
from horosphere.models.out_of_sample import place_new

NODES, DIM = 40, 3


def fixed(name, c=1.0, dtype=torch.float64):
    torch.manual_seed(0)
    m = geometry(name, DIM, c)
    return m, m.random(NODES, DIM, std=1.5, dtype=dtype)


def loss_at(new, points, m, own, relations=()):
    """By its definition, pair by pair: its own loss over all other nodes, and those of the fixed nodes."""
    to, between = m.dist(new, points), m.dist(points[:, None], points[None])
    far = to[[n for n in range(NODES) if n not in own]]
    loss = sum(torch.log(1 + torch.exp(to[v] - far).sum()) for v in own)
    for s in {s for s, _ in relations}:
        targets = [v for u, v in relations if u == s]
        others = sum(torch.exp(-between[s, n]) for n in range(NODES) if n != s and n not in targets)
        level = sum(torch.log(torch.exp(-between[s, v]) + others) for v in targets) / len(targets)
        loss = loss + len(targets) * torch.log1p(torch.exp(-to[s] - level))
    return loss


def chain(m, points):
    """Each node is related to the nearest one before it: (1, 0), (2, 0 or 1), …"""
    return [(i, int(m.dist(points[i], points[:i]).argmin())) for i in range(1, NODES)]


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("related", [False, True])
def test_it_lies_where_a_step_hardly_lowers_the_loss(name, related):
    m, points = fixed(name)
    own = m.dist(points[3], points).argsort()[:3].tolist()
    relations = chain(m, points) if related else []
    (new,) = place_new(points, m, [own], relations=np.array(relations) if related else None, steps=200)
    here = loss_at(new, points, m, own, relations)
    assert here < loss_at(m.midpoint(points[own]), points, m, own, relations)
    for direction in torch.randn(10, DIM, dtype=torch.float64):
        v = 0.1 * direction / m.norm(new, direction)
        assert loss_at(m.exp(new, v), points, m, own, relations) > 0.995 * here


@pytest.mark.parametrize("name", GEOMETRIES)
def test_it_is_near_its_neighbour_and_the_fixed_points_stay(name):
    m, points = fixed(name)
    before, relations = points.clone(), np.array(chain(m, points))
    for given, apart in ((None, False), (relations, True)):
        new = place_new(points, m, [[i] for i in range(NODES)], relations=given, steps=100)
        distances = m.dist(new[:, None], points[None])
        nearest = distances.argmin(1) == torch.arange(NODES)
        assert nearest.float().mean() >= (0.6 if apart else 0.9)
        assert (distances.diagonal().median() > 0.3) == apart  # the others keep it off its neighbour
    assert torch.equal(points, before)


def test_a_mutual_neighbour_does_not_push():
    """In a graph without directions the neighbour is related to the new node too."""
    m, points = fixed("lorentz")
    one_way = np.array(chain(m, points))
    both = np.concatenate([one_way, one_way[:, ::-1]])
    far, near = (m.dist(place_new(points, m, [[5]], relations=r, steps=100), points[5]) for r in (one_way, both))
    assert near < far


def test_a_seed_decides_everything_and_nodes_do_not_see_each_other(monkeypatch):
    m, points = fixed("lorentz")
    owns = [[0, 1], [5], [0, 1], [9, 3, 4]]
    together = place_new(points, m, owns, negatives=10, steps=30)
    assert torch.equal(together, place_new(points, m, owns, negatives=10, steps=30))
    assert not torch.equal(together, place_new(points, m, owns, negatives=10, steps=30, seed=1))
    alone = torch.cat([place_new(points, m, [own], negatives=10, steps=30) for own in owns])
    assert_close(alone, together, rtol=1e-6, atol=1e-6)
    monkeypatch.setattr("horosphere.models.out_of_sample.AT_ONCE", 3)
    assert_close(place_new(points, m, owns, negatives=10, steps=30), together, rtol=1e-6, atol=1e-6)


def test_dtype_shape_and_learned_curvature():
    m, points = fixed("lorentz", dtype=torch.float32)
    new = place_new(points, m, [[0], [1, 1, 2]], steps=5)
    assert (new.dtype, new.shape) == (torch.float32, (2, DIM))
    assert place_new(points, m, []).shape == (0, DIM)
    learned = geometry("lorentz", DIM, 1.0, learn=True)
    assert_close(place_new(points, learned, [[0], [1, 2]], steps=5), new)
    assert all(p.grad is None for p in learned.parameters())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_where_there_is_nobody_else_it_stays_with_its_neighbours(name):
    m, points = fixed(name)
    new = place_new(points[:2], m, [[0, 1]], steps=20)
    assert_close(new[0], m.midpoint(points[:2]))


def test_neighbours_that_are_not_there():
    m, points = fixed("lorentz")
    with pytest.raises(UserError, match="new node 1 has no neighbours"):
        place_new(points, m, [[0], []])
    with pytest.raises(UserError, match="new node 0 names the neighbour 40, but there are 40 points"):
        place_new(points, m, [[3, 40]])
    with pytest.raises(UserError, match="names the neighbour -1"):
        place_new(points, m, [[-1]])
