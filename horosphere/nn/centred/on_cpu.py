"""The six passes on the CPU, compiled: a picture is read from memory once, and then from cache.

For kernels maps are (B, C, S), numbers of points (B, S), numbers of channels (C,). Sums over all points are in fp64.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import torch
from torch import Tensor

from horosphere.nn.centred.numbers import Channels, Lifted, Pair, Seen

# Sums may be reordered and contracted, so that they become vectors. NaN and infinity keep their meaning.
compiled: Any = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

SMALL = 0.01  # slopes are the series of geometry/_scalar.py below it


FEW = 8  # points of a picture: with fewer, loops over them do not pay


def takes(x: Tensor) -> bool:
    """Whether the kernels read such a map: planes that lie in memory one after the other."""
    exact = x.dtype in (torch.float32, torch.float64)
    return exact and x.dim() > 2 and x[0, 0].numel() >= FEW and x.is_contiguous()


def sums(x: Tensor, c: float | Tensor) -> Pair:
    time, total = _like_points(x, 1), _zeros(x.shape[1] + 2)
    _in_parts(_sums, [x, *time], total, float(c))
    return time[0], total.to(x.dtype)


def centre(x: Tensor, time: Tensor, mean: Tensor, h: Tensor, c: float | Tensor) -> tuple[Seen, Tensor]:
    made, total = _like_points(x, 4), _zeros(x.shape[1])
    _in_parts(_centre, [x, time, *made], total, _array(mean), float(h), float(c))
    return Seen(time, *made), total.to(x.dtype)


def restore(x: Tensor, seen: Seen, by: Channels, h: Tensor, c: float | Tensor) -> tuple[Tensor, Lifted]:
    out, lifted = torch.empty_like(x), Lifted(*_like_points(x, 4))
    _in_parts(_restore, [x, seen.k, seen.s, out, *lifted], _zeros(0), *_channels(by), float(h), float(c))
    return out, lifted


def of_restore(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, by: Channels, h: Tensor, c: float | Tensor
) -> tuple[Pair, Tensor]:
    turned, total = _like_points(x, 2), _zeros(2 * x.shape[1] + 2)
    points = [x, grad.contiguous(), seen.k, seen.s, *lifted, *turned]
    _in_parts(_of_restore, points, total, *_channels(by), float(h), float(c))
    return (turned[0], turned[1]), total.to(x.dtype)


def of_centre(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, turned: Pair, by: Channels, h: Tensor, c: float | Tensor
) -> tuple[Pair, Tensor]:
    moved, total = _like_points(x, 2), _zeros(x.shape[1] + 5)
    points = [x, grad.contiguous(), *seen, lifted.length, *turned, *moved]
    _in_parts(_of_centre, points, total, *_channels(by), float(h), float(c))
    return (moved[0], moved[1]), total.to(x.dtype)


def of_points(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, turned: Pair, moved: Pair, by: Channels, constant: Tensor,
    of_rise: Tensor,
) -> Tensor:  # fmt: skip
    out = torch.empty_like(x)
    points = [x, grad.contiguous(), seen.time, seen.k, seen.s, lifted.length, *turned, *moved, out]
    _in_parts(_of_points, points, _zeros(0), *_channels(by), _array(constant), float(of_rise))
    return out


def _like_points(x: Tensor, count: int) -> list[Tensor]:
    """New numbers of points, (B, S) each."""
    return list(x.new_empty((count, len(x), x[0, 0].numel())).unbind(0))


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.float64)


def _array(t: Tensor) -> Any:
    return t.detach().contiguous().numpy()


def _channels(by: Channels) -> list[Any]:
    return [_array(t) for t in by]


def _in_parts(kernel: Callable[..., None], maps: Sequence[Tensor], total: Tensor, *numbers: Any) -> None:
    """Run a kernel on the pictures of a batch, a part of them by each of torch's threads; add up their sums."""
    parts = min(torch.get_num_threads(), len(maps[0]))
    arrays = [t.detach().flatten(2) if t.dim() > 2 else t.detach() for t in maps]
    sums = [torch.zeros_like(total) for _ in range(parts)]

    def run(part: int) -> None:
        some = [t.tensor_split(parts)[part].numpy() for t in arrays]
        kernel(*some, sums[part].numpy(), *numbers)

    if parts == 1:
        run(0)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(run, range(parts)))
    total += torch.stack(sums).sum(0)


# -- kernels ----------------------------------------------------------------------------------------------------------


@compiled
def _sinhc_slope(q, length, rise):
    """Of sinhc at q, where it is `length`, and cosh(√q) - 1 is `rise`."""
    if q < SMALL:
        return 1 / 6 + q * (1 / 60 + q * (1 / 1680 + q * (1 / 90720 + q / 7983360)))
    return (1 + rise - length) / (2 * q)


@compiled
def _asinhc_slope(q, s):
    """Of asinhc at q, where it is s."""
    if q < SMALL:
        high = -315 / 2816 + q * (693 / 6656 + q * (-1001 / 10240 + q * 6435 / 69632))
        return -1 / 6 + q * (3 / 20 + q * (-15 / 112 + q * (35 / 288 + q * high)))
    return (1 / math.sqrt(1 + q) - s) / (2 * q)


@compiled
def _sums(x, time, total, c):
    """time; total (C + 2,): Σx of every channel, Σrise, Σ1/time"""
    images, channels, size = x.shape
    one_over_c, one_over_root, zero = x.dtype.type(1 / c), x.dtype.type(1 / math.sqrt(c)), x.dtype.type(0)
    for b in range(images):
        for p in range(size):
            time[b, p] = zero
        for ch in range(channels):
            added = zero
            for p in range(size):
                value = x[b, ch, p]
                added += value
                time[b, p] += value * value
            total[ch] += added
        rises, inverses = zero, zero
        for p in range(size):
            square = time[b, p]
            t = math.sqrt(one_over_c + square)
            time[b, p] = t
            rises += square / (t + one_over_root)
            inverses += 1 / t
        total[channels] += rises
        total[channels + 1] += inverses


@compiled
def _centre(x, time, along, k, distance2, s, total, mean, h, c):
    """along, k, |y|², s; total (C,): Σv²"""
    images, channels, size = x.shape
    root, c_h, zero = x.dtype.type(math.sqrt(c)), x.dtype.type(c * h), x.dtype.type(0)
    for b in range(images):
        for p in range(size):
            along[b, p] = zero
            distance2[b, p] = zero
        for ch in range(channels):
            m = mean[ch]
            for p in range(size):
                along[b, p] += m * x[b, ch, p]
        for p in range(size):
            k[b, p] = root * time[b, p] - c_h * along[b, p]
        for ch in range(channels):
            m = mean[ch]
            for p in range(size):
                y = x[b, ch, p] - k[b, p] * m
                distance2[b, p] += y * y
        for p in range(size):
            q = c * distance2[b, p]
            t = math.sqrt(q)
            s[b, p] = math.log1p(t + q / (1 + math.sqrt(1 + q))) / t if q > 0 else 1
        for ch in range(channels):
            m, added = mean[ch], zero
            for p in range(size):
                v = s[b, p] * (x[b, ch, p] - k[b, p] * m)
                added += v * v
            total[ch] += added


@compiled
def _restore(x, k, s, out, q, length, rise, along, total, mean, scale, bias, shift, h, c):
    """out = l·w + k'·β; q, l, cosh(√q) - 1, β·w"""
    images, channels, size = x.shape
    c_h, zero, one = x.dtype.type(c * h), x.dtype.type(0), x.dtype.type(1)
    for b in range(images):
        for p in range(size):
            q[b, p] = zero
            along[b, p] = zero
        for ch in range(channels):
            m, a, beta = mean[ch], scale[ch], bias[ch]
            for p in range(size):
                w = a * s[b, p] * (x[b, ch, p] - k[b, p] * m)
                out[b, ch, p] = w
                q[b, p] += w * w
                along[b, p] += beta * w
        for p in range(size):
            q[b, p] *= c
            half = math.sqrt(q[b, p]) / 2
            grown = math.expm1(half)
            sinh = (grown + grown / (1 + grown)) / 2  # of the half
            rise[b, p] = 2 * sinh * sinh
            length[b, p] = sinh * math.sqrt(1 + sinh * sinh) / half if half > 0 else one
        for ch in range(channels):
            beta = bias[ch]
            for p in range(size):
                far = one + rise[b, p] + c_h * length[b, p] * along[b, p]
                out[b, ch, p] = length[b, p] * out[b, ch, p] + far * beta


@compiled
def _of_restore(
    x, grad, k, s, q, length, rise, along, of_w, of_along, total, mean, scale, bias, shift, h, c
):  # fmt: skip
    """2c·∂q, ∂(β·w); total (2C + 2,): as in by_torch.py"""
    images, channels, size = x.shape
    kind = x.dtype.type
    c_h, zero, one = kind(c * h), kind(0), kind(1)
    for b in range(images):
        for p in range(size):
            of_w[b, p] = zero  # at first Σ grad·w
            of_along[b, p] = zero  # at first Σ grad·β
        for ch in range(channels):
            m, a, beta = mean[ch], scale[ch], bias[ch]
            for p in range(size):
                g = grad[b, ch, p]
                of_w[b, p] += g * (a * s[b, p] * (x[b, ch, p] - k[b, p] * m))
                of_along[b, p] += g * beta
        by_h, by_c = zero, zero
        for p in range(size):
            of_k, l, r, square = of_along[b, p], length[b, p], rise[b, p], q[b, p]
            of_l = of_w[b, p] + c_h * of_k * along[b, p]
            slope = _sinhc_slope(square, l, r)
            of_q = slope * of_l + of_k * l / 2
            of_w[b, p] = 2 * kind(c) * of_q
            of_along[b, p] = c_h * of_k * l
            by_h += of_k * l * along[b, p]
            by_c += of_q * square
        total[2 * channels] += by_h
        total[2 * channels + 1] += by_c
        for ch in range(channels):
            m, a, beta, of_beta, of_scale = mean[ch], scale[ch], bias[ch], zero, zero
            for p in range(size):
                g, v = grad[b, ch, p], s[b, p] * (x[b, ch, p] - k[b, p] * m)
                w, l = a * v, length[b, p]
                of_beta += (one + rise[b, p] + c_h * l * along[b, p]) * g + of_along[b, p] * w
                of_scale += (of_w[b, p] * w + l * g + of_along[b, p] * beta) * v
            total[ch] += of_beta
            total[channels + ch] += of_scale


@compiled
def _of_centre(
    x, grad, time, along, k, distance2, s, length, of_w, of_along, of_x, of_mu, total, mean, scale, bias, shift, h, c
):
    """what x and -μ count in the gradient of x; total (C + 5,): as in by_torch.py"""
    images, channels, size = x.shape
    kind = x.dtype.type
    root, c_h, zero, mean2 = kind(math.sqrt(c)), kind(c * h), kind(0), kind(0)
    for ch in range(channels):
        mean2 += mean[ch] * mean[ch]
    for b in range(images):
        for p in range(size):
            of_x[b, p] = zero  # at first Σ gv·y
            of_mu[b, p] = zero  # at first Σ gv·μ
        for ch in range(channels):
            m, a, beta, kappa = mean[ch], scale[ch], bias[ch], shift[ch]
            for p in range(size):
                y = x[b, ch, p] - k[b, p] * m
                v = s[b, p] * y
                gw = of_w[b, p] * (a * v) + length[b, p] * grad[b, ch, p] + of_along[b, p] * beta
                gv = a * gw + kappa * v
                of_x[b, p] += gv * y
                of_mu[b, p] += gv * m
        scaled, turned, by_c, by_time, by_inverse = zero, zero, zero, zero, zero
        for p in range(size):
            near = kind(c) * distance2[b, p]
            slope = _asinhc_slope(near, s[b, p])
            of_scaled = slope * of_x[b, p]
            twice, kk = 2 * kind(c) * of_scaled, k[b, p]
            of_k = -(s[b, p] * of_mu[b, p] + twice * (along[b, p] - kk * mean2))
            of_x[b, p] = twice + root * of_k / time[b, p]
            of_mu[b, p] = twice * kk + c_h * of_k
            scaled += twice * kk * kk
            turned += along[b, p] * of_k
            by_c += of_scaled * distance2[b, p]
            by_time += of_k * time[b, p]
            by_inverse += of_k / time[b, p]
        total[channels] += scaled
        total[channels + 1] += turned
        total[channels + 2] += by_c
        total[channels + 3] += by_time
        total[channels + 4] += by_inverse
        for ch in range(channels):
            m, a, beta, kappa, added = mean[ch], scale[ch], bias[ch], shift[ch], zero
            for p in range(size):
                value = x[b, ch, p]
                v = s[b, p] * (value - k[b, p] * m)
                gw = of_w[b, p] * (a * v) + length[b, p] * grad[b, ch, p] + of_along[b, p] * beta
                added += k[b, p] * s[b, p] * (a * gw + kappa * v) + of_mu[b, p] * value
            total[ch] -= added


@compiled
def _of_points(
    x, grad, time, k, s, length, of_w, of_along, of_x, of_mu, out, total, mean, scale, bias, shift, constant, of_rise
):
    """∂x = s·gv + (… + ∂rise/time)·x - …·μ + constant"""
    images, channels, size = x.shape
    for b in range(images):
        for p in range(size):
            of_x[b, p] += of_rise / time[b, p]
        for ch in range(channels):
            m, a, beta, kappa, same = mean[ch], scale[ch], bias[ch], shift[ch], constant[ch]
            for p in range(size):
                value = x[b, ch, p]
                v = s[b, p] * (value - k[b, p] * m)
                gw = of_w[b, p] * (a * v) + length[b, p] * grad[b, ch, p] + of_along[b, p] * beta
                gx = s[b, p] * (a * gw + kappa * v) + of_x[b, p] * value - of_mu[b, p] * m
                out[b, ch, p] = gx + same
