"""Squared distances of all pairs of unit vectors, of the hyperboloid or the sphere, for objectives over many pairs."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LEAST_SINE = 2.0**-11  # of the float32 next to u = 2: nearer to the antipode all digits of u are noise


def squared_arcs(x: Tensor, y: Tensor, c: float | Tensor, sign: int) -> Tensor:
    """arcosh(1 + u)²/c or arccos(1 - u)²/c, u = |1 - <x, y>|.   (N, k), (M, k) -> (N, M)

    sign: that of the curvature. <x, y> is the plain product: on the hyperboloid y has its time turned, and <x, y> >= 1.
    Of float64 vectors u is float64, which near pairs need, and what follows is float32: it keeps the digits of u.
    """
    out: Tensor = _SquaredArcs.apply(x, y, sign)
    return out / (c.to(out.dtype) if isinstance(c, Tensor) else c)


class _SquaredArcs(torch.autograd.Function):
    """∂arc²/∂u = 2 arc/sin(arc), sinh on the hyperboloid; 2 where points coincide, finite where they are antipodes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, sign: int) -> Tensor:
        u = torch.addmm(x.new_full((1, 1), sign), x, y.mT, alpha=-sign).float()
        u.clamp_min_(0)
        if sign > 0:
            u.clamp_max_(2)
        sine = (2 - sign * u).sqrt_().mul_(u.sqrt())  # the root of their product, which u² would end at 44 radii
        arc = torch.atan2(sine, 1 - u) if sign > 0 else u.add_(sine).log1p_()
        if sign > 0:
            sine = torch.where(u > 1, sine.clamp_min(LEAST_SINE), sine)
        tiny = torch.finfo(arc.dtype).tiny
        slope = (arc + tiny).div_(sine.add_(tiny))
        ctx.save_for_backward(x, y, slope)
        ctx.sign = sign
        return arc.square_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y, slope = ctx.saved_tensors
        turned = (grad * slope).mul_(-2 * ctx.sign).to(x.dtype)
        return turned @ y, turned.mT @ x, None
