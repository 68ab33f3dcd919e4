"""Slots: points that carry their time, in vectors of ordinary width.

A deep stack keeps a point of L^(n-1) in n slots: slot 0 for the time, the others for space. Widths stay those of flat
space, and a matrix that reads slots reads the time as one of its columns. Nobody reads what a matrix leaves in slot 0:
the time is computed anew from the space part. In flat space there is no time, and slots are the vector itself.
"""

import functools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from horosphere.geometry._scalar import sq
from horosphere.geometry._shapes import different, size_of
from horosphere.geometry.manifold import HALF, full_precision

if TYPE_CHECKING:
    from horosphere.geometry.lorentz import Lorentz

Weighted = Sequence[tuple[Tensor, Tensor | float]]  # points in slots, each with its weight: a number or (..., 1)


class Slots(ABC):
    """How a manifold writes points into slots and reads them again. `Lorentz().slots` is one.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> u = torch.tensor([9.0, 0.0, 0.75])  # slot 0 holds what a matrix left there
    >>> Lorentz().slots.heads(u), Euclidean().slots.heads(u)
    (tensor([1.2500, 0.0000, 0.7500]), tensor([9.0000, 0.0000, 0.7500]))
    """

    times: int  # slots that hold a time: 1 on the hyperboloid, 0 in flat space

    @abstractmethod
    def space(self, u: Tensor) -> Tensor:
        """The space part, with 0 in the slot of the time.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().slots.space(torch.tensor([9.0, 3.0, 4.0]))
        tensor([0., 3., 4.])
        """

    @abstractmethod
    def reading(self, u: Tensor, floor: Tensor | None = None) -> Tensor:
        """Slots for a linear map to read: time/√n beside the space part.   (..., n) -> (..., n)

        The time of a normalised point is about √n, and Adam would move its column √n times faster than the rest.
        floor: 1/c of another curvature, in place of the manifold's own.

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().slots.reading(torch.tensor([9.0, 0.0, 0.0, 0.75]))  # 1.25/√4
        tensor([0.6250, 0.0000, 0.0000, 0.7500])
        """

    @abstractmethod
    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        """Slots for dot-product attention, which then compares by this geometry.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> L, u = Lorentz(), torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
        >>> scores = L.slots.heads(u, query=True) @ L.slots.heads(u).mT
        >>> torch.allclose(scores, -L.pairwise(u[:, 1:], u[:, 1:]).cosh())  # the nearer, the higher
        True
        """

    @abstractmethod
    def centre(self, z: Tensor) -> Tensor:
        """Averages of `heads`, weights summing to 1, back on the manifold.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> points = L.slots.heads(torch.tensor([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]]))
        >>> L.slots.centre(points.mean(0)).round(decimals=3)  # the origin, with time 1
        tensor([1., 0., 0.])
        """

    @abstractmethod
    def join(self, weighted: Weighted) -> Tensor:
        """Centroid of points with weights; Σ w u in flat space.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> L, u, v = Lorentz(), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 2.0, 0.0])
        >>> torch.allclose(L.slots.join([(u, 1.0), (v, 0.5)])[1:], L.add(u[1:], v[1:], weight=0.5))
        True
        """


class FlatSlots(Slots):
    """Slots of flat space: the vector as it is."""

    times = 0

    def space(self, u: Tensor) -> Tensor:
        return u

    def reading(self, u: Tensor, floor: Tensor | None = None) -> Tensor:
        return u

    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        return u

    def centre(self, z: Tensor) -> Tensor:
        return z

    def join(self, weighted: Weighted) -> Tensor:
        _one_width(weighted)
        return functools.reduce(torch.add, (u if isinstance(w, float) and w == 1 else w * u for u, w in weighted))


class LorentzSlots(Slots):
    """Slots of the hyperboloid: the time in slot 0."""

    times = 1

    def __init__(self, manifold: "Lorentz"):
        self.manifold = manifold

    def space(self, u: Tensor) -> Tensor:
        return u * (1 - _time_slot(u))

    @full_precision
    def reading(self, u: Tensor, floor: Tensor | None = None) -> Tensor:
        x = self.space(u)
        t = ((1 / self.manifold.c if floor is None else floor) + sq(x)).sqrt() / math.sqrt(u.shape[-1])
        return torch.addcmul(x, t, _time_slot(x))

    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        """[x_t, x]; scale·[-x_t, x] for a query. Then q·k = scale·<q, k>, which is all that softmax(-d_L²/τ) needs.

        A bf16 time is wrong by ε x_t, in one slot and so in one direction: scores by ε q_t k_t (8 at |q| = 16).
        So the time is rounded first and the space part is made to fit it, which moves the point by ε along its ray.
        Near the origin there is nothing to fit.
        """
        c, half = self.manifold.c, u.dtype in HALF
        x = self.space(u.float() if half else u)
        r2 = sq(x)
        t = (1 / c + r2).sqrt()
        if scale is not None:
            scale = scale.expand(*u.shape[:-1], 1)  # so that its gradient is summed row by row first, beside the rest
            t, x = scale * t, scale * x
        if half:
            with torch.no_grad():
                rounded = t.to(u.dtype).float() if scale is None else t.to(u.dtype).float() / scale
                fit = ((rounded.square() - 1 / c) / r2).clamp_min(0).sqrt()
                fit = torch.where(c * r2 > 1, fit, 1.0)
            x = fit * x
        return torch.addcmul(x, -t if query else t, _time_slot(x)).to(u.dtype)

    @full_precision
    def centre(self, z: Tensor) -> Tensor:
        """z/√(-c<z, z>), time included."""
        length2 = self.manifold.c * (z.square() * (2 * _time_slot(z) - 1)).sum(-1, keepdim=True)
        return z * length2.clamp_min(1.0).rsqrt()  # the floor of `Lorentz._normaliser`

    def join(self, weighted: Weighted) -> Tensor:
        """z/√(-c<z, z>), z = Σ w u, times and sums in fp32; the slot of the time is empty."""
        _one_width(weighted)
        spaces = [self.space(u.float() if u.dtype in HALF else u) for u, _ in weighted]
        weights = [
            w.to(x.dtype).expand(*x.shape[:-1], 1) if isinstance(w, Tensor) else w
            for x, (_, w) in zip(spaces, weighted, strict=True)
        ]
        z: Tensor = _sum([w * x for w, x in zip(weights, spaces, strict=True)])
        zt: Tensor = _sum([w * (1 / self.manifold.c + sq(x)).sqrt() for w, x in zip(weights, spaces, strict=True)])
        return z * self.manifold._normaliser(z, zt, _sum(weights))


def _one_width(weighted: Weighted) -> None:
    points = [u for u, _ in weighted]
    if any(size_of(u) != size_of(points[0]) for u in points):
        raise different("join", [f"point {i}" for i in range(len(points))], points)


def _sum(terms: Sequence[Any]) -> Any:
    """Σ, without the 0 that `sum` begins with."""
    return functools.reduce(operator.add, terms)


def _time_slot(u: Tensor) -> Tensor:
    """1 in slot 0, else 0.   (n,)   To multiply by: torch.where is several times slower on CPU."""
    return (torch.arange(u.shape[-1], device=u.device) == 0).to(u.dtype)
