"""The Triton kernels of `cuda.py`, which says what they compute together.

R runs of S streams; N features and M columns, padded; a batch of B samples. SHAPE, TILE, … are constants of a kernel.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.superposition import toy
from horosphere.superposition.sampling import ALWAYS

FIRST_ALWAYS = tl.constexpr(ALWAYS)
BETA1 = tl.constexpr(toy.BETA1)
BETA2 = tl.constexpr(toy.BETA2)
EPS = tl.constexpr(toy.EPSILON)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


class Tables(NamedTuple):
    """What the sampler of each stream looks up, as in `sampling.Sampler`."""

    seed: Tensor  # (S,)
    count_bounds: Tensor  # (S, events)
    feature_bounds: Tensor  # (S, n)
    always: Tensor  # (S,) features that are always on
    bounds: Tensor  # (S,) length of feature_bounds


class Samples(NamedTuple):
    """The batches of the streams by samples. Rows are the samples that have an active feature."""

    order: Tensor  # (S, B) the sample of each row
    rows: Tensor  # (S,) how many there are
    used: Tensor  # (S, B) slots of each sample that are in use
    feature: Tensor  # (S, slots, B), -1 for none
    value: Tensor  # (S, slots, B)


class Entries(NamedTuple):
    """The same batches by active entries, sorted by bins of features."""

    start: Tensor  # (S, bins + 1) where each bin begins
    row: Tensor  # (S, slots·B)
    feature: Tensor  # (S, slots·B)
    value: Tensor  # (S, slots·B)


class Weights(NamedTuple):
    """Weights, Adam's moments and summed losses of runs."""

    W: Tensor  # (R, N, M)
    operand: Tensor  # (R, N, M) W as the products read it
    b: Tensor  # (R, N)
    W_mean: Tensor
    W_square: Tensor
    b_mean: Tensor
    b_square: Tensor
    loss: Tensor  # (R, bins)


class Pace(NamedTuple):
    """Learning rates."""

    rate: Tensor  # (R, 3) of W, of b, and γ
    table: Tensor  # (steps, 3) the schedule's factor, and the corrections of Adam's two moments
    step: Tensor  # (1,) the step now


class Products(NamedTuple):
    """What a step of a wide run has computed before `finish`."""

    seen: Tensor  # (slots·B,) G at the active entries
    dH: Tensor  # (rows, M)
    dW: Tensor  # (N, M) the decoder's part
    db_share: Tensor  # (tiles, N)
    loss_share: Tensor  # (tiles, N)
    length: Tensor  # (N,) norms of the rows of W


class Shape(NamedTuple):
    """Sizes of runs, constants of a kernel."""

    N: int
    M: int
    SLOTS: int


class Tiling(NamedTuple):
    """How a kernel of narrow runs goes through its work, constants."""

    PRECISION: str  # of products: "ieee" or "tf32"
    WIDTH: int  # M, up to a power of 2
    TILE: int  # samples or features that a program holds
    STEP: int  # features or samples that it passes over at once
    STAGES: int


# -- batches: the ones of sampling.py, word for word ------------------------------------------------------------------


@triton.jit
def _drawn(seed, sample, draw, step):
    """The numbers of one draw: 63 random bits, and a value U(0, 2)"""
    none = sample * 0
    w0, w1, w2, _w3 = tl.philox(seed, sample, draw, none + step, none)
    bits = (((w0.to(tl.uint64) << 32) | w1.to(tl.uint64)) >> 1).to(tl.int64)
    return bits, (w2 >> 8).to(tl.float32) * (2.0 / 16777216.0)


@triton.jit
def sample(
    tables,
    step_ptr,
    samples,
    batch,
    N: tl.constexpr,
    SLOTS: tl.constexpr,
    EVENTS: tl.constexpr,
    SAMPLES: tl.constexpr,
    DRAWS: tl.constexpr,
    HALVINGS: tl.constexpr,
):
    """Slots of samples: first the features that are always on, then the events.

    An event that meets a feature which is on already leaves -1.
    """
    blocks = tl.cdiv(batch, SAMPLES)
    stream = tl.program_id(0) // blocks
    s = tl.program_id(0) % blocks * SAMPLES + tl.arange(0, SAMPLES)
    live = s < batch
    seed = tl.load(tables.seed + stream)
    step = tl.load(step_ptr)
    always = tl.load(tables.always + stream)
    none = s * 0
    u, value = _drawn(seed, s, none, step)
    events = none
    for k in range(EVENTS):
        events += (u >= tl.load(tables.count_bounds + stream * EVENTS + k)).to(tl.int32)
    tl.store(samples.used + stream * batch + s, always + events, mask=live)
    slots = samples.feature + stream.to(tl.int64) * SLOTS * batch
    values = samples.value + stream.to(tl.int64) * SLOTS * batch
    for k in range(always):
        u, value = _drawn(seed, s, (none.to(tl.int64) + k + FIRST_ALWAYS).to(tl.uint32), step)
        tl.store(slots + k * batch + s, none + k, mask=live)
        tl.store(values + k * batch + s, value, mask=live)

    draw = tl.arange(0, DRAWS)[None, :]
    none = none[:, None] + draw * 0
    bits, drawn = _drawn(seed, none + s[:, None], none + draw + 1, step)
    on = live[:, None] & (draw < events[:, None])
    low = none
    high = none + tl.load(tables.bounds + stream)
    for _halving in range(HALVINGS):
        middle = (low + high) // 2
        inside = on & (low < high)
        right = inside & (bits >= tl.load(tables.feature_bounds + stream * N + middle, mask=inside, other=0))
        low = tl.where(right, middle + 1, low)
        high = tl.where(right, high, middle)
    feature = always + low
    for k in range(tl.max(events, 0)):
        earlier = tl.sum(tl.where(on & (draw == k), feature + 1, 0), 1) - 1
        on = on & ((feature != earlier[:, None]) | (draw <= k))
    place = (always + draw) * batch + s[:, None]
    stored = live[:, None] & (always + draw < SLOTS)
    tl.store(slots + place, tl.where(on, feature, -1), mask=stored)
    tl.store(values + place, drawn, mask=stored)


@triton.jit
def compact(count_ptr, order_ptr, row_ptr, rows_ptr, widest_ptr, batch, BLOCK: tl.constexpr):
    """Rows for the samples that have an active feature, in their order; how many, and the most slots that one uses."""
    stream = tl.program_id(0)
    rows = 0
    widest = 0
    for start in range(0, batch, BLOCK):
        s = start + tl.arange(0, BLOCK)
        count = tl.load(count_ptr + stream * batch + s, mask=s < batch, other=0)
        active = (count > 0).to(tl.int32)
        row = rows + tl.cumsum(active, 0) - 1
        tl.store(order_ptr + stream * batch + row, s, mask=count > 0)
        tl.store(row_ptr + stream * batch + s, row, mask=count > 0)
        rows += tl.sum(active, 0)
        widest = tl.maximum(widest, tl.max(count, 0))
    tl.store(rows_ptr + stream, rows)
    tl.store(widest_ptr + stream, widest)


@triton.jit
def bin(
    index_ptr,
    value_ptr,
    row_ptr,
    widest_ptr,
    entries,
    batch,
    BINS: tl.constexpr,
    SLOTS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The active entries of a bin of features, behind those of the bins before it."""
    stream = tl.program_id(0) // BINS
    this = tl.program_id(0) % BINS
    base = stream.to(tl.int64) * SLOTS * batch
    slots = tl.load(widest_ptr + stream) * batch
    place = 0
    for start in range(0, slots, BLOCK):
        e = start + tl.arange(0, BLOCK)
        i = tl.load(index_ptr + base + e, mask=e < slots, other=-1)
        place += tl.sum(((i >= 0) & (i < this * SIZE)).to(tl.int32), 0)
    tl.store(entries.start + stream * (BINS + 1) + this, place)
    for start in range(0, slots, BLOCK):
        e = start + tl.arange(0, BLOCK)
        i = tl.load(index_ptr + base + e, mask=e < slots, other=-1)
        mine = (i >= this * SIZE) & (i < (this + 1) * SIZE)
        target = base + place + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(entries.row + target, tl.load(row_ptr + stream * batch + e % batch, mask=mine, other=0), mask=mine)
        tl.store(entries.feature + target, i, mask=mine)
        tl.store(entries.value + target, tl.load(value_ptr + base + e, mask=mine, other=0.0), mask=mine)
        place += tl.sum(mine.to(tl.int32), 0)
    if this == BINS - 1:
        tl.store(entries.start + stream * (BINS + 1) + BINS, place)


# -- pieces of a step -------------------------------------------------------------------------------------------------


@triton.jit
def _encoded(
    index_ptr,
    value_ptr,
    W_ptr,
    sample,
    live,
    slots,
    batch,
    column,
    M: tl.constexpr,
    SIGN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """h = Σ x_i W_i J of some samples: their active rows of W, gathered"""
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(slots):
        i = tl.load(index_ptr + k * batch + sample, mask=live, other=-1)
        x = tl.load(value_ptr + k * batch + sample, mask=live, other=0.0)
        on = (i >= 0)[:, None] & (column < M)[None, :]
        h += x[:, None] * tl.load(W_ptr + i[:, None] * M + column[None, :], mask=on, other=0.0)
    return _turned(h, column, SIGN)


@triton.jit
def _turned(h, column, SIGN: tl.constexpr):
    """h J"""
    return tl.where(column == 0, SIGN, 1.0)[None, :] * h


@triton.jit
def _decayed(w, length, rate, gamma):
    """γ >= 0: towards zero; γ < 0: rows towards norm 1"""
    change = rate * gamma
    return tl.where(gamma >= 0, (1 - change) * w, w + change * (w - w / tl.maximum(length, TINY)))


@triton.jit
def _adam(w, grad, mean, square, rate, correction1, correction2):
    mean = BETA1 * mean + (1 - BETA1) * grad
    square = BETA2 * square + (1 - BETA2) * grad * grad
    return w - rate * (mean / correction1) / (tl.sqrt(square / correction2) + EPS), mean, square


@triton.jit
def _store_step(weights, place, inside, w, grad, rate, correction1, correction2, COPY: tl.constexpr):
    """Adam's step from the decayed w; where COPY, also as the products read it"""
    mean = tl.load(weights.W_mean + place, mask=inside, other=0.0)
    square = tl.load(weights.W_square + place, mask=inside, other=0.0)
    w, mean, square = _adam(w, grad, mean, square, rate, correction1, correction2)
    tl.store(weights.W_mean + place, mean, mask=inside)
    tl.store(weights.W_square + place, square, mask=inside)
    tl.store(weights.W + place, w, mask=inside)
    if COPY:
        tl.store(weights.operand + place, w.to(weights.operand.dtype.element_ty), mask=inside)


# -- runs up to m = 128 -----------------------------------------------------------------------------------------------


@triton.jit
def to_samples(
    stream_ptr,
    samples,
    W_ptr,
    operand_ptr,
    b_ptr,
    H_ptr,
    dH_ptr,
    batch,
    SHAPE: tl.constexpr,
    ROWS: tl.constexpr,
    SIGN: tl.constexpr,
    TILING: tl.constexpr,
):
    """H and dH of a tile of samples."""
    N: tl.constexpr = SHAPE.N
    M: tl.constexpr = SHAPE.M
    SLOTS: tl.constexpr = SHAPE.SLOTS
    PRECISION: tl.constexpr = TILING.PRECISION
    WIDTH: tl.constexpr = TILING.WIDTH
    TILE: tl.constexpr = TILING.TILE
    run = (tl.program_id(0) // (ROWS // TILE)).to(tl.int64)
    tile = tl.program_id(0) % (ROWS // TILE)
    stream = tl.load(stream_ptr + run).to(tl.int64)
    rows = tl.load(samples.rows + stream)
    if tile * TILE >= rows:
        return
    row = tile * TILE + tl.arange(0, TILE)
    live = row < rows
    sample = tl.load(samples.order + stream * batch + row, mask=live, other=0)
    slots = tl.max(tl.load(samples.used + stream * batch + sample, mask=live, other=0), 0)
    index_ptr = samples.feature + stream * SLOTS * batch
    value_ptr = samples.value + stream * SLOTS * batch
    W_ptr += run * N * M
    operand_ptr += run * N * M
    b_ptr += run * N
    H_ptr += run * ROWS * M
    dH_ptr += run * ROWS * M
    column = tl.arange(0, WIDTH)
    inside = column < M

    h = _encoded(index_ptr, value_ptr, W_ptr, sample, live, slots, batch, column, M, SIGN, TILE, WIDTH)
    place = row[:, None] * M + column[None, :]
    operand = h.to(H_ptr.dtype.element_ty)
    tl.store(H_ptr + place, operand, mask=inside[None, :])

    dh = tl.zeros((TILE, WIDTH), tl.float32)
    for start in tl.range(0, N, TILING.STEP, num_stages=TILING.STAGES):
        i = start + tl.arange(0, TILING.STEP)
        w = tl.load(operand_ptr + i[:, None] * M + column[None, :], mask=inside[None, :], other=0.0)
        r = tl.maximum(tl.dot(operand, tl.trans(w), input_precision=PRECISION) + tl.load(b_ptr + i)[None, :], 0.0)
        dh = tl.dot(r.to(w.dtype), w, dh, input_precision=PRECISION)
    dh *= 2
    for k in range(slots):
        i = tl.load(index_ptr + k * batch + sample, mask=live, other=-1)
        x = tl.load(value_ptr + k * batch + sample, mask=live, other=0.0)
        w = tl.load(W_ptr + i[:, None] * M + column[None, :], mask=(i >= 0)[:, None] & inside[None, :], other=0.0)
        a = tl.sum(h * w, 1) + tl.load(b_ptr + i, mask=i >= 0, other=0.0)
        dh += tl.where(a > 0, -2 * x, 0.0)[:, None] * w
    tl.store(dH_ptr + place, _turned(dh, column, SIGN), mask=inside[None, :])


@triton.jit
def to_features(
    stream_ptr,
    rows_ptr,
    entries,
    H_ptr,
    dH_ptr,
    weights,
    pace,
    batch,
    SHAPE: tl.constexpr,
    ROWS: tl.constexpr,
    COPY: tl.constexpr,
    TILING: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """The gradient of a tile of features, and their update."""
    N: tl.constexpr = SHAPE.N
    M: tl.constexpr = SHAPE.M
    PRECISION: tl.constexpr = TILING.PRECISION
    WIDTH: tl.constexpr = TILING.WIDTH
    TILE: tl.constexpr = TILING.TILE
    STEP: tl.constexpr = TILING.STEP
    run = (tl.program_id(0) // (N // TILE)).to(tl.int64)
    tile = tl.program_id(0) % (N // TILE)
    stream = tl.load(stream_ptr + run).to(tl.int64)
    rows = tl.load(rows_ptr + stream)
    weights = Weights(
        weights.W + run * N * M,
        weights.operand + run * N * M,
        weights.b + run * N,
        weights.W_mean + run * N * M,
        weights.W_square + run * N * M,
        weights.b_mean + run * N,
        weights.b_square + run * N,
        weights.loss + run * (N // TILE),
    )
    rate_ptr = pace.rate + run * 3
    H_ptr += run * ROWS * M
    dH_ptr += run * ROWS * M
    base = stream * SHAPE.SLOTS * batch
    i = tile * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)
    inside = column < M
    place = i[:, None] * M + column[None, :]
    b = tl.load(weights.b + i)

    operand = tl.load(weights.operand + place, mask=inside[None, :], other=0.0)
    dw = tl.zeros((TILE, WIDTH), tl.float32)
    db = tl.zeros((TILE,), tl.float32)
    loss = tl.zeros((TILE,), tl.float32)
    for start in tl.range(0, rows, STEP, num_stages=TILING.STAGES):
        s = start + tl.arange(0, STEP)
        h = tl.load(H_ptr + s[:, None] * M + column[None, :], mask=inside[None, :], other=0.0)
        r = tl.maximum(tl.dot(operand, tl.trans(h), input_precision=PRECISION) + b[:, None], 0.0)
        db += tl.sum(r, 1)
        loss += tl.sum(r * r, 1)
        dw = tl.dot(r.to(h.dtype), h, dw, input_precision=PRECISION)
    # The rows that fill the last tile have h = 0, just like empty samples. So only the others are missing, perhaps a
    # negative number of them.
    empties = batch - tl.cdiv(rows, STEP) * STEP
    r = tl.maximum(b, 0.0)
    dw *= 2
    db = 2 * (db + empties * r)
    loss += empties * r * r

    bin = stream * (N // TILE + 1) + tile
    end = tl.load(entries.start + bin + 1)
    for start in range(tl.load(entries.start + bin), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        live = e < end
        s = tl.load(entries.row + base + e, mask=live, other=0)
        j = tl.load(entries.feature + base + e, mask=live, other=0)
        x = tl.load(entries.value + base + e, mask=live, other=0.0)
        here = live[:, None] & inside[None, :]
        h = tl.load(H_ptr + s[:, None] * M + column[None, :], mask=here, other=0.0).to(tl.float32)
        dh = tl.load(dH_ptr + s[:, None] * M + column[None, :], mask=here, other=0.0)
        w = tl.load(weights.W + j[:, None] * M + column[None, :], mask=here, other=0.0)
        a = tl.sum(h * w, 1) + tl.load(weights.b + j, mask=live, other=0.0)
        delta = tl.where(a > 0, -2 * x, 0.0)
        fall = (i[:, None] == j[None, :]) & live[None, :]
        dw = tl.dot(fall.to(tl.float32), delta[:, None] * h + x[:, None] * dh, dw, input_precision=PRECISION)
        db += tl.sum(tl.where(fall, delta[None, :], 0.0), 1)
        loss += tl.sum(tl.where(fall, (x * (x - 2 * tl.maximum(a, 0.0)))[None, :], 0.0), 1)
    before = tl.load(weights.loss + tile)
    b_mean = tl.load(weights.b_mean + i)
    b_square = tl.load(weights.b_square + i)
    tl.debug_barrier()  # all have read their rows of W, and b, which several threads read, before anyone writes

    tl.store(weights.loss + tile, before + tl.sum(loss, 0).to(tl.float64))
    now = pace.table + tl.load(pace.step) * 3
    factor = tl.load(now)
    correction1 = tl.load(now + 1)
    correction2 = tl.load(now + 2)
    rate = factor * tl.load(rate_ptr)
    w = tl.load(weights.W + place, mask=inside[None, :], other=0.0)
    w = _decayed(w, tl.sqrt(tl.sum(w * w, 1))[:, None], rate, tl.load(rate_ptr + 2))
    _store_step(weights, place, inside[None, :], w, dw / batch, rate, correction1, correction2, COPY)
    rate = factor * tl.load(rate_ptr + 1)
    b, b_mean, b_square = _adam(b, db / batch, b_mean, b_square, rate, correction1, correction2)
    tl.store(weights.b_mean + i, b_mean)
    tl.store(weights.b_square + i, b_square)
    tl.store(weights.b + i, b)


# -- wider runs, one at a time ----------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["stream", "capacity"])
def encode(
    samples,
    W_ptr,
    H_ptr,
    overflow_ptr,
    stream,
    batch,
    capacity,
    SHAPE: tl.constexpr,
    SIGN: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """H of a tile of samples and columns, zero behind the last row."""
    M: tl.constexpr = SHAPE.M
    rows = tl.load(samples.rows + stream)
    if rows > capacity:
        tl.store(overflow_ptr, 1)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = row < rows
    sample = tl.load(samples.order + stream * batch + row, mask=live, other=0)
    slots = tl.max(tl.load(samples.used + stream * batch + sample, mask=live, other=0), 0)
    base = tl.cast(stream, tl.int64) * SHAPE.SLOTS * batch
    index_ptr = samples.feature + base
    value_ptr = samples.value + base
    h = _encoded(index_ptr, value_ptr, W_ptr, sample, live, slots, batch, column, M, SIGN, TILE, COLUMNS)
    tl.store(H_ptr + row[:, None] * M + column[None, :], h.to(H_ptr.dtype.element_ty), mask=(column < M)[None, :])


@triton.jit(do_not_specialize=["stream", "tiles"])
def outputs(
    H_ptr,
    W_ptr,
    b_ptr,
    rows_ptr,
    G_ptr,
    db_ptr,
    loss_ptr,
    stream,
    tiles,
    SHAPE: tl.constexpr,
    PRECISION: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    GROUP: tl.constexpr,
):
    """A tile of G = 2 ReLU(H Wᵀ + b), and its share of db and of the loss."""
    N: tl.constexpr = SHAPE.N
    M: tl.constexpr = SHAPE.M
    group = tl.program_id(0) // (GROUP * (N // TILE))  # tiles that share samples run together: H stays in the cache
    size = tl.minimum(tiles - group * GROUP, GROUP)
    inner = tl.program_id(0) % (GROUP * (N // TILE))
    tile = group * GROUP + inner % size
    s = tile * TILE + tl.arange(0, TILE)
    i = inner // size * TILE + tl.arange(0, TILE)
    column = tl.arange(0, STEP)
    a = tl.zeros((TILE, TILE), tl.float32)
    if tile * TILE < tl.load(rows_ptr + stream):
        for start in range(0, M, STEP):
            inside = start + column < M
            h = tl.load(H_ptr + s[:, None] * M + (start + column)[None, :], mask=inside[None, :], other=0.0)
            w = tl.load(W_ptr + i[:, None] * M + (start + column)[None, :], mask=inside[None, :], other=0.0)
            a = tl.dot(h, tl.trans(w), a, input_precision=PRECISION)
        a = tl.maximum(a + tl.load(b_ptr + i)[None, :], 0.0)
    tl.store(G_ptr + s.to(tl.int64)[:, None] * N + i[None, :], (2 * a).to(G_ptr.dtype.element_ty))
    tl.store(db_ptr + tile * N + i, 2 * tl.sum(a, 0))
    tl.store(loss_ptr + tile * N + i, tl.sum(a * a, 0))


@triton.jit(do_not_specialize=["stream", "capacity"])
def scatter(
    entries, G_ptr, seen_ptr, stream, batch, capacity, SHAPE: tl.constexpr, BINS: tl.constexpr, ENTRIES: tl.constexpr
):
    """δ of the active entries into G. The values there before are kept for db and the loss. No two entries meet."""
    total = tl.load(entries.start + stream * (BINS + 1) + BINS)
    if tl.program_id(0) * ENTRIES >= total:
        return
    e = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    base = tl.cast(stream, tl.int64) * SHAPE.SLOTS * batch
    s = tl.load(entries.row + base + e, mask=e < total, other=capacity)
    live = s < capacity
    place = G_ptr + s.to(tl.int64) * SHAPE.N + tl.load(entries.feature + base + e, mask=live, other=0)
    x = tl.load(entries.value + base + e, mask=live, other=0.0)
    g = tl.load(place, mask=live, other=0.0).to(tl.float32)
    tl.store(seen_ptr + e, g, mask=e < total)
    tl.store(place, tl.where(g > 0, g - 2 * x, 0.0).to(G_ptr.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["stream", "capacity"])
def finish(
    rows_ptr,
    entries,
    products,
    weights,
    pace,
    stream,
    batch,
    capacity,
    SHAPE: tl.constexpr,
    SIZE: tl.constexpr,
    COPY: tl.constexpr,
    PRECISION: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """The encoder's part of dW for a bin of features and some columns, and their update.

    The program of the first columns updates b and the loss as well.
    """
    N: tl.constexpr = SHAPE.N
    M: tl.constexpr = SHAPE.M
    this = tl.program_id(0)
    i = this * SIZE + tl.arange(0, SIZE)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < M
    place = i[:, None] * M + column[None, :]
    base = tl.cast(stream, tl.int64) * SHAPE.SLOTS * batch
    dw = tl.load(products.dW + place, mask=inside[None, :], other=0.0)
    db = tl.zeros((SIZE,), tl.float32)
    loss = tl.zeros((SIZE,), tl.float32)
    bins = entries.start + stream * (N // SIZE + 1) + this
    end = tl.load(bins + 1)
    for start in range(tl.load(bins), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        s = tl.load(entries.row + base + e, mask=e < end, other=capacity)
        live = s < capacity
        j = tl.load(entries.feature + base + e, mask=live, other=0)
        x = tl.load(entries.value + base + e, mask=live, other=0.0)
        g = tl.load(products.seen + e, mask=live, other=0.0)
        dh = tl.load(products.dH + s[:, None] * M + column[None, :], mask=live[:, None] & inside[None, :], other=0.0)
        fall = (i[:, None] == j[None, :]) & live[None, :]
        dw = tl.dot(fall.to(tl.float32), x[:, None] * dh, dw, input_precision=PRECISION)
        db += tl.sum(tl.where(fall & (g > 0)[None, :], -2 * x[None, :], 0.0), 1)
        loss += tl.sum(tl.where(fall, (x * (x - g))[None, :], 0.0), 1)

    now = pace.table + tl.load(pace.step) * 3
    factor = tl.load(now)
    correction1 = tl.load(now + 1)
    correction2 = tl.load(now + 2)
    rate = factor * tl.load(pace.rate)
    w = tl.load(weights.W + place, mask=inside[None, :], other=0.0)
    w = _decayed(w, tl.load(products.length + i)[:, None], rate, tl.load(pace.rate + 2))
    _store_step(weights, place, inside[None, :], w, dw / batch, rate, correction1, correction2, COPY)
    if tl.program_id(1) == 0:
        tiles = tl.cdiv(tl.minimum(tl.load(rows_ptr + stream), capacity), TILE)
        for tile in range(tiles):
            db += tl.load(products.db_share + tile * N + i)
            loss += tl.load(products.loss_share + tile * N + i)
        b = tl.load(weights.b + i)
        r = tl.maximum(b, 0.0)
        empties = batch - tiles * TILE
        db += 2 * empties * r
        loss += empties * r * r
        before = tl.load(weights.loss + this)
        b_mean = tl.load(weights.b_mean + i)
        b_square = tl.load(weights.b_square + i)
        rate = factor * tl.load(pace.rate + 1)
        tl.debug_barrier()  # as above
        b, b_mean, b_square = _adam(b, db / batch, b_mean, b_square, rate, correction1, correction2)
        tl.store(weights.loss + this, before + tl.sum(loss, 0).to(tl.float64))
        tl.store(weights.b_mean + i, b_mean)
        tl.store(weights.b_square + i, b_square)
        tl.store(weights.b + i, b)
