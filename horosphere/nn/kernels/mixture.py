"""The centroid of a token's experts."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.nn.kernels.launch import apply, block_of, launch, operator, pointers_to, warps_of
from horosphere.nn.once import once

# -- mixture: the centroid of a token's experts, read where the grouped product left them ------------------------------


@triton.jit
def _mixed(
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ w·y of a token's experts, in space and time, and Σ w.

    Routed experts: rows of y, found by place, with a weight and a factor for each pair of token and choice.
    Shared experts: rows of shared, weight 1, a factor each. token, i: which row, and its slots.
    ACTIVE, SHARED: how many of each. FACTOR: whether outputs are divided by factors √(c/c_e).
    """
    live = (i > 0) & (i < n)
    z = tl.zeros((BLOCK,), tl.float32)
    time = 0.0
    total = 0.0
    for j in tl.static_range(ACTIVE):
        pair = token * ACTIVE + j
        where = tl.load(place_ptr + pair)
        y = tl.where(live, tl.load(y_ptr + where * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        if FACTOR:
            y = y / tl.load(factor_ptr + pair)
        weight = tl.load(weight_ptr + pair)
        z += weight * y
        time += weight * tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += weight
    for j in tl.static_range(SHARED):
        where = j * tokens + token
        y = tl.where(live, tl.load(shared_ptr + where * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        if FACTOR:
            y = y / tl.load(shared_factor_ptr + j)
        z += y
        time += tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        total += 1.0
    return z, time, total


@triton.jit
def _mixture_forward(
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, out_ptr, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, SCALE: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SCALE·N(Σ w·y), a program a token; arguments as in `_mixed`."""
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    z, time, total = _mixed(
        y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n,
        ACTIVE, SHARED, FACTOR, C, BLOCK,
    )  # fmt: skip
    length2 = C * (time * time - tl.sum(z * z, 0))
    tl.store(out_ptr + token * n + i, z * (SCALE * tl.rsqrt(tl.maximum(length2, total * total))), mask=i < n)


@triton.jit
def _mixture_backward(
    y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, grad_ptr,
    dy_ptr, dweight_ptr, dfactor_ptr, dshared_ptr, dshared_factor_ptr, tokens, n,
    ACTIVE: tl.constexpr, SHARED: tl.constexpr, FACTOR: tl.constexpr, SCALE: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_mixture_forward`, from grad, that of its output. dshared_factor: one number a token."""
    token = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    live = (i > 0) & (i < n)
    grad = SCALE * tl.where(live, tl.load(grad_ptr + token * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
    z, time, total = _mixed(
        y_ptr, place_ptr, weight_ptr, factor_ptr, shared_ptr, shared_factor_ptr, token, i, tokens, n,
        ACTIVE, SHARED, FACTOR, C, BLOCK,
    )  # fmt: skip
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
        where = j * tokens + token
        y = tl.where(live, tl.load(shared_ptr + where * n + i, mask=i < n, other=0.0).to(tl.float32), 0.0)
        factor = 1.0
        if FACTOR:
            factor = tl.load(shared_factor_ptr + j)
        y = y / factor
        dy = dz + dtime * y / tl.sqrt(1.0 / C + tl.sum(y * y, 0))
        tl.store(dshared_ptr + where * n + i, dy / factor, mask=i < n)
        if FACTOR:
            tl.store(dshared_factor_ptr + where, -tl.sum(dy * y, 0) / factor)


@operator("mixture_forward")
def _mixture_forward_op(
    y: Tensor,
    place: Tensor,
    weight: Tensor,
    factor: Tensor | None,
    shared: Tensor | None,
    shared_factor: Tensor | None,
    scale: float,
    c: float,
) -> Tensor:
    (tokens, active), n = weight.shape, y.shape[-1]
    out = torch.empty((tokens, n), dtype=y.dtype, device=y.device)
    pointers = pointers_to(y, place, weight, factor, shared, shared_factor, out)
    choices = (active, 0 if shared is None else shared.shape[0], factor is not None, scale, c, block_of(n))
    launch(_mixture_forward)[(tokens,)](*pointers, tokens, n, *choices, num_warps=warps_of(block_of(n)))
    return out


@operator("mixture_backward")
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
    pointers = pointers_to(y, place, weight, factor, shared, shared_factor, grad)
    choices = (active, count, factor is not None, scale, c, block_of(n))
    results = (dy, dweight, dfactor, dshared, dshared_factor)
    launch(_mixture_backward)[(tokens,)](*pointers, *results, tokens, n, *choices, num_warps=warps_of(block_of(n)))
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
    @once
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
    y: Tensor,
    place: Tensor,
    weight: Tensor,
    factor: Tensor | None,
    shared: Tensor | None,
    shared_factor: Tensor | None,
    scale: float,
    c: float,
) -> Tensor:
    """scale·N(Σ w·y/factor) over the experts of each token.   -> (N, n)

    y (N·k, n): outputs of routed experts, sorted by expert; place (N·k): where each pair of token and choice is in it;
    weight, factor (N, k) in fp32. shared (S, N, n): outputs of shared experts; shared_factor (S).
    """
    shared = None if shared is None else shared.contiguous()
    args = (y.contiguous(), place, weight.contiguous(), factor, shared, shared_factor, scale, c)
    out: Tensor = apply(_Mixture, _mixture_forward_op, *args)
    return out
