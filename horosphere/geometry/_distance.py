"""Distances of the hyperboloid, free of cancellation and of overflow, with gradients that keep their digits.

All of it speaks of u = cosh(√c dist) - 1. With d = x - y, y the shorter of the two and d⊥ the part of d across y:

    u = (|d|² + c |y|² |d⊥|²) / (x_t y_t + x·y + 1/c)              if x·y > 0   (every term >= 0)
      = c (|x|² + |y|² + c |x|²|y|²) / (1 + c x_t y_t) - c x·y     otherwise    (every term >= 0)
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from horosphere.geometry._scalar import dot, plain_asinh, plain_length, plain_sq


def excess(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
    """u, smooth at x = y. It is finite while √c dist < 88 in fp32, 709 in fp64.   (..., d), (..., d) -> (..., 1)"""
    x, y = torch.broadcast_tensors(x, y)
    out: Tensor = _Excess.apply(x, y, c)
    return out


def distance(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
    """dist, gradient 0 at x = y. Finite wherever the points are.   (..., d), (..., d) -> (..., 1)"""
    x, y = torch.broadcast_tensors(x, y)
    out: Tensor = _Distance.apply(x, y, c)[0]
    return out


class _Excess(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
        x2, y2, d, xy = plain_sq(x), plain_sq(y), x - y, dot(x, y)
        short2 = torch.minimum(x2, y2)
        across2 = plain_sq(_across(d, _either(x2 < y2, x, y), short2))
        below = (1 / c + x2).sqrt() * (1 / c + y2).sqrt() + 1 / c
        same = below + xy
        # divided before multiplied: |x|²|y|² overflows first
        same_side = plain_sq(d) / same + c * (short2 / same) * across2
        opposite = (x2 + y2) / below + c * (torch.maximum(x2, y2) / below * short2 - xy)
        return torch.where(xy > 0, same_side, opposite)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float | Tensor], output: Tensor) -> None:
        x, y, c = inputs
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.save_for_backward(x, y, output, c if isinstance(c, Tensor) else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, u, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        pair = _Pair.of(x, y, 1 / c)
        gx, gy = pair.slopes(grad * c, *ctx.needs_input_grad[:2])
        gc = None
        if tensor_c is not None and ctx.needs_input_grad[2]:
            gc = (grad * (u - pair.stretch()) / c).sum_to_size(c.shape)
        return gx, gy, gc


class _Distance(torch.autograd.Function):
    """(2/√c) asinh(h) of h = √(u/2) = sinh(√c dist/2); and h and 1/s for the gradient.   (..., d) x 2 -> 3 x (..., 1)

    Squares of coordinates overflow at half the radius that can be stored, and so does u. So points are divided by s,
    the geometric mean of their sizes, and the root of u is taken before s comes back: |x||y| < 1 there.
    Nothing depends on s, and it has no gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, c: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        unit = c**-0.5
        # 1/s, a power of 2: the product costs no digits
        shrink = ((_size(x) + unit).log2() + (_size(y) + unit).log2()).mul(-0.5).round().exp2()
        x, y, per = x * shrink, y * shrink, unit * shrink
        x1, y1, xy, d, floor = plain_length(x), plain_length(y), dot(x, y), x - y, per.square()
        x2, y2, short = x1.square(), y1.square(), torch.minimum(x1, y1)
        across = plain_length(_across(d, _either(x1 < y1, x, y), short.square()))
        below = torch.addcmul(floor, (floor + x2).sqrt(), (floor + y2).sqrt())
        same_side = torch.hypot(plain_length(d) * per, short * across) * (below + xy).rsqrt()
        opposite = (torch.addcmul(floor * (x2 + y2), x2, y2) / below - xy).sqrt()
        half = torch.where(xy > 0, same_side, opposite) * (math.sqrt(0.5) / per)
        return 2 * unit * plain_asinh(half), half, shrink

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, float | Tensor], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, y, c = inputs
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y, *output, c if isinstance(c, Tensor) else None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None
        x, y, dist, half, shrink, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        unit, apart = c**-0.5, half > 0
        if torch.is_grad_enabled():  # differentiated again: for autograd, h as it was saved does not depend on x and y
            half = (dist / (2 * unit)).sinh()
        half = torch.where(apart, half, 1.0)
        turned = torch.where(apart, grad, 0.0) / torch.hypot(half, half.new_ones(()))  # gradient 0 at x = y
        per = unit * shrink
        pair = _Pair.of(x * shrink, y * shrink, per.square())
        gx, gy = pair.slopes(turned / (2 * per * half), *ctx.needs_input_grad[:2])
        gc = None
        if tensor_c is not None and ctx.needs_input_grad[2]:
            per_c = turned * (half - pair.stretch() / (2 * half)) * unit - grad * dist / 2
            gc = (per_c / c).sum_to_size(c.shape)
        return gx, gy, gc


class _End(NamedTuple):
    """A point of a pair: x, |x|² and x_t."""

    x: Tensor
    x2: Tensor
    time: Tensor


class _Pair(NamedTuple):
    """Two points, d = x - y, x·y, x_t - y_t and 1/c."""

    here: _End
    there: _End
    d: Tensor
    xy: Tensor
    rise: Tensor
    floor: Tensor | float

    @classmethod
    def of(cls, x: Tensor, y: Tensor, floor: Tensor | float) -> "_Pair":
        x2, y2, d = plain_sq(x), plain_sq(y), x - y
        xt, yt = (floor + x2).sqrt(), (floor + y2).sqrt()
        return cls(_End(x, x2, xt), _End(y, y2, yt), d, dot(x, y), dot(d, x + y) / (xt + yt), floor)

    def stretch(self) -> Tensor:
        """(x_t - y_t)²/(2 x_t y_t): what u gains for c beside itself, c ∂u/∂c = u - stretch"""
        return self.rise / self.here.time * (self.rise / self.there.time) / 2

    def slopes(self, grad: Tensor, for_x: bool, for_y: bool) -> tuple[Tensor | None, Tensor | None]:
        """grad · ∂u/∂x / c, and the same for y."""
        here, there, d, xy, rise, floor = self
        gx = _slope(here, there, d, xy, rise, floor, grad) if for_x else None
        gy = _slope(there, here, -d, xy, -rise, floor, grad) if for_y else None
        return gx, gy


def _slope(here: _End, there: _End, d: Tensor, xy: Tensor, rise: Tensor, floor: Tensor | float, grad: Tensor) -> Tensor:
    """∂u/∂x / c = (y_t/x_t) x - y = d - (x_t - y_t)/x_t · x, times grad

    Far from the origin: (part of d across x) + coefficient · x. The part along x is smaller than d by cosh²(√c r)
    there. A subtraction would lose it at r = 8 in fp32, and `rgrad` multiplies it back.
    d and -y have the same part across x; the shorter one keeps its digits.
    The coefficient y_t/x_t - x·y/|x|² is a sum for x·y <= 0. For x·y > 0 it is
    (d·x (|x|² + x·y)/(c|x|²) + |x|²|d⊥|²)/(x_t (y_t|x|² + x_t x·y)).
    """
    (x, x2, xt), (y, y2, yt) = here, there
    far, same_side = x2 > floor, xy > 0
    x2 = torch.where(far, x2, 1.0)
    across = _either(far & (y2 < plain_sq(d)), -y, d)
    for _ in range(2):  # twice: rounding leaves ε|d| along x, more than belongs there
        across = torch.addcmul(across, torch.where(far, dot(across, x) / x2, 0.0), x, value=-1)
    # divided by |x|² above and below: |x|³|y| overflows first
    below = xt * (yt + xt * (torch.where(same_side, xy, 0.0) / x2))
    sum_same = (dot(d, x) / x2 * (1 + xy / x2) * floor + plain_sq(across)) / below
    coefficient = torch.where(same_side, sum_same, yt / xt - xy / x2)
    return torch.addcmul(across, torch.where(far, coefficient, -rise / xt), x) * grad


def _across(d: Tensor, y: Tensor, y2: Tensor) -> Tensor:
    """The part of d across y. Where |y|² is 0 in floats nobody needs it."""
    return torch.addcmul(d, dot(d, y) / y2.clamp_min(torch.finfo(d.dtype).tiny), y, value=-1)


def _either(which: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where it holds, else b. torch.where is several times slower on CPU when the condition is one a row."""
    return torch.lerp(b, a, which.to(a.dtype))


def _size(x: Tensor) -> Tensor:
    """Σ|xᵢ|, between |x| and √d|x|: the squares of |x| may overflow."""
    return x.abs().sum(-1, keepdim=True)
