"""The Poincaré ball of radius 1/√c, metric λ²|dx|² with λ = 2/(1 - c|x|²).

The chart has an edge that floats cannot resolve. At distance r from the origin, rounding moves a point by about
ε·e^(√c r)/√c. The farthest point that can be stored lies at √c r = log(1/(2ε)): 15.2 in fp32, 35.4 in fp64, 4.2 in
bf16. Functions that make points stop there (`max_radius`). The hyperboloid (`Lorentz`) has no such edge and is the
better choice for training in fp32.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from horosphere.geometry._scalar import (
    asinh,
    atanhc,
    dot,
    excess_to_log_factor,
    excess_to_sqdist,
    length,
    saturated_sq,
    sq,
    tanhc,
)
from horosphere.geometry._shapes import same_dimension
from horosphere.geometry.lorentz import Lorentz
from horosphere.geometry.manifold import HALF, Curved, Manifold, full_precision, shares
from horosphere.geometry.maps import lorentz_to_poincare, poincare_to_lorentz


def makes_points(method: Callable[..., Any]) -> Callable[..., Any]:
    """`full_precision`, and the point that comes out lies inside the chart of its dtype: bf16 rounds 0.999 to 1."""
    compute = full_precision(method)

    @functools.wraps(method)
    def wrapper(self: "Poincare", *args: Any, **kwargs: Any) -> Any:
        out = compute(self, *args, **kwargs)
        return (self._inside(out[0]), *out[1:]) if isinstance(out, tuple) else self._inside(out)

    return wrapper


class Poincare(Curved):
    """Hyperbolic space of curvature -c as a ball.

    >>> P = Poincare(c=1.0)
    >>> x = torch.tensor([[0.0, 0.0], [0.9, 0.0], [0.99, 0.0]])
    >>> P.dist0(x).round(decimals=3)  # the edge is infinitely far
    tensor([0.0000, 2.9440, 5.2930])
    """

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        """Distance from the origin beyond which this chart holds no points of this dtype.

        >>> [round(Poincare().max_radius(dtype), 1) for dtype in (torch.bfloat16, torch.float32, torch.float64)]
        [4.2, 15.2, 35.4]
        """
        return math.log(1 / (2 * torch.finfo(dtype).eps)) / math.sqrt(torch.as_tensor(self.c).detach())

    @makes_points
    def exp0(self, v: Tensor) -> Tensor:
        """tanh(√c|v|)/(√c|v|) · v: distance 2|v|, since λ = 2 at the origin"""
        return tanhc(saturated_sq(v, self.c)) * v

    @full_precision
    def log0(self, x: Tensor) -> Tensor:
        """artanh(√c|x|)/(√c|x|) · x"""
        return atanhc(self.c * sq(x)) * x

    @same_dimension
    def lift(self, v: Tensor) -> Tensor:
        return self.exp0(v / 2)

    def lower(self, x: Tensor) -> Tensor:
        return 2 * self.log0(x)

    @makes_points
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """x ⊕ tanh(√c λ|v|/2) v/(√c|v|)"""
        gap = self._gap(x)
        half = v / gap
        step = tanhc(self.c * sq(half)) * half
        step2 = self.c * sq(step)
        # a sum with x, so that v = 0 gives x to the last digit
        return x + gap * (step + step2 * x) / (gap * (1 - step2) + self.c * sq(x + step))

    @full_precision
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """(2/(√c λ)) artanh(√c|z|) z/|z|, z = (-x) ⊕ y

        Computed as D/sinh(D) · z/(1 - c|z|²) · (1 - c|x|²), D = √c dist: there is no artanh near 1.
        """
        return excess_to_log_factor(self._excess(x, y)) * self._seen(x, y) / self._gap(y)

    @makes_points
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        y = self.exp(x, t * v)
        return y, self.transport(v, x, y)

    geodesic = makes_points(Manifold.geodesic)

    @full_precision
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(λ_x/λ_y) gyr[y, -x] v

        The gyration is written with d = y - x, so that near points keep their digits:
        v + 2c [(g d·v - c|d|² x·v) x + (c(2 x·d x·v - |x|² d·v) - g x·v) d] / (g g_y + c|d|²),   g = 1 - c|x|²
        """
        c, d = self.c, y - x
        gap_x, gap_y, d2, xv, dv = self._gap(x), self._gap(y), c * sq(d), dot(x, v), dot(d, v)
        along_x = gap_x * dv - d2 * xv
        along_d = 2 * (c * dot(x, d)) * xv - c * sq(x) * dv - gap_x * xv
        below = gap_x * gap_y + d2
        return gap_y / gap_x * (v + 2 * c * along_x / below * x + 2 * c * along_d / below * d)

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """2 asinh(√c|x-y|/√((1-c|x|²)(1-c|y|²)))/√c: no artanh of a Möbius sum"""
        root = self.c**0.5
        return (2 / root * asinh(root * length(x - y) * (self._gap(x) * self._gap(y)).rsqrt())).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        return (excess_to_sqdist(self._excess(x, y)) / self.c).squeeze(-1)

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return self._hyperboloid().pairwise(poincare_to_lorentz(x, self.c), poincare_to_lorentz(y, self.c))

    @full_precision
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        return self._hyperboloid().pairwise_reach(poincare_to_lorentz(x, self.c), poincare_to_lorentz(y, self.c), dist)

    @full_precision
    def dist0(self, x: Tensor) -> Tensor:
        """2 artanh(√c|x|)/√c"""
        return (2 * length(x) * atanhc(self.c * sq(x))).squeeze(-1)

    @full_precision
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """asinh(2√c <z, w>/((1 - c|z|²)|w|))/√c, z = (-p) ⊕ x"""
        root = self.c**0.5
        sinh = 2 * root * dot(self._seen(p, x), w) / (self._gap(p) * self._gap(x) * sq(w).sqrt())
        return (asinh(sinh) / root).squeeze(-1)

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """λ² u·v"""
        return (4 * dot(u, v) / self._gap(x).square()).squeeze(-1)

    @full_precision
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        """g/λ²"""
        return self._gap(x).square() / 4 * g

    @makes_points
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Lorentz centroid Σ wᵢ(λᵢxᵢ, (λᵢ - 1)/√c) of the same points on the hyperboloid."""
        share: Tensor | float = 1 / x.shape[-2] if weights is None else shares(weights).unsqueeze(-1)
        factor = share * (2 / self._gap(x))  # share·λ
        z, zt = (factor.mT @ x).squeeze(-2), (factor - share).sum(-2) / self.c**0.5
        return self.point(z * self._hyperboloid()._normaliser(z, zt, 1.0))

    @makes_points
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Centroid of x and weight·y, as on the hyperboloid."""
        x, y = poincare_to_lorentz(x, self.c), poincare_to_lorentz(y, self.c)
        return self.point(self._hyperboloid().add(x, y, weight))

    @makes_points
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        """Möbius addition by ⊕ x"""
        return self._add(by, x)

    ambient_extra = 1

    @full_precision
    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates and time of the same point on the hyperboloid."""
        return self._hyperboloid().ambient(poincare_to_lorentz(x, self.c))

    @full_precision
    def free(self, x: Tensor) -> Tensor:
        return poincare_to_lorentz(x, self.c)

    @makes_points
    def point(self, u: Tensor) -> Tensor:
        return lorentz_to_poincare(u, self.c)

    @property
    def free_chart(self) -> "_Hyperboloid":
        return self._hyperboloid()

    # -- pieces, all keeping the last axis ---------------------------------------------------------------------------

    def _gap(self, x: Tensor) -> Tensor:
        """1 - c|x|² = 2/λ"""
        return 1 - self.c * sq(x)

    def _excess(self, x: Tensor, y: Tensor) -> Tensor:
        """cosh(√c dist) - 1"""
        return 2 * self.c * sq(x - y) / (self._gap(x) * self._gap(y))

    def _seen(self, x: Tensor, y: Tensor) -> Tensor:
        """z/(1 - c|z|²) for z = (-x) ⊕ y, times both gaps: gap_x d - c|d|² x, d = y - x"""
        d = y - x
        return self._gap(x) * d - self.c * sq(d) * x

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        """Möbius sum x ⊕ y, written with s = x + y so that (-x) ⊕ y keeps its digits when y is near x."""
        s, gap = x + y, self._gap(x)
        s2 = self.c * sq(s)
        return (gap * s + s2 * x) / (gap * self._gap(y) + s2)  # below the line every term is >= 0

    def _inside(self, x: Tensor) -> Tensor:
        """Points that were rounded onto or past the edge of the chart, brought back to `max_radius`."""
        largest = 1 - 4 * torch.finfo(x.dtype).eps
        norm2 = self.c * sq(x.float() if x.dtype in HALF else x)
        outside = norm2 > largest**2
        return (x * torch.where(outside, largest * torch.where(outside, norm2, 1.0).rsqrt(), 1.0)).to(x.dtype)

    def _hyperboloid(self) -> "_Hyperboloid":
        return _Hyperboloid(self)


class _Hyperboloid(Lorentz):
    """The hyperboloid of the ball's own curvature, learned or not."""

    def __init__(self, ball: Poincare):
        super().__init__()
        self._c = ball.c

    @property
    def c(self) -> float | Tensor:
        return self._c
