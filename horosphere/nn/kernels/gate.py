"""The gated product of a feed-forward layer, with its time; on the sphere its direction."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.geometry.slots import FLOOR
from horosphere.nn.kernels.launch import apply, block_of, launch, operator, pointers_to, rows_of
from horosphere.nn.once import once

# -- gate: silu(s·g)·(s·u) with its time, s one factor a row (√(c/c_e) of an expert) -----------------------------------


@triton.jit
def _gate_forward(
    joint_ptr, factor_ptr, out_ptr, n,
    FACTOR: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program a row. joint: gate and up side by side (rows, 2n). FACTOR: whether rows have a factor s."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = i < n
    if C > 0:
        live = live & (i > 0)
    gate = tl.where(live, tl.load(joint_ptr + row * 2 * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    up = tl.where(live, tl.load(joint_ptr + row * 2 * n + n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    h = factor * gate * tl.sigmoid(factor * gate) * (factor * up)
    h2 = tl.sum(h * h, 0)
    if C > 0:
        time = tl.sqrt((factor * factor / C + h2) / n)
        h = tl.where(i == 0, time, h)
    else:
        h = h * tl.rsqrt(h2 / n + FLOOR)
    tl.store(out_ptr + row * n + i, h, mask=i < n)


@triton.jit
def _gate_backward(
    joint_ptr, factor_ptr, grad_ptr, djoint_ptr, dfactor_ptr, n,
    FACTOR: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_gate_forward`, from grad, that of its output (rows, n)."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = i < n
    if C > 0:
        live = live & (i > 0)
    gate = tl.where(live, tl.load(joint_ptr + row * 2 * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    up = tl.where(live, tl.load(joint_ptr + row * 2 * n + n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    grad = tl.where(live, tl.load(grad_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    factor = 1.0
    if FACTOR:
        factor = tl.load(factor_ptr + row).to(tl.float32)
    x = factor * gate
    y = factor * up
    open = tl.sigmoid(x)
    h = x * open * y
    h2 = tl.sum(h * h, 0)
    dtime = 0.0
    if C > 0:
        dtime = tl.load(grad_ptr + row * n).to(tl.float32) / (n * tl.sqrt((factor * factor / C + h2) / n))
        dh = grad + dtime * h
    else:
        inverse = tl.rsqrt(h2 / n + FLOOR)
        dh = inverse * (grad - h * (inverse * inverse * tl.sum(grad * h, 0) / n))
    dx = dh * y * open * (1.0 + x * (1.0 - open))
    dy = dh * x * open
    tl.store(djoint_ptr + row * 2 * n + i, factor * dx, mask=i < n)
    tl.store(djoint_ptr + row * 2 * n + n + i, factor * dy, mask=i < n)
    if FACTOR:
        dfactor = tl.sum(dx * gate + dy * up, 0)
        if C > 0:
            dfactor += dtime * factor / C
        tl.store(dfactor_ptr + row, dfactor)


def _gate_warps(block: int) -> int:
    return min(16, max(1, block // 512))


@operator("gate_forward")
def _gate_forward_op(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    rows, n = joint.shape[0], joint.shape[1] // 2
    out = torch.empty((rows, n), dtype=joint.dtype, device=joint.device)
    args = (*pointers_to(joint, factor, out), n, factor is not None, FLOOR, c, block_of(n))
    launch(_gate_forward)[(rows,)](*args, num_warps=_gate_warps(block_of(n)))
    return out


@operator("gate_backward")
def _gate_backward_op(joint: Tensor, factor: Tensor | None, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    rows, n = joint.shape[0], joint.shape[1] // 2
    djoint = torch.empty((rows, 2 * n), dtype=joint.dtype, device=joint.device)
    dfactor = torch.empty((rows,), dtype=torch.float32, device=joint.device)
    args = (*pointers_to(joint, factor, grad, djoint, dfactor), n, factor is not None, FLOOR, c, block_of(n))
    launch(_gate_backward)[(rows,)](*args, num_warps=_gate_warps(block_of(n)))
    return djoint, dfactor


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
        ctx.save_for_backward(joint, factor)
        ctx.c = c
        return _gate_forward_op(joint, factor, c)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        joint, factor = ctx.saved_tensors
        djoint, dfactor = _gate_backward_op(joint, factor, rows_of(grad), ctx.c)
        return djoint, None if factor is None else dfactor.view_as(factor).to(factor.dtype), None


def gate(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    """silu(s·g)·(s·u) with its time; on the sphere its direction.   (..., 2n), factor s (rows) or None -> (..., n)

    joint: gate and up side by side, as one product leaves them; so is the gradient.
    """
    out: Tensor = apply(_Gate, _gate_forward_op, rows_of(joint), None if factor is None else factor.contiguous(), c)
    return out.view(*joint.shape[:-1], -1)
