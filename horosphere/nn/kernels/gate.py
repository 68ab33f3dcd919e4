"""The gated product of a feed-forward layer, with its time."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.nn.kernels.launch import block_of, launch, operator, rows_of

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


@operator("gate_forward")
def _gate_forward_op(gate: Tensor, up: Tensor, c: float) -> Tensor:
    rows, n = gate.shape
    out = torch.empty((rows, n), dtype=gate.dtype, device=gate.device)
    launch(_gate_forward)[(rows,)](gate, up, gate, out, n, n, False, c, block_of(n), num_warps=_gate_warps(block_of(n)))
    return out


@operator("gate_backward")
def _gate_backward_op(gate: Tensor, up: Tensor, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    rows, n = gate.shape
    dgate, dup = torch.empty((rows, n), dtype=gate.dtype, device=gate.device), torch.empty((rows, n), dtype=gate.dtype, device=gate.device)
    args = (gate, up, gate, grad, dgate, dup, gate, n, n, False, False, c, block_of(n))
    launch(_gate_backward)[(rows,)](*args, num_warps=_gate_warps(block_of(n)))
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
        return *_gate_backward_op(gate, up, rows_of(grad), ctx.c), None


def gate(gate: Tensor, up: Tensor, c: float) -> Tensor:
    out: Tensor = _Gate.apply(rows_of(gate), rows_of(up), c)
    return out.view(gate.shape)


@operator("gate_joint_forward")
def _gate_joint_forward_op(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    rows, n = joint.shape[0], joint.shape[1] // 2
    out = torch.empty((rows, n), dtype=joint.dtype, device=joint.device)
    args = (joint, joint, joint if factor is None else factor, out, 2 * n, n, factor is not None, c, block_of(n))
    launch(_gate_forward)[(rows,)](*args, num_warps=_gate_warps(block_of(n)))
    return out


@operator("gate_joint_backward")
def _gate_joint_backward_op(joint: Tensor, factor: Tensor | None, grad: Tensor, c: float) -> tuple[Tensor, Tensor]:
    rows, n = joint.shape[0], joint.shape[1] // 2
    djoint = torch.empty((rows, 2 * n), dtype=joint.dtype, device=joint.device)
    dfactor = torch.empty((rows,), dtype=torch.float32, device=joint.device)
    args = (joint, joint, joint if factor is None else factor, grad, djoint, joint, dfactor, 2 * n, n, True, factor is not None, c, block_of(n))
    launch(_gate_backward)[(rows,)](*args, num_warps=_gate_warps(block_of(n)))
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
        djoint, dfactor = _gate_joint_backward_op(joint, factor, rows_of(grad), ctx.c)
        return djoint, None if factor is None else dfactor.view_as(factor).to(factor.dtype), None


def gate_joint(joint: Tensor, factor: Tensor | None, c: float) -> Tensor:
    """Gate and up side by side, as the experts' product leaves them; so is the gradient."""
    out: Tensor = _GateJoint.apply(rows_of(joint), None if factor is None else factor.contiguous(), c)
    return out.view(*joint.shape[:-1], -1)
