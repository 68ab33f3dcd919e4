"""The losses of Hi-Mapper are their definitions and pull the right way; the paper's sign pulls the other way."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz
from horosphere.models.himapper import hierarchical_contrast, kl_to_standard, tree_levels, tree_parents
from tests.models.tiny_himapper import SIZES, images, tiny

SPACES = [Lorentz(0.1), Lorentz(1.0), Lorentz(4.0), Euclidean()]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def test_total_loss_weighs_its_parts():
    _, loss = tiny(contrast_weight=0.5, kl_weight=0.25).train()(images())
    assert_close(loss.total, 0.5 * loss.contrast + 0.25 * loss.kl)
    assert tiny(probabilistic=False).train()(images())[1].kl == 0


def test_kl_is_that_of_torch():
    mean, variance = torch.randn(4, 7, dtype=torch.float64), torch.rand(4, 7, dtype=torch.float64) + 0.01
    assert_close(kl_to_standard(mean, variance), kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0)))
    model = tiny().train()
    mean, variance = model.mapper.tree.moments()[-1]
    assert_close(model(images())[1].kl, kl_divergence(Normal(mean, variance.sqrt()), Normal(0.0, 1.0)).mean())


# -- the contrastive loss ---------------------------------------------------------------------------------------------


def slow_contrast(points, sizes, manifold, sign=-1.0):
    """The definition, child by child. sign = +1 is the paper's as printed."""
    losses = []
    for image in points:
        levels = image.split(sizes)
        for children, above in itertools.pairwise(levels):
            for i, child in enumerate(children):
                parent = sign * manifold.dist(child, above[i // 2])
                others = [sign * manifold.dist(child, other) for j, other in enumerate(children) if j != i]
                losses.append(torch.stack([parent, *others]).logsumexp(0) - parent)
    return torch.stack(losses).mean()


def contrast(points, sizes, manifold):
    return hierarchical_contrast(points, tree_parents(sizes), tree_levels(sizes), manifold)


@pytest.mark.parametrize("manifold", SPACES, ids=str)
@pytest.mark.parametrize("sizes", [(8, 4, 2), (4, 2, 1)])
def test_contrast_is_its_definition(manifold, sizes):
    points = manifold.random(2, sum(sizes), 5, dtype=torch.float64)
    assert_close(contrast(points, sizes, manifold), slow_contrast(points, sizes, manifold), rtol=1e-7, atol=0)


class Given:
    """A "manifold" of given distances."""

    def __init__(self, sign):
        self.distances, self.sign = (1 + torch.rand(1, sum(SIZES), sum(SIZES))).requires_grad_(), sign

    def pairwise(self, x, y):
        return -self.sign * self.distances


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_shorter_to_the_parent_and_longer_within_the_level_is_better_and_the_printed_sign_says_the_opposite(sign):
    given = Given(sign)
    contrast(torch.zeros(1, sum(SIZES), 1), SIZES, given).backward()
    slope, parents, levels = given.distances.grad[0], tree_parents(SIZES), tree_levels(SIZES)
    children = torch.arange(sum(SIZES))[parents >= 0]
    rivals = (levels[:, None] == levels) & (parents >= 0)[:, None] & ~torch.eye(sum(SIZES), dtype=torch.bool)
    assert (-sign * slope[children, parents[children]] > 0).all()
    assert (-sign * slope[rivals] < 0).all()
    rivals[children, parents[children]] = True
    assert (slope[~rivals] == 0).all()  # nothing else counts


def distances(points, manifold):
    """Mean distance to the parent, mean distance within levels."""
    parents, levels = tree_parents(SIZES), tree_levels(SIZES)
    apart, children = manifold.pairwise(points, points), torch.arange(sum(SIZES))[parents >= 0]
    within = (levels[:, None] == levels) & ~torch.eye(sum(SIZES), dtype=torch.bool)
    return apart[:, children, parents[children]].mean().item(), apart[:, within].mean().item()


def published_contrast(points, manifold):
    parts, levels = [], points.split(SIZES, 1)
    for children, above in itertools.pairwise(levels):
        own = torch.eye(children.shape[1])
        logits = (
            manifold.pairwise(children, children) * (1 - own)
            + manifold.pairwise(children, above.repeat_interleave(2, 1)) * own
        )
        parts.append(
            F.cross_entropy(logits.flatten(0, 1), torch.arange(children.shape[1]).repeat(len(points)), reduction="sum")
        )
    return sum(parts) / sum(SIZES[:-1]) / len(points)


def test_published_contrast_is_the_definition_with_the_printed_sign():
    points = Lorentz(1.0).random(1, sum(SIZES), 5)
    assert_close(published_contrast(points, Lorentz(1.0)), slow_contrast(points, SIZES, Lorentz(1.0), sign=1.0))


def descend(loss, manifold, dim, std, steps):
    """Distances at the start and after gradient descent on random nodes."""
    v = (std * torch.randn(2, sum(SIZES), dim)).requires_grad_()
    start = distances(manifold.lift(v).detach(), manifold)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(loss(manifold.lift(v)), v)
        v.data -= 2.0 * gradient  # of a mean over 112 children
    return start, distances(manifold.lift(v).detach(), manifold)


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Euclidean()], ids=str)
@pytest.mark.parametrize(("dim", "std"), [(8, 0.5), (8, 1.0), (128, 0.1)])
def test_descent_brings_parents_and_children_together_and_levels_apart_and_the_printed_sign_does_the_opposite(
    manifold, dim, std
):
    (parent, level), (parent_after, level_after) = descend(
        lambda x: contrast(x, SIZES, manifold), manifold, dim, std, 30
    )
    assert parent_after < 0.9 * parent
    assert level_after > 1.05 * level
    (parent, level), (parent_after, level_after) = descend(
        lambda x: published_contrast(x, manifold), manifold, dim, std, 30
    )
    assert parent_after > 1.1 * parent
    assert level_after < 0.9 * level


@pytest.mark.parametrize("manifold", [Lorentz(1.0), Euclidean()], ids=str)
def test_a_tree_in_order_may_grow_but_keeps_children_nearer_to_parents(manifold):
    (parent, level), (parent_after, level_after) = descend(
        lambda x: contrast(x, SIZES, manifold), manifold, 8, 0.5, 150
    )
    assert parent_after / level_after < 0.5 * parent / level  # the ratio: in the long run both distances may grow


@pytest.mark.parametrize("manifold", SPACES, ids=str)
@pytest.mark.parametrize("sizes", [SIZES, (4, 2, 1)])
def test_gradients_are_finite_where_nodes_coincide(manifold, sizes):
    v = torch.zeros(2, sum(sizes), 5, requires_grad=True)
    contrast(manifold.lift(v), sizes, manifold).backward()
    assert v.grad.isfinite().all()
