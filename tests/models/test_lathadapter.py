"""LatHAdapter: the formulas against loops, and what must hold where they are at their limits."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import Poincare
from horosphere.models import lathadapter
from horosphere.models.lathadapter import (
    LatHAdapter,
    LatHAdapterConfig,
    ancestor,
    dual_space_logits,
    hierarchy_loss,
    reciprocal,
    refine,
    triplets,
)

BALL = Poincare(c=0.1)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def adapter_for(width=6, attributes=5, **more):
    torch.manual_seed(0)
    return LatHAdapter(width, LatHAdapterConfig(attributes=attributes, **more), scale=10.0).double()


# -- slow references: as the formulas are read ------------------------------------------------------------------------


def slow_refine(texts, attributes, beta):
    rows = [*texts, *attributes]
    cosine = [[float(F.cosine_similarity(a, b, dim=0)) for b in rows] for a in rows]
    degree = [max(sum(row), 1.0) for row in cosine]
    refined = []
    for i, text in enumerate(texts):
        gathered = sum(cosine[i][j] / (degree[i] * degree[j]) ** 0.5 * row for j, row in enumerate(rows))
        refined.append(text + beta * gathered)
    return torch.stack(refined)


def slow_dist(x, y, c=0.1):
    """2/√c artanh(√c |(-x) ⊕ y|) with Möbius addition written out."""
    u, v = -x, y
    uv, uu, vv = u @ v, u @ u, v @ v
    total = ((1 + 2 * c * uv + c * vv) * u + (1 - c * uu) * v) / (1 + 2 * c * uv + c * c * uu * vv)
    return 2 / c**0.5 * torch.atanh(c**0.5 * total.norm())


def slow_exp0(x, c=0.1):
    return torch.tanh(c**0.5 * x.norm()) * x / (c**0.5 * x.norm())


def slow_triplets(points, k):
    count = range(len(points))
    near = {i: set(sorted(count, key=lambda j: float(slow_dist(points[i], points[j])))[:k]) for i in count}
    both = {(i, j) for i in count for j in count if j in near[i] and i in near[j]}
    return [
        (i, j, m)
        for i in count
        for j in count
        if i != j and (i, j) in both
        for m in count
        if m != i and (i, m) not in both
    ]


def slow_hierarchy_loss(points, above, k, margin):
    found, total = slow_triplets(points, k), torch.zeros((), dtype=points.dtype)
    for i, j, m in found:
        d = {(p, a): slow_dist(points[p], above[a]) for p in (i, j, m) for a in range(len(above))}
        two = min(range(len(above)), key=lambda a: float(max(d[i, a], d[j, a])))
        three = min(range(len(above)), key=lambda a: float(max(d[i, a], d[j, a], d[m, a])))
        if two != three:
            total = total + F.relu(d[i, two] - d[i, three] + margin) + F.relu(d[j, two] - d[j, three] + margin)
            total = total + F.relu(d[m, three] - d[m, two] + margin)
    return total / max(len(found), 1)


@pytest.mark.parametrize("seed", range(3))
def test_every_part_of_the_loss_is_the_formula(seed):
    adapter = adapter_for().eval()
    images, texts, labels = random(8, 6, seed=seed), random(4, 6, seed=seed + 10), torch.arange(8) % 4
    v, t = F.normalize(images, dim=-1), F.normalize(texts, dim=-1)
    refined = slow_refine(t, adapter.attributes.detach(), 0.1)
    ball = {
        name: [slow_exp0(x) for x in rows]
        for name, rows in (("v", v), ("a", adapter.attributes.detach()), ("t", refined))
    }
    cosines = torch.stack([torch.stack([F.cosine_similarity(a, b, dim=0) for b in refined]) for a in v])
    distances = torch.stack([torch.stack([slow_dist(a, b) for b in ball["t"]]) for a in ball["v"]])
    loss = adapter.loss(images, texts, labels)
    assert_close(loss.ecls, F.cross_entropy(10 * cosines, labels))
    assert_close(loss.hcls, F.cross_entropy(-distances, labels))
    va = slow_hierarchy_loss(torch.stack(ball["v"]), torch.stack(ball["a"]), 3, 0.1)
    at = slow_hierarchy_loss(torch.stack(ball["a"]), torch.stack(ball["t"]), 3, 0.1)
    assert va > 0 or at > 0
    assert_close(loss.va, va)
    assert_close(loss.at, at)
    assert_close(loss.total, loss.ecls + loss.hcls + va + at)
    assert_close(adapter(images, texts), 10 * cosines - distances)


# -- ATR --------------------------------------------------------------------------------------------------------------


def test_texts_that_disagree_make_no_nan():
    texts = torch.tensor([[1.0, 0.1], [-1.0, 0.1], [-1.0, -0.1], [-0.9, 0.0]], requires_grad=True)
    unit = F.normalize(texts, dim=-1)
    assert (unit @ unit.T).sum(1).min() < 0  # the square root of that degree does not exist
    attributes = torch.tensor([[-0.5, 0.0]], requires_grad=True)
    refined = refine(texts, attributes, 0.1)
    refined.sum().backward()
    for value in (refined, texts.grad, attributes.grad):
        assert value.isfinite().all()
    assert refined.norm(dim=1).max() < 2


def test_without_beta_texts_stay_as_they_are():
    texts = random(4, 6)
    assert torch.equal(refine(texts, random(3, 6, seed=1), 0.0), texts)


# -- HHL --------------------------------------------------------------------------------------------------------------


def test_four_pictures_and_three_neighbours_always_have_triplets():
    for seed in range(50):
        points = BALL.exp0(random(4, 6, seed=seed))
        distances = BALL.pairwise(points, points)
        assert torch.equal(reciprocal(distances, 3).diagonal(), torch.ones(4, dtype=torch.bool))
        found = triplets(distances, 3)
        assert len(found) > 0
        assert [tuple(row) for row in found.tolist()] == slow_triplets(points, 3)
        for i, j, m in found.tolist():
            assert len({i, j, m}) == 3


def test_pictures_that_are_the_same_are_not_their_own_negatives():
    points = torch.zeros(5, 3)
    for i, j, m in triplets(BALL.pairwise(points, points), 3).tolist():
        assert i not in (j, m)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_without_triplets_the_loss_and_its_gradient_are_zero(count):
    points = random(count, 6).requires_grad_()
    above = random(3, 6, seed=1).requires_grad_()
    loss = hierarchy_loss(BALL.exp0(points), BALL.exp0(above), BALL, 3, 0.1, training=True)
    loss.backward()
    assert loss.item() == 0
    for leaf in (points, above):
        assert torch.equal(leaf.grad, torch.zeros_like(leaf))


def test_too_many_triplets_are_drawn_from(monkeypatch):
    points = BALL.exp0(random(8, 6))
    every = {tuple(row) for row in triplets(BALL.pairwise(points, points), 3).tolist()}
    monkeypatch.setattr(lathadapter, "MOST", 7)
    some = [tuple(row) for row in triplets(BALL.pairwise(points, points), 3).tolist()]
    assert len(some) == 7 == len(set(some)) < len(every)
    assert set(some) < every


def test_an_ancestor_is_drawn_in_training_and_the_nearest_afterwards():
    distances = torch.tensor([0.3, 0.2, 0.5]).expand(4000, 3).clone().requires_grad_()
    drawn = ancestor(distances, training=True)
    assert_close(drawn.sum(1), torch.ones(4000))
    assert set(drawn.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    share = torch.softmax(-distances[0] / 0.1, 0)
    assert_close(drawn.mean(0), share, rtol=0, atol=0.03)
    (drawn * torch.tensor([1.0, 0.0, 0.0])).sum().backward()
    assert distances.grad.abs().sum() > 0
    assert torch.equal(ancestor(distances, training=False), torch.tensor([0.0, 1.0, 0.0]).expand(4000, 3))


def test_the_hierarchy_is_learned():
    """Two groups of points: attributes become the ancestors of each, and one of all."""
    torch.manual_seed(0)
    points = BALL.exp0(torch.cat([0.1 * torch.randn(6, 2) + torch.tensor([s, 0.0]) for s in (1.5, -1.5)]))
    attributes = torch.nn.Parameter(0.3 * torch.randn(6, 2))
    optimizer = torch.optim.Adam([attributes], lr=0.02)

    def judged():
        return hierarchy_loss(points, BALL.exp0(attributes), BALL, 6, 0.1, training=False).item()

    before = judged()
    for _ in range(150):
        optimizer.zero_grad()
        hierarchy_loss(points, BALL.exp0(attributes), BALL, 6, 0.1, training=True).backward()
        optimizer.step()
    assert judged() < before / 2


# -- answers ----------------------------------------------------------------------------------------------------------


def test_between_unit_vectors_the_ball_changes_no_answer():
    images, texts = (F.normalize(random(count, 6, seed=count), dim=-1) for count in (200, 9))
    cosines = images @ texts.T
    for scale in (0.0, 0.1, 10.0):
        assert torch.equal(dual_space_logits(images, texts, scale, BALL).argmax(1), cosines.argmax(1))


def test_lengths_of_texts_change_answers():
    images, texts = (F.normalize(random(count, 6, seed=count), dim=-1) for count in (200, 9))
    longer = texts * torch.linspace(0.5, 2.0, 9, dtype=torch.float64)[:, None]
    cosines = images @ texts.T
    assert not torch.equal(dual_space_logits(images, longer, 1.0, BALL).argmax(1), cosines.argmax(1))


def test_refined_texts_keep_their_lengths():
    lengths = adapter_for().refined(random(4, 6)).norm(dim=1)
    assert (lengths - 1).abs().max() > 1e-3


def test_flat_space_is_the_limit_of_small_curvature():
    images, texts, labels = random(8, 6), random(4, 6, seed=1), torch.arange(8) % 4
    flat = adapter_for(geometry="euclidean").eval().loss(images, texts, labels)
    for name in ("poincare", "lorentz"):
        nearly = adapter_for(geometry=name, curvature=1e-9).eval().loss(images, texts, labels)
        assert_close(torch.stack(nearly), torch.stack(flat), rtol=1e-6, atol=1e-6)


def test_the_ball_and_the_hyperboloid_are_one_geometry():
    images, texts, labels = random(8, 6), random(4, 6, seed=1), torch.arange(8) % 4
    ball, hyperboloid = (
        adapter_for(geometry=name).eval().loss(images, texts, labels) for name in ("poincare", "lorentz")
    )
    assert_close(torch.stack(ball), torch.stack(hyperboloid))


def test_vectors_may_have_any_length():
    adapter, images, texts = adapter_for(), random(5, 6), random(4, 6, seed=1)
    assert_close(adapter(7 * images, 0.1 * texts), adapter(images, texts))


def test_the_gradient_reaches_attributes_and_texts():
    adapter, texts = adapter_for(), random(4, 6, seed=1).requires_grad_()
    adapter.loss(random(8, 6), texts, torch.arange(8) % 4).total.backward()
    assert adapter.attributes.grad.abs().sum() > 0
    assert texts.grad.abs().sum() > 0


def test_it_works_in_bf16_autocast():
    adapter = adapter_for().float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = adapter.loss(random(8, 6).float(), random(4, 6, seed=1).float(), torch.arange(8) % 4)
    loss.total.backward()
    assert adapter.attributes.grad.isfinite().all()


def test_a_neighbourhood_of_one_is_refused():
    with pytest.raises(UserError, match="neighbours=1: it goes from 2 to 1e6"):
        LatHAdapterConfig(neighbours=1)
