"""Radial Embeddings: angles against the arc cosine written out, gradients everywhere, the loss term by term."""

import math

import pytest
import torch
from torch.testing import assert_close

from horosphere.models.radial import cone_loss, kept, radial_angle, radial_loss


def unit(*shape, seed=0):
    points = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(points, dim=-1)


def literal(e, other, root):
    a, b = e - root, other - e
    return torch.acos(((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).clamp(-1, 1))


def test_it_is_the_angle_between_the_way_out_and_the_way_on():
    e, other, root = unit(50, 8), unit(50, 8, seed=1), unit(8, seed=2)
    assert_close(radial_angle(e, other, root), literal(e, other, root))


def test_straight_on_is_zero_straight_back_is_pi_and_no_way_is_zero():
    root, out = torch.zeros(3), torch.tensor([1.0, 2.0, 2.0])
    cases = {(out, 2 * out): 0.0, (out, out / 2): math.pi, (root, out): 0.0, (out, out): 0.0}
    for (e, other), angle in cases.items():
        assert radial_angle(e, other, root).item() == pytest.approx(angle, abs=1e-6)


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.0, 0.0])
def test_gradients_are_finite_where_the_angle_is_extreme(factor):
    out = torch.tensor([1.0, 2.0, 2.0], requires_grad=True)
    root = torch.zeros(3, requires_grad=True)
    radial_angle(out, factor * out.detach(), root).backward()
    assert out.grad.isfinite().all()
    assert root.grad.isfinite().all()


def test_the_gradient_is_that_of_the_arc_cosine():
    e, other, root = unit(5, 4).requires_grad_(), unit(5, 4, seed=1).requires_grad_(), unit(4, seed=2).requires_grad_()
    ours, theirs = (torch.autograd.grad(f(e, other, root).sum(), (e, other, root)) for f in (radial_angle, literal))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_the_loss_term_by_term():
    true, false, root = unit(6, 4, 8), unit(6, 4, 8, seed=1), unit(8, seed=2)
    onward = [[literal(true[b, i], true[b, i + 1], root).item() for i in range(3)] for b in range(6)]
    aside = [[literal(true[b, i], false[b, i], root).item() for i in range(3)] for b in range(6)]
    places = [(b, i) for b in range(6) for i in range(3)]
    gap = {(b, i): onward[b][i] - aside[b][i] for b, i in places}
    worst = max(places, key=lambda at: onward[at[0]][at[1]])
    nearest = min(places, key=lambda at: aside[at[0]][at[1]])
    expected = sum(gap.values()) / len(places) + gap[worst] + gap[nearest]
    assert radial_loss(true, false, root).item() == pytest.approx(expected)


def test_what_was_learned_is_kept_at_no_cost_when_nothing_changes():
    e = unit(7, 4)
    assert kept(e, e).item() == pytest.approx(0, abs=1e-12)
    assert kept(e, -e).item() == pytest.approx(1)


def test_a_chain_on_a_ray_lies_in_its_cones():
    ray = torch.arange(1.0, 5.0)[None, :, None] * torch.tensor([3.0, 4.0])
    behind = -ray
    assert cone_loss(ray, behind, torch.zeros(2)).item() == pytest.approx(0, abs=1e-6)
    assert cone_loss(ray.flip(1), ray, torch.zeros(2)).item() > 1
