"""Fused CUDA kernels for slots on the hyperboloid: one pass over memory where torch would make three or more.

Each computes what its torch form in `geometry/lorentz.py` or `nn/` computes (the tests hold them together), in fp32, in both directions; the
backward passes recompute what is cheaper to compute than to keep. Written for rows of slots: slot 0 is the time and never read.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

PROGRAMS = 2112  # for kernels that sum a gradient over rows: each program sums a share, torch sums the shares


def _block(n: int) -> int:
    return int(triton.next_power_of_2(n))


def _warps(block: int) -> int:
    return min(16, max(1, block // 512))


def _rows(x: Tensor) -> Tensor:
    """(..., n) as (N, n) with unit stride; a copy only where the layout asks for one."""
    x = x.flatten(0, -2) if x.ndim != 2 else x
    return x if x.stride(-1) == 1 else x.contiguous()


# -- norm: x -> [√(1/c + |y|²)/√n, y], y = γ·x/√(mean x² + ε) ------------------------------------------------------------


@triton.jit
def _norm_forward(x_ptr, weight_ptr, out_ptr, stride, n, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.load(x_ptr + row * stride + i, mask=live, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + i, mask=live, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / (n - 1) + EPS) * weight
    time = tl.sqrt((1.0 / C + tl.sum(y * y, 0)) / n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, y), mask=i < n)


@triton.jit
def _norm_backward(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dweight_ptr, stride, grad_stride, rows, n, FORK: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    weight = tl.load(weight_ptr + i, mask=live, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = index + tl.zeros((), tl.int64)
        x = tl.load(x_ptr + row * stride + i, mask=live, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * grad_stride + i, mask=i < n, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 0) / (n - 1) + EPS)
        y = x * scale * weight
        time = tl.sqrt((1.0 / C + tl.sum(y * y, 0)) / n)
        dtime = tl.sum(tl.where(i == 0, grad, 0.0), 0)
        dy = tl.where(live, grad + dtime * y / (n * time), 0.0)
        dweight += dy * x * scale
        dy = dy * weight
        dx = scale * (dy - x * scale * scale * tl.sum(dy * x, 0) / (n - 1))
        if FORK:
            dx += tl.load(fork_ptr + row * n + i, mask=live, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * n + i, dx, mask=i < n)
    tl.store(dweight_ptr + tl.program_id(0) * n + i, dweight, mask=i < n)


@triton_op("horosphere::norm_forward", mutates_args={})
def _norm_forward_op(x: Tensor, weight: Tensor, c: float, eps: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    wrap_triton(_norm_forward)[(rows,)](x, weight, out, x.stride(0), n, c, eps, _block(n), num_warps=_warps(_block(n)))
    return out


@triton_op("horosphere::norm_backward", mutates_args={})
def _norm_backward_op(x: Tensor, weight: Tensor, grad: Tensor, fork: Tensor | None, c: float, eps: float) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    strides = (x.stride(0), grad.stride(0))
    wrap_triton(_norm_backward)[(PROGRAMS,)](
        x, weight, grad, x if fork is None else fork, dx, shares, *strides, rows, n, fork is not None, c, eps, _block(n), num_warps=_warps(_block(n))
    )
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
        dx, shares = _norm_backward_op(x, weight, _rows(grad), None if fork is None else fork.contiguous(), ctx.c, ctx.eps)
        return dx, shares.sum(0).to(weight.dtype), None, None


def norm(x: Tensor, weight: Tensor, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The normed point, and x itself: what reads x after this takes it from here, and the two gradients meet in one pass."""
    out, same = _Norm.apply(_rows(x), weight, c, eps)
    return out.view(x.shape), same.view(x.shape)


# -- residual: s·N(x + w·y) ---------------------------------------------------------------------------------------------


@triton.jit
def _residual_forward(x_ptr, y_ptr, w_ptr, out_ptr, x_stride, y_stride, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.load(x_ptr + row * x_stride + i, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + i, mask=live, other=0.0).to(tl.float32)
    w = tl.load(w_ptr).to(tl.float32)
    time = tl.sqrt(1.0 / C + tl.sum(x * x, 0)) + w * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
    z = x + w * y
    length2 = C * (time * time - tl.sum(z * z, 0))
    z = z * (SCALE * tl.rsqrt(tl.maximum(length2, (1.0 + w) * (1.0 + w))))
    tl.store(out_ptr + row * n + i, z, mask=i < n)


@triton.jit
def _residual_backward(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, w_ptr, grad_ptr, dx_ptr, dy_ptr, dw_ptr, x_stride, y_stride, grad_stride, n, SCALE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.load(x_ptr + row * x_stride + i, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + i, mask=live, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + row * grad_stride + i, mask=live, other=0.0).to(tl.float32)
    w = tl.load(w_ptr).to(tl.float32)
    x_time = tl.sqrt(1.0 / C + tl.sum(x * x, 0))
    y_time = tl.sqrt(1.0 / C + tl.sum(y * y, 0))
    z = x + w * y
    time = x_time + w * y_time
    length2 = C * (time * time - tl.sum(z * z, 0))
    floor = (1.0 + w) * (1.0 + w)
    inverse = tl.rsqrt(tl.maximum(length2, floor))
    dlength2 = -0.5 * inverse * inverse * inverse * SCALE * tl.sum(grad * z, 0)
    above = length2 > floor
    dcone = tl.where(above, 2.0 * C * dlength2, 0.0)
    dz = SCALE * inverse * grad - dcone * z
    dtime = dcone * time
    dw = tl.sum(dz * y, 0) + dtime * y_time + tl.where(above, 0.0, 2.0 * (1.0 + w) * dlength2)
    tl.store(dx_ptr + row * n + i, dz + dtime * x / x_time, mask=i < n)
    tl.store(dy_ptr + row * n + i, w * (dz + dtime * y / y_time), mask=i < n)
    tl.store(dw_ptr + row, dw)


@triton_op("horosphere::residual_forward", mutates_args={})
def _residual_forward_op(x: Tensor, y: Tensor, w: Tensor, scale: float, c: float) -> Tensor:
    rows, n = x.shape
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    block = _block(n)
    wrap_triton(_residual_forward)[(rows,)](x, y, w, out, x.stride(0), y.stride(0), n, scale, c, block, num_warps=_warps(block))
    return out


@triton_op("horosphere::residual_backward", mutates_args={})
def _residual_backward_op(x: Tensor, y: Tensor, w: Tensor, grad: Tensor, scale: float, c: float) -> tuple[Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx, dy = torch.empty((rows, n), dtype=x.dtype, device=x.device), torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((rows,), dtype=torch.float32, device=x.device)
    block, strides = _block(n), (x.stride(0), y.stride(0), grad.stride(0))
    wrap_triton(_residual_backward)[(rows,)](x, y, w, grad, dx, dy, dw, *strides, n, scale, c, block, num_warps=_warps(block))
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
    x_ptr, y_ptr, w_ptr, weight_ptr, joined_ptr, out_ptr, x_stride, y_stride, n, SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    x = tl.load(x_ptr + row * x_stride + i, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_stride + i, mask=live, other=0.0).to(tl.float32)
    w = tl.load(w_ptr).to(tl.float32)
    weight = tl.load(weight_ptr + i, mask=live, other=0.0).to(tl.float32)
    time = tl.sqrt(1.0 / C + tl.sum(x * x, 0)) + w * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
    z = x + w * y
    z2 = tl.sum(z * z, 0)
    factor = SCALE * tl.rsqrt(tl.maximum(C * (time * time - z2), (1.0 + w) * (1.0 + w)))
    joined = z * factor
    tl.store(joined_ptr + row * n + i, joined, mask=i < n)
    normed = joined * tl.rsqrt(z2 * factor * factor / (n - 1) + EPS) * weight
    tl.store(out_ptr + row * n + i, tl.where(i == 0, tl.sqrt((1.0 / C + tl.sum(normed * normed, 0)) / n), normed), mask=i < n)


@triton.jit
def _residual_norm_backward(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, w_ptr, weight_ptr, grad_ptr, fork_ptr, dx_ptr, dy_ptr, dw_ptr, dweight_ptr, x_stride, y_stride, grad_stride, rows, n,
    SCALE: tl.constexpr, C: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    w = tl.load(w_ptr).to(tl.float32)
    weight = tl.load(weight_ptr + i, mask=live, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dw = 0.0
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = index + tl.zeros((), tl.int64)
        x = tl.load(x_ptr + row * x_stride + i, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + i, mask=live, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * grad_stride + i, mask=i < n, other=0.0).to(tl.float32)
        fork = tl.load(fork_ptr + row * n + i, mask=live, other=0.0).to(tl.float32)
        x_time = tl.sqrt(1.0 / C + tl.sum(x * x, 0))
        y_time = tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        z = x + w * y
        z2 = tl.sum(z * z, 0)
        time = x_time + w * y_time
        length2 = C * (time * time - z2)
        floor = (1.0 + w) * (1.0 + w)
        inverse = tl.rsqrt(tl.maximum(length2, floor))
        joined = z * (SCALE * inverse)
        # the norm
        scale = tl.rsqrt(z2 * SCALE * SCALE * inverse * inverse / (n - 1) + EPS)
        normed = joined * scale * weight
        time_out = tl.sqrt((1.0 / C + tl.sum(normed * normed, 0)) / n)
        dtime_out = tl.sum(tl.where(i == 0, grad, 0.0), 0)
        dnormed = tl.where(live, grad + dtime_out * normed / (n * time_out), 0.0)
        dweight += dnormed * joined * scale
        dnormed = dnormed * weight
        djoined = scale * (dnormed - joined * scale * scale * tl.sum(dnormed * joined, 0) / (n - 1)) + fork
        # the residual
        dlength2 = -0.5 * inverse * inverse * inverse * SCALE * tl.sum(djoined * z, 0)
        above = length2 > floor
        dcone = tl.where(above, 2.0 * C * dlength2, 0.0)
        dz = SCALE * inverse * djoined - dcone * z
        dtime = dcone * time
        dw += tl.sum(dz * y, 0) + dtime * y_time + tl.where(above, 0.0, 2.0 * (1.0 + w) * dlength2)
        tl.store(dx_ptr + row * n + i, dz + dtime * x / x_time, mask=i < n)
        tl.store(dy_ptr + row * n + i, w * (dz + dtime * y / y_time), mask=i < n)
    tl.store(dweight_ptr + tl.program_id(0) * n + i, dweight, mask=i < n)
    tl.store(dw_ptr + tl.program_id(0), dw)


@triton_op("horosphere::residual_norm_forward", mutates_args={})
def _residual_norm_forward_op(x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float) -> tuple[Tensor, Tensor]:
    rows, n = x.shape
    out, joined = (torch.empty((rows, n), dtype=x.dtype, device=x.device) for _ in range(2))
    block = _block(n)
    args = (x, y, w, weight, joined, out, x.stride(0), y.stride(0), n, scale, c, eps, block)
    wrap_triton(_residual_norm_forward)[(rows,)](*args, num_warps=_warps(block))
    return out, joined


@triton_op("horosphere::residual_norm_backward", mutates_args={})
def _residual_norm_backward_op(
    x: Tensor, y: Tensor, w: Tensor, weight: Tensor, grad: Tensor, fork: Tensor, scale: float, c: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, n = x.shape
    dx, dy = torch.empty((rows, n), dtype=x.dtype, device=x.device), torch.empty((rows, n), dtype=y.dtype, device=x.device)
    dw = torch.empty((PROGRAMS,), dtype=torch.float32, device=x.device)
    shares = torch.empty((PROGRAMS, n), dtype=torch.float32, device=x.device)
    block = _block(n)
    args = (x, y, w, weight, grad, fork, dx, dy, dw, shares, x.stride(0), y.stride(0), grad.stride(0), rows, n, scale, c, eps, block)
    wrap_triton(_residual_norm_backward)[(PROGRAMS,)](*args, num_warps=_warps(block))
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
        dx, dy, dw, shares = _residual_norm_backward_op(x, y, w, weight, _rows(grad), fork.contiguous(), ctx.scale, ctx.c, ctx.eps)
        return dx, dy, dw.sum().to(w.dtype).view(1), shares.sum(0).to(weight.dtype), None, None, None


def residual_norm(x: Tensor, y: Tensor, w: Tensor, weight: Tensor, scale: float, c: float, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of the residual, and the residual itself."""
    out, joined = _ResidualNorm.apply(_rows(x), _rows(y), w, weight, scale, c, eps)
    return out.view(x.shape), joined.view(x.shape)


# -- gate: silu(s·g)·(s·u) with its time, s one factor a row (√(c/c_e) of an expert) --------------------------------------


@triton.jit
def _gate_forward(  # type: ignore[no-untyped-def]
    gate_ptr, up_ptr, factor_ptr, out_ptr, gate_stride, up_stride, n, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    gate = tl.load(gate_ptr + row * gate_stride + i, mask=live, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + i, mask=live, other=0.0).to(tl.float32)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    h = factor * gate * tl.sigmoid(factor * gate) * (factor * up)
    time = tl.sqrt((factor * factor / C + tl.sum(h * h, 0)) / n)
    tl.store(out_ptr + row * n + i, tl.where(i == 0, time, h), mask=i < n)


@triton.jit
def _gate_backward(  # type: ignore[no-untyped-def]
    gate_ptr, up_ptr, factor_ptr, grad_ptr, both_ptr, dfactor_ptr, gate_stride, up_stride, grad_stride, n,
    FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    gate = tl.load(gate_ptr + row * gate_stride + i, mask=live, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + i, mask=live, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + row * grad_stride + i, mask=i < n, other=0.0).to(tl.float32)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    x = factor * gate
    y = factor * up
    open = tl.sigmoid(x)
    h = x * open * y
    time = tl.sqrt((factor * factor / C + tl.sum(h * h, 0)) / n)
    dtime = tl.sum(tl.where(i == 0, grad, 0.0), 0) / (n * time)
    dh = tl.where(live, grad + dtime * h, 0.0)
    dx = dh * y * open * (1.0 + x * (1.0 - open))
    dy = dh * x * open
    tl.store(both_ptr + row * 2 * n + i, factor * dx, mask=i < n)
    tl.store(both_ptr + row * 2 * n + n + i, factor * dy, mask=i < n)
    if FACTOR:
        tl.store(dfactor_ptr + row, tl.sum(dx * gate + dy * up, 0) + dtime * factor / C)


@triton_op("horosphere::gate_forward", mutates_args={})
def _gate_forward_op(gate: Tensor, up: Tensor, factor: Tensor | None, c: float) -> Tensor:
    rows, n = gate.shape
    out = torch.empty((rows, n), dtype=gate.dtype, device=gate.device)
    block, given = _block(n), factor is not None
    args = (gate, up, gate if factor is None else factor, out, gate.stride(0), up.stride(0), n, given, c, block)
    wrap_triton(_gate_forward)[(rows,)](*args, num_warps=_warps(block))
    return out


@triton_op("horosphere::gate_backward", mutates_args={})
def _gate_backward_op(gate: Tensor, up: Tensor, factor: Tensor | None, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Gradients of gate and up side by side, and of the factor."""
    rows, n = gate.shape
    both = torch.empty((rows, 2 * n), dtype=gate.dtype, device=gate.device)
    dfactor = torch.empty((rows,), dtype=torch.float32, device=gate.device)
    block, given = _block(n), factor is not None
    strides = (gate.stride(0), up.stride(0), grad.stride(0))
    args = (gate, up, gate if factor is None else factor, grad, both, dfactor, *strides, n, given, c, block)  # no views: they would be copied
    wrap_triton(_gate_backward)[(rows,)](*args, num_warps=_warps(block))
    return both, dfactor


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, factor: Tensor | None, c: float) -> Tensor:
        ctx.save_for_backward(gate, up, factor)
        ctx.c = c
        return _gate_forward_op(gate, up, factor, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, factor = ctx.saved_tensors
        both, dfactor = _gate_backward_op(gate, up, factor, _rows(grad), ctx.c)
        dgate, dup = both.chunk(2, -1)
        return dgate, dup, None if factor is None else dfactor.view_as(factor).to(factor.dtype), None


class _GateJoint(torch.autograd.Function):
    """Gate and up side by side in one tensor, as the experts' product leaves them; so is the gradient."""

    @staticmethod
    def forward(ctx: Any, joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
        ctx.save_for_backward(joint, factor)
        ctx.c = c
        return _gate_forward_op(*joint.chunk(2, -1), factor, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        joint, factor = ctx.saved_tensors
        both, dfactor = _gate_backward_op(*joint.chunk(2, -1), factor, _rows(grad), ctx.c)
        return both, None if factor is None else dfactor.view_as(factor).to(factor.dtype), None


def gate(gate: Tensor, up: Tensor, c: float) -> Tensor:
    out: Tensor = _Gate.apply(_rows(gate), _rows(up), None, c)
    return out.view(gate.shape)


def gate_joint(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    out: Tensor = _GateJoint.apply(_rows(joint), factor, c)
    return out.view(*joint.shape[:-1], -1)


# -- heads: scale·[∓x_t, rotated x], and its averages back on the manifold ----------------------------------------------


@triton.jit
def _heads_forward(  # type: ignore[no-untyped-def]
    u_ptr, cos_ptr, sin_ptr, scale_ptr, out_ptr, rows, length, heads, batch_stride, token_stride, head_stride, angle_batch,
    START: tl.constexpr, TURNED: tl.constexpr, SCALE: tl.constexpr, SIGN: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # int32: 64-bit divisions cost more than the memory
    i = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (i < N)
    live = inside & (i > 0)
    token = row // heads
    batch, place, head = token // length, token % length, row % heads
    start = u_ptr + batch.to(tl.int64) * batch_stride + place.to(tl.int64) * token_stride + head * head_stride
    x = tl.load(start + i, mask=live, other=0.0).to(tl.float32)
    r2 = tl.sum(x * x, 1)[:, None]
    time = tl.sqrt(1.0 / C + r2)
    y = x
    if TURNED > 0:
        turns = live & (i >= START) & (i < START + TURNED)
        partner = START + (i - START + TURNED // 2) % TURNED
        other = tl.load(start + partner, mask=turns & (partner > 0), other=0.0).to(tl.float32)
        angle = (batch * angle_batch + place) * TURNED + i - START
        cos = tl.load(cos_ptr + angle, mask=turns, other=1.0)
        sin = tl.load(sin_ptr + angle, mask=turns, other=0.0)
        y = x * cos + other * sin
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    if FIT:
        rounded = (scale * time).to(out_ptr.dtype.element_ty).to(tl.float32) / scale
        fit = tl.sqrt(tl.maximum((rounded * rounded - 1.0 / C) / tl.maximum(r2, 1e-30), 0.0))
        y = y * tl.where(C * r2 > 1.0, fit, 1.0)
    tl.store(out_ptr + row.to(tl.int64) * N + i, tl.where(i == 0, SIGN * scale * time, scale * y), mask=inside)


@triton.jit
def _heads_backward(  # type: ignore[no-untyped-def]
    u_ptr, cos_ptr, sin_ptr, scale_ptr, grad_ptr, du_ptr, dscale_ptr, rows, length, heads, batch_stride, token_stride, head_stride, angle_batch,
    grad_batch, grad_token, grad_head, START: tl.constexpr, TURNED: tl.constexpr, SCALE: tl.constexpr, SIGN: tl.constexpr, C: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # int32: 64-bit divisions cost more than the memory
    i = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (i < N)
    live = inside & (i > 0)
    token = row // heads
    batch, place, head = token // length, token % length, row % heads
    start = u_ptr + batch.to(tl.int64) * batch_stride + place.to(tl.int64) * token_stride + head * head_stride
    grad_start = grad_ptr + batch.to(tl.int64) * grad_batch + place.to(tl.int64) * grad_token + head * grad_head
    x = tl.load(start + i, mask=live, other=0.0).to(tl.float32)
    grad = tl.load(grad_start + i, mask=inside, other=0.0).to(tl.float32)
    time = tl.sqrt(1.0 / C + tl.sum(x * x, 1)[:, None])
    dtime = SIGN * tl.sum(tl.where(i == 0, grad, 0.0), 1)[:, None]
    dx = tl.where(live, grad, 0.0)
    y = x
    if TURNED > 0:
        turns = live & (i >= START) & (i < START + TURNED)
        partner = START + (i - START + TURNED // 2) % TURNED
        angle = (batch * angle_batch + place) * TURNED - START
        cos = tl.load(cos_ptr + angle + i, mask=turns, other=1.0)
        back = tl.load(sin_ptr + angle + partner, mask=turns, other=0.0)
        dx = dx * cos + tl.load(grad_start + partner, mask=turns & (partner > 0), other=0.0).to(tl.float32) * back
        if SCALE:
            other = tl.load(start + partner, mask=turns & (partner > 0), other=0.0).to(tl.float32)
            y = x * cos + other * tl.load(sin_ptr + angle + i, mask=turns, other=0.0)
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
        dscale = dtime * time + tl.sum(tl.where(live, grad * y, 0.0), 1)[:, None]
        tl.store(dscale_ptr + row, dscale, mask=row < rows)
    tl.store(du_ptr + row.to(tl.int64) * N + i, tl.where(live, scale * (dx + dtime * x / time), 0.0), mask=inside)


def _tile(n: int) -> tuple[int, int]:
    """Rows and columns of a tile of heads."""
    block = _block(n)
    return max(1, 2048 // block), block


@triton_op("horosphere::heads_forward", mutates_args={})
def _heads_forward_op(u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, query: bool, start: int, c: float) -> Tensor:
    batch, length, heads, n = u.shape
    out = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    rows, (tile, block) = batch * length * heads, _tile(n)
    turned, angle_batch = (0, 0) if cos is None else (cos.shape[-1], length if cos.shape[0] > 1 else 0)
    pointers = (u, u if cos is None else cos, u if sin is None else sin, u if scale is None else scale, out)
    fit = u.dtype in (torch.bfloat16, torch.float16)
    choices = (start, turned, scale is not None, -1.0 if query else 1.0, fit, c, n, tile, block)
    wrap_triton(_heads_forward)[(triton.cdiv(rows, tile),)](*pointers, rows, length, heads, *u.stride()[:3], angle_batch, *choices, num_warps=4)
    return out


@triton_op("horosphere::heads_backward", mutates_args={})
def _heads_backward_op(
    u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, grad: Tensor, query: bool, start: int, c: float
) -> tuple[Tensor, Tensor]:
    batch, length, heads, n = u.shape
    rows, (tile, block) = batch * length * heads, _tile(n)
    du = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((rows if scale is not None else 1,), dtype=torch.float32, device=u.device)
    turned, angle_batch = (0, 0) if cos is None else (cos.shape[-1], length if cos.shape[0] > 1 else 0)
    pointers = (u, u if cos is None else cos, u if sin is None else sin, u if scale is None else scale, grad, du, dscale)
    choices = (start, turned, scale is not None, -1.0 if query else 1.0, c, n, tile, block)
    strides = (*u.stride()[:3], angle_batch, *grad.stride()[:3])
    wrap_triton(_heads_backward)[(triton.cdiv(rows, tile),)](*pointers, rows, length, heads, *strides, *choices, num_warps=4)
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
    out: Tensor = _Heads.apply(u if u.stride(-1) == 1 else u.contiguous(), cos, sin, scale, query, start, c)
    return out


@triton.jit
def _centre_forward(  # type: ignore[no-untyped-def]
    z_ptr, out_ptr, rows, length, heads, batch_stride, token_stride, head_stride, C: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # int32: 64-bit divisions cost more than the memory
    i = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (i < N)
    token = row // heads
    batch, place, head = token // length, token % length, row % heads
    start = z_ptr + batch.to(tl.int64) * batch_stride + place.to(tl.int64) * token_stride + head * head_stride
    z = tl.load(start + i, mask=inside, other=0.0).to(tl.float32)
    length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)[:, None]
    tl.store(out_ptr + row.to(tl.int64) * N + i, z * tl.rsqrt(tl.maximum(length2, 1.0)), mask=inside)


@triton.jit
def _centre_backward(  # type: ignore[no-untyped-def]
    z_ptr, grad_ptr, dz_ptr, rows, length, heads, batch_stride, token_stride, head_stride, C: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # int32: 64-bit divisions cost more than the memory
    i = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (i < N)
    token = row // heads
    batch, place, head = token // length, token % length, row % heads
    start = z_ptr + batch.to(tl.int64) * batch_stride + place.to(tl.int64) * token_stride + head * head_stride
    z = tl.load(start + i, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + row.to(tl.int64) * N + i, mask=inside, other=0.0).to(tl.float32)
    length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)[:, None]
    inverse = tl.rsqrt(tl.maximum(length2, 1.0))
    dlength2 = -0.5 * inverse * inverse * inverse * tl.sum(grad * z, 1)[:, None]
    dcone = tl.where(length2 > 1.0, 2.0 * C * dlength2, 0.0)
    tl.store(dz_ptr + row.to(tl.int64) * N + i, grad * inverse + tl.where(i == 0, dcone * z, -dcone * z), mask=inside)


@triton_op("horosphere::centre_forward", mutates_args={})
def _centre_forward_op(z: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    out = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    rows, (tile, block) = batch * length * heads, _tile(n)
    wrap_triton(_centre_forward)[(triton.cdiv(rows, tile),)](z, out, rows, length, heads, *z.stride()[:3], c, n, tile, block, num_warps=4)
    return out


@triton_op("horosphere::centre_backward", mutates_args={})
def _centre_backward_op(z: Tensor, grad: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    dz = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    rows, (tile, block) = batch * length * heads, _tile(n)
    wrap_triton(_centre_backward)[(triton.cdiv(rows, tile),)](z, grad, dz, rows, length, heads, *z.stride()[:3], c, n, tile, block, num_warps=4)
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
def _mixture_forward(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, out_ptr, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    z = tl.zeros((BLOCK,), tl.float32)
    time = 0.0
    total = 0.0
    for j in tl.static_range(ACTIVE):
        pair = token * ACTIVE + j
        y = tl.load(y_ptr + tl.load(place_ptr + pair) * n + i, mask=live, other=0.0).to(tl.float32)
        if FACTOR:
            y = y / tl.load(factor_ptr + pair)
        weight = tl.load(weight_ptr + pair)
        z += weight * y
        time += weight * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += weight
    for j in tl.static_range(SHARED):
        y = tl.load(shared_ptr + (j * tokens + token) * n + i, mask=live, other=0.0).to(tl.float32)
        if FACTOR:
            y = y / tl.load(shared_factor_ptr + j)
        z += y
        time += tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += 1.0
    length2 = C * (time * time - tl.sum(z * z, 0))
    tl.store(out_ptr + token * n + i, z * tl.rsqrt(tl.maximum(length2, total * total)), mask=i < n)


@triton.jit
def _mixture_backward(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, grad_ptr, dy_ptr, dweight_ptr, dfactor_ptr, dshared_ptr,
    dshared_factor_ptr, tokens, n, ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    grad = tl.load(grad_ptr + token * n + i, mask=live, other=0.0).to(tl.float32)
    z = tl.zeros((BLOCK,), tl.float32)
    time = 0.0
    total = 0.0
    for j in tl.static_range(ACTIVE):
        pair = token * ACTIVE + j
        y = tl.load(y_ptr + tl.load(place_ptr + pair) * n + i, mask=live, other=0.0).to(tl.float32)
        if FACTOR:
            y = y / tl.load(factor_ptr + pair)
        weight = tl.load(weight_ptr + pair)
        z += weight * y
        time += weight * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += weight
    for j in tl.static_range(SHARED):
        y = tl.load(shared_ptr + (j * tokens + token) * n + i, mask=live, other=0.0).to(tl.float32)
        if FACTOR:
            y = y / tl.load(shared_factor_ptr + j)
        z += y
        time += tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += 1.0
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
        y = tl.load(y_ptr + where * n + i, mask=live, other=0.0).to(tl.float32)
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
        y = tl.load(shared_ptr + (j * tokens + token) * n + i, mask=live, other=0.0).to(tl.float32)
        factor = 1.0
        if FACTOR:
            factor = tl.load(shared_factor_ptr + j)
        y = y / factor
        dy = dz + dtime * y / tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        tl.store(dshared_ptr + (j * tokens + token) * n + i, dy / factor, mask=i < n)
        if FACTOR:
            tl.store(dshared_factor_ptr + j * tokens + token, -tl.sum(dy * y, 0) / factor)


@triton_op("horosphere::mixture_forward", mutates_args={})
def _mixture_forward_op(
    y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, c: float
) -> Tensor:
    (tokens, active), n = weight.shape, y.shape[-1]
    out = torch.empty((tokens, n), dtype=y.dtype, device=y.device)
    pointers = (y, place, weight, y if factor is None else factor, y if shared is None else shared, y if shared_factor is None else shared_factor, out)
    choices = (active, 0 if shared is None else shared.shape[0], factor is not None, c, _block(n))
    wrap_triton(_mixture_forward)[(tokens,)](*pointers, tokens, n, *choices, num_warps=_warps(_block(n)))
    return out


@triton_op("horosphere::mixture_backward", mutates_args={})
def _mixture_backward_op(
    y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, grad: Tensor, c: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (tokens, active), n = weight.shape, y.shape[-1]
    count = 0 if shared is None else shared.shape[0]
    dy = torch.empty_like(y)
    dweight, dfactor = torch.empty_like(weight), torch.empty_like(weight)
    dshared = torch.empty((count, tokens, n), dtype=y.dtype, device=y.device)
    dshared_factor = torch.empty((count, tokens), dtype=torch.float32, device=y.device)
    pointers = (y, place, weight, y if factor is None else factor, y if shared is None else shared, y if shared_factor is None else shared_factor)
    choices = (active, count, factor is not None, c, _block(n))
    results = (dy, dweight, dfactor, dshared, dshared_factor)
    wrap_triton(_mixture_backward)[(tokens,)](*pointers, grad, *results, tokens, n, *choices, num_warps=_warps(_block(n)))
    return results


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, c: float
    ) -> Tensor:
        ctx.save_for_backward(y, place, weight, factor, shared, shared_factor)
        ctx.c = c
        return _mixture_forward_op(y, place, weight, factor, shared, shared_factor, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, place, weight, factor, shared, shared_factor = ctx.saved_tensors
        dy, dweight, dfactor, dshared, dshared_factor = _mixture_backward_op(
            y, place, weight, factor, shared, shared_factor, grad.contiguous(), ctx.c
        )
        return (
            dy,
            None,
            dweight,
            None if factor is None else dfactor,
            None if shared is None else dshared,
            None if shared_factor is None else dshared_factor.sum(1),
            None,
        )


def mixture(
    y: Tensor, place: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None, c: float
) -> Tensor:
    """y (N·k, n) sorted by expert, place (N·k,) of each pair in it, weight and factor (N, k) fp32, shared (S, N, n), its factor (S,) -> (N, n)"""
    out: Tensor = _Mixture.apply(y, place, weight.contiguous(), factor, shared, shared_factor, c)
    return out


__all__ = ["centre", "gate", "gate_joint", "heads", "mixture", "norm", "residual", "residual_norm"]
