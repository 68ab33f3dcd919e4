"""Slots hold points: what each layer of a deep stack makes of them, and that flat space gets torch's own layers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.nn import SlotLinear, SlotNorm, SlotResidual
from horosphere.nn.slots import residual_norm, side_by_side

CURVATURES = [0.1, 1.0, 4.0]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def lorentz_length(slots):
    return slots[..., 1:].square().sum(-1) - slots[..., 0].square()


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_are_points_with_their_time(c, dtype):
    u = random(2, 5, 3, 16, dtype=dtype)
    slots = Lorentz(c).heads(u)
    assert_close(slots[..., 1:], u[..., 1:])
    assert_close(lorentz_length(slots), torch.full((2, 5, 3), -1 / c, dtype=dtype), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("c", CURVATURES)
def test_dot_products_of_heads_order_keys_by_distance(c):
    L = Lorentz(c)
    u, w = random(4, 16), random(9, 16)
    scores = L.heads(u, torch.tensor([2.0]).double(), query=True) @ L.heads(w).mT
    u, w = u[:, 1:], w[:, 1:]
    assert_close(scores, 2.0 * (-(L.pairwise(u, w) * math.sqrt(c)).cosh() / c))


@pytest.mark.parametrize("c", CURVATURES)
def test_reading_scales_the_time_and_leaves_the_space(c):
    u = random(3, 16)
    read = Lorentz(c).reading(u)
    assert_close(read[:, 1:], u[:, 1:])
    assert_close(read[:, :1] * 4, Lorentz(c).time(u[:, 1:]))


@pytest.mark.parametrize("c", CURVATURES)
def test_centre_and_join_are_the_centroid(c):
    L = Lorentz(c)
    points, weights = random(3, 6, 16), torch.rand(3, 6, dtype=torch.float64)
    weights = weights / weights.sum(-1, keepdim=True)
    expected = L.midpoint(points[..., 1:], weights)
    average = (weights.unsqueeze(-1) * L.heads(points)).sum(-2)
    assert_close(L.centre(average)[..., 1:], expected)
    assert_close(lorentz_length(L.centre(average)), torch.full((3,), -1 / c, dtype=torch.float64))
    joined = L.join([(points[:, i], weights[:, i : i + 1]) for i in range(6)])
    assert_close(joined[..., 1:], expected)
    assert (joined[..., 0] == 0).all()


@pytest.mark.parametrize("method", ["space", "reading", "heads", "centre"])
def test_nothing_depends_on_what_a_matrix_left_in_the_slot_of_the_time(method):
    L = Lorentz(1.0)
    u = random(5, 8)
    other = u.clone()
    other[:, 0] = 100
    if method != "centre":
        assert torch.equal(getattr(L, method)(u), getattr(L, method)(other))
    norm, residual = SlotNorm(8, L).double(), SlotResidual(8, L).double()
    assert torch.equal(norm(u), norm(other))
    assert torch.equal(residual(u, u), residual(other, other))


def test_norm_does_not_depend_on_the_scale_of_its_input():
    norm = SlotNorm(64, Lorentz(1.0), eps=1e-12).double()
    u = random(5, 64)
    assert_close(norm(u), norm(1000 * u))
    assert_close(norm(u)[:, 1:].square().mean(-1), torch.ones(5, dtype=torch.float64))


def test_flat_slots_are_torch():
    flat = Euclidean()
    u, v = random(4, 8, dtype=torch.float32), random(4, 8, dtype=torch.float32)
    for method in (flat.space, flat.reading, flat.heads, flat.centre):
        assert method(u) is u
    assert_close(flat.join([(u, 1.0), (v, torch.full((4, 1), 2.0))]), u + 2 * v)
    assert torch.equal(SlotNorm(8, flat)(u), F.rms_norm(u, (8,), torch.ones(8), 1e-6))
    assert torch.equal(SlotResidual(8, flat)(u, v), u + v)
    assert SlotResidual(8, flat).weight is None
    linear = SlotLinear(8, 5, flat)
    assert linear.weight[:, 0].abs().min() > 0
    assert torch.equal(linear(u), F.linear(u, linear.weight))


def test_columns_of_times_start_at_zero_for_each_point():
    linear = SlotLinear(24, 5, Lorentz(1.0), points=3)
    weight = linear.weight.view(5, 3, 8)
    assert (weight[..., 0] == 0).all()
    assert (weight[..., 1:] != 0).all()


def test_the_stream_keeps_its_length_and_its_old_content():
    """s·N(x + w·y): without s the stream would shrink to length about 1 in one layer."""
    L = Lorentz(1.0)
    residual = SlotResidual(256, L).double()
    x = L.space(60 * F.normalize(random(10, 256), dim=-1))
    y = L.space(0.5 * F.normalize(random(10, 256), dim=-1))
    out = residual(x, y)
    assert (out.norm(dim=-1) > 20).all()
    assert (F.cosine_similarity(out, x) > 0.99).all()


def test_residual_and_norm_together_are_one_after_the_other():
    L = Lorentz(0.5)
    residual, norm = SlotResidual(16, L).double(), SlotNorm(16, L).double()
    x, y = random(4, 16), random(4, 16)
    normed, joined = residual_norm(x, y, residual, norm)
    assert torch.equal(joined, residual(x, y))
    assert torch.equal(normed, norm(joined))


def test_other_geometries_say_what_to_use():
    with pytest.raises(NotImplementedError, match="use Lorentz or Euclidean"):
        Poincare(1.0).heads(random(2, 4))


def test_layers_side_by_side_are_the_layers_one_by_one():
    layers = [SlotLinear(8, size, Lorentz()).double() for size in (4, 6, 4)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    x = random(3, 8).requires_grad_()
    weights = [layer.weight for layer in layers]
    forms = (side_by_side(x, layers), torch.cat([layer(x) for layer in layers], -1))
    results = [(form, *torch.autograd.grad(form.square().sum(), [x, *weights])) for form in forms]
    for one, apart in zip(*results, strict=True):
        assert_close(one, apart)


def test_a_wrapped_layer_is_heard_in_training():
    """Adapters replace a layer by one of their own: its weight alone is not what it computes."""

    class Doubled(SlotLinear):
        def forward(self, x):
            return 2 * super().forward(x)

    layers = [SlotLinear(8, 4, Lorentz()), Doubled(8, 4, Lorentz())]
    x = random(3, 8, dtype=torch.float32)
    assert_close(side_by_side(x, layers), torch.cat([layer(x) for layer in layers], -1))
