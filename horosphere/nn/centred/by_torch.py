"""The six passes by torch: for every device, precision and compiler. Numbers of points are (B, 1, …)."""

import torch
from torch import Tensor

from horosphere.geometry._scalar import plain_asinhc, plain_asinhc_slope, plain_sinhc, plain_sinhc_slope
from horosphere.nn.axes import column, dot_along, positions
from horosphere.nn.centred.numbers import Channels, Lifted, Pair, Seen

READS_HALF = False


def sums(x: Tensor, c: float | Tensor) -> Pair:
    """time; (C + 2,): Σx, Σrise, Σ1/time"""
    squares = (x * x).sum(1, keepdim=True)
    time = (1 / c + squares).sqrt()
    rises = (squares / (time + 1 / c**0.5)).sum()
    return time, torch.cat((x.sum(positions(x)), torch.stack((rises, (1 / time).sum()))))


def centre(x: Tensor, time: Tensor, mean: Tensor, h: Tensor, c: float | Tensor) -> tuple[Seen, Tensor]:
    """(C,): Σv²"""
    along = dot_along(mean, x)
    k = c**0.5 * time - c * h * along
    y = x - k * column(mean, x)
    distance2 = (y * y).sum(1, keepdim=True)
    s = plain_asinhc(c * distance2)
    return Seen(time, along, k, distance2, s), (y * s).square().sum(positions(x))


def restore(x: Tensor, seen: Seen, by: Channels, h: Tensor, c: float | Tensor) -> tuple[Tensor, Lifted]:
    w = _centred(x, seen, by) * column(by.scale, x)
    q, along = c * (w * w).sum(1, keepdim=True), dot_along(by.bias, w)
    lifted = Lifted(q, plain_sinhc(q), q / 2 * plain_sinhc(q / 4).square(), along)
    return lifted.length * w + _far(lifted, h, c) * column(by.bias, x), lifted


def of_restore(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, by: Channels, h: Tensor, c: float | Tensor
) -> tuple[Pair, Tensor]:
    """What w and β count in the gradient of w; (2C + 2,): Σ of β, of the scale; of h' over c, of c·q"""
    v = _centred(x, seen, by)
    w = v * column(by.scale, x)
    of_k = dot_along(by.bias, grad)
    of_length = (grad * w).sum(1, keepdim=True) + (c * h) * of_k * lifted.along
    of_q = plain_sinhc_slope(lifted.q, of_length) + of_k * lifted.length / 2
    turned = (2 * c * of_q, (c * h) * of_k * lifted.length)
    of_bias = (grad * _far(lifted, h, c) + w * turned[1]).sum(positions(x))
    of_scale = (_of_w(w, grad, lifted, turned, by) * v).sum(positions(x))
    numbers = ((of_k * lifted.length * lifted.along).sum(), (of_q * lifted.q).sum())
    return turned, torch.cat((of_bias, of_scale, torch.stack(numbers)))


def of_centre(
    x: Tensor,
    grad: Tensor,
    seen: Seen,
    lifted: Lifted,
    turned: Pair,
    by: Channels,
    h: Tensor,
    c: float | Tensor,
) -> tuple[Pair, Tensor]:
    """What x and -μ count in the gradient of x; (C + 5,): Σ of μ but for its own direction, and five for that of c

    Σ 2c·∂(c|y|²)·k², Σ μ·x·∂k, Σ ∂(c|y|²)·|y|², Σ time·∂k, Σ ∂k/time
    """
    v = _centred(x, seen, by)
    gv = _of_v(v, grad, lifted, turned, by)
    of_s = (gv * v).sum(1, keepdim=True) / seen.s
    of_scaled = plain_asinhc_slope(c * seen.distance2, of_s)
    twice = 2 * c * of_scaled
    of_k = -(seen.s * dot_along(by.mean, gv) + twice * (seen.along - seen.k * (by.mean @ by.mean)))
    moved = (twice + c**0.5 * of_k / seen.time, twice * seen.k + (c * h) * of_k)
    of_mean = -(gv * (seen.k * seen.s) + x * moved[1]).sum(positions(x))
    parts = (twice * seen.k**2, seen.along * of_k, of_scaled * seen.distance2, of_k * seen.time, of_k / seen.time)
    return moved, torch.cat((of_mean, torch.stack([part.sum() for part in parts])))


def of_points(
    x: Tensor,
    grad: Tensor,
    seen: Seen,
    lifted: Lifted,
    turned: Pair,
    moved: Pair,
    by: Channels,
    constant: Tensor,
    of_rise: Tensor,
) -> Tensor:
    """The gradient of x."""
    gv = _of_v(_centred(x, seen, by), grad, lifted, turned, by)
    through_x = (moved[0] + of_rise / seen.time) * x
    return seen.s * gv + through_x - moved[1] * column(by.mean, x) + column(constant, x)


def _centred(x: Tensor, seen: Seen, by: Channels) -> Tensor:
    """v"""
    return seen.s * (x - seen.k * column(by.mean, x))


def _far(lifted: Lifted, h: Tensor, c: float | Tensor) -> Tensor:
    """k'"""
    return 1 + lifted.rise + (c * h) * lifted.length * lifted.along


def _of_w(w: Tensor, grad: Tensor, lifted: Lifted, turned: Pair, by: Channels) -> Tensor:
    return turned[0] * w + lifted.length * grad + turned[1] * column(by.bias, w)


def _of_v(v: Tensor, grad: Tensor, lifted: Lifted, turned: Pair, by: Channels) -> Tensor:
    scale = column(by.scale, v)
    return scale * _of_w(v * scale, grad, lifted, turned, by) + column(by.shift, v) * v
