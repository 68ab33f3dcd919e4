"""Batch normalisation around the centroid of a batch, on free coordinates (B, C, …), with its gradient.

    z, e: the mean of x and of its rise;  μ = n·z, n = 1/√(-c<z, z>)
    y = translate(x, -μ) = x - k·μ,  k = √c·time(x) - c·h·μ·x,  h = 1/(1 + √c·time(μ))
    v = lower(y) = s·y,  s = asinhc(c|y|²)
    w = v·γ/√(var + ε),  var the mean of v² for each coordinate
    lift(w) = l·w,  l = sinhc(q), q = c|w|²
    translate(l·w, β) = l·w + k'·β,  k' = cosh(√q) + c·h'·l·β·w,  h' = 1/(1 + √c·time(β))

Each step needs sums over the whole batch. So the map is read three times forward, and three times backward with its
gradient; autograd would read and write it 30 times. Nothing as large as the map is kept but the map itself: what is
between is computed again from a few numbers of every point.

The six passes have three forms: torch's (`by_torch.py`), which every device and compiler takes, and compiled ones for
the CPU (`on_cpu.py`) and for CUDA (`on_cuda.py`).
"""

import functools
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from horosphere.geometry.manifold import HALF
from horosphere.nn.centred import by_torch
from horosphere.nn.centred.numbers import Channels, Lifted, Seen
from horosphere.nn.once import once

NO_SECOND = 'the centred batch norm has no second derivative in training; use form="free" or eval()'
ON_CPU = find_spec("numba") is not None
ON_CUDA = torch.cuda.is_available() and find_spec("triton") is not None


def batch_norm_of_batch(
    u: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The batch normalised by its own centroid and variance; those two, and how many points there are.

    (B, C, …), (C,), (C,) -> (B, C, …), (C,), (C,), ()
    """
    # channels-last maps as rows: of other layouts than the plain one torch.compile copies the gradient
    in_rows = u.dim() == 4 and u.is_contiguous(memory_format=torch.channels_last)
    x = u.movedim(1, -1).flatten(0, -2) if in_rows else u
    with torch.autocast(u.device.type, enabled=False):
        weight, bias = (t.float() if t.dtype in HALF else t for t in (weight, bias))
        x = x if x.dtype not in HALF or passes(x, c).READS_HALF else x.float()
        y, mean, variance, count = _Centred.apply(x, weight, bias, c, eps)
    y = y.unflatten(0, (len(u), *u.shape[2:])).movedim(-1, 1) if in_rows else y
    return y.to(u.dtype), mean, variance, count


class _Centred(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        form, root = passes(x, c), c**0.5
        time, total = form.sums(x, c)
        inverse_times = total[-1]
        sums = over_processes(torch.cat((total[:-1], total.new_full((1,), x.numel() // x.shape[1]))))
        count = sums[-1]
        z, e = sums[:-2] / count, sums[-2] / count
        above = (2 * root * e + c * (e.square() - z @ z)).clamp_min(0)
        n = (1 + above).rsqrt()
        mean = n * z
        seen, squares = form.centre(x, time, mean, _half(mean, c), c)
        variance = over_processes(squares) / count
        inverse = (variance + eps).rsqrt()
        scale = weight * inverse
        y, lifted = form.restore(x, seen, Channels(mean, scale, bias, scale), _half(bias, c), c)
        ctx.c = None if isinstance(c, Tensor) else c
        kept = (z, e, above, n, mean, inverse_times, weight, bias, inverse, scale, count)
        ctx.save_for_backward(x, *seen, *lifted, *kept, c if isinstance(c, Tensor) else None)
        ctx.mark_non_differentiable(mean, variance, count)
        return y.view_as(x), mean, variance, count  # a view: as in geometry/lorentz.py, for torch.compile

    @staticmethod
    @functools.partial(once, refusal=NO_SECOND)
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, *points = ctx.saved_tensors[:10]
        seen, lifted = Seen(*points[:5]), Lifted(*points[5:])
        z, e, above, n, mean, inverse_times, weight, bias, inverse, scale, count, tensor_c = ctx.saved_tensors[10:]
        c = ctx.c if tensor_c is None else tensor_c
        form, root, channels = passes(x, c), c**0.5, len(z)

        h, bias_time = _half(bias, c), _time(bias, c)
        by_channel = Channels(mean, scale, bias, scale)
        turned, total = form.of_restore(x, grad, seen, lifted, by_channel, h, c)
        by_h, by_q = total[-2:]
        of_bias = total[:channels] - bias * (c * h * h * root / bias_time * by_h)
        of_scale = total[channels:-2]
        of_variance = over_processes(-0.5 * of_scale * weight * inverse**3)

        h, mean_time = _half(mean, c), _time(mean, c)
        by_channel = Channels(mean, scale, bias, 2 * of_variance / count)
        moved, total = form.of_centre(x, grad, seen, lifted, turned, by_channel, h, c)
        by_k2, by_along, by_distance2, by_time, by_inverse = total[channels:]
        of_mean = total[:channels] + mean * (by_k2 + c * h * h * root / mean_time * by_along)
        common = over_processes(of_mean)  # every process moved the centroid of all
        is_open = (above > 0).to(n.dtype)
        of_n = (common @ z) * n**3 * is_open
        of_z = n * common + c * of_n * z
        of_rise = -of_n * (root + c * e) / count
        of_x = form.of_points(x, grad, seen, lifted, turned, moved, by_channel, of_z / count, of_rise)

        of_c = None
        if tensor_c is not None and ctx.needs_input_grad[3]:
            of_bias_h, of_h = _half_by_c(bias, c), _half_by_c(mean, c)
            of_c = by_q / c + by_h * (_half(bias, c) + c * of_bias_h)
            of_c = of_c + by_distance2 + by_time / (2 * root) - by_inverse * root / (2 * c * c)
            of_c = of_c - by_along * (h + c * of_h)
            of_c = of_c - 0.5 * (of_mean @ z) * n**3 * is_open * (e / root + e.square() - z @ z)
            points_here = x.numel() // x.shape[1]
            of_c = of_c + of_rise * (points_here / (2 * c * root) - inverse_times / (2 * c * c))
            of_c = of_c.reshape(c.shape)
        return of_x.view_as(x), of_scale * inverse, of_bias, of_c, None


def passes(x: Tensor, c: float | Tensor) -> ModuleType:
    """The form that suits a map."""
    if ON_CPU and x.device.type == "cpu" and not torch.compiler.is_compiling():
        from horosphere.nn.centred import on_cpu

        return on_cpu if on_cpu.takes(x) else by_torch
    if ON_CUDA and x.is_cuda:
        from horosphere.nn.centred import on_cuda

        return on_cuda if on_cuda.takes(x, c) else by_torch
    return by_torch


def over_processes(sums: Tensor) -> Tensor:
    """The sum over all processes; as it is where there is one."""
    if not several():
        return sums
    total = sums.clone()
    dist.all_reduce(total)
    return total


def several() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _time(a: Tensor, c: float | Tensor) -> Tensor:
    """Of a point (C,)."""
    return (1 / c + a @ a).sqrt()


def _half(a: Tensor, c: float | Tensor) -> Tensor:
    """h = 1/(1 + √c·time(a))"""
    return 1 / (1 + c**0.5 * _time(a, c))


def _half_by_c(a: Tensor, c: Tensor) -> Tensor:
    """Its derivative by c."""
    root, time = c**0.5, _time(a, c)
    return -_half(a, c).square() * (time / (2 * root) - root / (2 * c * c * time))
