"""Slots hold points with their time; in flat space they are the vector itself."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product

CURVATURES = [0.1, 1.0, 4.0]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def lorentz_length(slots):
    """<x, x> of points with their time in slot 0."""
    return slots[..., 1:].square().sum(-1) - slots[..., 0].square()


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_are_points_with_their_time(c, dtype):
    u = random(2, 5, 3, 16, dtype=dtype)
    slots = Lorentz(c).slots.heads(u)
    assert_close(slots[..., 1:], u[..., 1:])
    assert_close(lorentz_length(slots), torch.full((2, 5, 3), -1 / c, dtype=dtype), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("c", CURVATURES)
def test_dot_products_of_heads_order_keys_by_distance(c):
    L = Lorentz(c)
    u, w = random(4, 16), random(9, 16)
    scores = L.slots.heads(u, torch.tensor([2.0]).double(), query=True) @ L.slots.heads(w).mT
    u, w = u[:, 1:], w[:, 1:]
    assert_close(scores, 2.0 * (-(L.pairwise(u, w) * math.sqrt(c)).cosh() / c))


@pytest.mark.parametrize("c", CURVATURES)
def test_reading_scales_the_time_and_leaves_the_space(c):
    u = random(3, 16)
    read = Lorentz(c).slots.reading(u)
    assert_close(read[:, 1:], u[:, 1:])
    assert_close(read[:, :1] * 4, Lorentz(c).time(u[:, 1:]))


@pytest.mark.parametrize("c", CURVATURES)
def test_centre_and_join_are_the_centroid(c):
    L = Lorentz(c)
    points, weights = random(3, 6, 16), torch.rand(3, 6, dtype=torch.float64)
    weights = weights / weights.sum(-1, keepdim=True)
    expected = L.midpoint(points[..., 1:], weights)
    average = (weights.unsqueeze(-1) * L.slots.heads(points)).sum(-2)
    assert_close(L.slots.centre(average)[..., 1:], expected)
    assert_close(lorentz_length(L.slots.centre(average)), torch.full((3,), -1 / c, dtype=torch.float64))
    joined = L.slots.join([(points[:, i], weights[:, i : i + 1]) for i in range(6)])
    assert_close(joined[..., 1:], expected)
    assert (joined[..., 0] == 0).all()


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_reader_finds_the_same_time(c, dtype):
    """reading holds time/√n, heads the time, a query minus the time: of the space part beside it."""
    L, u = Lorentz(c), random(7, 16, dtype=dtype)
    reading, key, query = L.slots.reading(u), L.slots.heads(u), L.slots.heads(u, torch.full((1,), 3.0), query=True)
    for slots, factor in ((reading, 1 / math.sqrt(16)), (key, 1.0), (query / 3, -1.0)):
        time = L.time(slots[:, 1:].double())
        assert_close(slots[:, :1].double(), factor * time, rtol=0.01 if dtype == torch.bfloat16 else 1e-5, atol=0)


@pytest.mark.parametrize("method", ["space", "reading", "heads"])
def test_nothing_reads_what_a_matrix_left_in_the_slot_of_the_time(method):
    make = getattr(Lorentz(1.0).slots, method)
    u = random(5, 8)
    other = u.clone()
    other[:, 0] = 100
    assert torch.equal(make(u), make(other))


def test_space_has_nothing_in_the_slot_of_the_time():
    u = random(5, 8)
    assert torch.equal(Lorentz().slots.space(u), torch.cat((torch.zeros(5, 1), u[:, 1:]), -1))


def test_flat_slots_are_the_vector_itself():
    slots = Euclidean().slots
    u, v = random(4, 8), random(4, 8)
    for method in (slots.space, slots.reading, slots.heads, slots.centre):
        assert method(u) is u
    assert_close(slots.join([(u, 1.0), (v, torch.full((4, 1), 2.0))]), u + 2 * v)


def test_slots_know_how_many_of_them_hold_times():
    assert (Lorentz().slots.times, Euclidean().slots.times) == (1, 0)


@pytest.mark.parametrize("manifold", [Poincare(1.0), Product((Lorentz(), 2), (Euclidean(), 2))])
def test_other_geometries_say_what_to_use(manifold):
    name = type(manifold).__name__
    with pytest.raises(NotImplementedError, match=f"slots on {name}: use Lorentz or Euclidean"):
        _ = manifold.slots


def test_slots_are_at_the_curvature_of_now():
    """A learned curvature gets its gradient through slots, and what overrides `c` is heard."""

    class Twice(Lorentz):
        @property
        def c(self):
            return 2 * super().c

    u = random(3, 8)
    assert_close(Twice(1.5).slots.heads(u), Lorentz(3.0).slots.heads(u))
    L = Lorentz(1.5, learn=True).double()
    L.slots.reading(u).sum().backward()
    assert L.log_ratio.grad.abs() > 0
    with torch.no_grad():
        L.log_ratio.fill_(0.3)
    assert_close(L.slots.heads(u), Lorentz(float(L.c.detach())).slots.heads(u))


def test_slots_are_no_part_of_a_module():
    """Nothing to save, to shard or to copy: they are made when asked for."""
    L = Lorentz(learn=True)
    before = {*L.state_dict()}
    assert L.slots.manifold is L
    assert {*L.state_dict()} == before
    assert [*L.children()] == []
    twin = copy.deepcopy(L)
    assert twin.slots.manifold is twin


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(0.7), Lorentz(0.7, learn=True)])
def test_slots_compile_as_one_graph(manifold):
    def layer(u, v):
        slots = manifold.slots
        key, query = slots.heads(u), slots.heads(v, torch.ones(1), query=True)
        return slots.join([(slots.centre(key), 1.0), (slots.reading(query), 0.5)])[..., slots.times :]

    u, v = random(4, 8, dtype=torch.float32), random(4, 8, dtype=torch.float32)
    assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(u, v), layer(u, v))
