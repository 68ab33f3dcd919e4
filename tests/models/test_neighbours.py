"""Means and neighbours: closed forms, and slow loops that find the same."""

import numpy as np
import pytest
import torch

from horosphere.data.ratings import Ratings
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, lorentz_to_poincare
from horosphere.models.neighbours import SHRINK, by_distance, means, neighbours
from tests.data.test_ratings import drawn


def test_means_of_users_and_items():
    ratings = drawn()
    user, item = np.arange(7), np.arange(7)
    by_user = [ratings.rating[ratings.user == u].mean() for u in user]
    by_item = [ratings.rating[ratings.item == i].mean() for i in item]
    assert means(ratings, ("user",), damping=0)(user, item) == pytest.approx(by_user)
    assert means(ratings, ("item",), damping=0)(user, item) == pytest.approx(by_item)
    assert means(ratings, ())(user, item) == pytest.approx(ratings.rating.mean())


def test_both_means_are_the_damped_least_squares():
    ratings, damping = drawn(), 2.0
    found = means(ratings, damping=damping)
    design = np.zeros((len(ratings) + 18, 18))
    design[np.arange(len(ratings)), ratings.user] = 1
    design[np.arange(len(ratings)), 7 + ratings.item] = 1
    design[len(ratings) :] = np.sqrt(damping) * np.eye(18)
    rest = np.concatenate([ratings.rating - ratings.rating.mean(dtype=float), np.zeros(18)])
    exact = np.linalg.lstsq(design, rest, rcond=None)[0]
    assert np.concatenate([found.user, found.item]) == pytest.approx(exact, abs=2e-2)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_neighbours_are_what_a_loop_finds(k):
    ratings = drawn(9, 8, 0.7)
    base = means(ratings)
    left = np.full((9, 8), np.nan)
    left[ratings.user, ratings.item] = ratings.rating - base(ratings.user, ratings.item)

    def alike(i, j):
        both = ~np.isnan(left[:, i]) & ~np.isnan(left[:, j])
        a, b = left[both, i], left[both, j]
        cosine = a @ b / max(np.sqrt((a @ a) * (b @ b)), 1e-7)
        return max(0.0, cosine * both.sum() / (both.sum() + SHRINK))

    def slow(u, i):
        rated = [j for j in range(8) if j != i and not np.isnan(left[u, j])]
        best = sorted(((alike(i, j), left[u, j]) for j in rated), reverse=True)[:k]
        total = sum(weight for weight, _ in best)
        return base(u, i) + (sum(weight * rest for weight, rest in best) / total if total else 0.0)

    user, item = (part.flatten() for part in np.meshgrid(np.arange(9), np.arange(8)))
    expected = [slow(u, i) for u, i in zip(user, item, strict=True)]
    assert neighbours(ratings, user, item, k) == pytest.approx(expected, abs=1e-5)


def test_neighbours_of_users_are_those_of_items_of_the_swapped_ratings():
    ratings = drawn()
    assert ratings.swapped.users == ratings.items
    assert (ratings.swapped.swapped.user == ratings.user).all()
    user, item = np.array([0, 3]), np.array([2, 5])
    assert neighbours(ratings.swapped, item, user).shape == (2,)


def test_who_has_no_neighbours_has_the_means():
    ratings = Ratings(["a", "b"], ["x", "y"], np.array([0, 1]), np.array([0, 1]), np.array([5, 1]))
    user, item = np.array([0, 1]), np.array([1, 0])
    assert neighbours(ratings, user, item) == pytest.approx(means(ratings)(user, item))


# -- by learned points ------------------------------------------------------------------------------------------------

EVERY = tuple(part.flatten() for part in np.meshgrid(np.arange(9), np.arange(8)))


@pytest.mark.parametrize("k", [1, 3, 40])
def test_flat_neighbours_by_distance_are_sklearns(k):
    """For each user, a regression on the points of the items it has rated, weighed by 1/distance."""
    from sklearn.neighbors import KNeighborsRegressor

    ratings, points = drawn(9, 8, 0.7), torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double()
    base, (user, item) = means(ratings), EVERY
    found = neighbours(ratings, user, item, k, by_distance(points, Euclidean()))
    for u, i, rating in zip(user, item, found, strict=True):
        rated = [(j, r) for who, j, r in zip(ratings.user, ratings.item, ratings.rating, strict=True) if who == u]
        others = [(j, r - base(u, j)) for j, r in rated if j != i]
        if others:
            numbers, rest = zip(*others, strict=True)
            model = KNeighborsRegressor(min(k, len(rest)), weights="distance").fit(points[list(numbers)], rest)
            assert rating == pytest.approx(base(u, i) + model.predict(points[i : i + 1])[0], abs=1e-5)


@pytest.mark.parametrize("m", [Lorentz(0.7), Poincare(0.7)])
def test_neighbours_by_distance_know_no_place_and_no_model(m):
    ratings, (user, item) = drawn(9, 8, 0.7), EVERY
    points = m.random(8, 3, std=1.0, generator=torch.Generator().manual_seed(0)).double()
    found = neighbours(ratings, user, item, 3, by_distance(points, m))
    moved = m.translate(points, m.lift(torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)))
    assert neighbours(ratings, user, item, 3, by_distance(moved, m)) == pytest.approx(found, abs=1e-5)
    if isinstance(m, Lorentz):
        ball = by_distance(lorentz_to_poincare(points, 0.7), Poincare(0.7))
        assert neighbours(ratings, user, item, 3, ball) == pytest.approx(found, abs=1e-5)


def test_items_in_one_place_are_the_nearest():
    m = Lorentz()
    alike = by_distance(m.exp0(torch.tensor([[1.0], [1.0], [2.0]])), m)
    assert alike[0, 1].item() == pytest.approx(1e9)
    assert not alike.diagonal().any()


def test_likeness_of_other_items_is_refused():
    with pytest.raises(UserError, match=r"alike of shape \(3, 3\): give one number for each pair of 11 items"):
        neighbours(drawn(), np.array([0]), np.array([0]), alike=torch.zeros(3, 3))
