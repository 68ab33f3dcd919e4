"""Fused CUDA kernels for slots on the hyperboloid: one pass over memory where torch would make three or more.

Each computes what its torch form in `geometry/lorentz.py` or `nn/` computes (the tests hold them together), in fp32, in both directions; the
backward passes recompute what is cheaper to compute than to keep. Written for rows of slots: slot 0 is the time and never read.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from horosphere.geometry.manifold import HALF

F = TypeVar("F", bound=Callable[..., Any])
PROGRAMS = 2112  # for kernels that sum a gradient over rows: each program sums a share, torch sums the shares


_direct = threading.local()  # backward passes run in threads of their own


def _launch(kernel: Any) -> Any:
    return kernel if getattr(_direct, "on", False) else wrap_triton(kernel)


def _operator(name: str) -> Callable[[F], F]:
    """An operator that torch.compile can look into. In eager mode the plain function: the way through the dispatcher takes longer than a kernel."""

    def decorate(function: F) -> F:
        registered = triton_op(f"horosphere::{name}", mutates_args={})(function)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if torch.compiler.is_compiling():
                return registered(*args)
            _direct.on = True
            try:
                return function(*args)
            finally:
                _direct.on = False

        return call  # type: ignore[return-value]

    return decorate


def _block(n: int) -> int:
    return int(triton.next_power_of_2(n))


def _warps(block: int) -> int:
    """One warp for the rows of a stream: its sums need no barrier."""
    return min(16, max(1, block // 1024))


def _rows(x: Tensor) -> Tensor:
    """(..., n) as (N, n), contiguous. Never a view with other strides: torch.compile may hand a kernel another layout than it was traced with."""
    return x.contiguous().view(-1, x.shape[-1])


# -- norm: x -> [√(1/c + |y|²)/√n, y], y = γ·x/√(mean x² + ε) ------------------------------------------------------------


@triton.jit
def _norm_forward(x_ptr, weight_ptr, out_ptr, n, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = x * tl.where(live, tl.load(weight_ptr + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / (n - 1) + EPS)
    time = tl.sqrt((1.0 / C + scale * scale * tl.sum(y * y, 0)) / n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, scale * y), mask=i < n)


@triton.jit
def _norm_backward(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dweight_ptr, rows, n, FORK: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
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


@_operator("norm_forward")
def _norm_forward_op(x: Tensor, weight: Tensor, c: float, eps: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    _launch(_norm_forward)[(rows,)](x, weight, out, n, c, eps, _block(n), num_warps=_warps(_block(n)))
    return out


@_operator("norm_backward")
def _norm_backward_op(x: Tensor, weight: Tensor, grad: Tensor, fork: Tensor | None, c: float, eps: float) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    args = (x, weight, grad, x if fork is None else fork, dx, shares, rows, n, fork is not None, c, eps, _block(n))
    _launch(_norm_backward)[(PROGRAMS,)](*args, num_warps=_warps(_block(n)))
    return dx, shares


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.c, ctx.eps = c, eps
        ctx.set_materialize_grads(False)
        return _norm_forward_op(x, weight, c, eps), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, fork: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if grad is None:
            return fork, None, None, None
        dx, shares = _norm_backward_op(x, weight, _rows(grad), None if fork is None else _rows(fork), ctx.c, ctx.eps)
        return dx, shares.sum(0).to(weight.dtype), None, None


def norm(x: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The normed point, and x itself: what reads x after this takes it from here, and the two gradients meet in one pass."""
    out, same = _Norm.apply(_rows(x), weight, c, eps)
    return out.view(x.shape), same.view(x.shape)


# -- residual: s·N(x + w·y) ---------------------------------------------------------------------------------------------


@triton.jit
def _joined(xx, yy, xy, w, C: tl.constexpr):  # type: ignore[no-untyped-def]
    """Times of x and y, -c<z, z> of z = x + w·y without large squares to subtract, and its floor."""
    x_time, y_time = tl.sqrt(1.0 / C + xx), tl.sqrt(1.0 / C + yy)
    return x_time, y_time, 1.0 + w * w + 2.0 * w * C * (x_time * y_time - xy), (1.0 + w) * (1.0 + w)


@triton.jit
def _residual_forward(x_ptr, y_ptr, w_ptr, out_ptr, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.where(live, tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    y = tl.where(live, tl.load(y_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    w = tl.load(w_ptr).to(tl.float32)
    _, _, length2, floor = _joined(tl.sum(x * x, 0), tl.sum(y * y, 0), tl.sum(x * y, 0), w, C)
    tl.store(out_ptr + row * n + i, (x + w * y) * (SCALE * tl.rsqrt(tl.maximum(length2, floor))), mask=i < n)


@triton.jit
def _residual_backward(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, w_ptr, grad_ptr, dx_ptr, dy_ptr, dw_ptr, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
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
    dw = factor * gy - cone * (xy + w * yy) + dtime * y_time + tl.where(length2 > floor, 0.0, 2.0 * (1.0 + w) * dlength2)
    tl.store(dx_ptr + row * n + i, dz + dtime / x_time * x, mask=i < n)
    tl.store(dy_ptr + row * n + i, w * (dz + dtime / y_time * y), mask=i < n)
    tl.store(dw_ptr + row, dw)


@_operator("residual_forward")
def _residual_forward_op(x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    block = _block(n)
    _launch(_residual_forward)[(rows,)](x, y, w, out, n, scale, c, block, num_warps=_warps(block))
    return out


@_operator("residual_backward")
def _residual_backward_op(x: Tensor, y: Tensor, w: Tensor, grad: Tensor, scale: float, c: float) -> tuple[Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx, dy = torch.empty((rows, n), dtype=x.dtype, device=x.device), torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((rows,), dtype=torch.float32, device=x.device)
    block = _block(n)
    _launch(_residual_backward)[(rows,)](x, y, w, grad, dx, dy, dw, n, scale, c, block, num_warps=_warps(block))
    return dx, dy, dw


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
        ctx.save_for_backward(x, y, w)
        ctx.scale, ctx.c = scale, c
        return _residual_forward_op(x, y, w, scale, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, w = ctx.saved_tensors
        dx, dy, dw = _residual_backward_op(x, y, w, _rows(grad), ctx.scale, ctx.c)
        return dx, dy, dw.sum().to(w.dtype).view(1), None, None


def residual(x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
    out: Tensor = _Residual.apply(_rows(x), _rows(y), w, scale, c)
    return out.view(x.shape)


# -- residual and norm in one pass ---------------------------------------------------------------------------------------


@triton.jit
def _residual_norm_forward(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, w_ptr, weight_ptr, joined_ptr, out_ptr, n, SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
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
def _residual_norm_backward(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, w_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dy_ptr, dw_ptr, dweight_ptr, rows, n,
    SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """With z = x + w·y, joined = f·z and normed = k·γ·z every sum the gradient needs is one of products of x, y, grad and fork: one round."""
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
        xx, yy, xy = tl.sum(x * x, 0), tl.sum(y * y, 0), tl.sum(x * y, 0)
        zwz, ywz = tl.sum(z * weighed, 0), tl.sum(y * weighed, 0)
        gz, gy = tl.sum(grad * weight * z, 0), tl.sum(grad * weight * y, 0)
        fz, fy = tl.sum(fork * z, 0), tl.sum(fork * y, 0)
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


@_operator("residual_norm_forward")
def _residual_norm_forward_op(x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    out, joined = (torch.empty((rows, n), dtype=x.dtype, device=x.device) for _ in range(2))
    block = _block(n)
    args = (x, y, w, weight, joined, out, n, scale, c, eps, block)
    _launch(_residual_norm_forward)[(rows,)](*args, num_warps=_warps(block))
    return out, joined


@_operator("residual_norm_backward")
def _residual_norm_backward_op(
    x: Tensor, y: Tensor, w: Tensor, weight: Tensor, grad: Tensor, fork: Tensor, scale: float, c: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx, dy = torch.empty((rows, n), dtype=x.dtype, device=x.device), torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((PROGRAMS,), dtype=torch.float32, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    block = _block(n)
    args = (x, y, w, weight, grad, fork, dx, dy, dw, shares, rows, n, scale, c, eps, block)
    _launch(_residual_norm_backward)[(PROGRAMS,)](*args, num_warps=_warps(block))
    return dx, dy, dw, shares


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, y, w, weight)
        ctx.scale, ctx.c, ctx.eps = scale, c, eps
        return _residual_norm_forward_op(x, y, w, weight, scale, c, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, fork: Tensor) -> tuple[Tensor | None, ...]:
        x, y, w, weight = ctx.saved_tensors
        dx, dy, dw, shares = _residual_norm_backward_op(x, y, w, weight, _rows(grad), _rows(fork), ctx.scale, ctx.c, ctx.eps)
        return dx, dy, dw.sum().to(w.dtype).view(1), shares.sum(0).to(weight.dtype), None, None, None


def residual_norm(x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of the residual, and the residual itself."""
    out, joined = _ResidualNorm.apply(_rows(x), _rows(y), w, weight, scale, c, eps)
    return out.view(x.shape), joined.view(x.shape)


# -- gate: silu(s·g)·(s·u) with its time, s one factor a row (√(c/c_e) of an expert) --------------------------------------


@triton.jit
def _gate_forward(gate_ptr, up_ptr, factor_ptr, out_ptr, stride, n, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    gate = tl.where(live, tl.load(gate_ptr + row * stride + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    up = tl.where(live, tl.load(up_ptr + row * stride + (stride - n) + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    h = factor * gate * tl.sigmoid(factor * gate) * (factor * up)
    time = tl.sqrt((factor * factor / C + tl.sum(h * h, 0)) / n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, h), mask=i < n)


@triton.jit
def _gate_backward(  # type: ignore[no-untyped-def]
    gate_ptr, up_ptr, factor_ptr, grad_ptr, dgate_ptr, dup_ptr, dfactor_ptr, stride, n, JOINT: tl.constexpr, FACTOR: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    gate = tl.where(live, tl.load(gate_ptr + row * stride + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    up = tl.where(live, tl.load(up_ptr + row * stride + (stride - n) + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    dtime = tl.load(grad_ptr + row * n).to(tl.float32)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    x = factor * gate
    y = factor * up
    open = tl.sigmoid(x)
    h = x * open * y
    dtime = dtime / (n * tl.sqrt((factor * factor / C + tl.sum(h * h, 0)) / n))
    dh = grad + dtime * h
    dx = dh * y * open * (1.0 + x * (1.0 - open))
    dy = dh * x * open
    tl.store(dgate_ptr + row * stride + i, factor * dx, mask=i < n)
    if JOINT:  # one tensor under two names would be two tensors to torch.compile
        tl.store(dgate_ptr + row * stride + n + i, factor * dy, mask=i < n)
    else:
        tl.store(dup_ptr + row * stride + i, factor * dy, mask=i < n)
    if FACTOR:
        tl.store(dfactor_ptr + row, tl.sum(dx * gate + dy * up, 0) + dtime * factor / C)


def _gate_warps(block: int) -> int:
    return min(16, max(1, block // 512))


@_operator("gate_forward")
def _gate_forward_op(gate: Tensor, up: Tensor, c: float) -> Tensor:
    rows, n = gate.shape
    out = torch.empty((rows, n), dtype=gate.dtype, device=gate.device)
    _launch(_gate_forward)[(rows,)](gate, up, gate, out, n, n, False, c, _block(n), num_warps=_gate_warps(_block(n)))
    return out


@_operator("gate_backward")
def _gate_backward_op(gate: Tensor, up: Tensor, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    rows, n = gate.shape
    dgate, dup = torch.empty((rows, n), dtype=gate.dtype, device=gate.device), torch.empty((rows, n), dtype=gate.dtype, device=gate.device)
    args = (gate, up, gate, grad, dgate, dup, gate, n, n, False, False, c, _block(n))
    _launch(_gate_backward)[(rows,)](*args, num_warps=_gate_warps(_block(n)))
    return dgate, dup


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, c: float) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.c = c
        return _gate_forward_op(gate, up, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        return *_gate_backward_op(gate, up, _rows(grad), ctx.c), None


def gate(gate: Tensor, up: Tensor, c: float) -> Tensor:
    out: Tensor = _Gate.apply(_rows(gate), _rows(up), c)
    return out.view(gate.shape)


@_operator("gate_joint_forward")
def _gate_joint_forward_op(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    rows, n = joint.shape[0], joint.shape[1] // 2
    out = torch.empty((rows, n), dtype=joint.dtype, device=joint.device)
    args = (joint, joint, joint if factor is None else factor, out, 2 * n, n, factor is not None, c, _block(n))
    _launch(_gate_forward)[(rows,)](*args, num_warps=_gate_warps(_block(n)))
    return out


@_operator("gate_joint_backward")
def _gate_joint_backward_op(joint: Tensor, factor: Tensor | None, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    rows, n = joint.shape[0], joint.shape[1] // 2
    djoint = torch.empty((rows, 2 * n), dtype=joint.dtype, device=joint.device)
    dfactor = torch.empty((rows,), dtype=torch.float32, device=joint.device)
    args = (joint, joint, joint if factor is None else factor, grad, djoint, joint, dfactor, 2 * n, n, True, factor is not None, c, _block(n))
    _launch(_gate_backward)[(rows,)](*args, num_warps=_gate_warps(_block(n)))
    return djoint, dfactor


class _GateJoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
        ctx.save_for_backward(joint, factor)
        ctx.c = c
        return _gate_joint_forward_op(joint, factor, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        joint, factor = ctx.saved_tensors
        djoint, dfactor = _gate_joint_backward_op(joint, factor, _rows(grad), ctx.c)
        return djoint, None if factor is None else dfactor.view_as(factor).to(factor.dtype), None


def gate_joint(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    """Gate and up side by side, as the experts' product leaves them; so is the gradient."""
    out: Tensor = _GateJoint.apply(_rows(joint), None if factor is None else factor.contiguous(), c)
    return out.view(*joint.shape[:-1], -1)


# -- heads: scale·[∓x_t, rotated x]; a program takes all heads of a token, which share its angles -------------------------


@triton.jit
def _fitted(time, r2, scale, C: tl.constexpr, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """What brings a point onto its rounded time (`Lorentz.heads`)."""
    rounded = (scale * time).to(dtype).to(tl.float32) / scale
    fit = tl.sqrt(tl.maximum((rounded * rounded - 1.0 / C) / tl.maximum(r2, 1e-30), 0.0))
    return tl.where(C * r2 > 1.0, fit, 1.0)


@triton.jit
def _columns(ptr, at, head, H: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Slots START … START + WIDTH of all heads as fp32; nothing where the time is. Whole aligned pieces, so that loads are wide."""
    i = tl.arange(0, BLOCK)[None, :]
    x = tl.load(ptr + at + START + i, mask=(head < H) & (i < WIDTH), other=0.0).to(tl.float32)
    return tl.where(START + i > 0, x, 0.0)


@triton.jit
def _heads_forward(  # type: ignore[no-untyped-def]
    u_ptr, cos_ptr, sin_ptr, scale_ptr, out_ptr, angles, H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr,
    SCALE: tl.constexpr, SIGN: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, STILL_BLOCK: tl.constexpr,
    TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = token * H * N + head * N
    r2 = tl.zeros((HEADS,), tl.float32)
    if STILL > 0:
        x = _columns(u_ptr, at, head, H, 0, STILL, STILL_BLOCK)
        r2 += tl.sum(x * x, 1)
    if HALF_TURNED > 0:
        one = _columns(u_ptr, at, head, H, STILL, HALF_TURNED, TURNED_BLOCK)
        two = _columns(u_ptr, at, head, H, STILL + HALF_TURNED, HALF_TURNED, TURNED_BLOCK)
        r2 += tl.sum(one * one + two * two, 1)
    r2 = r2[:, None]
    time = tl.sqrt(1.0 / C + r2)
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    fit = scale
    if FIT:
        fit = scale * _fitted(time, r2, scale, C, out_ptr.dtype.element_ty)
    if STILL > 0:
        i = tl.arange(0, STILL_BLOCK)[None, :]
        tl.store(out_ptr + at + i, tl.where(i == 0, SIGN * scale * time, fit * x), mask=(head < H) & (i < STILL))
    if HALF_TURNED > 0:
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        angle = (token % angles) * 2 * HALF_TURNED + i
        cos = tl.load(cos_ptr + angle, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle + HALF_TURNED, mask=i < HALF_TURNED, other=0.0)
        inside = (head < H) & (i < HALF_TURNED)
        tl.store(out_ptr + at + STILL + i, tl.where(STILL + i == 0, SIGN * scale * time, fit * (one * cos - two * sin)), mask=inside)
        tl.store(out_ptr + at + STILL + HALF_TURNED + i, fit * (two * cos + one * sin), mask=inside)


@triton.jit
def _heads_backward(  # type: ignore[no-untyped-def]
    u_ptr, cos_ptr, sin_ptr, scale_ptr, grad_ptr, du_ptr, dscale_ptr, angles, length, grad_batch, grad_token, grad_head, H: tl.constexpr,
    N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr, SIGN: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = token * H * N + head * N
    grad_at = (token // length) * grad_batch + (token % length) * grad_token + head * grad_head
    r2 = tl.zeros((HEADS,), tl.float32)
    along = tl.zeros((HEADS,), tl.float32)  # grad · what it is the gradient of, without the scale
    if STILL > 0:
        x = _columns(u_ptr, at, head, H, 0, STILL, STILL_BLOCK)
        g = _columns(grad_ptr, grad_at, head, H, 0, STILL, STILL_BLOCK)
        r2 += tl.sum(x * x, 1)
        along += tl.sum(g * x, 1)
    if HALF_TURNED > 0:
        one = _columns(u_ptr, at, head, H, STILL, HALF_TURNED, TURNED_BLOCK)
        two = _columns(u_ptr, at, head, H, STILL + HALF_TURNED, HALF_TURNED, TURNED_BLOCK)
        g_one = _columns(grad_ptr, grad_at, head, H, STILL, HALF_TURNED, TURNED_BLOCK)
        g_two = _columns(grad_ptr, grad_at, head, H, STILL + HALF_TURNED, HALF_TURNED, TURNED_BLOCK)
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        angle = (token % angles) * 2 * HALF_TURNED + i
        cos = tl.load(cos_ptr + angle, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle + HALF_TURNED, mask=i < HALF_TURNED, other=0.0)
        back_one = g_one * cos + g_two * sin
        back_two = g_two * cos - g_one * sin
        r2 += tl.sum(one * one + two * two, 1)
        along += tl.sum(back_one * one + back_two * two, 1)
    time = tl.sqrt(1.0 / C + r2)[:, None]
    dtime = SIGN * tl.load(grad_ptr + grad_at, mask=head < H, other=0.0).to(tl.float32)
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
        tl.store(dscale_ptr + token, tl.sum(along[:, None] + tl.where(head < H, dtime * time, 0.0)))
    pull = dtime / time
    if STILL > 0:
        i = tl.arange(0, STILL_BLOCK)[None, :]
        tl.store(du_ptr + at + i, scale * (g + pull * x), mask=(head < H) & (i < STILL))
    if HALF_TURNED > 0:
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        inside = (head < H) & (i < HALF_TURNED)
        tl.store(du_ptr + at + STILL + i, tl.where(STILL + i > 0, scale * (back_one + pull * one), 0.0), mask=inside)
        tl.store(du_ptr + at + STILL + HALF_TURNED + i, scale * (back_two + pull * two), mask=inside)


def _tile_warps(size: int) -> int:
    return min(8, max(1, _block(size) // 512))


def _tile(heads: int, n: int) -> dict[str, int]:
    size = _block(heads) * _block(n)
    return {"HEADS": _block(heads), "BLOCK": _block(n), "num_warps": _tile_warps(size)}


def _split_tile(heads: int, still: int, half: int) -> dict[str, int]:
    size = _block(heads) * (_block(still) if still else 0) + 2 * _block(heads) * (_block(half) if half else 0)
    blocks = {"STILL_BLOCK": _block(max(still, 1)), "TURNED_BLOCK": _block(max(half, 1))}
    return {"HEADS": _block(heads), **blocks, "num_warps": _tile_warps(size)}


@_operator("heads_forward")
def _heads_forward_op(u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, query: bool, start: int, c: float) -> Tensor:
    batch, length, heads, n = u.shape
    out = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    pointers = (u, u if cos is None else cos, u if sin is None else sin, u if scale is None else scale, out)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], start, cos.shape[-1] // 2)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, u.dtype in HALF, c)
    _launch(_heads_forward)[(batch * length,)](*pointers, angles, *choices, **_split_tile(heads, still, half))
    return out


@_operator("heads_backward")
def _heads_backward_op(
    u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, grad: Tensor, query: bool, start: int, c: float
) -> tuple[Tensor, Tensor]:
    batch, length, heads, n = u.shape
    du = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((batch * length,), dtype=torch.float32, device=u.device)
    pointers = (u, u if cos is None else cos, u if sin is None else sin, u if scale is None else scale, grad, du, dscale)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], start, cos.shape[-1] // 2)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, c)
    _launch(_heads_backward)[(batch * length,)](*pointers, angles, length, *grad.stride()[:3], *choices, **_split_tile(heads, still, half))
    return du, dscale


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, query: bool, start: int, c: float) -> Tensor:
        ctx.save_for_backward(u, cos, sin, scale)
        ctx.query, ctx.start, ctx.c = query, start, c
        return _heads_forward_op(u, cos, sin, scale, query, start, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, cos, sin, scale = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        du, dscale = _heads_backward_op(u, cos, sin, scale, grad, ctx.query, ctx.start, ctx.c)
        return du, None, None, None if scale is None else dscale.sum().to(scale.dtype).view(1), None, None, None


def heads(u: Tensor, angles: tuple[Tensor, Tensor] | None, scale: Tensor | None, query: bool, start: int, c: float) -> Tensor:
    """(B, T, H, n) -> (B, T, H, n); slots from `start` on are turned by the angles."""
    cos, sin = (None, None) if angles is None else (angles[0].contiguous(), angles[1].contiguous())
    out: Tensor = _Heads.apply(u.contiguous(), cos, sin, scale, query, start, c)
    return out


# -- keys and values of latent attention: k = [k_t, W_k z, one rotated key for all heads], v = [v_t, W_v z] -----------------


@triton.jit
def _keys_values_forward(  # type: ignore[no-untyped-def]
    kv_ptr, key_ptr, k_ptr, v_ptr, H: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr, VALUE: tl.constexpr, FIT: tl.constexpr,
    C: tl.constexpr, HEADS: tl.constexpr, NOPE_BLOCK: tl.constexpr, ROPE_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    row = token * H + head
    x = _columns(kv_ptr, row * (NOPE + VALUE), head, H, 0, NOPE, NOPE_BLOCK)
    j = tl.arange(0, ROPE_BLOCK)[None, :]
    key = tl.load(key_ptr + token * ROPE + j, mask=j < ROPE, other=0.0).to(tl.float32)
    r2 = (tl.sum(x * x, 1) + tl.sum(key * key))[:, None]
    time = tl.sqrt(1.0 / C + r2)
    fit = 1.0 + 0.0 * r2
    if FIT:
        fit = _fitted(time, r2, 1.0, C, k_ptr.dtype.element_ty)
    i = tl.arange(0, NOPE_BLOCK)[None, :]
    tl.store(k_ptr + row * (NOPE + ROPE) + i, tl.where(i == 0, time, fit * x), mask=(head < H) & (i < NOPE))
    tl.store(k_ptr + row * (NOPE + ROPE) + NOPE + j, fit * key, mask=(head < H) & (j < ROPE))
    # the first slot of the value part is its time
    i = tl.arange(0, VALUE_BLOCK)[None, :]
    v = _columns(kv_ptr + NOPE, row * (NOPE + VALUE), head, H, 0, VALUE, VALUE_BLOCK)
    r2 = tl.sum(v * v, 1)[:, None]
    time = tl.sqrt(1.0 / C + r2)
    if FIT:
        v = v * _fitted(time, r2, 1.0, C, k_ptr.dtype.element_ty)
    tl.store(v_ptr + row * VALUE + i, tl.where(i == 0, time, v), mask=(head < H) & (i < VALUE))


@triton.jit
def _keys_values_backward(  # type: ignore[no-untyped-def]
    kv_ptr, key_ptr, dk_ptr, dv_ptr, dkv_ptr, dkey_ptr, length, k_batch, k_token, k_head, v_batch, v_token, v_head, H: tl.constexpr,
    NOPE: tl.constexpr, ROPE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, NOPE_BLOCK: tl.constexpr,
    ROPE_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    row = token * H + head
    here = head < H
    x = _columns(kv_ptr, row * (NOPE + VALUE), head, H, 0, NOPE, NOPE_BLOCK)
    j = tl.arange(0, ROPE_BLOCK)[None, :]
    key = tl.load(key_ptr + token * ROPE + j, mask=j < ROPE, other=0.0).to(tl.float32)
    at = (token // length) * k_batch + (token % length) * k_token + head * k_head
    time = tl.sqrt(1.0 / C + tl.sum(x * x, 1) + tl.sum(key * key))[:, None]
    pull = tl.load(dk_ptr + at, mask=here, other=0.0).to(tl.float32) / time
    i = tl.arange(0, NOPE_BLOCK)[None, :]
    dx = _columns(dk_ptr, at, head, H, 0, NOPE, NOPE_BLOCK) + pull * x
    tl.store(dkv_ptr + row * (NOPE + VALUE) + i, dx, mask=here & (i < NOPE))
    dkey = tl.load(dk_ptr + at + NOPE + j, mask=here & (j < ROPE), other=0.0).to(tl.float32) + pull * key
    k = tl.arange(0, ROPE_BLOCK)
    tl.store(dkey_ptr + token * ROPE + k, tl.sum(dkey, 0), mask=k < ROPE)
    i = tl.arange(0, VALUE_BLOCK)[None, :]
    v = _columns(kv_ptr + NOPE, row * (NOPE + VALUE), head, H, 0, VALUE, VALUE_BLOCK)
    at = (token // length) * v_batch + (token % length) * v_token + head * v_head
    pull = tl.load(dv_ptr + at, mask=here, other=0.0).to(tl.float32) / tl.sqrt(1.0 / C + tl.sum(v * v, 1)[:, None])
    dv = _columns(dv_ptr, at, head, H, 0, VALUE, VALUE_BLOCK) + pull * v
    tl.store(dkv_ptr + row * (NOPE + VALUE) + NOPE + i, dv, mask=here & (i < VALUE))


def _latent_tile(heads: int, nope: int, rope: int, value: int) -> dict[str, int]:
    blocks = {"NOPE_BLOCK": _block(nope), "ROPE_BLOCK": _block(rope), "VALUE_BLOCK": _block(value)}
    return {"HEADS": _block(heads), **blocks, "num_warps": _tile_warps(_block(heads) * sum(blocks.values()))}


@_operator("keys_values_forward")
def _keys_values_forward_op(kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = kv.shape
    rope = key.shape[-1]
    k = torch.empty((batch, length, heads, nope + rope), dtype=kv.dtype, device=kv.device)
    v = torch.empty((batch, length, heads, width - nope), dtype=kv.dtype, device=kv.device)
    choices = (heads, nope, rope, width - nope, kv.dtype in HALF, c)
    _launch(_keys_values_forward)[(batch * length,)](kv, key, k, v, *choices, **_latent_tile(heads, nope, rope, width - nope))
    return k, v


@_operator("keys_values_backward")
def _keys_values_backward_op(kv: Tensor, key: Tensor, dk: Tensor, dv: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = kv.shape
    rope = key.shape[-1]
    dkv = torch.empty((batch, length, heads, width), dtype=kv.dtype, device=kv.device)
    dkey = torch.empty((batch, length, rope), dtype=key.dtype, device=kv.device)
    choices = (heads, nope, rope, width - nope, c)
    strides = (*dk.stride()[:3], *dv.stride()[:3])
    tile = _latent_tile(heads, nope, rope, width - nope)
    _launch(_keys_values_backward)[(batch * length,)](kv, key, dk, dv, dkv, dkey, length, *strides, *choices, **tile)
    return dkv, dkey


class _KeysValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(kv, key)
        ctx.nope, ctx.c = nope, c
        return _keys_values_forward_op(kv, key, nope, c)

    @staticmethod
    def backward(ctx: Any, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        kv, key = ctx.saved_tensors
        dk, dv = (g if g.stride(-1) == 1 else g.contiguous() for g in (dk, dv))
        return *_keys_values_backward_op(kv, key, dk, dv, ctx.nope, ctx.c), None, None


def keys_values(kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
    """(B, T, H, nope + value), (B, T, rope) -> (B, T, H, nope + rope), (B, T, H, value)"""
    k, v = _KeysValues.apply(kv.contiguous(), key.contiguous(), nope, c)
    return k, v


# -- centre: averages of heads back on the manifold -----------------------------------------------------------------------


@triton.jit
def _centre_forward(  # type: ignore[no-untyped-def]
    z_ptr, out_ptr, length, batch_stride, token_stride, head_stride, H: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (head < H) & (i < N)
    at = (token // length) * batch_stride + (token % length) * token_stride + head * head_stride
    z = tl.load(z_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
    length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)[:, None]
    tl.store(out_ptr + token * H * N + head * N + i, z * tl.rsqrt(tl.maximum(length2, 1.0)), mask=inside)


@triton.jit
def _centre_backward(  # type: ignore[no-untyped-def]
    z_ptr, grad_ptr, dz_ptr, length, batch_stride, token_stride, head_stride, H: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (head < H) & (i < N)
    at = (token // length) * batch_stride + (token % length) * token_stride + head * head_stride
    z = tl.load(z_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + token * H * N + head * N + i, mask=inside, other=0.0).to(tl.float32)
    length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)[:, None]
    inverse = tl.rsqrt(tl.maximum(length2, 1.0))
    cone = tl.where(length2 > 1.0, -C * inverse * inverse * inverse * tl.sum(grad * z, 1)[:, None], 0.0)
    tl.store(dz_ptr + token * H * N + head * N + i, grad * inverse + tl.where(i == 0, cone * z, -cone * z), mask=inside)


@_operator("centre_forward")
def _centre_forward_op(z: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    out = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    _launch(_centre_forward)[(batch * length,)](z, out, length, *z.stride()[:3], heads, n, c, **_tile(heads, n))
    return out


@_operator("centre_backward")
def _centre_backward_op(z: Tensor, grad: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    dz = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    _launch(_centre_backward)[(batch * length,)](z, grad, dz, length, *z.stride()[:3], heads, n, c, **_tile(heads, n))
    return dz


class _Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, c: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.c = c
        return _centre_forward_op(z, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return _centre_backward_op(z, grad.contiguous(), ctx.c), None


def centre(z: Tensor, c: float) -> Tensor:
    """(B, T, H, n) -> (B, T, H, n)"""
    out: Tensor = _Centre.apply(z if z.stride(-1) == 1 else z.contiguous(), c)
    return out


# -- mixture: the centroid of a token's experts, read where the grouped product left them -------------------------------


@triton.jit
def _mixed(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ w·y of a token's experts, in space and time, and Σ w."""
    live = (i > 0) & (i < n)
    z = tl.zeros((BLOCK,), tl.float32)
    time = 0.0
    total = 0.0
    for j in tl.static_range(ACTIVE):
        pair = token * ACTIVE + j
        y = tl.where(live, tl.load(y_ptr + tl.load(place_ptr + pair) * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        if FACTOR:
            y = y / tl.load(factor_ptr + pair)
        weight = tl.load(weight_ptr + pair)
        z += weight * y
        time += weight * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += weight
    for j in tl.static_range(SHARED):
        y = tl.where(live, tl.load(shared_ptr + (j * tokens + token) * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        if FACTOR:
            y = y / tl.load(shared_factor_ptr + j)
        z += y
        time += tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += 1.0
    return z, time, total


@triton.jit
def _mixture_forward(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, out_ptr, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    z, time, total = _mixed(
        y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n, ACTIVE, SHARED, FACTOR, C, BLOCK
    )
    length2 = C * (time * time - tl.sum(z * z, 0))
    tl.store(out_ptr + token * n + i, z * (SCALE * tl.rsqrt(tl.maximum(length2, total * total))), mask=i < n)


@triton.jit
def _mixture_backward(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, grad_ptr, dy_ptr, dweight_ptr, dfactor_ptr, dshared_ptr,
    dshared_factor_ptr, tokens, n, ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, SCALE: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    grad = SCALE * tl.where(live, tl.load(grad_ptr + token * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    z, time, total = _mixed(
        y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n, ACTIVE, SHARED, FACTOR, C, BLOCK
    )
    length2 = C * (time * time - tl.sum(z * z, 0))
    floor = total * total
    inverse = tl.rsqrt(tl.maximum(length2, floor))
    dlength2 = -0.5 * inverse * inverse * inverse * tl.sum(grad * z, 0)
    above = length2 > floor
    dcone = tl.where(above, 2.0 * C * dlength2, 0.0)
    dtotal = tl.where(above, 0.0, 2.0 * total * dlength2)
    dz = inverse * grad - dcone * z
    dtime = dcone * time
    for j in tl.static_range(ACTIVE):
        pair = token * ACTIVE + j
        where = tl.load(place_ptr + pair)
        y = tl.where(live, tl.load(y_ptr + where * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        factor = 1.0
        if FACTOR:
            factor = tl.load(factor_ptr + pair)
        y = y / factor
        weight = tl.load(weight_ptr + pair)
        y_time = tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        dy = weight * (dz + dtime * y / y_time)
        tl.store(dy_ptr + where * n + i, dy / factor, mask=i < n)
        tl.store(dweight_ptr + pair, tl.sum(dz * y, 0) + dtime * y_time + dtotal)
        if FACTOR:
            tl.store(dfactor_ptr + pair, -tl.sum(dy * y, 0) / factor)
    for j in tl.static_range(SHARED):
        y = tl.where(live, tl.load(shared_ptr + (j * tokens + token) * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        factor = 1.0
        if FACTOR:
            factor = tl.load(shared_factor_ptr + j)
        y = y / factor
        dy = dz + dtime * y / tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        tl.store(dshared_ptr + (j * tokens + token) * n + i, dy / factor, mask=i < n)
        if FACTOR:
            tl.store(dshared_factor_ptr + j * tokens + token, -tl.sum(dy * y, 0) / factor)


@_operator("mixture_forward")
def _mixture_forward_op(
    y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, scale: float, c: float
) -> Tensor:
    (tokens, active), n = weight.shape, y.shape[-1]
    out = torch.empty((tokens, n), dtype=y.dtype, device=y.device)
    pointers = (
        y,
        place,
        weight,
        y if factor is None else factor,
        y if shared is None else shared,
        y if shared_factor is None else shared_factor,
        out,
    )
    choices = (active, 0 if shared is None else shared.shape[0], factor is not None, scale, c, _block(n))
    _launch(_mixture_forward)[(tokens,)](*pointers, tokens, n, *choices, num_warps=_warps(_block(n)))
    return out


@_operator("mixture_backward")
def _mixture_backward_op(
    y: Tensor,
    place: Tensor,
    weight: Tensor,
    factor: Tensor | None,
    shared: Tensor | None,
    shared_factor: Tensor | None,
    grad: Tensor,
    scale: float,
    c: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (tokens, active), n = weight.shape, y.shape[-1]
    count = 0 if shared is None else shared.shape[0]
    dy = torch.empty_like(y)
    dweight, dfactor = torch.empty_like(weight), torch.empty_like(weight)
    dshared = torch.empty((count, tokens, n), dtype=y.dtype, device=y.device)
    dshared_factor = torch.empty((count, tokens), dtype=torch.float32, device=y.device)
    pointers = (y, place, weight, y if factor is None else factor, y if shared is None else shared, y if shared_factor is None else shared_factor)
    choices = (active, count, factor is not None, scale, c, _block(n))
    results = (dy, dweight, dfactor, dshared, dshared_factor)
    _launch(_mixture_backward)[(tokens,)](*pointers, grad, *results, tokens, n, *choices, num_warps=_warps(_block(n)))
    return results


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        place: Tensor,
        weight: Tensor,
        factor: Tensor | None,
        shared: Tensor | None,
        shared_factor: Tensor | None,
        scale: float,
        c: float,
    ) -> Tensor:
        ctx.save_for_backward(y, place, weight, factor, shared, shared_factor)
        ctx.scale, ctx.c = scale, c
        return _mixture_forward_op(y, place, weight, factor, shared, shared_factor, scale, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, place, weight, factor, shared, shared_factor = ctx.saved_tensors
        dy, dweight, dfactor, dshared, dshared_factor = _mixture_backward_op(
            y, place, weight, factor, shared, shared_factor, grad.contiguous(), ctx.scale, ctx.c
        )
        return (
            dy,
            None,
            dweight,
            None if factor is None else dfactor,
            None if shared is None else dshared,
            None if shared_factor is None else dshared_factor.sum(1),
            None,
            None,
        )


def mixture(
    y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, scale: float, c: float
) -> Tensor:
    """y (N·k, n) sorted by expert, place (N·k,) of each pair in it, weight and factor (N, k) fp32, shared (S, N, n), its factor (S,) -> (N, n)"""
    shared = None if shared is None else shared.contiguous()
    out: Tensor = _Mixture.apply(y.contiguous(), place, weight.contiguous(), factor, shared, shared_factor, scale, c)
    return out


__all__ = ["centre", "gate", "gate_joint", "heads", "keys_values", "mixture", "norm", "residual", "residual_norm"]
