"""The clustering of patches within their windows (nn/clustering.py, flat and soft), a program for each window and head of an image.

Means of cells are the centres, patches are assigned to them by cosine, gathered, and given back: everything between the projection and g stays on
the chip. A window is read in chunks of patches; what a second pass over them needs is computed again, and so is the assignment in backward.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from horosphere.nn.kernels.launch import apply, block_of, launch, operator

SMALLEST, CHUNK = 16, 64  # patches at once: the least that tensor cores take, the most that registers hold with 64 centres in half precision
STAGES = 2  # of loads under way: with Triton's three the widest shapes need more shared memory than small cards have


@triton.jit
def _unit(x, SHORTEST: tl.constexpr):  # type: ignore[no-untyped-def]
    """x / max(|x|, shortest) by rows, and 1 / max(|x|, shortest)"""
    inverse = 1.0 / tl.maximum(tl.sqrt(tl.sum(x * x, 1)), SHORTEST)
    return x * inverse[:, None], inverse


@triton.jit
def _unit_backward(grad, unit, inverse, SHORTEST: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient of `_unit`."""
    along = tl.where(inverse * SHORTEST < 0.999999, tl.sum(grad * unit, 1), 0.0)  # shorter vectors are scaled, not turned
    return (grad - unit * along[:, None]) * inverse[:, None]


@triton.jit
def _program(HEADS: tl.constexpr, WINDOWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which image, window and head this is."""
    i = tl.program_id(0).to(tl.int64)
    return i // (HEADS * WINDOWS * WINDOWS), i // HEADS % (WINDOWS * WINDOWS), i % HEADS


@triton.jit
def _patches(k, image, window, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where those of chunk k lie in the maps of all images, and which there are.   (N), (N)"""
    n = k * N + tl.arange(0, N)
    row, column = window // WINDOWS * TALL + n // WIDE, window % WINDOWS * WIDE + n % WIDE
    return (image * WINDOWS * TALL + row) * WINDOWS * WIDE + column, n < TALL * WIDE


@triton.jit
def _centres(image, window, WINDOWS: tl.constexpr, SIDE: tl.constexpr, M: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same of a window's centres.   (M), (M)"""
    m = tl.arange(0, M)
    row, column = window // WINDOWS * SIDE + m // SIDE, window % WINDOWS * SIDE + m % SIDE
    return (image * WINDOWS * SIDE + row) * WINDOWS * SIDE + column, m < SIDE * SIDE


@triton.jit
def _inside(k, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, N: tl.constexpr, M: tl.constexpr):  # type: ignore[no-untyped-def]
    """Whether a patch of chunk k lies in the cell of a centre.   (M, N)"""
    n, m = k * N + tl.arange(0, N), tl.arange(0, M)
    cell = (n // WIDE) // (TALL // SIDE) * SIDE + (n % WIDE) // (WIDE // SIDE)
    return (cell[None, :] == m[:, None]) & (n < TALL * WIDE)[None, :]


@triton.jit
def _pairs(  # type: ignore[no-untyped-def]
    k, window, head, HEADS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, N: tl.constexpr, M: tl.constexpr
):  # fmt: skip
    """Where pairs of centres and patches of chunk k lie in the bias, and which there are.   (M, N), (M, N)"""
    n, m = k * N + tl.arange(0, N), tl.arange(0, M)
    at = (window * HEADS + head) * SIDE * SIDE * TALL * WIDE + m[:, None] * TALL * WIDE + n[None, :]
    return at, (m < SIDE * SIDE)[:, None] & (n < TALL * WIDE)[None, :]


@triton.jit
def _means(  # type: ignore[no-untyped-def]
    joint_ptr, HEADS: tl.constexpr, WIDTH: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr,
    CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Of the cells of a window, features and values.   (M, W), (M, W)"""
    d = tl.arange(0, W)
    image, window, head = _program(HEADS, WINDOWS)
    mean_f = tl.zeros((M, W), tl.float32)
    mean_v = tl.zeros((M, W), tl.float32)
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        inside = _inside(k, TALL, WIDE, SIDE, N, M)
        at = joint_ptr + patch[:, None] * 2 * HEADS * WIDTH + head * WIDTH + d[None, :]
        mask = here[:, None] & (d < WIDTH)[None, :]
        f = tl.load(at, mask=mask, other=0.0)
        v = tl.load(at + HEADS * WIDTH, mask=mask, other=0.0)
        mean_f += tl.dot(inside.to(f.dtype), f, input_precision="ieee")
        mean_v += tl.dot(inside.to(v.dtype), v, input_precision="ieee")
    cell: tl.constexpr = (TALL // SIDE) * (WIDE // SIDE)
    return mean_f / cell, mean_v / cell


@triton.jit
def _assignment(f, unit_c, scale, bias_ptr, pairs, live, BIASED: tl.constexpr, SHORTEST: tl.constexpr):  # type: ignore[no-untyped-def]
    """A of a chunk; its unit vectors and their inverse lengths.   (N, W), (M, W) -> (M, N), (N, W), (N)"""
    unit_f, inverse_f = _unit(f.to(tl.float32), SHORTEST)
    logits = scale * tl.dot(unit_c.to(f.dtype), tl.trans(unit_f.to(f.dtype)), input_precision="ieee")
    if BIASED:
        logits += tl.load(bias_ptr + pairs, mask=live, other=0.0).to(tl.float32)
    logits = tl.where(live, logits, -1e30)
    A = tl.exp(logits - tl.max(logits, 0)[None, :])
    return tl.where(live, A / tl.sum(A, 0)[None, :], 0.0), unit_f, inverse_f


@triton.jit
def _clusters_forward(  # type: ignore[no-untyped-def]
    joint_ptr, scale_ptr, bias_ptr, out_ptr, means_ptr, BIASED: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, WINDOWS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, SHORTEST: tl.constexpr, CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
    W: tl.constexpr,
):  # fmt: skip
    d, inner = tl.arange(0, W), HEADS * WIDTH
    image, window, head = _program(HEADS, WINDOWS)
    scale = tl.load(scale_ptr).to(tl.float32)
    mean_f, mean_v = _means(joint_ptr, HEADS, WIDTH, WINDOWS, TALL, WIDE, SIDE, CHUNKS, N, M, W)
    centre, exists = _centres(image, window, WINDOWS, SIDE, M)
    there = exists[:, None] & (d < WIDTH)[None, :]
    means = means_ptr + centre[:, None] * 2 * inner + head * WIDTH + d[None, :]
    tl.store(means, mean_f, mask=there)
    tl.store(means + inner, mean_v, mask=there)
    unit_c, _inverse_c = _unit(mean_f, SHORTEST)
    gathered, total = mean_v, tl.full((M,), 1.0, tl.float32)
    A = tl.zeros((M, N), tl.float32)
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        pairs, live = _pairs(k, window, head, HEADS, TALL, WIDE, SIDE, N, M)
        at = joint_ptr + patch[:, None] * 2 * inner + head * WIDTH + d[None, :]
        mask = here[:, None] & (d < WIDTH)[None, :]
        f = tl.load(at, mask=mask, other=0.0)
        v = tl.load(at + inner, mask=mask, other=0.0)
        A, _unit_f, _inverse_f = _assignment(f, unit_c, scale, bias_ptr, pairs, live, BIASED, SHORTEST)
        total += tl.sum(A, 1)
        gathered += tl.dot(A.to(v.dtype), v, input_precision="ieee")
    gathered = gathered / total[:, None]
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        mask = here[:, None] & (d < WIDTH)[None, :]
        if CHUNKS > 1:
            pairs, live = _pairs(k, window, head, HEADS, TALL, WIDE, SIDE, N, M)
            f = tl.load(joint_ptr + patch[:, None] * 2 * inner + head * WIDTH + d[None, :], mask=mask, other=0.0)
            A, _unit_f, _inverse_f = _assignment(f, unit_c, scale, bias_ptr, pairs, live, BIASED, SHORTEST)
        dtype = joint_ptr.dtype.element_ty
        out = tl.dot(tl.trans(A.to(dtype)), gathered.to(dtype), input_precision="ieee")
        tl.store(out_ptr + patch[:, None] * inner + head * WIDTH + d[None, :], out, mask=mask)


@triton.jit
def _clusters_backward(  # type: ignore[no-untyped-def]
    joint_ptr, scale_ptr, bias_ptr, grad_ptr, dmeans_ptr, djoint_ptr, dscale_ptr, dlogits_ptr, BIASED: tl.constexpr, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, SHORTEST: tl.constexpr,
    CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    d, inner = tl.arange(0, W), HEADS * WIDTH
    dtype = joint_ptr.dtype.element_ty
    image, window, head = _program(HEADS, WINDOWS)
    scale = tl.load(scale_ptr).to(tl.float32)
    mean_f, mean_v = _means(joint_ptr, HEADS, WIDTH, WINDOWS, TALL, WIDE, SIDE, CHUNKS, N, M, W)
    unit_c, inverse_c = _unit(mean_f, SHORTEST)
    gathered, total = mean_v, tl.full((M,), 1.0, tl.float32)
    dgathered = tl.zeros((M, W), tl.float32)
    A = tl.zeros((M, N), tl.float32)
    unit_f, inverse_f = tl.zeros((N, W), tl.float32), tl.zeros((N,), tl.float32)
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        pairs, live = _pairs(k, window, head, HEADS, TALL, WIDE, SIDE, N, M)
        at = patch[:, None] * inner + head * WIDTH + d[None, :]
        mask = here[:, None] & (d < WIDTH)[None, :]
        f = tl.load(joint_ptr + at + patch[:, None] * inner, mask=mask, other=0.0)
        v = tl.load(joint_ptr + at + patch[:, None] * inner + inner, mask=mask, other=0.0)
        A, unit_f, inverse_f = _assignment(f, unit_c, scale, bias_ptr, pairs, live, BIASED, SHORTEST)
        total += tl.sum(A, 1)
        gathered += tl.dot(A.to(dtype), v, input_precision="ieee")
        dgathered += tl.dot(A.to(dtype), tl.load(grad_ptr + at, mask=mask, other=0.0).to(dtype), input_precision="ieee")
    gathered = gathered / total[:, None]
    dgathered = dgathered / total[:, None]  # of the numerator
    dtotal = tl.sum(dgathered * gathered, 1)

    turned = tl.zeros((M, W), tl.float32)  # Σ_i dL_ji f_i
    df, dv = tl.zeros((N, W), tl.float32), tl.zeros((N, W), tl.float32)
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        pairs, live = _pairs(k, window, head, HEADS, TALL, WIDE, SIDE, N, M)
        at = patch[:, None] * inner + head * WIDTH + d[None, :]
        mask = here[:, None] & (d < WIDTH)[None, :]
        if CHUNKS > 1:
            f = tl.load(joint_ptr + at + patch[:, None] * inner, mask=mask, other=0.0)
            A, unit_f, inverse_f = _assignment(f, unit_c, scale, bias_ptr, pairs, live, BIASED, SHORTEST)
        v = tl.load(joint_ptr + at + patch[:, None] * inner + inner, mask=mask, other=0.0)
        grad = tl.load(grad_ptr + at, mask=mask, other=0.0).to(dtype)
        dA = tl.dot(gathered.to(dtype), tl.trans(grad), input_precision="ieee")
        dA += tl.dot(dgathered.to(dtype), tl.trans(v), input_precision="ieee")
        dA -= dtotal[:, None]
        dlogits = A * (dA - tl.sum(A * dA, 0)[None, :])
        if BIASED:
            every: tl.constexpr = WINDOWS * WINDOWS * HEADS * SIDE * SIDE * TALL * WIDE
            tl.store(dlogits_ptr + image * every + pairs, dlogits, mask=live)
        turned += tl.dot(dlogits.to(dtype), unit_f.to(dtype), input_precision="ieee")
        df = scale * tl.dot(tl.trans(dlogits.to(dtype)), unit_c.to(dtype), input_precision="ieee")
        df = _unit_backward(df, unit_f, inverse_f, SHORTEST)
        dv = tl.dot(tl.trans(A.to(dtype)), dgathered.to(dtype), input_precision="ieee")
        if CHUNKS > 1:  # kept until the gradients of the means are known
            tl.store(djoint_ptr + at + patch[:, None] * inner, df, mask=mask)
            tl.store(djoint_ptr + at + patch[:, None] * inner + inner, dv, mask=mask)
    tl.store(dscale_ptr + tl.program_id(0), tl.sum(turned * unit_c))

    centre, exists = _centres(image, window, WINDOWS, SIDE, M)
    there = exists[:, None] & (d < WIDTH)[None, :]
    means = dmeans_ptr + centre[:, None] * 2 * inner + head * WIDTH + d[None, :]
    cell: tl.constexpr = (TALL // SIDE) * (WIDE // SIDE)
    dmean_f = (_unit_backward(scale * turned, unit_c, inverse_c, SHORTEST) + tl.load(means, mask=there, other=0.0).to(tl.float32)) / cell
    dmean_v = (dgathered + tl.load(means + inner, mask=there, other=0.0).to(tl.float32)) / cell
    if CHUNKS > 1:
        tl.debug_barrier()  # what the other threads kept
    for k in range(CHUNKS):
        patch, here = _patches(k, image, window, WINDOWS, TALL, WIDE, N)
        at = djoint_ptr + patch[:, None] * 2 * inner + head * WIDTH + d[None, :]
        mask = here[:, None] & (d < WIDTH)[None, :]
        if CHUNKS > 1:
            df = tl.load(at, mask=mask, other=0.0).to(tl.float32)
            dv = tl.load(at + inner, mask=mask, other=0.0).to(tl.float32)
        spread = tl.trans(_inside(k, TALL, WIDE, SIDE, N, M).to(dtype))
        tl.store(at, df + tl.dot(spread, dmean_f.to(dtype), input_precision="ieee"), mask=mask)
        tl.store(at + inner, dv + tl.dot(spread, dmean_v.to(dtype), input_precision="ieee"), mask=mask)


def _sizes(joint: Tensor, heads: int, windows: int, side: int, shortest: float) -> tuple[int, tuple[Any, ...], int]:
    """How many programs; what the kernels are written for; how many warps."""
    tall, wide, width = joint.shape[1] // windows, joint.shape[2] // windows, joint.shape[3] // (2 * heads)
    patches, centres, channels = (max(SMALLEST, block_of(count)) for count in (tall * wide, side * side, width))
    patches = min(patches, CHUNK)
    warps = min(8, patches * centres // 256)  # fewer spill
    chunks = -(-tall * wide // patches)
    return joint.shape[0] * windows * windows * heads, (heads, width, windows, tall, wide, side, shortest, chunks, patches, centres, channels), warps


@operator("clusters_forward")
def _clusters_forward_op(
    joint: Tensor, scale: Tensor, bias: Tensor | None, heads: int, windows: int, side: int, shortest: float
) -> tuple[Tensor, Tensor]:
    programs, sizes, warps = _sizes(joint, heads, windows, side, shortest)
    (batch, height, width, channels), cells = joint.shape, windows * side
    out = torch.empty((batch, height, width, channels // 2), dtype=joint.dtype, device=joint.device)
    means = torch.empty((batch, cells, cells, channels), dtype=torch.float32, device=joint.device)
    args = (joint, scale, scale if bias is None else bias, out, means, bias is not None)
    launch(_clusters_forward)[(programs,)](*args, *sizes, num_warps=warps, num_stages=STAGES)
    return out, means


@operator("clusters_backward")
def _clusters_backward_op(
    joint: Tensor, scale: Tensor, bias: Tensor | None, grad: Tensor, dmeans: Tensor, heads: int, windows: int, side: int, shortest: float
) -> tuple[Tensor, Tensor, Tensor]:
    programs, sizes, warps = _sizes(joint, heads, windows, side, shortest)
    djoint = torch.empty_like(joint)
    dscale = torch.empty((programs,), dtype=torch.float32, device=joint.device)
    dlogits = torch.empty((joint.shape[0], *bias.shape) if bias is not None else (0,), dtype=joint.dtype, device=joint.device)
    args = (joint, scale, scale if bias is None else bias, grad, dmeans, djoint, dscale, dlogits, bias is not None)
    launch(_clusters_backward)[(programs,)](*args, *sizes, num_warps=warps, num_stages=STAGES)
    return djoint, dscale, dlogits


class _Clusters(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: Tensor, scale: Tensor, bias: Tensor | None, *sizes: Any) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(joint, scale, bias)
        ctx.sizes = sizes
        return _clusters_forward_op(joint, scale, bias, *sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, dmeans: Tensor) -> tuple[Tensor | None, ...]:
        joint, scale, bias = ctx.saved_tensors
        djoint, dscale, dlogits = _clusters_backward_op(joint, scale, bias, grad.contiguous(), dmeans.contiguous(), *ctx.sizes)
        dbias = None if bias is None else dlogits.sum(0, dtype=torch.float32).to(bias.dtype)
        return djoint, dscale.sum().reshape(scale.shape).to(scale.dtype), dbias, *[None] * len(ctx.sizes)


def clusters(joint: Tensor, scale: Tensor, bias: Tensor | None, heads: int, windows: int, side: int, shortest: float) -> tuple[Tensor, Tensor]:
    """g, and the means of cells.   (B, H, W, 2·heads·w), (1), (windows², heads, side², patches) -> (B, H, W, heads·w), (B, cells, cells, 2·heads·w)

    `joint`: features, then values. Windows must cut the map evenly, and cells the windows.
    """
    out: tuple[Tensor, Tensor] = apply(
        _Clusters, _clusters_forward_op, joint.contiguous(), scale, None if bias is None else bias.contiguous(), heads, windows, side, shortest
    )
    return out
