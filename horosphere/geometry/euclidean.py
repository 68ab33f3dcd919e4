"""Flat space. Every layer on it is its ordinary torch counterpart."""

import torch
from torch import Tensor

from horosphere.geometry._scalar import dot, length, sq
from horosphere.geometry._shapes import same_dimension
from horosphere.geometry.manifold import Manifold, full_precision, shares
from horosphere.geometry.slots import FlatSlots


class Euclidean(Manifold):
    """R^d with its usual metric.

    >>> E, x, y = Euclidean(), torch.zeros(2), torch.tensor([3.0, 4.0])
    >>> E.dist(x, y), E.exp(x, y), E.midpoint(torch.stack((x, y)))
    (tensor(5.), tensor([3., 4.]), tensor([1.5000, 2.0000]))
    """

    flat = True
    per_coordinate = True

    @property
    def c(self) -> float:
        return 0.0

    def exp0(self, v: Tensor) -> Tensor:
        return v

    def log0(self, x: Tensor) -> Tensor:
        return x

    @same_dimension
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        return x + v

    @same_dimension
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        return y - x

    @full_precision
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        moved = x + t * v
        return moved, v.expand_as(moved)

    @same_dimension
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return v.expand(torch.broadcast_shapes(v.shape, x.shape, y.shape))

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return length(x - y).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        return sq(x - y).squeeze(-1)

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y)

    @full_precision
    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        """|x|² + |y|² - 2 x·y"""
        x2, y2 = sq(x), sq(y)
        here, there = torch.cat((x, x2, torch.ones_like(x2)), -1), torch.cat((-2 * y, torch.ones_like(y2), y2), -1)
        return (here @ there.mT).float().clamp_min(0)

    @full_precision
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        """√(dist² + noise), noise = ε(d + 4)·(|x|² + max|y|²) of the product"""
        noise = torch.finfo(x.dtype).eps * (x.shape[-1] + 4) * (sq(x).squeeze(-1) + sq(y).max())
        return (dist.square() + noise).sqrt()

    @full_precision
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """<x - p, w>/|w|"""
        return (dot(x - p, w) / length(w)).squeeze(-1)

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        _, u, v = torch.broadcast_tensors(x, u, v)
        return dot(u, v).squeeze(-1)

    @same_dimension
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        return g.expand(torch.broadcast_shapes(x.shape, g.shape))

    @same_dimension
    def component_sqnorm(self, g: Tensor, r: Tensor) -> Tensor:
        return g * r

    @full_precision
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        if weights is None:
            return x.mean(-2)
        return (shares(weights).unsqueeze(-2) @ x).squeeze(-2)

    @full_precision
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        return x + weight * y

    @same_dimension
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        return x + by

    def ambient(self, x: Tensor) -> tuple[Tensor, None]:
        return x, None

    def point(self, u: Tensor) -> Tensor:
        return u

    @property
    def slots(self) -> FlatSlots:
        return FlatSlots()

    def log_volume(self, v: Tensor) -> Tensor:
        return v.new_zeros(v.shape[:-1])
