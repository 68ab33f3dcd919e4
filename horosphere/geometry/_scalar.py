"""Smooth scalar functions of q = t², exact in value and gradient at q = 0.

Every radial map of the library is f(c|x|²)·x with one of these f. They take q, not t = √q, because |x| has no gradient
at 0.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Taylor coefficients in q. These are functions, not lists: torch.compile takes the floats of a global list for inputs
# that may vary, and fails when two autograd functions share one.


def _sinhc_series() -> list[float]:
    return [1 / math.factorial(2 * k + 1) for k in range(7)]


def _asinhc_series() -> list[float]:
    return [(-1) ** k * math.comb(2 * k, k) / (4**k * (2 * k + 1)) for k in range(9)]


def _atanhc_series() -> list[float]:
    return [1 / (2 * k + 1) for k in range(9)]


def _tanhc_series() -> list[float]:
    return [1, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875]


def _tanc_series() -> list[float]:
    return [abs(a) for a in _tanhc_series()]


def _sinc_series() -> list[float]:
    return [(-1) ** k / math.factorial(2 * k + 1) for k in range(7)]


def _asinc_series() -> list[float]:
    return [math.comb(2 * k, k) / (4**k * (2 * k + 1)) for k in range(9)]


def _atanc_series() -> list[float]:
    return [(-1) ** k / (2 * k + 1) for k in range(9)]


def _polynomial(q: Tensor, coefficients: list[float]) -> Tensor:
    total = torch.full_like(q, coefficients[-1])
    for a in reversed(coefficients[:-1]):
        total = total * q + a
    return total


class _Smooth(torch.autograd.Function):
    """f(√q)/√q. The value is exact as it stands. Its slope (f'(√q) - value)/(2q) cancels near 0: a series there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q: Tensor,
        value: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor], Tensor],
        series: Callable[[], list[float]],
    ) -> Tensor:
        return value(q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        q, ctx.value, ctx.slope, ctx.series = inputs
        ctx.save_for_backward(q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (q,) = ctx.saved_tensors
        return _slope(q, grad, ctx.value, ctx.slope, ctx.series), None, None, None


def _slope(
    q: Tensor,
    grad: Tensor,
    value: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    series: Callable[[], list[float]],
) -> Tensor:
    """grad times the slope of f(√q)/√q"""
    small = q < 0.01  # the first term left out of the series is under 1e-17 there
    big = torch.where(small, 0.5, q)  # the unused branch must not feed NaN into a second derivative
    near = _polynomial(q, [k * a for k, a in enumerate(series())][1:])
    far = grad * (slope(big) - value(big)) / (2 * big)  # in this order: without grad it vanishes far out
    return torch.where(small, grad * near, far)


def _root(q: Tensor) -> Tensor:
    return q.clamp_min(torch.finfo(q.dtype).tiny).sqrt()  # f(t)/t is 1 to every digit there, and 0/0 below


def _sinhc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.sinh() / t


def _asinhc(q: Tensor) -> Tensor:
    t = _root(q)
    return (t + q / (1 + (1 + q).sqrt())).log1p() / t  # asinh(t)/t; torch's own asinh is 20x slower on CPU


def _tanhc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.tanh() / t


def _atanhc(q: Tensor) -> Tensor:
    t = _root(q)
    return (2 * t / (1 - t)).log1p() / (2 * t)


def _cosh(q: Tensor) -> Tensor:
    return q.sqrt().cosh()


def _inverse_root(q: Tensor) -> Tensor:
    return (1 + q).rsqrt()


def _sinc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.sin() / t


def _tanc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.tan() / t


def _asinc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.asin() / t


def _atanc(q: Tensor) -> Tensor:
    t = _root(q)
    return t.atan() / t


def plain_sinhc(q: Tensor) -> Tensor:
    """sinh(√q)/√q, for use inside autograd functions; `plain_sinhc_slope` is grad times its slope."""
    return _sinhc(q)


def plain_sinhc_slope(q: Tensor, grad: Tensor) -> Tensor:
    return _slope(q, grad, _sinhc, _cosh, _sinhc_series)


def plain_asinhc(q: Tensor) -> Tensor:
    """asinh(√q)/√q, for use inside autograd functions; `plain_asinhc_slope` is grad times its slope."""
    return _asinhc(q)


def plain_asinhc_slope(q: Tensor, grad: Tensor) -> Tensor:
    return _slope(q, grad, _asinhc, _inverse_root, _asinhc_series)


def sinhc(q: Tensor) -> Tensor:
    """sinh(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _sinhc, _cosh, _sinhc_series)
    return out


def asinhc(q: Tensor) -> Tensor:
    """asinh(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _asinhc, _inverse_root, _asinhc_series)
    return out


def tanhc(q: Tensor) -> Tensor:
    """tanh(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _tanhc, lambda q: 1 - q.sqrt().tanh().square(), _tanhc_series)
    return out


def atanhc(q: Tensor) -> Tensor:
    """artanh(√q)/√q for q < 1"""
    out: Tensor = _Smooth.apply(q, _atanhc, lambda q: 1 / (1 - q), _atanhc_series)
    return out


def sinc(q: Tensor) -> Tensor:
    """sin(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _sinc, lambda q: q.sqrt().cos(), _sinc_series)
    return out


def tanc(q: Tensor) -> Tensor:
    """tan(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _tanc, lambda q: 1 + q.sqrt().tan().square(), _tanc_series)
    return out


def asinc(q: Tensor) -> Tensor:
    """arcsin(√q)/√q for q < 1"""
    out: Tensor = _Smooth.apply(q, _asinc, lambda q: (1 - q).rsqrt(), _asinc_series)
    return out


def atanc(q: Tensor) -> Tensor:
    """arctan(√q)/√q"""
    out: Tensor = _Smooth.apply(q, _atanc, lambda q: 1 / (1 + q), _atanc_series)
    return out


def cosm1(q: Tensor) -> Tensor:
    """cos(√q) - 1 = -2 sin²(√q/2)"""
    return -q / 2 * sinc(q / 4).square()


def coshm1(q: Tensor) -> Tensor:
    """cosh(√q) - 1 = 2 sinh²(√q/2)"""
    return q / 2 * sinhc(q / 4).square()


def safe_sqrt(q: Tensor) -> Tensor:
    """√q with gradient 0 at 0, where √ has none."""
    zero = q <= 0  # not "positive = q > 0": a NaN must stay one
    return torch.where(zero, 0.0, torch.where(zero, 1.0, q).sqrt())


# u = cosh(√c·dist) - 1 is what the manifolds compute without cancellation; s = u/2 = sinh²(√c·dist/2).


def excess_to_dist(u: Tensor) -> Tensor:
    """arcosh(1 + u) = 2 asinh(√(u/2)); gradient 0 at u = 0.

    log1p(u + √(u(u + 2))) would square u, which overflows from dist = 44 in fp32.
    """
    return 2 * asinh(safe_sqrt(u / 2))


def excess_to_sqdist(u: Tensor) -> Tensor:
    """arcosh(1 + u)², smooth at u = 0."""
    a = asinhc(u / 2)
    return 2 * (u * a) * a  # not a², whose gradient has a factor 2u


def excess_to_log_factor(u: Tensor) -> Tensor:
    """D/sinh(D) for D = arcosh(1 + u), smooth at u = 0."""
    return asinhc(u / 2) / (1 + u / 2).sqrt()


def dot(x: Tensor, y: Tensor) -> Tensor:
    """(..., d), (..., d) -> (..., 1)"""
    return (x * y).sum(-1, keepdim=True)


def plain_length(x: Tensor) -> Tensor:
    """|x|, for use inside autograd functions: torch.compile cannot nest those when shapes vary."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def plain_sq(x: Tensor) -> Tensor:
    """|x|², for use inside autograd functions."""
    return plain_length(x).square()


class _SquaredNorm(torch.autograd.Function):
    """|x|² in one pass. `x.square().sum()` writes the squares to memory first: 20x slower on large tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return plain_sq(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


def plain_asinh(s: Tensor) -> Tensor:
    """asinh(s) = log1p(s + s²/(1 + √(1 + s²))) of s >= 0, for use inside autograd functions."""
    root = torch.hypot(s, s.new_ones(()))  # √(1 + s²), where s² overflows from s = 1e19 in fp32
    return (s + s * (s / (1 + root))).log1p()


class _Asinh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor) -> Tensor:
        return plain_asinh(s.abs()).copysign(s)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        return grad / torch.hypot(s, s.new_ones(()))


class _Length(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, any_size: bool) -> Tensor:
        if not any_size or not x.shape[-1]:
            return plain_length(x)
        size = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        return plain_length(x / size) * size

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, bool], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, length = ctx.saved_tensors
        return grad * (x / torch.where(length == 0, 1.0, length)), None


def length(x: Tensor, any_size: bool = False) -> Tensor:
    """|x|, gradient 0 at 0.   (..., d) -> (..., 1)

    any_size: also where squares overflow or vanish, for a second pass over x.
    """
    out: Tensor = _Length.apply(x, any_size)
    return out


def sq(x: Tensor) -> Tensor:
    """|x|².   (..., d) -> (..., 1)"""
    out: Tensor = _SquaredNorm.apply(x)
    return out


def saturated_sq(x: Tensor, c: float | Tensor) -> Tensor:
    """c|x|², finite: for maps into the ball, where x/√inf would be the origin.

    Where it saturates, x over its root is too long, and `Poincare` brings it back to the edge.
    """
    largest, q = torch.finfo(x.dtype).max, sq(x)
    if isinstance(c, Tensor):
        return (c * q.clamp_max(largest)).clamp_max(largest)
    return c * q.clamp_max(largest) if c <= 1 else (c * q).clamp_max(largest)


def asinh(s: Tensor) -> Tensor:
    """asinh, vectorised on CPU (torch's own is not)."""
    out: Tensor = _Asinh.apply(s)
    return out
