"""The stream: norm, residual, and both in one pass; and rows of matrices, brought to length 1."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.geometry.slots import FLOOR
from horosphere.nn.kernels.launch import (
    PROGRAMS,
    apply,
    block_of,
    launch,
    on_device_of,
    operator,
    pointers_to,
    rows_of,
    warps_of,
)
from horosphere.nn.once import once

# -- norm: x -> [√(1/c + |y|²)/√n, y], y = γ·x/√(mean x² + ε) ----------------------------------------------------------


@triton.jit
def _norm_forward(x_ptr, weight_ptr, out_ptr, n, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr):
    """A program a row of x. weight: γ (n)."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = x * tl.where(live, tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / (n - 1) + EPS)
    time = tl.sqrt((1.0 / C + scale * scale * tl.sum(y * y, 0)) / n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, scale * y), mask=i < n)


@triton.jit
def _norm_backward(
    x_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dweight_ptr, rows, n,
    FORK: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_norm_forward`, from grad, that of its output. A program takes a share of the rows.

    fork: the gradient of x from elsewhere, added where FORK. dweight: one row for each program.
    """
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    weight = tl.where(live, tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    dweight = tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = index + tl.zeros((), tl.int64)
        x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        dtime = tl.load(grad_ptr + row * n).to(tl.float32)
        y = x * weight
        x2, y2, gy = tl.sum(x * x, 0), tl.sum(y * y, 0), tl.sum(grad * y, 0)
        scale = tl.rsqrt(x2 / (n - 1) + EPS)
        along = dtime * scale / (n * tl.sqrt((1.0 / C + scale * scale * y2) / n))  # the time pulls along y
        dy = grad + along * y
        dweight += scale * x * dy
        dx = scale * (weight * dy - x * (scale * scale * (gy + along * y2) / (n - 1)))
        if FORK:
            dx += tl.where(live, tl.load(fork_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        tl.store(dx_ptr + row * n + i, dx, mask=i < n)
    tl.store(dweight_ptr + tl.program_id(0) * n + i, dweight, mask=i < n)


@operator("norm_forward")
def _norm_forward_op(x: Tensor, weight: Tensor, c: float, eps: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    launch(_norm_forward)[(rows,)](x, weight, out, n, c, eps, block_of(n), num_warps=warps_of(block_of(n)))
    return out


@operator("norm_backward")
def _norm_backward_op(
    x: Tensor, weight: Tensor, grad: Tensor, fork: Tensor | None, c: float, eps: float
) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    pointers = pointers_to(x, weight, grad, fork, dx, shares)
    args = (*pointers, rows, n, fork is not None, c, eps, block_of(n))
    launch(_norm_backward)[(PROGRAMS,)](*args, num_warps=warps_of(block_of(n)))
    return dx, shares


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.c, ctx.eps = c, eps
        ctx.set_materialize_grads(False)
        return _norm_forward_op(x, weight, c, eps), x.view_as(x)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor | None, fork: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if grad is None:
            return fork, None, None, None
        fork = None if fork is None else rows_of(fork)
        dx, shares = _norm_backward_op(x, weight, rows_of(grad), fork, ctx.c, ctx.eps)
        return dx, shares.sum(0).to(weight.dtype), None, None


def norm(x: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The normed point, and x itself. Read x from here afterwards: the two gradients then meet in one pass."""
    if not torch.is_grad_enabled():
        return _norm_forward_op(rows_of(x), weight, c, eps).view(x.shape), x
    out, same = _Norm.apply(rows_of(x), weight, c, eps)
    return out.view(x.shape), same.view(x.shape)


# -- residual: s·N(x + w·y) --------------------------------------------------------------------------------------------


@triton.jit
def _joined(xx, yy, xy, w, C: tl.constexpr):
    """Times of x and y, -c<z, z> of z = x + w·y without a difference of large squares, and its floor.

    xx, yy, xy: |x|², |y|², x·y.
    """
    x_time, y_time = tl.sqrt(1.0 / C + xx), tl.sqrt(1.0 / C + yy)
    return x_time, y_time, 1.0 + w * w + 2.0 * w * C * (x_time * y_time - xy), (1.0 + w) * (1.0 + w)


@triton.jit
def _residual_forward(x_ptr, y_ptr, w_ptr, out_ptr, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """A program a row of x and y. w: one number. SCALE: s."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    w = tl.load(w_ptr).to(tl.float32)
    _, _, length2, floor = _joined(tl.sum(x * x, 0), tl.sum(y * y, 0), tl.sum(x * y, 0), w, C)
    tl.store(out_ptr + row * n + i, (x + w * y) * (SCALE * tl.rsqrt(tl.maximum(length2, floor))), mask=i < n)


@triton.jit
def _residual_backward(
    x_ptr, y_ptr, w_ptr, grad_ptr, dx_ptr, dy_ptr, dw_ptr, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The gradient of `_residual_forward`, from grad, that of its output. dw: one number a row."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    w = tl.load(w_ptr).to(tl.float32)
    yy, xy, gx, gy = tl.sum(y * y, 0), tl.sum(x * y, 0), tl.sum(grad * x, 0), tl.sum(grad * y, 0)
    x_time, y_time, length2, floor = _joined(tl.sum(x * x, 0), yy, xy, w, C)
    factor = SCALE * tl.rsqrt(tl.maximum(length2, floor))
    dlength2 = -0.5 * factor * (gx + w * gy) / tl.maximum(length2, floor)
    cone = tl.where(length2 > floor, 2.0 * C * dlength2, 0.0)
    dtime = cone * (x_time + w * y_time)
    dz = factor * grad - cone * (x + w * y)
    on_floor = tl.where(length2 > floor, 0.0, 2.0 * (1.0 + w) * dlength2)
    dw = factor * gy - cone * (xy + w * yy) + dtime * y_time + on_floor
    tl.store(dx_ptr + row * n + i, dz + dtime / x_time * x, mask=i < n)
    tl.store(dy_ptr + row * n + i, w * (dz + dtime / y_time * y), mask=i < n)
    tl.store(dw_ptr + row, dw)


@operator("residual_forward")
def _residual_forward_op(x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    block = block_of(n)
    launch(_residual_forward)[(rows,)](x, y, w, out, n, scale, c, block, num_warps=warps_of(block))
    return out


@operator("residual_backward")
def _residual_backward_op(
    x: Tensor, y: Tensor, w: Tensor, grad: Tensor, scale: float, c: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    dy = torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((rows,), dtype=torch.float32, device=x.device)
    block = block_of(n)
    launch(_residual_backward)[(rows,)](x, y, w, grad, dx, dy, dw, n, scale, c, block, num_warps=warps_of(block))
    return dx, dy, dw


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
        ctx.save_for_backward(x, y, w)
        ctx.scale, ctx.c = scale, c
        return _residual_forward_op(x, y, w, scale, c)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, w = ctx.saved_tensors
        dx, dy, dw = _residual_backward_op(x, y, w, rows_of(grad), ctx.scale, ctx.c)
        return dx, dy, dw.sum().to(w.dtype).view(1), None, None


def residual(x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
    """scale·N(x + w·y).   (..., n), (..., n), (1) -> (..., n)"""
    out: Tensor = apply(_Residual, _residual_forward_op, rows_of(x), rows_of(y), w, scale, c)
    return out.view(x.shape)


# -- residual and norm in one pass -------------------------------------------------------------------------------------


@triton.jit
def _add(a0, a1, a2, a3, a4, a5, a6, a7, a8, b0, b1, b2, b3, b4, b5, b6, b7, b8):
    """Nine sums at once, for `tl.reduce`."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7, a8 + b8


@triton.jit
def _residual_norm_forward(
    x_ptr, y_ptr, w_ptr, weight_ptr, joined_ptr, out_ptr, n,
    SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program a row of x and y. w: one number; weight: γ of the norm (n). joined: the residual; out: its norm."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    w = tl.load(w_ptr).to(tl.float32)
    z = x + w * y
    normed = z * tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    xx, yy, xy, norm2 = tl.sum(x * x, 0), tl.sum(y * y, 0), tl.sum(x * y, 0), tl.sum(normed * normed, 0)
    _, _, length2, floor = _joined(xx, yy, xy, w, C)
    factor = SCALE * tl.rsqrt(tl.maximum(length2, floor))
    scale = factor * tl.rsqrt((xx + 2.0 * w * xy + w * w * yy) * factor * factor / (n - 1) + EPS)
    time = tl.sqrt((1.0 / C + scale * scale * norm2) / n)
    tl.store(joined_ptr + row * n + i, factor * z, mask=i < n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, scale * normed), mask=i < n)


@triton.jit
def _residual_norm_backward(
    x_ptr, y_ptr, w_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dy_ptr, dw_ptr, dweight_ptr, rows, n,
    SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_residual_norm_forward`, from grad of its norm and fork of its residual.

    A program takes a share of the rows; dw and dweight have one row for each program.
    With z = x + w·y, joined = f·z and normed = k·γ·z, all sums are of products of x, y, grad and fork: one round.
    """
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    w = tl.load(w_ptr).to(tl.float32)
    weight = tl.where(live, tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dw = 0.0
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = index + tl.zeros((), tl.int64)
        x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        fork = tl.where(live, tl.load(fork_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        dtime_out = tl.load(grad_ptr + row * n).to(tl.float32)
        z = x + w * y
        weighed = weight * weight * z
        pulled = grad * weight
        products = (x * x, y * y, x * y, z * weighed, y * weighed, pulled * z, pulled * y, fork * z, fork * y)
        # all at once: the warps of a row meet once
        xx, yy, xy, zwz, ywz, gz, gy, fz, fy = tl.reduce(products, 0, _add)
        zz, zy = xx + 2.0 * w * xy + w * w * yy, xy + w * yy
        x_time, y_time, length2, floor = _joined(xx, yy, xy, w, C)
        factor = SCALE * tl.rsqrt(tl.maximum(length2, floor))
        scale = tl.rsqrt(zz * factor * factor / (n - 1) + EPS)
        k = factor * scale
        along = dtime_out * k / (n * tl.sqrt((1.0 / C + k * k * zwz) / n))  # the time pulls along normed
        dweight += k * z * (grad + along * weight * z)
        # joined's gradient is scale·(γ·grad + along·γ²z) - back·z + fork
        back = scale * k * k * (gz + along * zwz) / (n - 1)
        dz_sum = scale * (gz + along * zwz) - back * zz + fz
        dlength2 = -0.5 * factor * dz_sum / tl.maximum(length2, floor)
        cone = tl.where(length2 > floor, 2.0 * C * dlength2, 0.0)
        dtime = cone * (x_time + w * y_time)
        dz = factor * (scale * (weight * grad + along * weighed) + fork) - (factor * back + cone) * z
        dw += factor * (scale * (gy + along * ywz) - back * zy + fy) - cone * zy + dtime * y_time
        dw += tl.where(length2 > floor, 0.0, 2.0 * (1.0 + w) * dlength2)
        tl.store(dx_ptr + row * n + i, dz + dtime / x_time * x, mask=i < n)
        tl.store(dy_ptr + row * n + i, w * (dz + dtime / y_time * y), mask=i < n)
    tl.store(dweight_ptr + tl.program_id(0) * n + i, dweight, mask=i < n)
    tl.store(dw_ptr + tl.program_id(0), dw)


@operator("residual_norm_forward")
def _residual_norm_forward_op(
    x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float
) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    out, joined = (torch.empty((rows, n), dtype=x.dtype, device=x.device) for _ in range(2))
    block = block_of(n)
    args = (x, y, w, weight, joined, out, n, scale, c, eps, block)
    launch(_residual_norm_forward)[(rows,)](*args, num_warps=warps_of(block))
    return out, joined


@operator("residual_norm_backward")
def _residual_norm_backward_op(
    x: Tensor, y: Tensor, w: Tensor, weight: Tensor, grad: Tensor, fork: Tensor, scale: float, c: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    dy = torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((PROGRAMS,), dtype=torch.float32, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    block = block_of(n)
    args = (x, y, w, weight, grad, fork, dx, dy, dw, shares, rows, n, scale, c, eps, block)
    launch(_residual_norm_backward)[(PROGRAMS,)](*args, num_warps=1 if block <= 512 else 4)
    return dx, dy, dw, shares


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y, w, weight)
        ctx.scale, ctx.c, ctx.eps = scale, c, eps
        return _residual_norm_forward_op(x, y, w, weight, scale, c, eps)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor, fork: Tensor) -> tuple[Tensor | None, ...]:
        x, y, w, weight = ctx.saved_tensors
        dx, dy, dw, shares = _residual_norm_backward_op(
            x, y, w, weight, rows_of(grad), rows_of(fork), ctx.scale, ctx.c, ctx.eps
        )
        return dx, dy, dw.sum().to(w.dtype).view(1), shares.sum(0).to(weight.dtype), None, None, None


def residual_norm(
    x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float
) -> tuple[Tensor, Tensor]:
    """The norm of the residual, and the residual itself."""
    out, joined = apply(_ResidualNorm, _residual_norm_forward_op, rows_of(x), rows_of(y), w, weight, scale, c, eps)
    return out.view(x.shape), joined.view(x.shape)


# -- a share of the way, and the norm: z = x + step∘(y/rms(y) - x) -----------------------------------------------------


@triton.jit
def _towards(x, y, step, n, FLOOR: tl.constexpr, C: tl.constexpr):
    """z, |z|², and the factor of y."""
    times: tl.constexpr = 1 if C > 0 else 0
    to_y = tl.rsqrt(tl.sum(y * y, 0) / (n - times) + FLOOR)
    z = x + step * (to_y * y - x)
    return z, tl.sum(z * z, 0), to_y


@triton.jit
def _towards_norm_forward(
    x_ptr, y_ptr, step_ptr, weight_ptr, joined_ptr, out_ptr, n,
    FLOOR: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program a row of x and y. step, weight: γ of the norm (n). joined: z, on the sphere a point; out: its norm."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = i < n
    if C > 0:
        live = live & (i > 0)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    step = tl.load(step_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    z, z2, _ = _towards(x, y, step, n, FLOOR, C)
    if C < 0:
        z = z * tl.rsqrt(z2 / n + FLOOR)
        out = weight * z
        out = out * tl.rsqrt(tl.sum(out * out, 0) / n + EPS)
    elif C > 0:
        out = weight * z * tl.rsqrt(z2 / (n - 1) + EPS)
        out = tl.where(i == 0, tl.sqrt((1.0 / C + tl.sum(out * out, 0)) / n), out)
    else:
        out = weight * z * tl.rsqrt(z2 / n + EPS)
    tl.store(joined_ptr + row * n + i, z, mask=i < n)
    tl.store(out_ptr + row * n + i, out, mask=i < n)


@triton.jit
def _towards_norm_backward(
    x_ptr, y_ptr, step_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dy_ptr, dstep_ptr, dweight_ptr, rows, n,
    FLOOR: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_towards_norm_forward`, from grad of its norm and fork of its residual.

    A program takes a share of the rows; dstep and dweight have one row for each program.
    """
    times: tl.constexpr = 1 if C > 0 else 0
    i = tl.arange(0, BLOCK)
    live = i < n
    if C > 0:
        live = live & (i > 0)
    step = tl.where(live, tl.load(step_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    weight = tl.where(live, tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    dstep = tl.zeros((BLOCK,), tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = index + tl.zeros((), tl.int64)
        x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        fork = tl.where(live, tl.load(fork_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        z, z2, to_y = _towards(x, y, step, n, FLOOR, C)
        if C < 0:
            to_z = tl.rsqrt(z2 / n + FLOOR)
            joined = to_z * z
            w = weight * joined
            scale = tl.rsqrt(tl.sum(w * w, 0) / n + EPS)
            dw = scale * (grad - w * (scale * scale * tl.sum(grad * w, 0) / n))
            dweight += joined * dw
            djoined = weight * dw + fork
            dz = to_z * (djoined - joined * (tl.sum(djoined * joined, 0) / n))
        else:
            w = weight * z
            scale = tl.rsqrt(z2 / (n - times) + EPS)
            dw = grad
            if C > 0:  # the time pulls along w
                dtime = tl.load(grad_ptr + row * n).to(tl.float32)
                dw += dtime * scale / (n * tl.sqrt((1.0 / C + scale * scale * tl.sum(w * w, 0)) / n)) * w
            dweight += scale * z * dw
            dz = scale * (weight * dw - z * (scale * scale * tl.sum(dw * w, 0) / (n - times))) + fork
        dstep += dz * (to_y * y - x)
        dy = step * dz
        dy = to_y * (dy - y * (to_y * to_y * tl.sum(dy * y, 0) / (n - times)))
        tl.store(dx_ptr + row * n + i, dz - step * dz, mask=i < n)
        tl.store(dy_ptr + row * n + i, dy, mask=i < n)
    tl.store(dstep_ptr + tl.program_id(0) * n + i, dstep, mask=i < n)
    tl.store(dweight_ptr + tl.program_id(0) * n + i, dweight, mask=i < n)


@operator("towards_norm_forward")
def _towards_norm_forward_op(
    x: Tensor, y: Tensor, step: Tensor, weight: Tensor, c: float, eps: float
) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    out, joined = (torch.empty((rows, n), dtype=x.dtype, device=x.device) for _ in range(2))
    block = block_of(n)
    args = (x, y, step, weight, joined, out, n, FLOOR, c, eps, block)
    launch(_towards_norm_forward)[(rows,)](*args, num_warps=warps_of(block))
    return out, joined


@operator("towards_norm_backward")
def _towards_norm_backward_op(
    x: Tensor, y: Tensor, step: Tensor, weight: Tensor, grad: Tensor, fork: Tensor, c: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx, dy = torch.empty_like(x), torch.empty_like(y)
    dstep, dweight = (torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device) for _ in range(2))
    block = block_of(n)
    args = (x, y, step, weight, grad, fork, dx, dy, dstep, dweight, rows, n, FLOOR, c, eps, block)
    launch(_towards_norm_backward)[(PROGRAMS,)](*args, num_warps=1 if block <= 512 else 4)
    return dx, dy, dstep, dweight


class _TowardsNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, step: Tensor, weight: Tensor, c: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y, step, weight)
        ctx.c, ctx.eps = c, eps
        return _towards_norm_forward_op(x, y, step, weight, c, eps)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor, fork: Tensor) -> tuple[Tensor | None, ...]:
        x, y, step, weight = ctx.saved_tensors
        dx, dy, dstep, dweight = _towards_norm_backward_op(
            x, y, step, weight, rows_of(grad), rows_of(fork), ctx.c, ctx.eps
        )
        return dx, dy, dstep.sum(0).to(step.dtype), dweight.sum(0).to(weight.dtype), None, None


def towards_norm(x: Tensor, y: Tensor, step: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of x moved by a share of the way to the direction of y, and that itself (`Slots.towards`)."""
    out, joined = apply(_TowardsNorm, _towards_norm_forward_op, rows_of(x), rows_of(y), step, weight, c, eps)
    return out.view(x.shape), joined.view(x.shape)


# -- rows of matrices --------------------------------------------------------------------------------------------------


@triton.jit
def _unit_rows(weight_ptr, n, BLOCK: tl.constexpr):
    """A program a row, in place."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    w = tl.load(weight_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    size = tl.sqrt(tl.sum(w * w, 0))
    tl.store(weight_ptr + row * n + i, w / tl.where(size > 0.0, size, 1.0), mask=i < n)


def unit_rows(weight: Tensor) -> None:
    """Bring the rows of a matrix, or of several, to length 1.   (..., n)"""
    n = weight.shape[-1]
    with on_device_of(weight):
        _unit_rows[(weight.numel() // n,)](weight, n, block_of(n), num_warps=warps_of(block_of(n)))
