"""Heads of attention: points with their times, and their averages back on the manifold."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.geometry.manifold import HALF
from horosphere.nn.kernels.launch import apply, block_of, launch, operator, pointers_to
from horosphere.nn.once import once

# -- heads: scale·[∓x_t, rotated x]; a program takes all heads of a token, which share its angles ----------------------


@triton.jit
def _fitted(time, r2, scale, C: tl.constexpr, dtype: tl.constexpr):
    """The factor that brings a point onto its rounded time (`LorentzSlots.heads`). r2: |x|²; dtype: of the result."""
    rounded = (scale * time).to(dtype).to(tl.float32) / scale
    fit = tl.sqrt(tl.maximum((rounded * rounded - 1.0 / C) / tl.maximum(r2, 1e-30), 0.0))
    return tl.where(C * r2 > 1.0, fit, 1.0)


@triton.jit
def _columns(ptr, at, head, H: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Slots START … START + WIDTH of all heads as fp32, 0 in the slot of the time.

    at: where each head begins; head: their numbers, of which H exist. Whole aligned pieces: loads are wide.
    """
    i = tl.arange(0, BLOCK)[None, :]
    x = tl.load(ptr + at + START + i, mask=(head < H) & (i < WIDTH), other=0.0).to(tl.float32)
    return tl.where(START + i > 0, x, 0.0)


@triton.jit
def _turn(
    u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, out_ptr, out_at,
    head, H: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SIGN: tl.constexpr, FIT: tl.constexpr,
    C: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """scale·[SIGN·x_t, rotated x] for all heads of one token.

    Pointers come with where to begin: at, angle_at, out_at. head: numbers of heads, of which H exist.
    The first STILL slots are not turned, the 2·HALF_TURNED others are. FIT: whether to fit points to rounded times.
    """
    r2 = tl.zeros((head.shape[0],), tl.float32)
    if STILL > 0:
        x = _columns(u_ptr, at, head, H, 0, STILL, STILL_BLOCK)
        r2 += tl.sum(x * x, 1)
    if HALF_TURNED > 0:
        one = _columns(u_ptr, at, head, H, STILL, HALF_TURNED, TURNED_BLOCK)
        two = _columns(u_ptr, at, head, H, STILL + HALF_TURNED, HALF_TURNED, TURNED_BLOCK)
        r2 += tl.sum(one * one + two * two, 1)
    r2 = r2[:, None]
    time = tl.sqrt(1.0 / C + r2)
    fit = scale
    if FIT:
        fit = scale * _fitted(time, r2, scale, C, out_ptr.dtype.element_ty)
    if STILL > 0:
        i = tl.arange(0, STILL_BLOCK)[None, :]
        tl.store(out_ptr + out_at + i, tl.where(i == 0, SIGN * scale * time, fit * x), mask=(head < H) & (i < STILL))
    if HALF_TURNED > 0:
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        cos = tl.load(cos_ptr + angle_at + i, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle_at + HALF_TURNED + i, mask=i < HALF_TURNED, other=0.0)
        inside = (head < H) & (i < HALF_TURNED)
        first = tl.where(STILL + i == 0, SIGN * scale * time, fit * (one * cos - two * sin))
        tl.store(out_ptr + out_at + STILL + i, first, mask=inside)
        tl.store(out_ptr + out_at + STILL + HALF_TURNED + i, fit * (two * cos + one * sin), mask=inside)


@triton.jit
def _turn_back(
    u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, grad_ptr, grad_at, du_ptr,
    head, H: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SIGN: tl.constexpr,
    C: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_turn`, from grad, that of its output. Stores that of u, and returns that of the scale."""
    r2 = tl.zeros((head.shape[0],), tl.float32)
    along = tl.zeros((head.shape[0],), tl.float32)  # grad · what it is the gradient of, without the scale
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
        cos = tl.load(cos_ptr + angle_at + i, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle_at + HALF_TURNED + i, mask=i < HALF_TURNED, other=0.0)
        back_one = g_one * cos + g_two * sin
        back_two = g_two * cos - g_one * sin
        r2 += tl.sum(one * one + two * two, 1)
        along += tl.sum(back_one * one + back_two * two, 1)
    time = tl.sqrt(1.0 / C + r2)[:, None]
    dtime = SIGN * tl.load(grad_ptr + grad_at, mask=head < H, other=0.0).to(tl.float32)
    pull = dtime / time
    if STILL > 0:
        i = tl.arange(0, STILL_BLOCK)[None, :]
        tl.store(du_ptr + at + i, scale * (g + pull * x), mask=(head < H) & (i < STILL))
    if HALF_TURNED > 0:
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        inside = (head < H) & (i < HALF_TURNED)
        tl.store(du_ptr + at + STILL + i, tl.where(STILL + i > 0, scale * (back_one + pull * one), 0.0), mask=inside)
        tl.store(du_ptr + at + STILL + HALF_TURNED + i, scale * (back_two + pull * two), mask=inside)
    return tl.sum(along[:, None] + tl.where(head < H, dtime * time, 0.0))


@triton.jit
def _heads_forward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, out_ptr, angles,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    SIGN: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn`, a program a token (H heads of N slots). angles: rows of cos and sin; SCALE: whether there is a scale."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = token * H * N + head * N
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    angle_at = (token % angles) * 2 * HALF_TURNED
    _turn(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, out_ptr, at,
        head, H, STILL, HALF_TURNED, SIGN, FIT, C, STILL_BLOCK, TURNED_BLOCK,
    )  # fmt: skip


@triton.jit
def _heads_backward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, grad_ptr, du_ptr, dscale_ptr, angles,
    length, grad_batch, grad_token, grad_head,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    SIGN: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn_back`, a program a token. length: tokens in a row; grad_…: the strides of grad. dscale: one a token."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = token * H * N + head * N
    grad_at = (token // length) * grad_batch + (token % length) * grad_token + head * grad_head
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    angle_at = (token % angles) * 2 * HALF_TURNED
    dscale = _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, grad_ptr, grad_at, du_ptr,
        head, H, STILL, HALF_TURNED, SIGN, C, STILL_BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    if SCALE:
        tl.store(dscale_ptr + token, dscale)


def _tile_warps(size: int) -> int:
    return min(8, max(1, block_of(size) // 512))


def _tile(heads: int, n: int) -> dict[str, int]:
    size = block_of(heads) * block_of(n)
    return {"HEADS": block_of(heads), "BLOCK": block_of(n), "num_warps": _tile_warps(size)}


def _split_tile(heads: int, still: int, half: int) -> dict[str, int]:
    size = block_of(heads) * ((block_of(still) if still else 0) + 2 * (block_of(half) if half else 0))
    blocks = {"STILL_BLOCK": block_of(max(still, 1)), "TURNED_BLOCK": block_of(max(half, 1))}
    return {"HEADS": block_of(heads), **blocks, "num_warps": _tile_warps(size)}


@operator("heads_forward")
def _heads_forward_op(
    u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor | None, query: bool, start: int, c: float
) -> Tensor:
    batch, length, heads, n = u.shape
    out = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    pointers = pointers_to(u, cos, sin, scale, out)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], start, cos.shape[-1] // 2)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, u.dtype in HALF, c)
    launch(_heads_forward)[(batch * length,)](*pointers, angles, *choices, **_split_tile(heads, still, half))
    return out


@operator("heads_backward")
def _heads_backward_op(
    u: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    scale: Tensor | None,
    grad: Tensor,
    query: bool,
    start: int,
    c: float,
) -> tuple[Tensor, Tensor]:
    batch, length, heads, n = u.shape
    du = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((batch * length,), dtype=torch.float32, device=u.device)
    pointers = pointers_to(u, cos, sin, scale, grad, du, dscale)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], start, cos.shape[-1] // 2)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, c)
    launch(_heads_backward)[(batch * length,)](
        *pointers, angles, length, *grad.stride()[:3], *choices, **_split_tile(heads, still, half)
    )
    return du, dscale


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        scale: Tensor | None,
        query: bool,
        start: int,
        c: float,
    ) -> Tensor:
        ctx.save_for_backward(u, cos, sin, scale)
        ctx.query, ctx.start, ctx.c = query, start, c
        return _heads_forward_op(u, cos, sin, scale, query, start, c)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, cos, sin, scale = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        du, dscale = _heads_backward_op(u, cos, sin, scale, grad, ctx.query, ctx.start, ctx.c)
        return du, None, None, None if scale is None else dscale.sum().to(scale.dtype).view(1), None, None, None


def heads(
    u: Tensor, angles: tuple[Tensor, Tensor] | None, scale: Tensor | None, query: bool, start: int, c: float
) -> Tensor:
    """scale·[∓x_t, x] with the slots from `start` on turned by the angles.   (B, T, H, n) -> (B, T, H, n)"""
    cos, sin = (None, None) if angles is None else (angles[0].contiguous(), angles[1].contiguous())
    out: Tensor = apply(_Heads, _heads_forward_op, u.contiguous(), cos, sin, scale, query, start, c)
    return out


# -- queries, keys and values of full attention, side by side as one product leaves them; so is the gradient -----------


@triton.jit
def _queries_keys_values_forward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, q_ptr, k_ptr, v_ptr, angles,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, FIT: tl.constexpr,
    C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn` three times, a program a token; arguments as in `_heads_forward`. Values are not turned."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at, out = token * 3 * H * N + head * N, token * H * N + head * N
    angle_at = (token % angles) * 2 * HALF_TURNED
    scale = tl.load(scale_ptr).to(tl.float32)
    _turn(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, q_ptr, out,
        head, H, STILL, HALF_TURNED, -1.0, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    _turn(
        u_ptr, at + H * N, cos_ptr, sin_ptr, angle_at, 1.0, k_ptr, out,
        head, H, STILL, HALF_TURNED, 1.0, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    _turn(
        u_ptr, at + 2 * H * N, cos_ptr, sin_ptr, angle_at, 1.0, v_ptr, out,
        head, H, N, 0, 1.0, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip


@triton.jit
def _queries_keys_values_backward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, dq_ptr, dk_ptr, dv_ptr, du_ptr, dscale_ptr, angles,
    length, q_batch, q_token, q_head, k_batch, k_token, k_head, v_batch, v_token, v_head,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr,
    C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn_back` three times. length: tokens in a row; q_…, k_…, v_…: the strides of dq, dk and dv."""
    token = tl.program_id(0).to(tl.int64)
    row, column = token // length, token % length
    head = tl.arange(0, HEADS)[:, None]
    at = token * 3 * H * N + head * N
    angle_at = (token % angles) * 2 * HALF_TURNED
    scale = tl.load(scale_ptr).to(tl.float32)
    q_at = row * q_batch + column * q_token + head * q_head
    k_at = row * k_batch + column * k_token + head * k_head
    v_at = row * v_batch + column * v_token + head * v_head
    dscale = _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, dq_ptr, q_at, du_ptr,
        head, H, STILL, HALF_TURNED, -1.0, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    tl.store(dscale_ptr + token, dscale)
    at += H * N
    _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, 1.0, dk_ptr, k_at, du_ptr,
        head, H, STILL, HALF_TURNED, 1.0, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    at += H * N
    _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, 1.0, dv_ptr, v_at, du_ptr,
        head, H, N, 0, 1.0, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip


def _full_tile(heads: int, n: int, half: int) -> dict[str, int]:
    return {
        "HEADS": block_of(heads),
        "BLOCK": block_of(n),
        "TURNED_BLOCK": block_of(max(half, 1)),
        "num_warps": _tile_warps(block_of(heads) * n),
    }


@operator("queries_keys_values_forward")
def _queries_keys_values_forward_op(
    u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor, heads: int, c: float
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, n = u.shape[0], u.shape[1], u.shape[2] // (3 * heads)
    q, k, v = (torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device) for _ in range(3))
    pointers = pointers_to(u, cos, sin, scale, q, k, v)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], 0, n // 2)
    choices = (heads, n, still, half, u.dtype in HALF, c)
    launch(_queries_keys_values_forward)[(batch * length,)](*pointers, angles, *choices, **_full_tile(heads, n, half))
    return q, k, v


@operator("queries_keys_values_backward")
def _queries_keys_values_backward_op(
    u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor, dq: Tensor, dk: Tensor, dv: Tensor, c: float
) -> tuple[Tensor, Tensor]:
    batch, length, heads, n = dq.shape
    du = torch.empty((batch, length, 3 * heads * n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((batch * length,), dtype=torch.float32, device=u.device)
    pointers = pointers_to(u, cos, sin, scale, dq, dk, dv, du, dscale)
    angles, still, half = (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], 0, n // 2)
    strides = (*dq.stride()[:3], *dk.stride()[:3], *dv.stride()[:3])
    choices = (heads, n, still, half, c)
    launch(_queries_keys_values_backward)[(batch * length,)](
        *pointers, angles, length, *strides, *choices, **_full_tile(heads, n, half)
    )
    return du, dscale


class _QueriesKeysValues(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, cos: Tensor | None, sin: Tensor | None, scale: Tensor, heads: int, c: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(u, cos, sin, scale)
        ctx.c = c
        return _queries_keys_values_forward_op(u, cos, sin, scale, heads, c)

    @staticmethod
    @once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, cos, sin, scale = ctx.saved_tensors
        dq, dk, dv = (g if g.stride(-1) == 1 else g.contiguous() for g in grads)
        du, dscale = _queries_keys_values_backward_op(u, cos, sin, scale, dq, dk, dv, ctx.c)
        return du, None, None, dscale.sum().to(scale.dtype).view(1), None, None


def queries_keys_values(
    u: Tensor, angles: tuple[Tensor, Tensor] | None, scale: Tensor, heads: int, c: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (scaled, times negated), keys and values; the first two turned.   (B, T, 3·H·n) -> 3 x (B, T, H, n)"""
    cos, sin = (None, None) if angles is None else (angles[0].contiguous(), angles[1].contiguous())
    q, k, v = apply(_QueriesKeysValues, _queries_keys_values_forward_op, u.contiguous(), cos, sin, scale, heads, c)
    return q, k, v


# -- keys and values of latent attention: k = [k_t, W_k z, one rotated key for all heads], v = [v_t, W_v z] ------------


@triton.jit
def _keys_values_forward(
    kv_ptr, key_ptr, k_ptr, v_ptr,
    H: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr, VALUE: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, NOPE_BLOCK: tl.constexpr, ROPE_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
):  # fmt: skip
    """A program a token. kv: [W_k z, W_v z] of H heads, NOPE + VALUE slots each; key: the rotated key, ROPE slots.

    FIT: whether to fit points to their rounded times.
    """
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
def _keys_values_backward(
    kv_ptr, key_ptr, dk_ptr, dv_ptr, dkv_ptr, dkey_ptr,
    length, k_batch, k_token, k_head, v_batch, v_token, v_head,
    H: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, NOPE_BLOCK: tl.constexpr, ROPE_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_keys_values_forward`. length: tokens in a row; k_…, v_…: the strides of dk and dv."""
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
    blocks = {"NOPE_BLOCK": block_of(nope), "ROPE_BLOCK": block_of(rope), "VALUE_BLOCK": block_of(value)}
    return {"HEADS": block_of(heads), **blocks, "num_warps": _tile_warps(block_of(heads) * sum(blocks.values()))}


@operator("keys_values_forward")
def _keys_values_forward_op(kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = kv.shape
    rope = key.shape[-1]
    k = torch.empty((batch, length, heads, nope + rope), dtype=kv.dtype, device=kv.device)
    v = torch.empty((batch, length, heads, width - nope), dtype=kv.dtype, device=kv.device)
    choices = (heads, nope, rope, width - nope, kv.dtype in HALF, c)
    launch(_keys_values_forward)[(batch * length,)](
        kv, key, k, v, *choices, **_latent_tile(heads, nope, rope, width - nope)
    )
    return k, v


@operator("keys_values_backward")
def _keys_values_backward_op(
    kv: Tensor, key: Tensor, dk: Tensor, dv: Tensor, nope: int, c: float
) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = kv.shape
    rope = key.shape[-1]
    dkv = torch.empty((batch, length, heads, width), dtype=kv.dtype, device=kv.device)
    dkey = torch.empty((batch, length, rope), dtype=key.dtype, device=kv.device)
    choices = (heads, nope, rope, width - nope, c)
    strides = (*dk.stride()[:3], *dv.stride()[:3])
    tile = _latent_tile(heads, nope, rope, width - nope)
    launch(_keys_values_backward)[(batch * length,)](kv, key, dk, dv, dkv, dkey, length, *strides, *choices, **tile)
    return dkv, dkey


class _KeysValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(kv, key)
        ctx.nope, ctx.c = nope, c
        return _keys_values_forward_op(kv, key, nope, c)

    @staticmethod
    @once
    def backward(ctx: Any, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        kv, key = ctx.saved_tensors
        dk, dv = (g if g.stride(-1) == 1 else g.contiguous() for g in (dk, dv))
        return *_keys_values_backward_op(kv, key, dk, dv, ctx.nope, ctx.c), None, None


def keys_values(kv: Tensor, key: Tensor, nope: int, c: float) -> tuple[Tensor, Tensor]:
    """Keys and values with their times from [W_k z, W_v z] and the rotated key.

    (B, T, H, nope + value), (B, T, rope) -> (B, T, H, nope + rope), (B, T, H, value)
    """
    k, v = apply(_KeysValues, _keys_values_forward_op, kv.contiguous(), key.contiguous(), nope, c)
    return k, v


# -- centre: averages of heads back on the manifold --------------------------------------------------------------------


@triton.jit
def _centre_forward(
    z_ptr, out_ptr, length, batch_stride, token_stride, head_stride,
    H: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """z/√(-c<z, z>), a program a token. length: tokens in a row; …_stride: those of z."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (head < H) & (i < N)
    at = (token // length) * batch_stride + (token % length) * token_stride + head * head_stride
    z = tl.load(z_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
    length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)[:, None]
    tl.store(out_ptr + token * H * N + head * N + i, z * tl.rsqrt(tl.maximum(length2, 1.0)), mask=inside)


@triton.jit
def _centre_backward(
    z_ptr, grad_ptr, dz_ptr, length, batch_stride, token_stride, head_stride,
    H: tl.constexpr, N: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_centre_forward`, from grad, that of its output."""
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


@operator("centre_forward")
def _centre_forward_op(z: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    out = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    launch(_centre_forward)[(batch * length,)](z, out, length, *z.stride()[:3], heads, n, c, **_tile(heads, n))
    return out


@operator("centre_backward")
def _centre_backward_op(z: Tensor, grad: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    dz = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    launch(_centre_backward)[(batch * length,)](z, grad, dz, length, *z.stride()[:3], heads, n, c, **_tile(heads, n))
    return dz


class _Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, c: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.c = c
        return _centre_forward_op(z, c)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return _centre_backward_op(z, grad.contiguous(), ctx.c), None


def centre(z: Tensor, c: float) -> Tensor:
    """z/√(-c<z, z>), time included.   (B, T, H, n) -> (B, T, H, n)"""
    out: Tensor = apply(_Centre, _centre_forward_op, z if z.stride(-1) == 1 else z.contiguous(), c)
    return out
