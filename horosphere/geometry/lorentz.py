"""The hyperboloid, stored by its space components.

A point is x (..., d); its time x_t = √(1/c + |x|²) is computed when needed. So a point cannot leave the manifold,
nothing is ever projected, and shapes are those of flat space. Tangent vectors are stored the same way: v at x has the
time component x·v/x_t. The ambient product is <x, y> = x·y - x_t y_t, with <x, x> = -1/c.

Far from the origin many sums cancel. They are rewritten with d = x - y, with the difference of the times
x_t - y_t = d·(x + y)/(x_t + y_t), and with the parts along and across a point; each place says so.
"""

from typing import Any

import torch
from torch import Tensor

from horosphere.geometry._arcs import squared_arcs
from horosphere.geometry._distance import distance, excess
from horosphere.geometry._scalar import (
    asinh,
    asinhc,
    coshm1,
    dot,
    excess_to_dist,
    excess_to_sqdist,
    length,
    plain_sq,
    safe_sqrt,
    sinhc,
    sq,
)
from horosphere.geometry._shapes import same_dimension
from horosphere.geometry.manifold import HALF, Curved, full_precision, shares
from horosphere.geometry.slots import LorentzSlots


class Lorentz(Curved):
    """Hyperbolic space of curvature -c as the upper sheet of a hyperboloid.

    >>> L = Lorentz(c=1.0)  # Lorentz(c=1.0, learn=True) learns the curvature
    >>> x, y = L.exp0(torch.tensor([[3.0, 4.0], [3.0, -4.0]]))
    >>> L.dist(x, y).round(decimals=2), L.dist0(L.midpoint(torch.stack((x, y)))).round(decimals=2)
    (tensor(9.5500), tensor(0.6900))
    """

    @full_precision
    def time(self, x: Tensor) -> Tensor:
        """√(1/c + |x|²).   (..., d) -> (..., 1)

        >>> Lorentz(c=1.0).time(torch.tensor([[0.0, 0.0], [0.0, 0.75]]))
        tensor([[1.0000],
                [1.2500]])
        """
        return (1 / self.c + sq(x)).sqrt()

    @full_precision
    def exp0(self, v: Tensor) -> Tensor:
        """sinh(√c|v|)/(√c|v|) · v"""
        return sinhc(self.c * sq(v)) * v

    @full_precision
    def log0(self, x: Tensor) -> Tensor:
        """asinh(√c|x|)/(√c|x|) · x

        asinh of the space part, not acosh of the time: acosh has no digits left near the origin.
        """
        return asinhc(self.c * sq(x)) * x

    @full_precision
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """cosh(√c n) x + sinh(√c n)/(√c n) v, n = |v|_x"""
        return self.flow(x, v, 1.0)[0]

    @full_precision
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """x cosh + t v sinhc, v cosh + c t n² x sinhc

        Both are linear in (x, v): the velocity needs no formula for transport.
        """
        keep, gain, pull = self._flow(x, v, t)
        return torch.addcmul(keep * x, gain, v), torch.addcmul(keep * v, pull, x)

    @same_dimension
    def flow_(self, x: Tensor, v: Tensor, t: Tensor | float) -> None:
        if x.dtype in HALF:
            return super().flow_(x, v, t)
        keep, gain, pull = self._flow(x, v, t)
        x.mul_(keep).addcmul_(gain, v)
        # in terms of the new x, without a copy of the old one: keep² - gain·pull = cosh² - sinh² = 1
        v.div_(keep).addcmul_(pull / keep, x)

    @full_precision
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """D/sinh(D) · (y - cosh(D) x), D = √c dist"""
        u = self._excess(x, y)
        ratio, root = asinhc(u / 2), (1 + u / 2).sqrt()  # ratio/root = D/sinh(D)
        return ratio / root * (y - x) - ratio * (u / root) * x  # u/root first: cosh(D)·sinh(r) overflows

    @full_precision
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """(sinh((1-t)D) x + sinh(tD) y)/sinh(D)"""
        q = excess_to_sqdist(self._excess(x, y))
        s = 1 - t
        whole = sinhc(q)  # divided before multiplied by points: sinh(D)·sinh(r) overflows first
        return s * sinhc(s**2 * q) / whole * x + t * sinhc(t**2 * q) / whole * y

    @full_precision
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """v + c<y, v>/(1 - c<x, y>) · (x + y), with <y, v> = d·v - (y_t - x_t)·(x·v)/x_t for d = y - x."""
        d = y - x
        xt = self.time(x)
        rise = dot(d, x + y) / (xt + self.time(y))
        yv = dot(d, v) - rise / xt * dot(x, v)
        return v + self.c * yv / (2 + self._excess(x, y)) * (x + y)

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """2 asinh(√(u/2))/√c with u = cosh(√c dist) - 1 free of cancellation and overflow (`_distance.py`)."""
        return distance(x, y, self.c).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        return (excess_to_sqdist(self._excess(x, y)) / self.c).squeeze(-1)

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        out: Tensor = _Pairwise.apply(x, y, self.c)[0]
        return out

    @full_precision
    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        """arcosh(1 + u)²/c, u = c (x_t y_t - x·y) - 1"""
        here, there = torch.cat((self.time(x), x), -1), torch.cat((self.time(y), -y), -1)
        return squared_arcs(self.c**0.5 * here, self.c**0.5 * there, self.c, self.sign)

    @full_precision
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        """arcosh(cosh(√c dist) + noise)/√c, noise = ε(d + 4)·c x_t max(y_t) of the product"""
        noise = torch.finfo(x.dtype).eps * (x.shape[-1] + 4) * self.c * self.time(x) * self.time(y).max()
        return (excess_to_dist(coshm1(self.c * dist.unsqueeze(-1).square()) + noise) / self.c**0.5).squeeze(-1)

    @full_precision
    def dist0(self, x: Tensor) -> Tensor:
        """asinh(√c|x|)/√c"""
        root = self.c**0.5
        return (asinh(root * length(x, any_size=True)) / root).squeeze(-1)

    @full_precision
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """asinh(√c <x, w>/|w|_p)/√c, with <x, w> = d·w - (x_t - p_t)·(p·w)/p_t for d = x - p."""
        d = x - p
        pt = self.time(p)
        rise = dot(d, x + p) / (self.time(x) + pt)
        xw = dot(d, w) - rise / pt * dot(p, w)
        root = self.c**0.5
        return (asinh(root * (xw / self._sqnorm(p, w).sqrt())) / root).squeeze(-1)

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """u·v - (x·u)(x·v)/x_t²: the part across x as it is, the part along x shrunk by 1/(c x_t²)."""
        return self._inner(x, u, v).squeeze(-1)

    @full_precision
    def norm(self, x: Tensor, v: Tensor) -> Tensor:
        return safe_sqrt(self._sqnorm(x, v)).squeeze(-1)

    @full_precision
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        """g + c (x·g) x: the inverse of the metric I - x xᵀ/x_t²"""
        return torch.addcmul(g, self.c * dot(x, g), x)

    @full_precision
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Lorentz centroid z/√(-c<z, z>) of the mean z = Σ wᵢxᵢ/Σ wᵢ, time included.

        The length of z cancels by e^(2√c r): in fp32 the centroid is good out to √c r = 6.
        """
        z, zt, _ = _AmbientMean.apply(x, None if weights is None else shares(weights), self.c)
        return z * self._normaliser(z, zt, 1.0)

    @full_precision
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """z/√(-c<z, z>) of z = x + weight·y, time included."""
        z = x + weight * y
        return z * self._normaliser(z, self.time(x) + weight * self.time(y), 1 + weight)

    @full_precision
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        """Boost: x + (c by·x/(1 + √c by_t) + √c x_t) by

        Written with d = x + by, so that translate(x, -x) is 0 to the last digit.
        """
        root = self.c**0.5
        d, bt = x + by, self.time(by)
        along = dot(by, d) / (1 + root * bt) + dot(d, x - by) / (root * (bt + self.time(x)))
        return d + self.c * along * by

    ambient_extra = 1

    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, self.time(x)

    def free(self, x: Tensor) -> Tensor:
        return x

    def point(self, u: Tensor) -> Tensor:
        return u

    @property
    def slots(self) -> LorentzSlots:
        return LorentzSlots(self)

    # -- pieces, all keeping the last axis ---------------------------------------------------------------------------

    def _excess(self, x: Tensor, y: Tensor) -> Tensor:
        return excess(x, y, self.c)

    def _flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """cosh, t sinhc and c t n² sinhc of √c t n, n = |v|_x"""
        n2 = self._sqnorm(x, v)
        q = self.c * n2 * t**2
        sh = sinhc(q)
        return 1 + coshm1(q), t * sh, self.c * t * n2 * sh

    def _normaliser(self, z: Tensor, zt: Tensor, total: Tensor | float) -> Tensor:
        """1/√(-c<z, z>) for z = Σ wᵢxᵢ with weights that sum to `total`.

        -c<z, z> >= total² (reverse Cauchy-Schwarz): the floor under a difference that cancels.
        """
        length2 = self.c * (zt.square() - sq(z))
        if isinstance(total, Tensor):
            return torch.maximum(length2, total.to(z.dtype).square()).rsqrt()
        return length2.clamp_min(total**2).rsqrt()

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        x2, xu, xv = sq(x), dot(x, u), dot(x, v)
        (along_u, rest), (along_v, _) = self._along(x2, xu), self._along(x2, xv)
        return dot(u - along_u * x, v - along_v * x) + rest * (xv / (1 + self.c * x2))

    def _sqnorm(self, x: Tensor, v: Tensor) -> Tensor:
        x2, xv = sq(x), dot(x, v)
        along, rest = self._along(x2, xv)
        return torch.addcmul(sq(torch.addcmul(v, along, x, value=-1)), rest, xv / (1 + self.c * x2))

    def _along(self, x2: Tensor, xv: Tensor) -> tuple[Tensor, Tensor]:
        """(a, r) with <u, v>_x = (u - a_u x)·(v - a_v x) + r_u x·v/(1 + c|x|²), a and r of x·u or x·v.

        Far out both are x·v/|x|²: the parts across and along x, whose difference would cancel. For c|x|² <= 1 they are
        0 and -c x·v: the metric as it stands, which loses at most a bit there and is smooth at the origin.
        """
        far = self.c * x2 > 1
        along = xv / torch.where(far, x2, 1.0)
        return torch.where(far, along, 0.0), torch.where(far, along, -self.c * xv)


class _Pairwise(torch.autograd.Function):
    """dist = arcosh(c (x_t y_t - x·y))/√c and sinh(√c dist), for all pairs.

    (..., N, d), (..., M, d) -> 2 x (..., N, M).   One product of width d + 1 for the value, one of width d for each
    gradient. The sinh comes with the value and is all that the gradient needs. A gradient that is differentiated again
    computes it anew.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: float | Tensor) -> tuple[Tensor, Tensor]:
        xt, yt = (1 / c + plain_sq(x)).sqrt(), (1 / c + plain_sq(y)).sqrt()
        product = (c * torch.cat((xt, x), -1)) @ torch.cat((yt, -y), -1).mT
        u = product.sub_(1).clamp_min_(0)  # >= 0 by Cauchy-Schwarz, up to the product's rounding
        sinh = (u + 2).sqrt_().mul_(u.sqrt())  # √(u(u + 2)) overflows from dist = 44 in fp32
        dist = u.add_(sinh).log1p_().mul_(c**-0.5)
        # views: torch 2.11 compiles a result changed in place as it was before the change
        return dist.view_as(sinh), sinh.view_as(dist)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float | Tensor], output: tuple[Tensor, Tensor]) -> None:
        x, y, c = inputs
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # no matrix of zeros for the sinh
        ctx.save_for_backward(x, y, *output, c if isinstance(c, Tensor) else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None
        x, y, dist, sinh, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        xt, yt = (1 / c + plain_sq(x)).sqrt(), (1 / c + plain_sq(y)).sqrt()
        if torch.is_grad_enabled():  # differentiated again: for autograd, what was saved does not depend on x and y
            apart = sinh > 0
            u = torch.where(apart, c * (xt @ yt.mT - x @ y.mT) - 1, 1.0)
            sinh = torch.where(apart, (u * (u + 2)).sqrt(), 0.0)
            dist = torch.where(apart, (u + sinh).log1p(), 0.0) / c**0.5
            slope = grad * torch.where(apart, (u * (u + 2)).rsqrt(), 0.0)
        else:
            slope = sinh.reciprocal().nan_to_num_(nan=torch.nan, posinf=0.0).mul_(grad)  # gradient 0 at x = y
        gx = gy = gc = None
        if ctx.needs_input_grad[0]:
            gx = c**0.5 * ((slope @ yt) / xt * x - slope @ y)
        if ctx.needs_input_grad[1]:
            gy = c**0.5 * ((slope.mT @ xt) / yt * y - slope.mT @ x)
        if tensor_c is not None and ctx.needs_input_grad[2]:
            ratio = yt.mT / xt
            cosh = torch.hypot(sinh, torch.ones_like(sinh))
            per_pair = slope * (cosh - (ratio + 1 / ratio) / 2) / c**0.5 - grad * dist / 2
            gc = (per_pair / c).sum_to_size(c.shape)  # c² may overflow
        return gx, gy, gc


class _AmbientMean(torch.autograd.Function):
    """(Σ wᵢxᵢ, Σ wᵢ time(xᵢ), time(x)) over the second to last axis, without a temporary of x's size; 1/N for no w.

    (..., N, d), (..., N) -> (..., d), (..., 1), (..., N, 1)
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weights: Tensor | None, c: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        xt = (1 / c + plain_sq(x)).sqrt()
        if weights is None:
            return x.mean(-2), xt.mean(-2), xt
        row = weights.unsqueeze(-2)
        return (row @ x).squeeze(-2), (row @ xt).squeeze(-2), xt

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor | None, float | Tensor], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, weights, c = inputs
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(x, weights, output[2], c if isinstance(c, Tensor) else None)

    @staticmethod
    def backward(ctx: Any, gz: Tensor, gt: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, xt, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        if torch.is_grad_enabled():  # as in _Pairwise
            xt = (1 / c + plain_sq(x)).sqrt()
        gz, gt = gz.unsqueeze(-2), gt.unsqueeze(-2)
        if weights is None:
            gz, gt = gz / x.shape[-2], gt / x.shape[-2]
        per_time = gt / xt  # (..., N, 1)
        gx = gw = gc = None
        if weights is None:
            gx = torch.addcmul(gz, per_time, x)
        else:
            column = weights.unsqueeze(-1)
            per_time = per_time * column
            gx = (per_time * x).addcmul_(column, gz)
            if ctx.needs_input_grad[1]:
                gw = ((x @ gz.mT) + gt * xt).squeeze(-1).sum_to_size(weights.shape)
        if tensor_c is not None and ctx.needs_input_grad[2]:
            gc = (-per_time / (2 * c) / c).sum_to_size(c.shape)
        return gx, gw, gc
