"""Ratings without a training: means, and nearest neighbours. What learned recommenders have to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.ratings import Ratings
from horosphere.errors import UserError
from horosphere.geometry import Manifold

DAMPING = 5.0  # ratings at the mean that every user and item is given beside its own
ROUNDS = 10  # users for given items, items for given users, and again
NEIGHBOURS = 40
SHRINK = 50.0  # a likeness of items that n people rated both counts n/(n + SHRINK)
PAIRS_AT_ONCE = 4096
LARGEST = 1e9  # likeness of two points


@dataclass(frozen=True, eq=False)
class Means:
    """μ + b_u + b_i."""

    mean: float
    user: np.ndarray  # (U,)
    item: np.ndarray  # (I,)

    def __call__(self, user: np.ndarray, item: np.ndarray) -> np.ndarray:
        """(N,), (N,) -> (N,)"""
        found: np.ndarray = self.mean + self.user[user] + self.item[item]
        return found


def means(ratings: Ratings, of: tuple[str, ...] = ("user", "item"), damping: float = DAMPING) -> Means:
    """The mean of all ratings, and by how much users, items or both lie above it: damped least squares, in turn.

    >>> ratings = Ratings(["ann", "bob"], ["tea", "rum"], np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([5, 1, 3]))
    >>> means(ratings, of=("item",), damping=0)(np.array([1, 1]), np.array([0, 1]))
    array([5., 2.])
    """
    mean = float(ratings.rating.mean(dtype=np.float64))
    above = {"user": np.zeros(len(ratings.users)), "item": np.zeros(len(ratings.items))}
    numbers = {"user": ratings.user, "item": ratings.item}
    for kind in of * (ROUNDS if len(of) > 1 else 1):
        other = "item" if kind == "user" else "user"
        rest = ratings.rating - mean - above[other][numbers[other]]
        counts = np.bincount(numbers[kind], minlength=len(above[kind]))
        sums = np.bincount(numbers[kind], rest, len(above[kind]))
        above[kind] = sums / np.maximum(counts + damping, 1e-12)
    return Means(mean, above["user"], above["item"])


def neighbours(
    ratings: Ratings, user: np.ndarray, item: np.ndarray, k: int = NEIGHBOURS, alike: Tensor | None = None
) -> np.ndarray:
    """Item-based nearest neighbours: what is left of ratings above the means, of the k items most alike.

    (N,), (N,) -> (N,).   r̂_ui = b_ui + Σ_j s_ij (r_uj - b_uj)/Σ_j s_ij over the k items j that u has rated of the
    largest s_ij > 0. s_ij is the cosine of what is left over who rated both, shrunk where they are few.
    Of `ratings.swapped`, and with users and items swapped too, it is the user-based method.
    alike: other s_ij (I, I), such as `by_distance` of points that a model has learned, in any geometry.

    >>> from horosphere.data.ratings import Ratings
    >>> four = Ratings(["a", "b"], ["x", "y"], np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([5, 5, 1]))
    >>> neighbours(four, np.array([1]), np.array([1])).round(1) < means(four)(np.array([1]), np.array([1])).round(1)
    array([ True])
    """
    base = means(ratings)
    shape = len(ratings.users), len(ratings.items)
    left, there = torch.zeros(shape), torch.zeros(shape)
    rest = ratings.rating - base(ratings.user, ratings.item)
    left[ratings.user, ratings.item] = torch.from_numpy(rest).float()
    there[ratings.user, ratings.item] = 1
    alike = _alike(left, there) if alike is None else alike.to(left.dtype)
    if alike.shape != (shape[1], shape[1]):
        raise UserError(f"alike of shape {tuple(alike.shape)}: give one number for each pair of {shape[1]} items")
    found = [
        _predicted(left, there, alike, torch.from_numpy(u), torch.from_numpy(i), k)
        for u, i in zip(_pieces(user), _pieces(item), strict=True)
    ]
    return base(user, item) + torch.cat(found).double().numpy()


def by_distance(points: Tensor, manifold: Manifold) -> Tensor:
    """1/dist of all pairs of points, and 0 of a point and itself: what `neighbours` weighs items or users by.

    (I, d) -> (I, I).   No isometry changes it.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> by_distance(L.exp0(torch.tensor([[0.0], [2.0], [-3.0]])), L).round(decimals=2)
    tensor([[0.0000, 0.5000, 0.3300],
            [0.5000, 0.0000, 0.2000],
            [0.3300, 0.2000, 0.0000]], dtype=torch.float64)
    """
    x = points.detach().double()  # `pairwise` tells near neighbours apart only there
    far = manifold.pairwise(x, x).clamp_min(1 / LARGEST)  # points in one place outweigh all others
    return far.reciprocal().fill_diagonal_(0)


def _alike(left: Tensor, there: Tensor) -> Tensor:
    """Of all pairs of items.   (U, I), (U, I) -> (I, I)"""
    squares = left.square().T @ there  # of item i, over who rated j too
    both = there.T @ there
    cosine = left.T @ left / (squares * squares.T).sqrt().clamp_min(torch.finfo(left.dtype).eps)
    return (cosine * both / (both + SHRINK)).clamp_min(0).fill_diagonal_(0)


def _predicted(left: Tensor, there: Tensor, alike: Tensor, user: Tensor, item: Tensor, k: int) -> Tensor:
    """What neighbours add to the means.   (N,), (N,) -> (N,)"""
    weights, near = (alike[item] * there[user]).topk(min(k, there.shape[1]))
    total = weights.sum(1)
    return (weights * left[user].gather(1, near)).sum(1) / (total + (total == 0))


def _pieces(numbers: np.ndarray) -> list[np.ndarray]:
    return [numbers[i : i + PAIRS_AT_ONCE] for i in range(0, len(numbers), PAIRS_AT_ONCE)]
