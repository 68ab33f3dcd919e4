"""New nodes among fixed points: where the loss is least, by a seed, each by itself."""

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


def loss_at(new, points, m, own):
    """By its definition, pair by pair, over all other nodes."""
    near = torch.stack([m.dist(new, points[v]) for v in own])
    far = torch.stack([m.dist(new, points[n]) for n in range(NODES) if n not in own])
    return torch.stack([torch.log(1 + torch.exp(d - far).sum()) for d in near]).sum()


@pytest.mark.parametrize("name", GEOMETRIES)
def test_it_lies_where_no_step_lowers_the_loss(name):
    (m, points), own = fixed(name), [3, 7, 11]
    (new,) = place_new(points, m, [own])
    here = loss_at(new, points, m, own)
    start = loss_at(m.midpoint(points[own]), points, m, own)
    assert here < start
    for direction in torch.randn(50, DIM, dtype=torch.float64):
        v = 0.1 * direction / m.norm(new, direction)
        assert loss_at(m.exp(new, v), points, m, own) > here - 2e-3


@pytest.mark.parametrize("name", GEOMETRIES)
def test_it_is_near_its_neighbour_and_the_fixed_points_stay(name):
    m, points = fixed(name)
    before = points.clone()
    owns = [[i] for i in range(NODES)]
    new = place_new(points, m, owns)
    assert torch.equal(points, before)
    nearest = m.dist(new[:, None], points[None]).argmin(1)
    assert (nearest == torch.arange(NODES)).float().mean() >= 0.9


def test_a_seed_decides_everything_and_nodes_do_not_see_each_other(monkeypatch):
    m, points = fixed("lorentz")
    owns = [[0, 1], [5], [0, 1], [9, 3, 4]]
    together = place_new(points, m, owns, negatives=10)
    assert torch.equal(together, place_new(points, m, owns, negatives=10))
    assert not torch.equal(together, place_new(points, m, owns, negatives=10, seed=1))
    alone = torch.cat([place_new(points, m, [own], negatives=10) for own in owns])
    assert_close(alone, together, rtol=1e-6, atol=1e-6)
    monkeypatch.setattr("horosphere.models.out_of_sample.AT_ONCE", 3)
    assert_close(place_new(points, m, owns, negatives=10), together, rtol=1e-6, atol=1e-6)


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
