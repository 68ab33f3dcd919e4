"""Nearest rows, in any geometry."""

import pytest
import torch

from horosphere.evaluate import neighbours
from horosphere.evaluate.neighbours import nearest, voted
from horosphere.geometry import Euclidean, Lorentz, Poincare


@pytest.mark.parametrize("m", [Euclidean(), Lorentz(0.5), Poincare()], ids=str)
@pytest.mark.parametrize("at_once", [1, 10**6])
def test_they_are_the_nearest_by_the_geometrys_distance(m, at_once, monkeypatch):
    monkeypatch.setattr(neighbours, "AT_ONCE", at_once)
    x, known = (m.random(n, 3, std=1.0, dtype=torch.float64) for n in (7, 20))
    expected = m.dist(x[:, None], known[None]).argsort(1)[:, :4]
    assert torch.equal(nearest(x, known, m, 4), expected)


def test_neighbours_and_votes_are_sklearns():
    theirs = pytest.importorskip("sklearn.neighbors")
    draws = torch.Generator().manual_seed(0)
    x, known = (torch.randn(n, 3, generator=draws, dtype=torch.float64) for n in (50, 80))
    labels = torch.randint(4, (80,), generator=draws)
    ours = voted(labels[nearest(x, known, Euclidean(), 5)], 4)
    model = theirs.KNeighborsClassifier(5).fit(known.numpy(), labels.numpy())
    assert (ours.numpy() == model.predict(x.numpy())).all()


def test_fewer_known_points_than_asked_for():
    assert nearest(torch.zeros(2, 1), torch.ones(3, 1), Euclidean(), 5).shape == (2, 3)
