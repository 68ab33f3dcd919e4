"""The clustering of patches within their windows (nn/clustering.py, flat and soft): a program per image, window, head.

Means of cells are the centres. Patches are assigned to them by cosine, gathered, and given back: nothing between the
projection and g goes to memory. Pairs are stored patch by centre, as attention has them: a softmax over centres then is
a sum within a few threads. Large windows are read in chunks. A second pass over them computes what it needs again, and
the backward pass computes the assignment again.

Words of the kernels. A map is DOWN x ACROSS patches, cut into WINDOWS per side of TALL x WIDE patches, with SIDE x SIDE
centres in each; HEADS of WIDTH channels. rows, columns: of a window, those on the map. n, m, d: patches, centres,
channels; N, M and W are blocks of them. place, here: where patches lie in the map, and whether they do. f, v: features
and values. ALL: whether every patch of a block is on the map, so that nothing must be masked.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from horosphere.nn.kernels.launch import apply, block_of, launch, operator
from horosphere.nn.once import once

SMALLEST = 16  # patches at once: the least that tensor cores take
LARGEST = 256  # patches at once: the most that registers nearly hold, with 64 centres of 32 channels
SHARE = 64  # patches of a warp; half as many where it keeps more than 16 centres for long. As measured on an H200
STAGES = 1  # loads under way: with more, several chunks need more shared memory than small cards have


@triton.jit
def _unit(x, SHORTEST: tl.constexpr):
    """x / max(|x|, shortest) by rows, and 1 / max(|x|, shortest)"""
    inverse = tl.rsqrt(tl.maximum(tl.sum(x * x, 1), SHORTEST * SHORTEST))
    return x * inverse[:, None], inverse


@triton.jit
def _unit_backward(grad, unit, inverse, SHORTEST: tl.constexpr):
    """The gradient of `_unit`, but for the factor `inverse`."""
    # shorter vectors are scaled, not turned
    along = tl.where(inverse * SHORTEST < 0.999999, tl.sum(grad * unit, 1), 0.0)
    return grad - unit * along[:, None]


@triton.jit
def _inside(n, m, rows, columns, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr):
    """Whether patch n of a window lies in the cell of centre m, cells being those of adaptive pooling."""
    y, x, row, column = n // WIDE, n % WIDE, m // SIDE, m % SIDE
    down = (y >= row * TALL // SIDE) & (y < ((row + 1) * TALL + SIDE - 1) // SIDE) & (y < rows)
    across = (x >= column * WIDE // SIDE) & (x < ((column + 1) * WIDE + SIDE - 1) // SIDE) & (x < columns)
    return down & across & (m < SIDE * SIDE)


@triton.jit
def _cell(m, rows, columns, TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr):
    """How many patches on the map lie in the cell of centre m."""
    row, column = m // SIDE, m % SIDE
    tall = tl.minimum(((row + 1) * TALL + SIDE - 1) // SIDE, rows) - row * TALL // SIDE
    wide = tl.minimum(((column + 1) * WIDE + SIDE - 1) // SIDE, columns) - column * WIDE // SIDE
    return (tl.maximum(tall, 0) * tl.maximum(wide, 0)).to(tl.float32)


@triton.jit
def _program(HEADS: tl.constexpr, WINDOWS: tl.constexpr):
    """Which image, window and head this is."""
    i = tl.program_id(0)
    return (i // (HEADS * WINDOWS * WINDOWS)).to(tl.int64), i // HEADS % (WINDOWS * WINDOWS), i % HEADS


@triton.jit
def _on_map(
    window, DOWN: tl.constexpr, ACROSS: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    """How many rows and columns of a window are on the map; the last windows may reach beyond it."""
    if DOWN == WINDOWS * TALL and ACROSS == WINDOWS * WIDE:
        return TALL, WIDE
    return tl.minimum(DOWN - window // WINDOWS * TALL, TALL), tl.minimum(ACROSS - window % WINDOWS * WIDE, WIDE)


@triton.jit
def _place(n, window, ACROSS: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Where patch n of a window lies in a map. With SIDE for TALL and WIDE: where its centre lies among all centres."""
    return (window // WINDOWS * TALL + n // WIDE) * ACROSS + window % WINDOWS * WIDE + n % WIDE


@triton.jit
def _patches(
    k, window, rows, columns,
    ACROSS: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """The patches of chunk k: their numbers in the window, places in the map, whether they are on it.   3 x (N)"""
    n = k * N + tl.arange(0, N)
    return n, _place(n, window, ACROSS, WINDOWS, TALL, WIDE), (n // WIDE < rows) & (n % WIDE < columns)


@triton.jit
def _load(ptr, place, here, d, STRIDE: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr, ALL: tl.constexpr):
    """Rows of a head, 0 where there are none.   (N, W).   STRIDE: numbers from one place to the next."""
    at = ptr + place[:, None] * STRIDE + d[None, :]
    if ALL and WIDTH == W:
        return tl.load(at)
    return tl.load(at, mask=here[:, None] & (d < WIDTH)[None, :], other=0.0)


@triton.jit
def _store(ptr, x, place, here, d, STRIDE: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr, ALL: tl.constexpr):
    """Write what `_load` would read."""
    at = ptr + place[:, None] * STRIDE + d[None, :]
    if ALL and WIDTH == W:
        tl.store(at, x)
    else:
        tl.store(at, x, mask=here[:, None] & (d < WIDTH)[None, :])


@triton.jit
def _means(
    joint_ptr, window, rows, columns, share,
    ACROSS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, WINDOWS: tl.constexpr, TALL: tl.constexpr,
    WIDE: tl.constexpr, SIDE: tl.constexpr, CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, W: tl.constexpr,
    ALL: tl.constexpr,
):  # fmt: skip
    """Features and values, means over the cells of a window and those of the last chunk.   2 x (M, W), 2 x (N, W)

    share: 1 / the patches of each cell.
    """
    d, m = tl.arange(0, W), tl.arange(0, M)
    mean_f = tl.zeros((M, W), tl.float32)
    mean_v = tl.zeros((M, W), tl.float32)
    f = tl.zeros((N, W), joint_ptr.dtype.element_ty)
    v = tl.zeros((N, W), joint_ptr.dtype.element_ty)
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        f = _load(joint_ptr, place, here, d, 2 * HEADS * WIDTH, WIDTH, W, ALL)
        v = _load(joint_ptr + HEADS * WIDTH, place, here, d, 2 * HEADS * WIDTH, WIDTH, W, ALL)
        inside = _inside(n[None, :], m[:, None], rows, columns, TALL, WIDE, SIDE).to(f.dtype)
        mean_f = tl.dot(inside, f, mean_f, input_precision="ieee")
        mean_v = tl.dot(inside, v, mean_v, input_precision="ieee")
    return mean_f * share[:, None], mean_v * share[:, None], f, v


@triton.jit
def _assignment(
    f, unit_c, scale, bias_ptr, n, m, here, exists,
    BIASED: tl.constexpr, EVEN: tl.constexpr, M: tl.constexpr, SHORTEST: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """A of a chunk, and the inverse lengths of its features.   (N, W), (M, W) -> (N, M), (N)

    unit_c: centres over their lengths; exists: whether a centre has patches. BIASED: whether there is a position bias.
    EVEN: whether windows cut the map evenly.
    """
    wide = f.to(tl.float32)
    inverse_f = tl.rsqrt(tl.maximum(tl.sum(wide * wide, 1), SHORTEST * SHORTEST))
    logits = tl.dot(f, tl.trans(unit_c.to(f.dtype)), input_precision="ieee") * (scale * inverse_f)[:, None]
    if BIASED:
        at = bias_ptr + n[:, None] * M + m[None, :]
        logits += (tl.load(at) if ALL else tl.load(at, mask=here[:, None], other=0.0)).to(tl.float32)
    if not (BIASED and EVEN):  # there the bias is -inf
        logits = tl.where(exists[None, :], logits, -1e30)
    A = tl.exp(logits - tl.max(logits, 1)[:, None])
    share = 1.0 / tl.sum(A, 1)
    if not ALL:
        share = tl.where(here, share, 0.0)
    return A * share[:, None], inverse_f


@triton.jit
def _clusters_forward(
    joint_ptr, scale_ptr, bias_ptr, out_ptr, means_ptr, BIASED: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, WINDOWS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, SHORTEST: tl.constexpr,
    CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """g of the patches of one window and head, into out, and the means of its cells, into means.

    joint: features, then values, of all heads. The constants: the sizes of `_sizes`.
    """
    inner: tl.constexpr = HEADS * WIDTH
    centres: tl.constexpr = WINDOWS * WINDOWS * SIDE * SIDE
    even: tl.constexpr = DOWN == WINDOWS * TALL and ACROSS == WINDOWS * WIDE
    all_patches: tl.constexpr = even and TALL * WIDE % N == 0
    all_centres: tl.constexpr = SIDE * SIDE == M
    d, m = tl.arange(0, W), tl.arange(0, M)
    image, window, head = _program(HEADS, WINDOWS)
    joint_ptr += image * DOWN * ACROSS * 2 * inner + head * WIDTH
    out_ptr += image * DOWN * ACROSS * inner + head * WIDTH
    means_ptr += image * centres * 2 * inner + head * WIDTH
    bias_ptr += (window * HEADS + head) * TALL * WIDE * M
    scale = tl.load(scale_ptr).to(tl.float32)
    rows, columns = _on_map(window, DOWN, ACROSS, WINDOWS, TALL, WIDE)
    cell = _cell(m, rows, columns, TALL, WIDE, SIDE)
    exists, share = (m < SIDE * SIDE) & (cell > 0), 1.0 / tl.maximum(cell, 1.0)
    centre = _place(m, window, WINDOWS * SIDE, WINDOWS, SIDE, SIDE)

    mean_f, mean_v, f, v = _means(
        joint_ptr, window, rows, columns, share,
        ACROSS, HEADS, WIDTH, WINDOWS, TALL, WIDE, SIDE, CHUNKS, N, M, W, all_patches,
    )  # fmt: skip
    _store(means_ptr, mean_f, centre, m < SIDE * SIDE, d, 2 * inner, WIDTH, W, all_centres)
    _store(means_ptr + inner, mean_v, centre, m < SIDE * SIDE, d, 2 * inner, WIDTH, W, all_centres)
    unit_c, _inverse_c = _unit(mean_f, SHORTEST)
    gathered, total = mean_v, tl.full((M,), 1.0, tl.float32)
    A = tl.zeros((N, M), tl.float32)
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        if CHUNKS > 1:
            f = _load(joint_ptr, place, here, d, 2 * inner, WIDTH, W, all_patches)
            v = _load(joint_ptr + inner, place, here, d, 2 * inner, WIDTH, W, all_patches)
        A, _inverse_f = _assignment(
            f, unit_c, scale, bias_ptr, n, m, here, exists, BIASED, even, M, SHORTEST, all_patches
        )
        total += tl.sum(A, 0)
        gathered = tl.dot(tl.trans(A.to(v.dtype)), v, gathered, input_precision="ieee")
    gathered = gathered / total[:, None]
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        if CHUNKS > 1:
            f = _load(joint_ptr, place, here, d, 2 * inner, WIDTH, W, all_patches)
            A, _inverse_f = _assignment(
                f, unit_c, scale, bias_ptr, n, m, here, exists, BIASED, even, M, SHORTEST, all_patches
            )
        out = tl.dot(A.to(f.dtype), gathered.to(f.dtype), input_precision="ieee")
        _store(out_ptr, out, place, here, d, inner, WIDTH, W, all_patches)


@triton.jit
def _clusters_backward(
    joint_ptr, scale_ptr, bias_ptr, grad_ptr, dmeans_ptr, djoint_ptr, dscale_ptr, dlogits_ptr, BIASED: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, WINDOWS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, SIDE: tl.constexpr, SHORTEST: tl.constexpr,
    CHUNKS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """The gradient of `_clusters_forward`, from grad of g and dmeans of the means.

    dscale: one number a program; dlogits: of this window and head, to be summed over images for the bias.
    """
    inner: tl.constexpr = HEADS * WIDTH
    centres: tl.constexpr = WINDOWS * WINDOWS * SIDE * SIDE
    even: tl.constexpr = DOWN == WINDOWS * TALL and ACROSS == WINDOWS * WIDE
    all_patches: tl.constexpr = even and TALL * WIDE % N == 0
    all_centres: tl.constexpr = SIDE * SIDE == M
    dtype = joint_ptr.dtype.element_ty
    d, m = tl.arange(0, W), tl.arange(0, M)
    image, window, head = _program(HEADS, WINDOWS)
    joint_ptr += image * DOWN * ACROSS * 2 * inner + head * WIDTH
    djoint_ptr += image * DOWN * ACROSS * 2 * inner + head * WIDTH
    grad_ptr += image * DOWN * ACROSS * inner + head * WIDTH
    dmeans_ptr += image * centres * 2 * inner + head * WIDTH
    bias_ptr += (window * HEADS + head) * TALL * WIDE * M
    dlogits_ptr += tl.program_id(0).to(tl.int64) * TALL * WIDE * M
    scale = tl.load(scale_ptr).to(tl.float32)
    rows, columns = _on_map(window, DOWN, ACROSS, WINDOWS, TALL, WIDE)
    cell = _cell(m, rows, columns, TALL, WIDE, SIDE)
    exists, share = (m < SIDE * SIDE) & (cell > 0), 1.0 / tl.maximum(cell, 1.0)
    centre = _place(m, window, WINDOWS * SIDE, WINDOWS, SIDE, SIDE)

    mean_f, mean_v, f, v = _means(
        joint_ptr, window, rows, columns, share,
        ACROSS, HEADS, WIDTH, WINDOWS, TALL, WIDE, SIDE, CHUNKS, N, M, W, all_patches,
    )  # fmt: skip
    unit_c, inverse_c = _unit(mean_f, SHORTEST)
    gathered, total = mean_v, tl.full((M,), 1.0, tl.float32)
    dgathered = tl.zeros((M, W), tl.float32)
    A, inverse_f = tl.zeros((N, M), tl.float32), tl.zeros((N,), tl.float32)
    grad = tl.zeros((N, W), dtype)
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        if CHUNKS > 1:
            f = _load(joint_ptr, place, here, d, 2 * inner, WIDTH, W, all_patches)
            v = _load(joint_ptr + inner, place, here, d, 2 * inner, WIDTH, W, all_patches)
        grad = _load(grad_ptr, place, here, d, inner, WIDTH, W, all_patches).to(dtype)
        A, inverse_f = _assignment(
            f, unit_c, scale, bias_ptr, n, m, here, exists, BIASED, even, M, SHORTEST, all_patches
        )
        total += tl.sum(A, 0)
        turned_A = tl.trans(A.to(dtype))
        gathered = tl.dot(turned_A, v, gathered, input_precision="ieee")
        dgathered = tl.dot(turned_A, grad, dgathered, input_precision="ieee")
    gathered = gathered / total[:, None]
    dgathered = dgathered / total[:, None]  # of the numerator
    dtotal = tl.sum(dgathered * gathered, 1)

    turned = tl.zeros((M, W), tl.float32)  # Σ_i dL_ij f_i
    df, dv = tl.zeros((N, W), tl.float32), tl.zeros((N, W), tl.float32)
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        if CHUNKS > 1:
            f = _load(joint_ptr, place, here, d, 2 * inner, WIDTH, W, all_patches)
            v = _load(joint_ptr + inner, place, here, d, 2 * inner, WIDTH, W, all_patches)
            grad = _load(grad_ptr, place, here, d, inner, WIDTH, W, all_patches).to(dtype)
            A, inverse_f = _assignment(
                f, unit_c, scale, bias_ptr, n, m, here, exists, BIASED, even, M, SHORTEST, all_patches
            )
        dA = tl.dot(grad, tl.trans(gathered.to(dtype)), input_precision="ieee")
        dA = tl.dot(v, tl.trans(dgathered.to(dtype)), dA, input_precision="ieee") - dtotal[None, :]
        dL = A * (dA - tl.sum(A * dA, 1)[:, None])
        if BIASED:
            at = dlogits_ptr + n[:, None] * M + m[None, :]
            if TALL * WIDE % N == 0:
                tl.store(at, dL)  # 0 beyond the map
            else:
                tl.store(at, dL, mask=(n < TALL * WIDE)[:, None])
        dv = tl.dot(A.to(dtype), dgathered.to(dtype), input_precision="ieee")
        dL = (dL * inverse_f[:, None]).to(dtype)
        turned = tl.dot(tl.trans(dL), f, turned, input_precision="ieee")
        df = tl.dot(dL, unit_c.to(dtype), input_precision="ieee")
        df = scale * _unit_backward(df, f.to(tl.float32) * inverse_f[:, None], inverse_f, SHORTEST)
        if CHUNKS > 1:  # kept until the gradients of the means are known
            _store(djoint_ptr, df, place, here, d, 2 * inner, WIDTH, W, all_patches)
            _store(djoint_ptr + inner, dv, place, here, d, 2 * inner, WIDTH, W, all_patches)
    tl.store(dscale_ptr + tl.program_id(0), tl.sum(turned * unit_c))

    dmean_f = _unit_backward(scale * turned, unit_c, inverse_c, SHORTEST) * inverse_c[:, None]
    dmean_f += _load(dmeans_ptr, centre, m < SIDE * SIDE, d, 2 * inner, WIDTH, W, all_centres).to(tl.float32)
    dmean_v = _load(dmeans_ptr + inner, centre, m < SIDE * SIDE, d, 2 * inner, WIDTH, W, all_centres).to(tl.float32)
    dmean_v += dgathered
    dmean_f = (dmean_f * share[:, None]).to(dtype)
    dmean_v = (dmean_v * share[:, None]).to(dtype)
    if CHUNKS > 1:
        tl.debug_barrier()  # what the other threads kept
    for k in range(CHUNKS):
        n, place, here = _patches(k, window, rows, columns, ACROSS, WINDOWS, TALL, WIDE, N)
        if CHUNKS > 1:
            df = _load(djoint_ptr, place, here, d, 2 * inner, WIDTH, W, all_patches).to(tl.float32)
            dv = _load(djoint_ptr + inner, place, here, d, 2 * inner, WIDTH, W, all_patches).to(tl.float32)
        inside = _inside(n[:, None], m[None, :], rows, columns, TALL, WIDE, SIDE).to(dtype)
        df = tl.dot(inside, dmean_f, df, input_precision="ieee")
        dv = tl.dot(inside, dmean_v, dv, input_precision="ieee")
        _store(djoint_ptr, df, place, here, d, 2 * inner, WIDTH, W, all_patches)
        _store(djoint_ptr + inner, dv, place, here, d, 2 * inner, WIDTH, W, all_patches)


def _sizes(
    joint: Tensor, heads: int, windows: int, side: int, shortest: float, backward: bool
) -> tuple[int, tuple[Any, ...], int]:
    """How many programs; the constants DOWN … W of the kernels; how many warps."""
    (down, across), width = joint.shape[1:3], joint.shape[3] // (2 * heads)
    tall, wide = -(-down // windows), -(-across // windows)
    patches, centres, channels = (max(SMALLEST, block_of(count)) for count in (tall * wide, side * side, width))
    whole, many = patches <= min(LARGEST, LARGEST * 32 // channels), centres > 16
    if not whole:
        patches = 128 if many else 64
    share = (SHARE // 2 if many and (backward or not whole) else SHARE) * 32 // max(32, channels)
    chunks, warps = -(-tall * wide // patches), max(1, patches // share)
    sizes = (down, across, heads, width, windows, tall, wide, side, shortest, chunks, patches, centres, channels)
    return joint.shape[0] * windows * windows * heads, sizes, warps


@operator("clusters_forward")
def _clusters_forward_op(
    joint: Tensor, scale: Tensor, bias: Tensor | None, heads: int, windows: int, side: int, shortest: float
) -> tuple[Tensor, Tensor]:
    programs, sizes, warps = _sizes(joint, heads, windows, side, shortest, backward=False)
    (batch, height, width, channels), cells = joint.shape, windows * side
    out = torch.empty((batch, height, width, channels // 2), dtype=joint.dtype, device=joint.device)
    means = torch.empty((batch, cells, cells, channels), dtype=torch.float32, device=joint.device)
    args = (joint, scale, scale if bias is None else bias, out, means, bias is not None)
    launch(_clusters_forward)[(programs,)](*args, *sizes, num_warps=warps, num_stages=STAGES)
    return out, means


@operator("clusters_backward")
def _clusters_backward_op(
    joint: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    grad: Tensor,
    dmeans: Tensor,
    heads: int,
    windows: int,
    side: int,
    shortest: float,
) -> tuple[Tensor, Tensor, Tensor]:
    programs, sizes, warps = _sizes(joint, heads, windows, side, shortest, backward=True)
    djoint = torch.empty_like(joint)
    dscale = torch.empty((programs,), dtype=torch.float32, device=joint.device)
    shape = (0,) if bias is None else (joint.shape[0], *bias.shape)
    dlogits = torch.empty(shape, dtype=joint.dtype, device=joint.device)
    args = (joint, scale, scale if bias is None else bias, grad, dmeans, djoint, dscale, dlogits, bias is not None)
    launch(_clusters_backward)[(programs,)](*args, *sizes, num_warps=warps, num_stages=STAGES)
    return djoint, dscale, dlogits


def _filled(bias: Tensor, like: Tensor) -> Tensor:
    """The bias patch by centre, in half precision, as it takes much memory; -inf beyond the last centre of a block."""
    block = max(SMALLEST, block_of(bias.shape[2]))
    return F.pad(bias.mT.to(like.dtype), (0, block - bias.shape[2]), value=float("-inf")).contiguous()


class _Clusters(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: Tensor, scale: Tensor, bias: Tensor | None, *sizes: Any) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(joint, scale, bias)
        ctx.sizes = sizes
        return _clusters_forward_op(joint, scale, bias, *sizes)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor, dmeans: Tensor) -> tuple[Tensor | None, ...]:
        joint, scale, bias = ctx.saved_tensors
        djoint, dscale, dlogits = _clusters_backward_op(
            joint, scale, bias, grad.contiguous(), dmeans.contiguous(), *ctx.sizes
        )
        dbias = None if bias is None else dlogits.sum(0, dtype=torch.float32).to(bias.dtype)
        return djoint, dscale.sum().reshape(scale.shape).to(scale.dtype), dbias, *[None] * len(ctx.sizes)


def clusters(
    joint: Tensor, scale: Tensor, bias: Tensor | None, heads: int, windows: int, side: int, shortest: float
) -> tuple[Tensor, Tensor]:
    """g (B, H, W, heads·w), and the means of cells (B, cells, cells, 2·heads·w).

    joint (B, H, W, 2·heads·w): features, then values. scale (1). bias (windows², heads, side², patches): where windows
    do not cut the map evenly, the last ones reach beyond it, and so does the bias.
    """
    filled = None if bias is None else _filled(bias, joint)
    out: tuple[Tensor, Tensor] = apply(
        _Clusters, _clusters_forward_op, joint.contiguous(), scale, filled, heads, windows, side, shortest
    )
    return out
