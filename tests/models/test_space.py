"""The common space of two towers: CLIP's, MERU's and EuCLIP's formulas, and what they say of generality."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.models.towers import Space, SpaceConfig

GEOMETRIES = ("sphere", "lorentz", "euclidean")


def vectors(count, width=6, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(geometry, **how):
    return Space(SpaceConfig(geometry, width=6, reach=0.5, **how)).double()


def test_the_sphere_compares_by_cosines():
    space, a, b = made("sphere"), vectors(3), vectors(4, seed=1)
    assert_close(space.alike(space.text(a), space.image(b)), F.cosine_similarity(a[:, None], b[None], dim=-1))


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_the_hyperboloid_compares_as_meru_does(c, squared):
    """-acosh(-c<x, y>)/√c of exp0(α·v), written out."""
    space = made("lorentz", curvature=c, squared=squared)
    a, b = vectors(3), vectors(4, seed=1)

    def point(v):
        r = (c**0.5 * v.norm(dim=-1, keepdim=True)).clamp(min=1e-12)
        x = v * r.sinh() / r
        return x, (1 / c + x.square().sum(-1)).sqrt()

    (x, xt), (y, yt) = point(0.5 * a), point(0.5 * b)
    distance = (c * (xt[:, None] * yt[None] - x @ y.T)).acosh() / c**0.5
    assert_close(space.alike(space.text(a), space.image(b)), -(distance**2 if squared else distance))


@pytest.mark.parametrize("squared", [False, True])
def test_flat_space_compares_by_distances(squared):
    space, a, b = made("euclidean", squared=squared), vectors(3), vectors(4, seed=1)
    distance = torch.cdist(0.5 * a, 0.5 * b)
    assert_close(space.alike(space.text(a), space.image(b)), -(distance**2 if squared else distance))


def test_a_space_begins_as_merus_does():
    """c = 1, learned, and vectors of length 1 near the origin: MERU puts them at 1/√width, here of 256 dimensions."""
    space = Space(SpaceConfig("lorentz"))
    assert_close(space.manifold.c, torch.ones(1))
    assert space.manifold.c.requires_grad
    v = F.normalize(torch.randn(3, 256), dim=-1)
    for side in (space.text, space.image):
        assert_close(space.manifold.dist0(side(v)), torch.full((3,), 256**-0.5))
    assert not SpaceConfig().squared


@pytest.mark.parametrize("geometry", ["lorentz", "euclidean"])
def test_a_picture_behind_its_text_is_entailed_and_one_before_it_is_not(geometry):
    space, v = made(geometry), vectors(5)
    text = space.text(v)
    assert space.entailment(text, space.image(1.5 * v)) < 1e-6
    assert space.entailment(text, space.image(0.5 * v)) > 1
    assert (space.radius(space.image(1.5 * v), text[0]) > space.radius(text, text[0])).all()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_way_from_the_root_goes_on_straight_or_turns(geometry):
    """Ξ is 0 for what lies behind, on a line with the root, and π for what lies before."""
    space, v = made(geometry), vectors(5)
    root = space.text(vectors(1, seed=3))[0] if geometry == "sphere" else torch.zeros(6, dtype=torch.float64)
    if geometry == "sphere":  # seen from a root on it, straight on is along a chord
        near, far = root + 0.1 * v, root + 0.3 * v
    else:
        near, far = space.text(v), space.text(2 * v)
    assert_close(space.angle(near, far, root), torch.zeros(5, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(space.angle(far, near, root), torch.full((5,), torch.pi, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_all_of_a_space_is_learned(geometry):
    space, v, w = made(geometry), vectors(5).requires_grad_(), vectors(5, seed=1)
    text, image = space.text(v), space.image(w)
    (space.alike(text, image).sum() + space.entailment(text, image)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in space.parameters())
    assert len(list(space.parameters())) == {"sphere": 0, "lorentz": 3, "euclidean": 2}[geometry]
