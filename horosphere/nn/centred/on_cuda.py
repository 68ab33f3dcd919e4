"""The six passes on CUDA. A program takes tile after tile of points, and sums over its own; torch adds up all sums.

Every pass goes through the map the other way round than the one before it: what that one read last is still in cache.
Maps are rows (N, C) or planes (B, C, S). In kernels the argument lists follow `nn/kernels/__init__.py`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.nn.centred.numbers import Channels, Lifted, Pair, Seen
from horosphere.nn.kernels.launch import block_of, launch, operator

PROGRAMS = 528  # four on each of an H100's processors
TILE, WARPS = 4096, 4  # numbers of a tile, and how many warps share them
WIDEST = 2048  # channels
READS_HALF = True  # computes in fp32 all the same
MAPS = (torch.float32, torch.bfloat16, torch.float16)


def takes(x: Tensor, c: float | Tensor) -> bool:
    """Whether the kernels read such a map on such a manifold. A learned curvature has a gradient, which torch finds."""
    return isinstance(c, float) and x.dtype in MAPS and x.shape[1] <= WIDEST and x.is_contiguous()


def sums(x: Tensor, c: float) -> Pair:
    time, shares = _sums_op(_packed(x), c)
    return time, shares.sum(0)


def centre(x: Tensor, time: Tensor, mean: Tensor, h: Tensor, c: float) -> tuple[Seen, Tensor]:
    along, k, distance2, s, shares = _centre_op(_packed(x), time, mean, h, c)
    return Seen(time, along, k, distance2, s), shares.sum(0)


def restore(x: Tensor, seen: Seen, by: Channels, h: Tensor, c: float) -> tuple[Tensor, Lifted]:
    out, *lifted = _restore_op(_packed(x), seen.k, seen.s, by.mean, by.scale, by.bias, h, c)
    return out.view(x.shape), Lifted(*lifted)


def of_restore(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, by: Channels, h: Tensor, c: float
) -> tuple[Pair, Tensor]:
    points = (seen.k, seen.s, *lifted)
    of_w, of_along, shares = _of_restore_op(_packed(x), _packed(grad), *points, by.mean, by.scale, by.bias, h, c)
    return (of_w, of_along), shares.sum(0)


def of_centre(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, turned: Pair, by: Channels, h: Tensor, c: float
) -> tuple[Pair, Tensor]:
    points = (*seen, lifted.length, *turned)
    of_x, of_mu, shares = _of_centre_op(_packed(x), _packed(grad), *points, *by, h, by.mean @ by.mean, c)
    return (of_x, of_mu), torch.cat((shares.sum(0), shares.new_zeros(3)))  # those of a learned c are not taken


def of_points(
    x: Tensor, grad: Tensor, seen: Seen, lifted: Lifted, turned: Pair, moved: Pair, by: Channels, constant: Tensor,
    of_rise: Tensor,
) -> Tensor:  # fmt: skip
    points = (seen.time, seen.k, seen.s, lifted.length, *turned, *moved)
    return _of_points_op(_packed(x), _packed(grad), *points, *by, constant, of_rise).view(x.shape)


def _packed(x: Tensor) -> Tensor:
    """Rows (N, C) or planes (B, C, S), contiguous: a view of what `takes` allows."""
    return (x if x.dim() == 2 else x.flatten(2)).contiguous()


def _sizes(x: Tensor) -> tuple[int, ...]:
    """What all kernels end with: pictures, points of a picture, channels, whether they are planes, R, BLOCK.

    Rows are one picture.
    """
    channels, planes = x.shape[1], x.dim() == 3
    points = (x.shape[0], x.shape[2]) if planes else (1, x.shape[0])
    return *points, channels, int(planes), max(1, TILE // block_of(channels)), block_of(channels)


def _points(x: Tensor, count: int) -> list[Tensor]:
    """New numbers of points."""
    return [torch.empty(x.numel() // x.shape[1], dtype=torch.float32, device=x.device) for _ in range(count)]


def _shares(x: Tensor, width: int) -> Tensor:
    return torch.empty((PROGRAMS, width), dtype=torch.float32, device=x.device)


# -- parts of kernels -------------------------------------------------------------------------------------------------


@triton.jit
def _place(tile, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):
    """Of a tile: where its points are (R) and its numbers (R, BLOCK), and which of them there are."""
    across = tl.cdiv(size, R)
    picture = (tile // across).to(tl.int64)
    r = (tile % across) * R + tl.arange(0, R)
    i = tl.arange(0, BLOCK)
    there = r < size
    if PLANES:
        at = picture * channels * size + i[None, :] * size + r[:, None]
    else:
        at = (picture * size + r)[:, None] * channels + i[None, :]
    return picture * size + r, at, there, there[:, None] & (i < channels)[None, :]


@triton.jit
def _asinhc(q):
    """The series of geometry/_scalar.py where q is small: a logarithm has few digits left there."""
    low = 1.0 + q * (-1.0 / 6 + q * (3.0 / 40 + q * (-5.0 / 112 + q * (35.0 / 1152 + q * (-63.0 / 2816 + q * (
        231.0 / 13312 + q * (-143.0 / 10240 + q * (6435.0 / 557056))))))))  # fmt: skip
    far = tl.maximum(q, 0.25)
    t = tl.sqrt(far)
    return tl.where(q < 0.25, low, tl.log(t + tl.sqrt(1.0 + far)) / t)


@triton.jit
def _asinhc_slope(q, s):
    low = -1.0 / 6 + q * (3.0 / 20 + q * (-15.0 / 112 + q * (35.0 / 288 + q * (-315.0 / 2816 + q * (
        693.0 / 6656 + q * (-1001.0 / 10240 + q * (6435.0 / 69632)))))))  # fmt: skip
    far = tl.maximum(q, 0.1)
    return tl.where(q < 0.1, low, (1.0 / tl.sqrt(1.0 + far) - s) / (2.0 * far))


@triton.jit
def _sinhc_coshm1(q):
    low = 1.0 + q * (1.0 / 6 + q * (1.0 / 120 + q * (1.0 / 5040 + q * (1.0 / 362880 + q * (1.0 / 39916800)))))
    rise = q * (1.0 / 2 + q * (1.0 / 24 + q * (1.0 / 720 + q * (1.0 / 40320 + q * (1.0 / 3628800)))))
    t = tl.sqrt(tl.maximum(q, 1.0))
    grown = tl.exp(t)
    shrunk = 1.0 / grown
    length = tl.where(q < 1.0, low, (grown - shrunk) / (2.0 * t))
    return length, tl.where(q < 1.0, rise, (grown + shrunk) / 2.0 - 1.0)


@triton.jit
def _sinhc_slope(q, length, rise):
    low = 1.0 / 6 + q * (1.0 / 60 + q * (1.0 / 1680 + q * (1.0 / 90720 + q * (1.0 / 7983360))))
    return tl.where(q < 1.0, low, (1.0 + rise - length) / (2.0 * tl.maximum(q, 1.0)))


@triton.jit
def _channel(ptr, channels, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    return tl.load(ptr + i, mask=i < channels, other=0.0)[None, :]


@triton.jit
def _map(ptr, at, live):
    return tl.load(ptr + at, mask=live, other=0.0).to(tl.float32)


@triton.jit
def _of_point(ptr, point, there):
    return tl.load(ptr + point, mask=there, other=0.0)[:, None]


@triton.jit
def _of_v(v, grad, of_w, length, of_along, scale, bias, shift):
    """The gradient of v, from that of the output."""
    return scale * (of_w * (scale * v) + length * grad + of_along * bias) + shift * v


# -- forward ----------------------------------------------------------------------------------------------------------


@triton.jit
def _sums(
    x_ptr, time_ptr, shares_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    total = tl.zeros((R, BLOCK), tl.float32)
    rises = tl.zeros((R, 1), tl.float32)
    inverses = tl.zeros((R, 1), tl.float32)
    for tile in range(tl.program_id(0), pictures * tl.cdiv(size, R), tl.num_programs(0)):
        point, at, there, live = _place(tile, size, channels, PLANES, R, BLOCK)
        x = _map(x_ptr, at, live)
        square = tl.sum(x * x, 1)[:, None]
        time = tl.sqrt(1.0 / C + square)
        total += x
        rises += square / (time + 1.0 / C**0.5)
        inverses += tl.where(there[:, None], 1.0 / time, 0.0)
        tl.store(time_ptr + point[:, None], time, mask=there[:, None])
    i = tl.arange(0, BLOCK)
    mine = shares_ptr + tl.program_id(0) * (channels + 2)
    tl.store(mine + i, tl.sum(total, 0), mask=i < channels)
    tl.store(mine + channels, tl.sum(rises))
    tl.store(mine + channels + 1, tl.sum(inverses))


@operator("centred_sums")
def _sums_op(x: Tensor, c: float) -> tuple[Tensor, Tensor]:
    (time,), shares = _points(x, 1), _shares(x, x.shape[1] + 2)
    launch(_sums)[(PROGRAMS,)](x, time, shares, *_sizes(x), c, num_warps=WARPS)
    return time, shares


@triton.jit
def _centre(
    x_ptr, time_ptr, mean_ptr, h_ptr, along_ptr, k_ptr, distance2_ptr, s_ptr, shares_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    total = tl.zeros((R, BLOCK), tl.float32)
    mean, h = _channel(mean_ptr, channels, BLOCK), tl.load(h_ptr)
    tiles = pictures * tl.cdiv(size, R)
    for index in range(tl.program_id(0), tiles, tl.num_programs(0)):
        point, at, there, live = _place(tiles - 1 - index, size, channels, PLANES, R, BLOCK)
        x = _map(x_ptr, at, live)
        along = tl.sum(mean * x, 1)[:, None]
        k = C**0.5 * _of_point(time_ptr, point, there) - C * h * along
        y = x - k * mean
        distance2 = tl.sum(y * y, 1)[:, None]
        s = _asinhc(C * distance2)
        v = s * y
        total += v * v
        at, there = point[:, None], there[:, None]
        tl.store(along_ptr + at, along, mask=there)
        tl.store(k_ptr + at, k, mask=there)
        tl.store(distance2_ptr + at, distance2, mask=there)
        tl.store(s_ptr + at, s, mask=there)
    i = tl.arange(0, BLOCK)
    tl.store(shares_ptr + tl.program_id(0) * channels + i, tl.sum(total, 0), mask=i < channels)


@operator("centred_centre")
def _centre_op(
    x: Tensor, time: Tensor, mean: Tensor, h: Tensor, c: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (along, k, distance2, s), shares = _points(x, 4), _shares(x, x.shape[1])
    made = (along, k, distance2, s, shares)
    launch(_centre)[(PROGRAMS,)](x, time, mean, h, *made, *_sizes(x), c, num_warps=WARPS)
    return made


@triton.jit
def _restore(
    x_ptr, k_ptr, s_ptr, mean_ptr, scale_ptr, bias_ptr, h_ptr, out_ptr, q_ptr, length_ptr, rise_ptr, along_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    mean, scale = _channel(mean_ptr, channels, BLOCK), _channel(scale_ptr, channels, BLOCK)
    bias, h = _channel(bias_ptr, channels, BLOCK), tl.load(h_ptr)
    for tile in range(tl.program_id(0), pictures * tl.cdiv(size, R), tl.num_programs(0)):
        point, at, there, live = _place(tile, size, channels, PLANES, R, BLOCK)
        w = scale * _of_point(s_ptr, point, there) * (_map(x_ptr, at, live) - _of_point(k_ptr, point, there) * mean)
        q = C * tl.sum(w * w, 1)[:, None]
        along = tl.sum(bias * w, 1)[:, None]
        length, rise = _sinhc_coshm1(q)
        tl.store(out_ptr + at, length * w + (1.0 + rise + C * h * length * along) * bias, mask=live)
        at, there = point[:, None], there[:, None]
        tl.store(q_ptr + at, q, mask=there)
        tl.store(length_ptr + at, length, mask=there)
        tl.store(rise_ptr + at, rise, mask=there)
        tl.store(along_ptr + at, along, mask=there)


@operator("centred_restore")
def _restore_op(
    x: Tensor, k: Tensor, s: Tensor, mean: Tensor, scale: Tensor, bias: Tensor, h: Tensor, c: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    out, (q, length, rise, along) = torch.empty_like(x), _points(x, 4)
    made = (out, q, length, rise, along)
    launch(_restore)[(PROGRAMS,)](x, k, s, mean, scale, bias, h, *made, *_sizes(x), c, num_warps=WARPS)
    return made


# -- backward ---------------------------------------------------------------------------------------------------------


@triton.jit
def _of_restore(
    x_ptr, grad_ptr, k_ptr, s_ptr, q_ptr, length_ptr, rise_ptr, along_ptr, mean_ptr, scale_ptr, bias_ptr, h_ptr,
    of_w_ptr, of_along_ptr, shares_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    mean, scale = _channel(mean_ptr, channels, BLOCK), _channel(scale_ptr, channels, BLOCK)
    bias, h = _channel(bias_ptr, channels, BLOCK), tl.load(h_ptr)
    of_bias = tl.zeros((R, BLOCK), tl.float32)
    of_scale = tl.zeros((R, BLOCK), tl.float32)
    by_h = tl.zeros((R, 1), tl.float32)
    by_q = tl.zeros((R, 1), tl.float32)
    tiles = pictures * tl.cdiv(size, R)
    for index in range(tl.program_id(0), tiles, tl.num_programs(0)):
        point, at, there, live = _place(tiles - 1 - index, size, channels, PLANES, R, BLOCK)
        v = _of_point(s_ptr, point, there) * (_map(x_ptr, at, live) - _of_point(k_ptr, point, there) * mean)
        grad = _map(grad_ptr, at, live)
        w = scale * v
        q, along = _of_point(q_ptr, point, there), _of_point(along_ptr, point, there)
        length, rise = _of_point(length_ptr, point, there), _of_point(rise_ptr, point, there)
        of_k = tl.sum(bias * grad, 1)[:, None]
        of_length = tl.sum(grad * w, 1)[:, None] + C * h * of_k * along
        of_q = _sinhc_slope(q, length, rise) * of_length + of_k * length / 2.0
        of_w = 2.0 * C * of_q
        of_along = C * h * of_k * length
        of_bias += (1.0 + rise + C * h * length * along) * grad + of_along * w
        of_scale += (of_w * w + length * grad + of_along * bias) * v
        by_h += of_k * length * along
        by_q += of_q * q
        tl.store(of_w_ptr + point[:, None], of_w, mask=there[:, None])
        tl.store(of_along_ptr + point[:, None], of_along, mask=there[:, None])
    i = tl.arange(0, BLOCK)
    mine = shares_ptr + tl.program_id(0) * (2 * channels + 2)
    tl.store(mine + i, tl.sum(of_bias, 0), mask=i < channels)
    tl.store(mine + channels + i, tl.sum(of_scale, 0), mask=i < channels)
    tl.store(mine + 2 * channels, tl.sum(by_h))
    tl.store(mine + 2 * channels + 1, tl.sum(by_q))


@operator("centred_of_restore")
def _of_restore_op(
    x: Tensor, grad: Tensor, k: Tensor, s: Tensor, q: Tensor, length: Tensor, rise: Tensor, along: Tensor,
    mean: Tensor, scale: Tensor, bias: Tensor, h: Tensor, c: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    (of_w, of_along), shares = _points(x, 2), _shares(x, 2 * x.shape[1] + 2)
    read, made = (x, grad, k, s, q, length, rise, along, mean, scale, bias, h), (of_w, of_along, shares)
    launch(_of_restore)[(PROGRAMS,)](*read, *made, *_sizes(x), c, num_warps=WARPS)
    return made


@triton.jit
def _of_centre(
    x_ptr, grad_ptr, time_ptr, along_ptr, k_ptr, distance2_ptr, s_ptr, length_ptr, of_w_ptr, of_along_ptr,
    mean_ptr, scale_ptr, bias_ptr, shift_ptr, h_ptr, mean2_ptr, of_x_ptr, of_mu_ptr, shares_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    mean, scale = _channel(mean_ptr, channels, BLOCK), _channel(scale_ptr, channels, BLOCK)
    bias, shift = _channel(bias_ptr, channels, BLOCK), _channel(shift_ptr, channels, BLOCK)
    h, mean2 = tl.load(h_ptr), tl.load(mean2_ptr)
    of_mean = tl.zeros((R, BLOCK), tl.float32)
    by_k2 = tl.zeros((R, 1), tl.float32)
    by_along = tl.zeros((R, 1), tl.float32)
    for tile in range(tl.program_id(0), pictures * tl.cdiv(size, R), tl.num_programs(0)):
        point, at, there, live = _place(tile, size, channels, PLANES, R, BLOCK)
        x, grad = _map(x_ptr, at, live), _map(grad_ptr, at, live)
        k, s = _of_point(k_ptr, point, there), _of_point(s_ptr, point, there)
        along, time = _of_point(along_ptr, point, there), tl.load(time_ptr + point, mask=there, other=1.0)[:, None]
        of_w, of_along = _of_point(of_w_ptr, point, there), _of_point(of_along_ptr, point, there)
        y = x - k * mean
        gv = _of_v(s * y, grad, of_w, _of_point(length_ptr, point, there), of_along, scale, bias, shift)
        of_scaled = _asinhc_slope(C * _of_point(distance2_ptr, point, there), s) * tl.sum(gv * y, 1)[:, None]
        twice = 2.0 * C * of_scaled
        of_k = -(s * tl.sum(gv * mean, 1)[:, None] + twice * (along - k * mean2))
        of_mu = twice * k + C * h * of_k
        of_mean -= k * s * gv + of_mu * x
        by_k2 += twice * k * k
        by_along += along * of_k
        tl.store(of_x_ptr + point[:, None], twice + C**0.5 * of_k / time, mask=there[:, None])
        tl.store(of_mu_ptr + point[:, None], of_mu, mask=there[:, None])
    i = tl.arange(0, BLOCK)
    mine = shares_ptr + tl.program_id(0) * (channels + 2)
    tl.store(mine + i, tl.sum(of_mean, 0), mask=i < channels)
    tl.store(mine + channels, tl.sum(by_k2))
    tl.store(mine + channels + 1, tl.sum(by_along))


@operator("centred_of_centre")
def _of_centre_op(
    x: Tensor, grad: Tensor, time: Tensor, along: Tensor, k: Tensor, distance2: Tensor, s: Tensor, length: Tensor,
    of_w: Tensor, of_along: Tensor, mean: Tensor, scale: Tensor, bias: Tensor, shift: Tensor, h: Tensor, mean2: Tensor,
    c: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    (of_x, of_mu), shares = _points(x, 2), _shares(x, x.shape[1] + 2)
    read = (x, grad, time, along, k, distance2, s, length, of_w, of_along, mean, scale, bias, shift, h, mean2)
    made = (of_x, of_mu, shares)
    launch(_of_centre)[(PROGRAMS,)](*read, *made, *_sizes(x), c, num_warps=WARPS)
    return made


@triton.jit
def _of_points(
    x_ptr, grad_ptr, time_ptr, k_ptr, s_ptr, length_ptr, of_w_ptr, of_along_ptr, of_x_ptr, of_mu_ptr,
    mean_ptr, scale_ptr, bias_ptr, shift_ptr, constant_ptr, of_rise_ptr, dx_ptr,
    pictures, size, channels, PLANES: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    mean, scale = _channel(mean_ptr, channels, BLOCK), _channel(scale_ptr, channels, BLOCK)
    bias, shift = _channel(bias_ptr, channels, BLOCK), _channel(shift_ptr, channels, BLOCK)
    constant, of_rise = _channel(constant_ptr, channels, BLOCK), tl.load(of_rise_ptr)
    tiles = pictures * tl.cdiv(size, R)
    for index in range(tl.program_id(0), tiles, tl.num_programs(0)):
        point, at, there, live = _place(tiles - 1 - index, size, channels, PLANES, R, BLOCK)
        x, grad = _map(x_ptr, at, live), _map(grad_ptr, at, live)
        k, s = _of_point(k_ptr, point, there), _of_point(s_ptr, point, there)
        time = tl.load(time_ptr + point, mask=there, other=1.0)[:, None]
        of_w, of_along = _of_point(of_w_ptr, point, there), _of_point(of_along_ptr, point, there)
        v = s * (x - k * mean)
        gv = _of_v(v, grad, of_w, _of_point(length_ptr, point, there), of_along, scale, bias, shift)
        dx = s * gv + (_of_point(of_x_ptr, point, there) + of_rise / time) * x
        tl.store(dx_ptr + at, dx - _of_point(of_mu_ptr, point, there) * mean + constant, mask=live)


@operator("centred_of_points")
def _of_points_op(
    x: Tensor, grad: Tensor, time: Tensor, k: Tensor, s: Tensor, length: Tensor, of_w: Tensor, of_along: Tensor,
    of_x: Tensor, of_mu: Tensor, mean: Tensor, scale: Tensor, bias: Tensor, shift: Tensor, constant: Tensor,
    of_rise: Tensor,
) -> Tensor:  # fmt: skip
    dx = torch.empty_like(x)
    read = (x, grad, time, k, s, length, of_w, of_along, of_x, of_mu, mean, scale, bias, shift, constant, of_rise)
    launch(_of_points)[(PROGRAMS,)](*read, dx, *_sizes(x), num_warps=WARPS)
    return dx
