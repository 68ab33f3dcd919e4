"""The Poincaré ball of radius 1/√c, metric λ²|dx|² with λ = 2/(1 - c|x|²).

The chart has an edge that floats cannot resolve: at distance r from the origin a point keeps about ε·eʳ of relative precision, and the
farthest point that can be stored lies at √c r = log(1/(2ε)): 15.2 in fp32, 35.0 in fp64. Functions that make points stop there
(`max_radius`); the hyperboloid (`Lorentz`) has no such edge and is the better choice for training in fp32.
"""

import math

import torch
from torch import Tensor

from horosphere.geometry._scalar import asinh, atanhc, dot, excess_to_dist, excess_to_sqdist, safe_sqrt, sq, tanhc
from horosphere.geometry.lorentz import Lorentz
from horosphere.geometry.maps import lorentz_to_poincare, poincare_to_lorentz
from horosphere.geometry.manifold import Curved, full_precision


class Poincare(Curved):
    """Hyperbolic space of curvature -c as a ball."""

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        """Distance from the origin beyond which this chart holds no points of this dtype."""
        return math.log(1 / (2 * torch.finfo(dtype).eps)) / math.sqrt(float(self.c))

    @full_precision
    def exp0(self, v: Tensor) -> Tensor:
        """tanh(√c|v|)/(√c|v|) · v: distance 2|v|, since λ = 2 at the origin"""
        return self._inside(tanhc(self.c * sq(v)) * v)

    @full_precision
    def log0(self, x: Tensor) -> Tensor:
        """artanh(√c|x|)/(√c|x|) · x"""
        return atanhc(self.c * sq(x)) * x

    def lift(self, v: Tensor) -> Tensor:
        return self.exp0(v / 2)

    def lower(self, x: Tensor) -> Tensor:
        return 2 * self.log0(x)

    @full_precision
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """x ⊕ tanh(√c λ|v|/2) v/(√c|v|)"""
        half = v / self._gap(x)
        return self._inside(self._add(x, tanhc(self.c * sq(half)) * half))

    @full_precision
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """(2/(√c λ)) artanh(√c|z|) z/|z|, z = (-x) ⊕ y"""
        z = self._add(-x, y)
        return self._gap(x) * atanhc(self.c * sq(z)) * z

    @full_precision
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        y = self.exp(x, t * v)
        return y, self.transport(v, x, y)

    @full_precision
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """x ⊕ t ⊗ ((-x) ⊕ y)"""
        z = self._add(-x, y)
        v = t * atanhc(self.c * sq(z)) * z
        return self._inside(self._add(x, tanhc(self.c * sq(v)) * v))

    @full_precision
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(λ_x/λ_y) gyr[y, -x] v

        gyr[y, -x] v = v + 2 (A y - B x)/D with A = c²(x·v)|y|²... written for a = y, b = -x below.
        """
        c, a, b = self.c, y, -x
        a2, b2, ab, av, bv = sq(a), sq(b), dot(a, b), dot(a, v), dot(b, v)
        along_a = -(c**2) * av * b2 + c * bv + 2 * c**2 * ab * bv
        along_b = -(c**2) * bv * a2 - c * av
        below = 1 + 2 * c * ab + c**2 * a2 * b2
        return self._gap(y) / self._gap(x) * (v + 2 * (along_a * a + along_b * b) / below)

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """2 asinh(√c|x-y|/√((1-c|x|²)(1-c|y|²)))/√c, never artanh of a Möbius sum"""
        return (excess_to_dist(self._excess(x, y)) / self.c**0.5).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        return (excess_to_sqdist(self._excess(x, y)) / self.c).squeeze(-1)

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return self._hyperboloid().pairwise(poincare_to_lorentz(x, self.c), poincare_to_lorentz(y, self.c))

    @full_precision
    def dist0(self, x: Tensor) -> Tensor:
        """2 artanh(√c|x|)/√c"""
        return (2 * safe_sqrt(sq(x)) * atanhc(self.c * sq(x))).squeeze(-1)

    @full_precision
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """asinh(2√c <z, w>/((1 - c|z|²)|w|))/√c, z = (-p) ⊕ x"""
        z = self._add(-p, x)
        root = self.c**0.5
        return (asinh(2 * root * dot(z, w) / (self._gap(z) * sq(w).sqrt())) / root).squeeze(-1)

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """λ² u·v"""
        return (4 * dot(u, v) / self._gap(x).square()).squeeze(-1)

    @full_precision
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        """g/λ²"""
        return self._gap(x).square() / 4 * g

    @full_precision
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """The Lorentz centroid through the exact isometry."""
        return self.point(self._hyperboloid().midpoint(poincare_to_lorentz(x, self.c), weights))

    @full_precision
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Centroid of x and weight·y, as on the hyperboloid."""
        return self.point(self._hyperboloid().add(poincare_to_lorentz(x, self.c), poincare_to_lorentz(y, self.c), weight))

    @full_precision
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        """Möbius addition by ⊕ x"""
        return self._inside(self._add(by, x))

    ambient_extra = 1

    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates and time of the same point on the hyperboloid."""
        return self._hyperboloid().ambient(poincare_to_lorentz(x, self.c))

    @full_precision
    def point(self, u: Tensor) -> Tensor:
        return self._inside(lorentz_to_poincare(u, self.c))

    # -- pieces, all keeping the last axis ---------------------------------------------------------------------------

    def _gap(self, x: Tensor) -> Tensor:
        """1 - c|x|² = 2/λ"""
        return 1 - self.c * sq(x)

    def _excess(self, x: Tensor, y: Tensor) -> Tensor:
        """cosh(√c dist) - 1"""
        return 2 * self.c * sq(x - y) / (self._gap(x) * self._gap(y))

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        """Möbius sum x ⊕ y written in s = x + y, so that (-x) ⊕ y keeps its digits when y is near x; every term below is >= 0."""
        s, gap = x + y, self._gap(x)
        s2 = self.c * sq(s)
        return (gap * s + s2 * x) / (gap * self._gap(y) + s2)

    def _inside(self, x: Tensor) -> Tensor:
        """Points rounded onto or past the edge of the chart, brought back to `max_radius` (see the top of this file)."""
        largest = 1 - 4 * torch.finfo(x.dtype).eps
        norm2 = self.c * sq(x)
        outside = norm2 > largest**2
        return x * torch.where(outside, largest * torch.where(outside, norm2, 1.0).rsqrt(), 1.0)

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
