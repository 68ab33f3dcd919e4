"""Nearest points, in any geometry: exactly those of brute force, in blocks."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.evaluate import neighbours
from horosphere.evaluate.neighbours import nearest, voted
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product

MANIFOLDS = [Euclidean(), Lorentz(0.5), Poincare(), Product((Lorentz(), 2), (Euclidean(), 1))]


def brute_force(x, known, m, k, but=None):
    """Every distance, sorted."""
    distances = m.dist(x[:, None], known[None])
    if but is not None:
        distances[torch.arange(len(x)), but] = torch.inf
    order = distances.argsort(dim=1, stable=True)[:, :k]
    return distances.gather(1, order), order


def assert_same(ours, theirs):
    """The same numbers; distances but for the last digit, which depends on how torch cuts a loop."""
    assert torch.equal(ours[1], theirs[1])
    assert_close(ours[0], theirs[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize("m", MANIFOLDS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("at_once", [1, 150, 10**6])
@pytest.mark.parametrize("k", [1, 4, 20])
def test_they_are_those_of_brute_force(m, at_once, k, monkeypatch):
    monkeypatch.setattr(neighbours, "AT_ONCE", at_once)
    x, known = (m.random(n, 3, std=1.0, dtype=torch.float64) for n in (7, 20))
    assert_same(nearest(x, known, m, k), brute_force(x, known, m, k))


@pytest.mark.parametrize("m", [Lorentz(), Poincare()], ids=str)
def test_the_product_is_not_trusted_far_out(m):
    """At radius 14 `pairwise` alone orders siblings wrongly: its noise is larger than their distances."""
    torch.manual_seed(0)
    middles = m.lift(14 * torch.nn.functional.normalize(torch.randn(20, 3, dtype=torch.float64), dim=-1))
    points = m.exp(
        middles.repeat(10, 1),
        1e-3
        * torch.randn(200, 3, dtype=torch.float64)
        / m.norm(middles.repeat(10, 1), torch.ones(3, dtype=torch.float64))[:, None],
    )
    everyone = torch.arange(len(points))
    expected = brute_force(points, points, m, 5, everyone)
    rough = m.pairwise(points, points).fill_diagonal_(torch.inf).topk(5, largest=False).indices
    assert not torch.equal(rough, expected[1])
    assert_same(nearest(points, points, m, 5, everyone), expected)


def test_equals_come_by_their_numbers_and_itself_is_left_out():
    known = torch.zeros(6, 2, dtype=torch.float64)
    assert nearest(known[:2], known, Euclidean(), 3)[1].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert nearest(known[:2], known, Euclidean(), 3, torch.tensor([0, 1]))[1].tolist() == [[1, 2, 3], [0, 2, 3]]


def test_neighbours_and_votes_are_sklearns():
    theirs = pytest.importorskip("sklearn.neighbors")
    draws = torch.Generator().manual_seed(0)
    x, known = (torch.randn(n, 3, generator=draws, dtype=torch.float64) for n in (50, 80))
    labels = torch.randint(4, (80,), generator=draws)
    ours = voted(labels[nearest(x, known, Euclidean(), 5)[1]], 4)
    model = theirs.KNeighborsClassifier(5).fit(known.numpy(), labels.numpy())
    assert (ours.numpy() == model.predict(x.numpy())).all()


def test_fewer_known_points_than_asked_for():
    assert nearest(torch.zeros(2, 1), torch.ones(3, 1), Euclidean(), 5)[1].shape == (2, 3)
    one = torch.ones(1, 1)
    assert nearest(one, one, Euclidean(), 5, torch.tensor([0]))[1].shape == (1, 0)


def test_points_that_are_no_numbers():
    with pytest.raises(UserError, match="some distances are nan"):
        nearest(torch.full((1, 2), torch.nan), torch.ones(3, 2), Euclidean(), 1)
