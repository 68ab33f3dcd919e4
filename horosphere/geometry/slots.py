"""Slots: points that carry their time, in vectors of ordinary width.

A deep stack keeps a point of L^(n-1) in n slots: slot 0 for the time, the others for space. Widths stay those of flat
space, and a matrix that reads slots reads the time as one of its columns. Nobody reads what a matrix leaves in slot 0:
the time is computed anew from the space part. In flat space there is no time, and slots are the vector itself. On the
sphere S^(n-1) they are the vector of R^n towards the point, √n long: no matrix need give it its length, and a curvature
would only rescale it.
"""

import functools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.geometry._scalar import sq
from horosphere.geometry._shapes import different, size_of
from horosphere.geometry.manifold import HALF, full_precision

if TYPE_CHECKING:
    from horosphere.geometry.lorentz import Lorentz

Weighted = Sequence[tuple[Tensor, Tensor | float]]  # points in slots, each with its weight: a number or (..., 1)
FLOOR = 1e-6  # mean square of a vector that is all but 0: an average of 10^6 random directions is still above it


class Slots(ABC):
    """How a manifold writes points into slots and reads them again. `Lorentz().slots` is one.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> u = torch.tensor([9.0, 0.0, 0.75])  # slot 0 holds what a matrix left there
    >>> Lorentz().slots.heads(u), Euclidean().slots.heads(u)
    (tensor([1.2500, 0.0000, 0.7500]), tensor([9.0000, 0.0000, 0.7500]))
    """

    times: int  # slots that hold a time: 1 on the hyperboloid, 0 in flat space and on the sphere
    temperature: float | None  # τ/√n with which attention begins to learn its own; None: its scores need none
    keeps_space = True  # whether `heads` leaves the space part as it was, but for rounding
    kernel_c: float  # what kernels are told: c of the hyperboloid, 0 in flat space, -1 on the sphere

    def by(self, score: str) -> "Slots":
        """Slots whose heads are compared by "dot" products, by "distance", or as is this geometry's "own" way.

        >>> from horosphere.geometry import Euclidean, Lorentz
        >>> flat = Euclidean().slots
        >>> flat.by("dot") is flat, Lorentz().slots.by("dot").times, flat.by("distance").times
        (True, 1, 1)
        """
        return self

    def point(self, u: Tensor) -> Tensor:
        """What a matrix left, as a point of the stream.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz, Sphere
        >>> u = torch.tensor([0.0, 3.0, 4.0, 0.0])
        >>> Lorentz().slots.point(u), Sphere().slots.point(u)  # √4 long
        (tensor([0., 3., 4., 0.]), tensor([0.0000, 1.2000, 1.6000, 0.0000]))
        """
        return u

    @abstractmethod
    def normed(self, u: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMSNorm of the space part with a weight for each slot, ready to be read.   (..., n), (n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().slots.normed(torch.tensor([9.0, 2.0, 2.0, 2.0]), torch.ones(4), 0.0).round(decimals=3)
        tensor([1., 1., 1., 1.])
        """

    @abstractmethod
    def direction(self, u: Tensor) -> Tensor:
        """The space part with mean square 1: where a vector leads, not how far.   (..., n) -> (..., n)

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().slots.direction(torch.tensor([9.0, 2.0, 2.0, 2.0])).round(decimals=3)
        tensor([0., 1., 1., 1.])
        """

    def towards(self, x: Tensor, y: Tensor, step: Tensor) -> Tensor:
        """x, moved by a share of the way to the direction of y.   (..., n), (..., n), (n) -> (..., n)

        x + step·(y/rms(y) - x), and the point there. Each slot has a step of its own.

        >>> from horosphere.geometry import Euclidean, Sphere
        >>> x, y, step = torch.tensor([0.0, 4.0]), torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.25])
        >>> Euclidean().slots.towards(x, y, step).round(decimals=3)
        tensor([0.2500, 3.2500])
        """
        wide = x.float() if x.dtype in HALF else x
        return self.point(wide + step.to(wide.dtype) * (self.direction(y.to(wide.dtype)) - wide)).to(x.dtype)

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
    temperature: float | None = None
    kernel_c = 0.0

    def by(self, score: str) -> Slots:
        return DistanceSlots() if score == "distance" else self

    def normed(self, u: Tensor, weight: Tensor, eps: float) -> Tensor:
        return F.rms_norm(u, u.shape[-1:], weight.to(u.dtype), eps)

    def direction(self, u: Tensor) -> Tensor:
        wide = u.float() if u.dtype in HALF else u
        return F.rms_norm(wide, u.shape[-1:], eps=FLOOR).to(u.dtype)

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


class DistanceSlots(FlatSlots):
    """Slots of flat space whose dot products compare by distance: what those of the hyperboloid become for c -> 0.

    -|q - k|²/2 = q·k - |k|²/2, but for the query's own length, which a softmax ignores. Slot 0 holds -|k|²/2.
    """

    times = 1
    temperature = 1.0

    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        """[-|x|²/2, x]; scale·[1, x] for a query. In bf16 a key is fitted to its rounded slot 0, as on the hyperboloid.

        >>> slots = DistanceSlots()
        >>> u = torch.tensor([9.0, 3.0, 4.0])
        >>> slots.heads(u, query=True), slots.heads(u)
        (tensor([1., 3., 4.]), tensor([-12.5000,   3.0000,   4.0000]))
        """
        half, slot = u.dtype in HALF, _time_slot(u)
        x = (u.float() if half else u) * (1 - slot.to(torch.float32 if half else u.dtype))
        if query:
            out = x + slot
            return (out if scale is None else scale * out).to(u.dtype)
        r2 = sq(x)
        if half:
            with torch.no_grad():
                rounded = -2 * (-r2 / 2).to(u.dtype).float()
                fit = torch.where(r2 > 1, (rounded / r2.clamp_min(1.0)).sqrt(), 1.0)
            x, r2 = fit * x, fit * fit * r2
        out = torch.addcmul(x, -r2 / 2, slot.to(x.dtype))
        return (out if scale is None else scale * out).to(u.dtype)


class SphereSlots(FlatSlots):
    """Slots of the sphere: a vector of R^n stands for the point in its direction, √n long."""

    temperature = 2.0  # scores of √n times a cosine
    keeps_space = False
    kernel_c = -1.0

    def by(self, score: str) -> Slots:
        return self  # points of one length: |q - k|² = 2n - 2 q·k

    def point(self, u: Tensor) -> Tensor:
        return self.direction(u)

    def normed(self, u: Tensor, weight: Tensor, eps: float) -> Tensor:
        """The point of weight·u: a weighed direction."""
        wide = u.float() if u.dtype in HALF else u
        return F.rms_norm(wide * weight.to(wide.dtype), u.shape[-1:], eps=eps).to(u.dtype)

    def reading(self, u: Tensor, floor: Tensor | None = None) -> Tensor:
        return self.point(u)

    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        x = self.point(u)
        return x if scale is None else (scale * x).to(u.dtype)

    def centre(self, z: Tensor) -> Tensor:
        """√n·z/|z|. Where points disagree |z| is small, and dividing by it makes chance directions long."""
        return self.point(z)

    def join(self, weighted: Weighted) -> Tensor:
        _one_width(weighted)
        return self.point(_sum([w * self.point(u.float() if u.dtype in HALF else u) for u, w in weighted]))


class LorentzSlots(Slots):
    """Slots of the hyperboloid: the time in slot 0."""

    times = 1
    temperature = 1.0

    def __init__(self, manifold: "Lorentz"):
        self.manifold = manifold

    @property
    def kernel_c(self) -> float:  # type: ignore[override]
        c: Any = self.manifold.c
        return c

    def by(self, score: str) -> Slots:
        return SpaceSlots(self.manifold) if score == "dot" else self

    def normed(self, u: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = self.space(u if u.dtype == torch.float64 else u.float())
        mean = x.square().sum(-1, keepdim=True) / (u.shape[-1] - self.times)
        return self.reading(x * (mean + eps).rsqrt() * weight.to(x.dtype)).to(u.dtype)

    def direction(self, u: Tensor) -> Tensor:
        x = self.space(u.float() if u.dtype in HALF else u)
        return (x * (sq(x) / (u.shape[-1] - self.times) + FLOOR).rsqrt()).to(u.dtype)

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


class SpaceSlots(LorentzSlots):
    """Slots of the hyperboloid whose queries look at the space part alone: scores without distance, an ablation."""

    def heads(self, u: Tensor, scale: Tensor | None = None, query: bool = False) -> Tensor:
        x = super().heads(u, scale, query)
        return self.space(x) if query else x


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
