"""From one point part of the way to another, coordinate by coordinate: what the gates of a recurrent network do.

On the hyperboloid in one pass forward and one back, because it is taken at every step. In units of the radius (c = 1),
with X = √(1 + |x|²) and Y = √(1 + |y|²):

    w = y seen from x = d - β x,   d = y - x,   β = (|d|² + 2x·d)/(X + Y) - x·d/(1 + X)
    s = part · asinh(|w|)/|w| · w
    out = b s + k x,               b = sinh(|s|)/|s|,   k = cosh(|s|) + b x·s/(1 + X)

Written with d, so that near points keep their digits. For states of a network, which lie within √c r = 10 or so: out
there digits are lost as e^(√c r).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from horosphere.geometry import Manifold, Product
from horosphere.geometry._scalar import asinhc, coshm1, dot, plain_length, sinhc, sq
from horosphere.geometry.manifold import full_precision


def part_way(x: Tensor, y: Tensor, part: Tensor, manifold: Manifold) -> Tensor:
    """translate(lift(part · lower(translate(y, -x))), x), in free coordinates.   (..., d) x 3 -> (..., d)

    In flat space x + part·(y - x). For the same part in all coordinates a point of the geodesic from x to y.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> x, y = L.exp0(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    >>> torch.allclose(part_way(x, y, torch.tensor([0.25, 0.25]), L), L.geodesic(x, y, 0.25), atol=1e-6)
    True
    """
    if isinstance(manifold, Product):
        factors = zip(manifold.factors, *map(manifold.split, (x, y, part)), strict=True)
        return torch.cat([part_way(x, y, part, m) for m, x, y, part in factors], -1)
    if manifold.flat:
        return x + part * (y - x)
    return _curved(x, y, part, manifold.c)


@full_precision
def _curved(x: Tensor, y: Tensor, part: Tensor, c: float | Tensor) -> Tensor:
    if isinstance(c, float) and c == 1:
        return _unit(x, y, part)
    root = c**0.5
    return _unit(root * x, root * y, part) / root


def _unit(x: Tensor, y: Tensor, part: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # which fuses the formula itself, forward and back
        return formula(x, y, part)
    out: Tensor = _PartWay.apply(*torch.broadcast_tensors(x, y, part))[0]
    return out


def formula(x: Tensor, y: Tensor, part: Tensor) -> Tensor:
    """As it stands above, at c = 1; differentiable as often as one likes."""
    d = y - x
    x2, xd, d2 = sq(x), dot(x, d), sq(d)
    rise = d2 + 2 * xd  # |y|² - |x|²
    X, Y = (1 + x2).sqrt(), (1 + x2 + rise).sqrt()
    w = d - (rise / (X + Y) - xd / (1 + X)) * x
    s = part * (asinhc(sq(w)) * w)
    s2 = sq(s)
    b = sinhc(s2)
    return b * s + (1 + coshm1(s2) + b * dot(x, s) / (1 + X)) * x


class _Saved(NamedTuple):
    """What the gradient needs: vectors (..., d) and numbers a point (..., 1), by their names above."""

    d: Tensor
    w: Tensor
    s: Tensor
    xd: Tensor
    X: Tensor
    Y: Tensor
    rise: Tensor
    beta: Tensor
    w_length: Tensor
    a: Tensor  # asinh(|w|)/|w|
    s_length: Tensor
    b: Tensor
    cosh: Tensor
    xs: Tensor
    k: Tensor


class _PartWay(torch.autograd.Function):
    """The point, and what the gradient needs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor, part: Tensor) -> tuple[Tensor, ...]:
        tiny = torch.finfo(x.dtype).tiny  # f(t)/t is 1 to every digit there, and 0/0 below
        d = y - x
        x2, xd, d2 = plain_length(x).square_(), dot(x, d), plain_length(d).square_()
        rise = d2.add_(xd, alpha=2)
        X = (1 + x2).sqrt_()
        Y = (x2 + rise).add_(1).sqrt_()
        beta = rise / (X + Y) - xd / (1 + X)
        w = torch.addcmul(d, beta, x, value=-1)
        w_length = plain_length(w).clamp_min_(tiny)
        a = w_length.asinh() / w_length
        s = (part * a).mul_(w)
        s_length = plain_length(s).clamp_min_(tiny)
        b, cosh, xs = s_length.sinh() / s_length, s_length.cosh(), dot(x, s)
        k = torch.addcmul(cosh, b, xs / (1 + X))
        out = torch.addcmul(b * s, k, x)
        return out, *_Saved(d, w, s, xd, X, Y, rise, beta, w_length, a, s_length, b, cosh, xs, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        x, y, part, *saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # differentiated again: for autograd, what was saved depends on nothing
            slopes: tuple[Tensor, ...] = torch.func.vjp(formula, x, y, part)[1](g)
            return slopes
        return _gradient(x, part, _Saved(*saved), g)


def _gradient(x: Tensor, part: Tensor, saved: _Saved, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From the last line of the formula to its first; gX, gY, … are gradients of the numbers of a point.

    The slopes of a and b come as ∂a/∂|w|·|w| = 1/√(1 + |w|²) - a, along the unit vectors w/|w| and s/|s|: there it
    costs no digits that the difference cancels near 0.
    """
    d, w, s, xd, X, Y, rise, beta, w_length, a, s_length, b, cosh, xs, k = saved
    past = (1 + X).reciprocal_()
    # out = b s + k x,  k = cosh|s| + b x·s/(1 + X)
    gk, gs_along = dot(g, x), dot(g, s)
    ratio = xs * past
    gxs = gk * b * past
    slope = torch.addcmul(gs_along, gk, ratio) * ((cosh - b) / s_length / s_length)
    gs = torch.addcmul(b * g, gxs, x).addcmul_(torch.addcmul(slope, gk, b), s)
    gX = gxs * ratio
    # s = part · a w
    gw = gs * part
    gpart = gs.mul_(w).mul_(a)
    bend = dot(gw, w) * (((1 + w_length.square()).rsqrt_() - a) / w_length / w_length)
    gw.mul_(a).addcmul_(bend, w)
    # w = d - β x,  β = rise/(X + Y) - x·d/(1 + X)
    gbeta = dot(gw, x)  # of -β
    both = (X + Y).reciprocal_()
    per = gbeta * (rise * both * both)
    gX = per - gX - gbeta * (xd * past * past)
    gY_half = per / Y / 2
    grise = gY_half - gbeta * both  # of rise = |d|² + 2x·d, by β and by Y = √(1 + |x|² + rise)
    gxd = torch.addcmul(2 * grise, gbeta, past)
    gd = torch.addcmul(gw, gxd, x).addcmul_(grise, d, value=2)
    # d = y - x
    gx = torch.addcmul(k * g, gxs, s).addcmul_(beta, gw, value=-1).addcmul_(gxd, d)
    gx.addcmul_(gX / X + 2 * gY_half, x).sub_(gd)
    return gx, gd, gpart
