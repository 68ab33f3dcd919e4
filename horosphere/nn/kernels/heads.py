"""Heads of attention: points with their times, and their averages back on the manifold."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.geometry.manifold import HALF
from horosphere.geometry.slots import FLOOR
from horosphere.nn.kernels.launch import apply, block_of, launch, operator, pointers_to
from horosphere.nn.once import once

# -- heads: scale·[∓x_t, rotated x]; a program takes all heads of a token, which share its angles ----------------------
#
# y = k·w, w = γ·x where there is a norm, else x. On the hyperboloid and in flat space k is the norm's, of x; on the
# sphere it brings w to length √N. (The torch form does that twice where there is a norm, which changes only what its ε
# left.)


@triton.jit
def _fitted(time, r2, scale, C: tl.constexpr, dtype: tl.constexpr):
    """The factor that brings a point onto its rounded time (`LorentzSlots.heads`). r2: |x|²; dtype: of the result."""
    rounded = (scale * time).to(dtype).to(tl.float32) / scale
    fit = tl.sqrt(tl.maximum((rounded * rounded - 1.0 / C) / tl.maximum(r2, 1e-30), 0.0))
    return tl.where(C * r2 > 1.0, fit, 1.0)


@triton.jit
def _columns(
    ptr, at, head, H: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Slots START … START + WIDTH of all heads as fp32, 0 in the slot of the time.

    at: where each head begins; head: their numbers, of which H exist. Whole aligned pieces: loads are wide.
    """
    i = tl.arange(0, BLOCK)[None, :]
    x = tl.load(ptr + at + START + i, mask=(head < H) & (i < WIDTH), other=0.0).to(tl.float32)
    if C > 0:
        x = tl.where(START + i > 0, x, 0.0)
    return x


@triton.jit
def _weighed(
    x, weight_ptr, START: tl.constexpr, WIDTH: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """γ·x of `_columns`, where there is a norm, and γ."""
    gamma = tl.full((1, BLOCK), 1.0, tl.float32)
    if NORM:
        i = tl.arange(0, BLOCK)[None, :]
        gamma = tl.load(weight_ptr + START + i, mask=i < WIDTH, other=0.0).to(tl.float32)
    return gamma * x, gamma


@triton.jit
def _factor(x2, w2, N: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, C: tl.constexpr):
    """k, from |x|² and |w|²."""
    if C < 0:
        return tl.rsqrt(w2 / N + EPS)
    elif NORM and C > 0:
        return tl.rsqrt(x2 / (N - 1) + EPS)
    elif NORM:
        return tl.rsqrt(x2 / N + EPS)
    return 1.0 + 0.0 * x2


@triton.jit
def _turn(
    u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, weight_ptr, out_ptr, out_at,
    head, H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SIGN: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr,
    STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """scale·[SIGN·y_t, rotated y] for all heads of one token.

    Pointers come with where to begin: at, angle_at, out_at. head: numbers of heads, of which H exist.
    The first STILL slots are not turned, the 2·HALF_TURNED others are. NORM: whether there is one; weight: its γ (N).
    FIT: whether to fit points to rounded times.
    """
    x2 = tl.zeros((head.shape[0],), tl.float32)
    w2 = tl.zeros((head.shape[0],), tl.float32)
    if STILL > 0:
        x = _columns(u_ptr, at, head, H, 0, STILL, C, STILL_BLOCK)
        x2 += tl.sum(x * x, 1)
        x, _ = _weighed(x, weight_ptr, 0, STILL, NORM, STILL_BLOCK)
        w2 += tl.sum(x * x, 1)
    if HALF_TURNED > 0:
        one = _columns(u_ptr, at, head, H, STILL, HALF_TURNED, C, TURNED_BLOCK)
        two = _columns(u_ptr, at, head, H, STILL + HALF_TURNED, HALF_TURNED, C, TURNED_BLOCK)
        x2 += tl.sum(one * one + two * two, 1)
        one, _ = _weighed(one, weight_ptr, STILL, HALF_TURNED, NORM, TURNED_BLOCK)
        two, _ = _weighed(two, weight_ptr, STILL + HALF_TURNED, HALF_TURNED, NORM, TURNED_BLOCK)
        w2 += tl.sum(one * one + two * two, 1)
    k = _factor(x2, w2, N, NORM, EPS, C)
    r2 = (k * k * w2)[:, None]
    gain = scale * k[:, None]
    time = 0.0 * r2
    if C > 0:
        time = tl.sqrt(1.0 / C + r2)
        if FIT:
            gain = gain * _fitted(time, r2, scale, C, out_ptr.dtype.element_ty)
    if STILL > 0:
        i = tl.arange(0, STILL_BLOCK)[None, :]
        y = gain * x
        if C > 0:
            y = tl.where(i == 0, SIGN * scale * time, y)
        tl.store(out_ptr + out_at + i, y, mask=(head < H) & (i < STILL))
    if HALF_TURNED > 0:
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        cos = tl.load(cos_ptr + angle_at + i, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle_at + HALF_TURNED + i, mask=i < HALF_TURNED, other=0.0)
        inside = (head < H) & (i < HALF_TURNED)
        first = gain * (one * cos - two * sin)
        if C > 0:
            first = tl.where(STILL + i == 0, SIGN * scale * time, first)
        tl.store(out_ptr + out_at + STILL + i, first, mask=inside)
        tl.store(out_ptr + out_at + STILL + HALF_TURNED + i, gain * (two * cos + one * sin), mask=inside)


@triton.jit
def _piece_back(
    x, w, gamma, back, k, pull, pushed, scale, du_ptr, at, dweight_ptr, head,
    H: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr, NORM: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Slots START … START + WIDTH of `_turn_back`, from back, the gradient of y without the scale and the time.

    pushed: what the gradient of k puts on w (on the sphere) or x, for each of its units.
    """
    i = tl.arange(0, BLOCK)[None, :]
    dw = k * scale * (back + pull * k * w)
    if C < 0:
        dw = dw - pushed * w
    dx = gamma * dw
    if NORM and C >= 0:
        dx = dx - pushed * x
    if C > 0:
        dx = tl.where(START + i > 0, dx, 0.0)
    tl.store(du_ptr + at + START + i, dx, mask=(head < H) & (i < WIDTH))
    if NORM:
        j = tl.arange(0, BLOCK)
        tl.store(dweight_ptr + START + j, tl.sum(x * dw, 0), mask=j < WIDTH)


@triton.jit
def _turn_back(
    u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, weight_ptr, grad_ptr, grad_at, du_ptr, dweight_ptr,
    head, H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SIGN: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, C: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_turn`, from grad, that of its output. Stores those of u and γ, and returns that of the scale.

    dweight: of γ, summed over the heads of this token.
    """
    x2 = tl.zeros((head.shape[0],), tl.float32)
    w2 = tl.zeros((head.shape[0],), tl.float32)
    along = tl.zeros((head.shape[0],), tl.float32)  # grad · what it is the gradient of, without scale and k
    if STILL > 0:
        x = _columns(u_ptr, at, head, H, 0, STILL, C, STILL_BLOCK)
        w, gamma = _weighed(x, weight_ptr, 0, STILL, NORM, STILL_BLOCK)
        g = _columns(grad_ptr, grad_at, head, H, 0, STILL, C, STILL_BLOCK)
        x2 += tl.sum(x * x, 1)
        w2 += tl.sum(w * w, 1)
        along += tl.sum(g * w, 1)
    if HALF_TURNED > 0:
        one = _columns(u_ptr, at, head, H, STILL, HALF_TURNED, C, TURNED_BLOCK)
        two = _columns(u_ptr, at, head, H, STILL + HALF_TURNED, HALF_TURNED, C, TURNED_BLOCK)
        w_one, gamma_one = _weighed(one, weight_ptr, STILL, HALF_TURNED, NORM, TURNED_BLOCK)
        w_two, gamma_two = _weighed(two, weight_ptr, STILL + HALF_TURNED, HALF_TURNED, NORM, TURNED_BLOCK)
        g_one = _columns(grad_ptr, grad_at, head, H, STILL, HALF_TURNED, C, TURNED_BLOCK)
        g_two = _columns(grad_ptr, grad_at, head, H, STILL + HALF_TURNED, HALF_TURNED, C, TURNED_BLOCK)
        i = tl.arange(0, TURNED_BLOCK)[None, :]
        cos = tl.load(cos_ptr + angle_at + i, mask=i < HALF_TURNED, other=1.0)
        sin = tl.load(sin_ptr + angle_at + HALF_TURNED + i, mask=i < HALF_TURNED, other=0.0)
        back_one = g_one * cos + g_two * sin
        back_two = g_two * cos - g_one * sin
        x2 += tl.sum(one * one + two * two, 1)
        w2 += tl.sum(w_one * w_one + w_two * w_two, 1)
        along += tl.sum(back_one * w_one + back_two * w_two, 1)
    k = _factor(x2, w2, N, NORM, EPS, C)
    dtime = 0.0 * x2
    time = dtime
    pull = dtime
    if C > 0:
        time = tl.sqrt(1.0 / C + k * k * w2)
        dtime = SIGN * tl.sum(tl.load(grad_ptr + grad_at, mask=head < H, other=0.0).to(tl.float32), 1)
        pull = dtime / time
    pushed = dtime
    if C < 0:
        pushed = scale * along * k * k * k / N
    elif NORM and C > 0:
        pushed = scale * (along + pull * k * w2) * k * k * k / (N - 1)
    elif NORM:
        pushed = scale * along * k * k * k / N
    dscale = tl.sum(k * along + dtime * time, 0)
    k, pull, pushed = k[:, None], pull[:, None], pushed[:, None]
    if STILL > 0:
        _piece_back(
            x, w, gamma, g, k, pull, pushed, scale, du_ptr, at, dweight_ptr, head,
            H, 0, STILL, NORM, C, STILL_BLOCK,
        )  # fmt: skip
    if HALF_TURNED > 0:
        _piece_back(
            one, w_one, gamma_one, back_one, k, pull, pushed, scale, du_ptr, at, dweight_ptr, head,
            H, STILL, HALF_TURNED, NORM, C, TURNED_BLOCK,
        )  # fmt: skip
        _piece_back(
            two, w_two, gamma_two, back_two, k, pull, pushed, scale, du_ptr, at, dweight_ptr, head,
            H, STILL + HALF_TURNED, HALF_TURNED, NORM, C, TURNED_BLOCK,
        )  # fmt: skip
    return dscale


@triton.jit
def _heads_forward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, weight_ptr, out_ptr, angles,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    SIGN: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr,
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
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, weight_ptr, out_ptr, at,
        head, H, N, STILL, HALF_TURNED, SIGN, NORM, EPS, FIT, C, STILL_BLOCK, TURNED_BLOCK,
    )  # fmt: skip


@triton.jit
def _heads_backward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, weight_ptr, grad_ptr, du_ptr, dscale_ptr, dweight_ptr, angles,
    length, grad_batch, grad_token, grad_head,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    SIGN: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, STILL_BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn_back`, a program a token. length: tokens in a row; grad_…: the strides of grad.

    dscale: one a token; dweight: one row a token.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = token * H * N + head * N
    grad_at = (token // length) * grad_batch + (token % length) * grad_token + head * grad_head
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    angle_at = (token % angles) * 2 * HALF_TURNED
    dscale = _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, weight_ptr, grad_ptr, grad_at, du_ptr, dweight_ptr + token * N,
        head, H, N, STILL, HALF_TURNED, SIGN, NORM, EPS, C, STILL_BLOCK, TURNED_BLOCK,
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


def _turned(cos: Tensor | None, n: int, start: int) -> tuple[int, int, int]:
    """Rows of angles, and how many slots stay still and half of those that turn."""
    return (1, n, 0) if cos is None else (cos.shape[0] * cos.shape[1], start, cos.shape[-1] // 2)


def _share(weight: Tensor | None, tokens: int) -> int:
    """Rows of the gradient of γ: one a token."""
    return 1 if weight is None else tokens


@operator("heads_forward")
def _heads_forward_op(
    u: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    scale: Tensor | None,
    weight: Tensor | None,
    query: bool,
    start: int,
    eps: float,
    c: float,
) -> Tensor:
    batch, length, heads, n = u.shape
    out = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    pointers = pointers_to(u, cos, sin, scale, weight, out)
    angles, still, half = _turned(cos, n, start)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, weight is not None, eps)
    tile = _split_tile(heads, still, half)
    launch(_heads_forward)[(batch * length,)](*pointers, angles, *choices, u.dtype in HALF, c, **tile)
    return out


@operator("heads_backward")
def _heads_backward_op(
    u: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    scale: Tensor | None,
    weight: Tensor | None,
    grad: Tensor,
    query: bool,
    start: int,
    eps: float,
    c: float,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, n = u.shape
    du = torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((batch * length,), dtype=torch.float32, device=u.device)
    dweight = torch.empty((_share(weight, batch * length), n), dtype=torch.float32, device=u.device)
    pointers = pointers_to(u, cos, sin, scale, weight, grad, du, dscale, dweight)
    angles, still, half = _turned(cos, n, start)
    choices = (heads, n, still, half, scale is not None, -1.0 if query else 1.0, weight is not None, eps, c)
    launch(_heads_backward)[(batch * length,)](
        *pointers, angles, length, *grad.stride()[:3], *choices, **_split_tile(heads, still, half)
    )
    return du, dscale, dweight


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        scale: Tensor | None,
        weight: Tensor | None,
        query: bool,
        start: int,
        eps: float,
        c: float,
    ) -> Tensor:
        ctx.save_for_backward(u, cos, sin, scale, weight)
        ctx.rest = (query, start, eps, c)
        return _heads_forward_op(u, cos, sin, scale, weight, *ctx.rest)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, cos, sin, scale, weight = ctx.saved_tensors
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        du, dscale, dweight = _heads_backward_op(u, cos, sin, scale, weight, grad, *ctx.rest)
        ds = None if scale is None else dscale.sum().to(scale.dtype).view(1)
        return du, None, None, ds, None if weight is None else dweight.sum(0).to(weight.dtype), *[None] * 4


def heads(
    u: Tensor,
    angles: tuple[Tensor, Tensor] | None,
    scale: Tensor | None,
    query: bool,
    start: int,
    c: float,
    weight: Tensor | None = None,
    eps: float = FLOOR,
) -> Tensor:
    """scale·[∓x_t, x] with the slots from `start` on turned by the angles.   (B, T, H, n) -> (B, T, H, n)

    weight: γ of an RMSNorm before that.
    """
    cos, sin = (None, None) if angles is None else (angles[0].contiguous(), angles[1].contiguous())
    out: Tensor = apply(
        _Heads, _heads_forward_op, u.contiguous(), cos, sin, scale, weight, query, start, eps, c
    )  # fmt: skip
    return out


# -- queries, keys and values of full attention, side by side as one product leaves them; so is the gradient -----------


@triton.jit
def _queries_keys_values_forward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, q_weight_ptr, k_weight_ptr, q_ptr, k_ptr, v_ptr, angles,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, FLOOR: tl.constexpr, FIT: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn` three times, a program a token; arguments as in `_heads_forward`. Values are not turned or normed."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at, out = token * 3 * H * N + head * N, token * H * N + head * N
    angle_at = (token % angles) * 2 * HALF_TURNED
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    _turn(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, q_weight_ptr, q_ptr, out,
        head, H, N, STILL, HALF_TURNED, -1.0, NORM, EPS, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    _turn(
        u_ptr, at + H * N, cos_ptr, sin_ptr, angle_at, 1.0, k_weight_ptr, k_ptr, out,
        head, H, N, STILL, HALF_TURNED, 1.0, NORM, EPS, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    _turn(
        u_ptr, at + 2 * H * N, cos_ptr, sin_ptr, angle_at, 1.0, k_weight_ptr, v_ptr, out,
        head, H, N, N, 0, 1.0, False, FLOOR, FIT, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip


@triton.jit
def _queries_keys_values_backward(
    u_ptr, cos_ptr, sin_ptr, scale_ptr, q_weight_ptr, k_weight_ptr, dq_ptr, dk_ptr, dv_ptr,
    du_ptr, dscale_ptr, dq_weight_ptr, dk_weight_ptr, angles,
    length, q_batch, q_token, q_head, k_batch, k_token, k_head, v_batch, v_token, v_head,
    H: tl.constexpr, N: tl.constexpr, STILL: tl.constexpr, HALF_TURNED: tl.constexpr, SCALE: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr,
):  # fmt: skip
    """`_turn_back` three times. length: tokens in a row; q_…, k_…, v_…: the strides of dq, dk and dv."""
    token = tl.program_id(0).to(tl.int64)
    row, column = token // length, token % length
    head = tl.arange(0, HEADS)[:, None]
    at = token * 3 * H * N + head * N
    angle_at = (token % angles) * 2 * HALF_TURNED
    scale = 1.0
    if SCALE:
        scale = tl.load(scale_ptr).to(tl.float32)
    q_at = row * q_batch + column * q_token + head * q_head
    k_at = row * k_batch + column * k_token + head * k_head
    v_at = row * v_batch + column * v_token + head * v_head
    dscale = _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, scale, q_weight_ptr, dq_ptr, q_at, du_ptr, dq_weight_ptr + token * N,
        head, H, N, STILL, HALF_TURNED, -1.0, NORM, EPS, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    if SCALE:
        tl.store(dscale_ptr + token, dscale)
    at += H * N
    _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, 1.0, k_weight_ptr, dk_ptr, k_at, du_ptr, dk_weight_ptr + token * N,
        head, H, N, STILL, HALF_TURNED, 1.0, NORM, EPS, C, BLOCK, TURNED_BLOCK,
    )  # fmt: skip
    at += H * N
    _turn_back(
        u_ptr, at, cos_ptr, sin_ptr, angle_at, 1.0, k_weight_ptr, dv_ptr, v_at, du_ptr, dk_weight_ptr,
        head, H, N, N, 0, 1.0, False, FLOOR, C, BLOCK, TURNED_BLOCK,
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
    u: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    scale: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    heads: int,
    eps: float,
    c: float,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, n = u.shape[0], u.shape[1], u.shape[2] // (3 * heads)
    q, k, v = (torch.empty((batch, length, heads, n), dtype=u.dtype, device=u.device) for _ in range(3))
    pointers = pointers_to(u, cos, sin, scale, q_weight, k_weight, q, k, v)
    angles, still, half = _turned(cos, n, 0)
    choices = (heads, n, still, half, scale is not None, q_weight is not None, eps, FLOOR, u.dtype in HALF, c)
    launch(_queries_keys_values_forward)[(batch * length,)](*pointers, angles, *choices, **_full_tile(heads, n, half))
    return q, k, v


@operator("queries_keys_values_backward")
def _queries_keys_values_backward_op(
    u: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    scale: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    eps: float,
    c: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, n = dq.shape
    du = torch.empty((batch, length, 3 * heads * n), dtype=u.dtype, device=u.device)
    dscale = torch.empty((batch * length,), dtype=torch.float32, device=u.device)
    shares = (_share(q_weight, batch * length), n)
    dq_weight, dk_weight = (torch.empty(shares, dtype=torch.float32, device=u.device) for _ in range(2))
    pointers = pointers_to(
        u, cos, sin, scale, q_weight, k_weight, dq, dk, dv, du, dscale, dq_weight, dk_weight
    )  # fmt: skip
    angles, still, half = _turned(cos, n, 0)
    strides = (*dq.stride()[:3], *dk.stride()[:3], *dv.stride()[:3])
    choices = (heads, n, still, half, scale is not None, q_weight is not None, eps, FLOOR, c)
    launch(_queries_keys_values_backward)[(batch * length,)](
        *pointers, angles, length, *strides, *choices, **_full_tile(heads, n, half)
    )
    return du, dscale, dq_weight, dk_weight


class _QueriesKeysValues(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        scale: Tensor | None,
        q_weight: Tensor | None,
        k_weight: Tensor | None,
        heads: int,
        eps: float,
        c: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(u, cos, sin, scale, q_weight, k_weight)
        ctx.eps, ctx.c = eps, c
        return _queries_keys_values_forward_op(u, cos, sin, scale, q_weight, k_weight, heads, eps, c)

    @staticmethod
    @once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, cos, sin, scale, *weights = ctx.saved_tensors
        dq, dk, dv = (g if g.stride(-1) == 1 else g.contiguous() for g in grads)
        du, dscale, *shares = _queries_keys_values_backward_op(
            u, cos, sin, scale, weights[0], weights[1], dq, dk, dv, ctx.eps, ctx.c
        )
        both = zip(weights, shares, strict=True)
        dweights = [None if weight is None else share.sum(0).to(weight.dtype) for weight, share in both]
        ds = None if scale is None else dscale.sum().to(scale.dtype).view(1)
        return du, None, None, ds, *dweights, None, None, None


def queries_keys_values(
    u: Tensor,
    angles: tuple[Tensor, Tensor] | None,
    scale: Tensor | None,
    heads: int,
    c: float,
    weights: tuple[Tensor, Tensor] | None = None,
    eps: float = FLOOR,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (scaled, times negated), keys and values; the first two turned.   (B, T, 3·H·n) -> 3 x (B, T, H, n)

    weights: γ of RMSNorms of queries and keys, before they are turned.
    """
    cos, sin = (None, None) if angles is None else (angles[0].contiguous(), angles[1].contiguous())
    q_weight, k_weight = weights or (None, None)
    args = (u.contiguous(), cos, sin, scale, q_weight, k_weight, heads, eps, c)
    q, k, v = apply(_QueriesKeysValues, _queries_keys_values_forward_op, *args)
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
    x = _columns(kv_ptr, row * (NOPE + VALUE), head, H, 0, NOPE, C, NOPE_BLOCK)
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
    v = _columns(kv_ptr + NOPE, row * (NOPE + VALUE), head, H, 0, VALUE, C, VALUE_BLOCK)
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
    x = _columns(kv_ptr, row * (NOPE + VALUE), head, H, 0, NOPE, C, NOPE_BLOCK)
    j = tl.arange(0, ROPE_BLOCK)[None, :]
    key = tl.load(key_ptr + token * ROPE + j, mask=j < ROPE, other=0.0).to(tl.float32)
    at = (token // length) * k_batch + (token % length) * k_token + head * k_head
    time = tl.sqrt(1.0 / C + tl.sum(x * x, 1) + tl.sum(key * key))[:, None]
    pull = tl.load(dk_ptr + at, mask=here, other=0.0).to(tl.float32) / time
    i = tl.arange(0, NOPE_BLOCK)[None, :]
    dx = _columns(dk_ptr, at, head, H, 0, NOPE, C, NOPE_BLOCK) + pull * x
    tl.store(dkv_ptr + row * (NOPE + VALUE) + i, dx, mask=here & (i < NOPE))
    dkey = tl.load(dk_ptr + at + NOPE + j, mask=here & (j < ROPE), other=0.0).to(tl.float32) + pull * key
    k = tl.arange(0, ROPE_BLOCK)
    tl.store(dkey_ptr + token * ROPE + k, tl.sum(dkey, 0), mask=k < ROPE)
    i = tl.arange(0, VALUE_BLOCK)[None, :]
    v = _columns(kv_ptr + NOPE, row * (NOPE + VALUE), head, H, 0, VALUE, C, VALUE_BLOCK)
    at = (token // length) * v_batch + (token % length) * v_token + head * v_head
    pull = tl.load(dv_ptr + at, mask=here, other=0.0).to(tl.float32) / tl.sqrt(1.0 / C + tl.sum(v * v, 1)[:, None])
    dv = _columns(dv_ptr, at, head, H, 0, VALUE, C, VALUE_BLOCK) + pull * v
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
    H: tl.constexpr, N: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """z/√(-c<z, z>), on the sphere √n·z/|z|, a program a token. length: tokens in a row; …_stride: those of z."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (head < H) & (i < N)
    at = (token // length) * batch_stride + (token % length) * token_stride + head * head_stride
    z = tl.load(z_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
    if C > 0:
        inverse = tl.rsqrt(tl.maximum(C * tl.sum(tl.where(i == 0, z * z, -z * z), 1), 1.0))
    else:
        inverse = tl.rsqrt(tl.sum(z * z, 1) / N + FLOOR)
    tl.store(out_ptr + token * H * N + head * N + i, z * inverse[:, None], mask=inside)


@triton.jit
def _centre_backward(
    z_ptr, grad_ptr, dz_ptr, length, batch_stride, token_stride, head_stride,
    H: tl.constexpr, N: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `_centre_forward`, from grad, that of its output."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (head < H) & (i < N)
    at = (token // length) * batch_stride + (token % length) * token_stride + head * head_stride
    z = tl.load(z_ptr + at + i, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + token * H * N + head * N + i, mask=inside, other=0.0).to(tl.float32)
    along = tl.sum(grad * z, 1)
    if C > 0:
        length2 = C * tl.sum(tl.where(i == 0, z * z, -z * z), 1)
        inverse = tl.rsqrt(tl.maximum(length2, 1.0))
        cone = tl.where(length2 > 1.0, -C * inverse * inverse * inverse * along, 0.0)[:, None]
        dz = grad * inverse[:, None] + tl.where(i == 0, cone * z, -cone * z)
    else:
        inverse = tl.rsqrt(tl.sum(z * z, 1) / N + FLOOR)
        dz = grad * inverse[:, None] - z * (inverse * inverse * inverse * along / N)[:, None]
    tl.store(dz_ptr + token * H * N + head * N + i, dz, mask=inside)


@operator("centre_forward")
def _centre_forward_op(z: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    out = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    launch(_centre_forward)[(batch * length,)](z, out, length, *z.stride()[:3], heads, n, FLOOR, c, **_tile(heads, n))
    return out


@operator("centre_backward")
def _centre_backward_op(z: Tensor, grad: Tensor, c: float) -> Tensor:
    batch, length, heads, n = z.shape
    dz = torch.empty((batch, length, heads, n), dtype=z.dtype, device=z.device)
    launch(_centre_backward)[(batch * length,)](
        z, grad, dz, length, *z.stride()[:3], heads, n, FLOOR, c, **_tile(heads, n)
    )
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
    """z/√(-c<z, z>), time included; on the sphere √n·z/|z|.   (B, T, H, n) -> (B, T, H, n)"""
    out: Tensor = apply(_Centre, _centre_forward_op, z if z.stride(-1) == 1 else z.contiguous(), c)
    return out
