"""Thousands of runs at once on a GPU: their batches, gradients and updates in Triton kernels, one step a CUDA graph.

With H = x W (rows: samples with an active feature; the others have h = 0) and R = ReLU(H Wᵀ + b), the batch times the loss is
    Σ R² + Σ_active (x² - 2 x R) + empties · Σ ReLU(b)²
so the dense part never sees x: G = 2R, dH = G W, dW = Gᵀ H, db = Σ G, and an active entry (s, i) adds δ = -2x·1[R > 0] to G_si and x·dH_s to dW_i.
Up to m = 128 two kernels make a step, and R is never written: `_to_samples` holds a tile of H and passes over W, `_to_features` holds a tile of W,
passes over H, then over the entries that fall on its features, and updates. Wider runs go one by one, with G in memory between three products.
Nothing is added atomically: a run is the same to the last bit in any company and after any resume.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from horosphere.errors import UserError
from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.sampling import ALWAYS, Sampler
from horosphere.superposition.toy import Schedule, Toy, initial

# What the products read; sums, state and moments are fp32. fp16 has the mantissa of tf32, rounds where tf32 cuts, and moves half the bytes.
PRECISIONS = {"tf32": torch.float32, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
NARROW = 128  # widest m whose tiles stay on the chip
ROUND = 128  # samples and features are padded to multiples of this: no tile has a ragged end
BIN = 64  # active entries are sorted by features in bins of so many
CHUNK = 128  # columns of W that a program of a wide run updates
STATE = ("W", "b", "W_mean", "W_square", "b_mean", "b_square")
SIGMAS = 10  # a wide run has memory for the mean number of nonempty samples and so many standard deviations
FIRST_ALWAYS = tl.constexpr(ALWAYS)
BETA1 = tl.constexpr(0.9)
BETA2 = tl.constexpr(0.999)
EPS = tl.constexpr(1e-8)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)

# -- batches: the ones of sampling.py, word for word ---------------------------------------------------------------------


@triton.jit
def _drawn(seed, sample, draw, step):  # type: ignore[no-untyped-def]
    """Of one draw: 63 random bits, and a value U(0, 2)"""
    none = sample * 0
    w0, w1, w2, _w3 = tl.philox(seed, sample, draw, none + step, none)
    return (((w0.to(tl.uint64) << 32) | w1.to(tl.uint64)) >> 1).to(tl.int64), (w2 >> 8).to(tl.float32) * (2.0 / 16777216.0)


@triton.jit
def _sample(  # type: ignore[no-untyped-def]
    seed_ptr, count_bounds_ptr, feature_bounds_ptr, always_ptr, bounds_ptr, step_ptr, index_ptr, value_ptr, count_ptr, batch,
    N: tl.constexpr, SLOTS: tl.constexpr, EVENTS: tl.constexpr, SAMPLES: tl.constexpr, DRAWS: tl.constexpr, HALVINGS: tl.constexpr,
):  # fmt: skip
    """Slots of samples: first the features that are always on, then the events; -1 where an event met a feature that was on already."""
    blocks = tl.cdiv(batch, SAMPLES)
    stream = tl.program_id(0) // blocks
    s = tl.program_id(0) % blocks * SAMPLES + tl.arange(0, SAMPLES)
    live = s < batch
    seed = tl.load(seed_ptr + stream)
    step = tl.load(step_ptr)
    always = tl.load(always_ptr + stream)
    none = s * 0
    u, value = _drawn(seed, s, none, step)
    events = none
    for k in range(EVENTS):
        events += (u >= tl.load(count_bounds_ptr + stream * EVENTS + k)).to(tl.int32)
    tl.store(count_ptr + stream * batch + s, always + events, mask=live)
    slots = index_ptr + stream.to(tl.int64) * SLOTS * batch
    values = value_ptr + stream.to(tl.int64) * SLOTS * batch
    for k in range(always):
        u, value = _drawn(seed, s, (none.to(tl.int64) + k + FIRST_ALWAYS).to(tl.uint32), step)
        tl.store(slots + k * batch + s, none + k, mask=live)
        tl.store(values + k * batch + s, value, mask=live)

    draw = tl.arange(0, DRAWS)[None, :]
    none = none[:, None] + draw * 0
    bits, drawn = _drawn(seed, none + s[:, None], none + draw + 1, step)
    on = live[:, None] & (draw < events[:, None])
    low = none
    high = none + tl.load(bounds_ptr + stream)
    for _halving in range(HALVINGS):
        middle = (low + high) // 2
        inside = on & (low < high)
        right = inside & (bits >= tl.load(feature_bounds_ptr + stream * N + middle, mask=inside, other=0))
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
def _compact(count_ptr, order_ptr, row_ptr, rows_ptr, widest_ptr, batch, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
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
def _bin(  # type: ignore[no-untyped-def]
    index_ptr, value_ptr, row_ptr, widest_ptr, start_ptr, entry_row_ptr, entry_feature_ptr, entry_value_ptr, batch,
    BINS: tl.constexpr, SLOTS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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
    tl.store(start_ptr + stream * (BINS + 1) + this, place)
    for start in range(0, slots, BLOCK):
        e = start + tl.arange(0, BLOCK)
        i = tl.load(index_ptr + base + e, mask=e < slots, other=-1)
        mine = (i >= this * SIZE) & (i < (this + 1) * SIZE)
        target = base + place + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(entry_row_ptr + target, tl.load(row_ptr + stream * batch + e % batch, mask=mine, other=0), mask=mine)
        tl.store(entry_feature_ptr + target, i, mask=mine)
        tl.store(entry_value_ptr + target, tl.load(value_ptr + base + e, mask=mine, other=0.0), mask=mine)
        place += tl.sum(mine.to(tl.int32), 0)
    if this == BINS - 1:
        tl.store(start_ptr + stream * (BINS + 1) + BINS, place)


# -- pieces of a step ----------------------------------------------------------------------------------------------------


@triton.jit
def _encoded(index_ptr, value_ptr, W_ptr, sample, live, slots, batch, column, M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """h = Σ x_i W_i of some samples: their active rows of W, gathered"""
    h = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(slots):
        i = tl.load(index_ptr + k * batch + sample, mask=live, other=-1)
        x = tl.load(value_ptr + k * batch + sample, mask=live, other=0.0)
        h += x[:, None] * tl.load(W_ptr + i[:, None] * M + column[None, :], mask=(i >= 0)[:, None] & (column < M)[None, :], other=0.0)
    return h


@triton.jit
def _decayed(w, length, rate, gamma):  # type: ignore[no-untyped-def]
    """γ >= 0: towards zero; γ < 0: rows towards norm 1"""
    change = rate * gamma
    return tl.where(gamma >= 0, (1 - change) * w, w + change * (w - w / tl.maximum(length, TINY)))


@triton.jit
def _adam(w, grad, mean, square, rate, correction1, correction2):  # type: ignore[no-untyped-def]
    mean = BETA1 * mean + (1 - BETA1) * grad
    square = BETA2 * square + (1 - BETA2) * grad * grad
    return w - rate * (mean / correction1) / (tl.sqrt(square / correction2) + EPS), mean, square


# -- runs up to m = 128 --------------------------------------------------------------------------------------------------


@triton.jit
def _to_samples(  # type: ignore[no-untyped-def]
    stream_ptr, order_ptr, rows_ptr, count_ptr, index_ptr, value_ptr, W_ptr, operand_ptr, flipped_ptr, b_ptr, H_ptr, H_flipped_ptr, dH_ptr, batch,
    N: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, SLOTS: tl.constexpr, FLIP: tl.constexpr, PRECISION: tl.constexpr,
    WIDTH: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """H and dH of a tile of samples."""
    run = (tl.program_id(0) // (ROWS // TILE)).to(tl.int64)
    tile = tl.program_id(0) % (ROWS // TILE)
    stream = tl.load(stream_ptr + run).to(tl.int64)
    rows = tl.load(rows_ptr + stream)
    if tile * TILE >= rows:
        return
    row = tile * TILE + tl.arange(0, TILE)
    live = row < rows
    sample = tl.load(order_ptr + stream * batch + row, mask=live, other=0)
    slots = tl.max(tl.load(count_ptr + stream * batch + sample, mask=live, other=0), 0)
    index_ptr += stream * SLOTS * batch
    value_ptr += stream * SLOTS * batch
    W_ptr += run * N * M
    operand_ptr += run * N * M
    flipped_ptr += run * N * M
    b_ptr += run * N
    H_ptr += run * ROWS * M
    H_flipped_ptr += run * ROWS * M
    dH_ptr += run * ROWS * M
    column = tl.arange(0, WIDTH)
    inside = column < M

    h = _encoded(index_ptr, value_ptr, W_ptr, sample, live, slots, batch, column, M, TILE, WIDTH)
    place = row[:, None] * M + column[None, :]
    operand = h.to(H_ptr.dtype.element_ty)
    tl.store(H_ptr + place, operand, mask=inside[None, :])
    if FLIP:
        tl.store(H_flipped_ptr + column[None, :] * ROWS + row[:, None], operand, mask=inside[None, :])

    dh = tl.zeros((TILE, WIDTH), tl.float32)
    for start in tl.range(0, N, STEP, num_stages=STAGES):
        i = start + tl.arange(0, STEP)
        w = tl.load(operand_ptr + i[:, None] * M + column[None, :], mask=inside[None, :], other=0.0)
        r = tl.maximum(tl.dot(operand, tl.trans(w), input_precision=PRECISION) + tl.load(b_ptr + i)[None, :], 0.0)
        if FLIP:
            w = tl.trans(tl.load(flipped_ptr + column[:, None] * N + i[None, :], mask=inside[:, None], other=0.0))
        dh = tl.dot(r.to(w.dtype), w, dh, input_precision=PRECISION)
    dh *= 2
    for k in range(slots):
        i = tl.load(index_ptr + k * batch + sample, mask=live, other=-1)
        x = tl.load(value_ptr + k * batch + sample, mask=live, other=0.0)
        w = tl.load(W_ptr + i[:, None] * M + column[None, :], mask=(i >= 0)[:, None] & inside[None, :], other=0.0)
        a = tl.sum(h * w, 1) + tl.load(b_ptr + i, mask=i >= 0, other=0.0)
        dh += tl.where(a > 0, -2 * x, 0.0)[:, None] * w
    tl.store(dH_ptr + place, dh, mask=inside[None, :])


@triton.jit
def _to_features(  # type: ignore[no-untyped-def]
    stream_ptr, rows_ptr, start_ptr, entry_row_ptr, entry_feature_ptr, entry_value_ptr, H_ptr, H_flipped_ptr, dH_ptr,
    W_ptr, operand_ptr, flipped_ptr, b_ptr, mean_ptr, square_ptr, b_mean_ptr, b_square_ptr, loss_ptr, rate_ptr, table_ptr, step_ptr, batch,
    N: tl.constexpr, M: tl.constexpr, ROWS: tl.constexpr, SLOTS: tl.constexpr, SIZE: tl.constexpr, FLIP: tl.constexpr, COPY: tl.constexpr,
    PRECISION: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of features, and their update."""
    run = (tl.program_id(0) // (N // TILE)).to(tl.int64)
    tile = tl.program_id(0) % (N // TILE)
    stream = tl.load(stream_ptr + run).to(tl.int64)
    rows = tl.load(rows_ptr + stream)
    W_ptr += run * N * M
    operand_ptr += run * N * M
    flipped_ptr += run * N * M
    mean_ptr += run * N * M
    square_ptr += run * N * M
    b_ptr += run * N
    H_ptr += run * ROWS * M
    H_flipped_ptr += run * ROWS * M
    dH_ptr += run * ROWS * M
    entries = stream * SLOTS * batch
    i = tile * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)
    inside = column < M
    place = i[:, None] * M + column[None, :]
    b = tl.load(b_ptr + i)

    operand = tl.load(operand_ptr + place, mask=inside[None, :], other=0.0)
    dw = tl.zeros((TILE, WIDTH), tl.float32)
    db = tl.zeros((TILE,), tl.float32)
    loss = tl.zeros((TILE,), tl.float32)
    for start in tl.range(0, rows, STEP, num_stages=STAGES):
        s = start + tl.arange(0, STEP)
        h = tl.load(H_ptr + s[:, None] * M + column[None, :], mask=inside[None, :], other=0.0)
        r = tl.maximum(tl.dot(operand, tl.trans(h), input_precision=PRECISION) + b[:, None], 0.0)
        db += tl.sum(r, 1)
        loss += tl.sum(r * r, 1)
        if FLIP:
            h = tl.trans(tl.load(H_flipped_ptr + column[:, None] * ROWS + s[None, :], mask=inside[:, None], other=0.0))
        dw = tl.dot(r.to(h.dtype), h, dw, input_precision=PRECISION)
    # The rows that fill the last tile have h = 0, just like empty samples: only those not met above are missing (fewer than none, perhaps).
    empties = batch - tl.cdiv(rows, STEP) * STEP
    r = tl.maximum(b, 0.0)
    dw *= 2
    db = 2 * (db + empties * r)
    loss += empties * r * r

    first_bin = stream * (N // SIZE + 1) + tile * (TILE // SIZE)
    end = tl.load(start_ptr + first_bin + TILE // SIZE)
    for start in range(tl.load(start_ptr + first_bin), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        live = e < end
        s = tl.load(entry_row_ptr + entries + e, mask=live, other=0)
        j = tl.load(entry_feature_ptr + entries + e, mask=live, other=0)
        x = tl.load(entry_value_ptr + entries + e, mask=live, other=0.0)
        here = live[:, None] & inside[None, :]
        h = tl.load(H_ptr + s[:, None] * M + column[None, :], mask=here, other=0.0).to(tl.float32)
        dh = tl.load(dH_ptr + s[:, None] * M + column[None, :], mask=here, other=0.0)
        a = tl.sum(h * tl.load(W_ptr + j[:, None] * M + column[None, :], mask=here, other=0.0), 1) + tl.load(b_ptr + j, mask=live, other=0.0)
        delta = tl.where(a > 0, -2 * x, 0.0)
        fall = (i[:, None] == j[None, :]) & live[None, :]
        dw = tl.dot(fall.to(tl.float32), delta[:, None] * h + x[:, None] * dh, dw, input_precision=PRECISION)
        db += tl.sum(tl.where(fall, delta[None, :], 0.0), 1)
        loss += tl.sum(tl.where(fall, (x * (x - 2 * tl.maximum(a, 0.0)))[None, :], 0.0), 1)
    slot = loss_ptr + run * (N // SIZE) + tile * (TILE // SIZE)
    before = tl.load(slot)
    b_mean = tl.load(b_mean_ptr + run * N + i)
    b_square = tl.load(b_square_ptr + run * N + i)
    tl.debug_barrier()  # all have read their rows of W, and b, which several threads read, before anyone writes

    tl.store(slot, before + tl.sum(loss, 0).to(tl.float64))
    now = table_ptr + tl.load(step_ptr) * 3
    factor = tl.load(now)
    correction1 = tl.load(now + 1)
    correction2 = tl.load(now + 2)
    rate = factor * tl.load(rate_ptr + run * 3)
    w = tl.load(W_ptr + place, mask=inside[None, :], other=0.0)
    w = _decayed(w, tl.sqrt(tl.sum(w * w, 1))[:, None], rate, tl.load(rate_ptr + run * 3 + 2))
    mean = tl.load(mean_ptr + place, mask=inside[None, :], other=0.0)
    square = tl.load(square_ptr + place, mask=inside[None, :], other=0.0)
    w, mean, square = _adam(w, dw / batch, mean, square, rate, correction1, correction2)
    tl.store(mean_ptr + place, mean, mask=inside[None, :])
    tl.store(square_ptr + place, square, mask=inside[None, :])
    tl.store(W_ptr + place, w, mask=inside[None, :])
    if COPY:
        tl.store(operand_ptr + place, w.to(operand_ptr.dtype.element_ty), mask=inside[None, :])
    if FLIP:
        tl.store(flipped_ptr + column[None, :] * N + i[:, None], w, mask=inside[None, :])
    rate = factor * tl.load(rate_ptr + run * 3 + 1)
    b, b_mean, b_square = _adam(b, db / batch, b_mean, b_square, rate, correction1, correction2)
    tl.store(b_mean_ptr + run * N + i, b_mean)
    tl.store(b_square_ptr + run * N + i, b_square)
    tl.store(b_ptr + i, b)


# -- wider runs, one at a time -------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["stream", "capacity"])
def _encode(  # type: ignore[no-untyped-def]
    order_ptr, rows_ptr, count_ptr, index_ptr, value_ptr, W_ptr, H_ptr, overflow_ptr, stream, batch, capacity,
    M: tl.constexpr, SLOTS: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """H of a tile of samples and columns, zero behind the last row."""
    rows = tl.load(rows_ptr + stream)
    if rows > capacity:
        tl.store(overflow_ptr, 1)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = row < rows
    sample = tl.load(order_ptr + stream * batch + row, mask=live, other=0)
    slots = tl.max(tl.load(count_ptr + stream * batch + sample, mask=live, other=0), 0)
    base = tl.cast(stream, tl.int64) * SLOTS * batch
    h = _encoded(index_ptr + base, value_ptr + base, W_ptr, sample, live, slots, batch, column, M, TILE, COLUMNS)
    tl.store(H_ptr + row[:, None] * M + column[None, :], h.to(H_ptr.dtype.element_ty), mask=(column < M)[None, :])


@triton.jit(do_not_specialize=["stream", "tiles"])
def _outputs(  # type: ignore[no-untyped-def]
    H_ptr, W_ptr, b_ptr, rows_ptr, G_ptr, db_ptr, loss_ptr, stream, tiles,
    N: tl.constexpr, M: tl.constexpr, PRECISION: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A tile of G = 2 ReLU(H Wᵀ + b), and its share of db and of the loss."""
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
def _scatter(  # type: ignore[no-untyped-def]
    start_ptr, entry_row_ptr, entry_feature_ptr, entry_value_ptr, G_ptr, seen_ptr, stream, batch, capacity,
    N: tl.constexpr, SLOTS: tl.constexpr, BINS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """δ of the active entries into G; what stood there is kept for db and the loss. No two entries meet."""
    total = tl.load(start_ptr + stream * (BINS + 1) + BINS)
    if tl.program_id(0) * ENTRIES >= total:
        return
    e = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    base = tl.cast(stream, tl.int64) * SLOTS * batch
    s = tl.load(entry_row_ptr + base + e, mask=e < total, other=capacity)
    live = s < capacity
    place = G_ptr + s.to(tl.int64) * N + tl.load(entry_feature_ptr + base + e, mask=live, other=0)
    x = tl.load(entry_value_ptr + base + e, mask=live, other=0.0)
    g = tl.load(place, mask=live, other=0.0).to(tl.float32)
    tl.store(seen_ptr + e, g, mask=e < total)
    tl.store(place, tl.where(g > 0, g - 2 * x, 0.0).to(G_ptr.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["stream", "capacity"])
def _finish(  # type: ignore[no-untyped-def]
    rows_ptr, start_ptr, entry_row_ptr, entry_feature_ptr, entry_value_ptr, seen_ptr, dH_ptr, dW_ptr, db_share_ptr, loss_share_ptr, length_ptr,
    W_ptr, operand_ptr, b_ptr, mean_ptr, square_ptr, b_mean_ptr, b_square_ptr, loss_ptr, rate_ptr, table_ptr, step_ptr, stream, batch, capacity,
    N: tl.constexpr, M: tl.constexpr, SLOTS: tl.constexpr, SIZE: tl.constexpr, COPY: tl.constexpr, PRECISION: tl.constexpr, TILE: tl.constexpr,
    COLUMNS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """The encoder's part of dW for a bin of features and some columns, and their update; the first columns' program takes b and the loss."""
    this = tl.program_id(0)
    i = this * SIZE + tl.arange(0, SIZE)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < M
    place = i[:, None] * M + column[None, :]
    base = tl.cast(stream, tl.int64) * SLOTS * batch
    dw = tl.load(dW_ptr + place, mask=inside[None, :], other=0.0)
    db = tl.zeros((SIZE,), tl.float32)
    loss = tl.zeros((SIZE,), tl.float32)
    bins = start_ptr + stream * (N // SIZE + 1) + this
    end = tl.load(bins + 1)
    for start in range(tl.load(bins), end, ENTRIES):
        e = start + tl.arange(0, ENTRIES)
        s = tl.load(entry_row_ptr + base + e, mask=e < end, other=capacity)
        live = s < capacity
        j = tl.load(entry_feature_ptr + base + e, mask=live, other=0)
        x = tl.load(entry_value_ptr + base + e, mask=live, other=0.0)
        g = tl.load(seen_ptr + e, mask=live, other=0.0)
        dh = tl.load(dH_ptr + s[:, None] * M + column[None, :], mask=live[:, None] & inside[None, :], other=0.0)
        fall = (i[:, None] == j[None, :]) & live[None, :]
        dw = tl.dot(fall.to(tl.float32), x[:, None] * dh, dw, input_precision=PRECISION)
        db += tl.sum(tl.where(fall & (g > 0)[None, :], -2 * x[None, :], 0.0), 1)
        loss += tl.sum(tl.where(fall, (x * (x - g))[None, :], 0.0), 1)

    now = table_ptr + tl.load(step_ptr) * 3
    factor = tl.load(now)
    correction1 = tl.load(now + 1)
    correction2 = tl.load(now + 2)
    rate = factor * tl.load(rate_ptr)
    w = tl.load(W_ptr + place, mask=inside[None, :], other=0.0)
    w = _decayed(w, tl.load(length_ptr + i)[:, None], rate, tl.load(rate_ptr + 2))
    mean = tl.load(mean_ptr + place, mask=inside[None, :], other=0.0)
    square = tl.load(square_ptr + place, mask=inside[None, :], other=0.0)
    w, mean, square = _adam(w, dw / batch, mean, square, rate, correction1, correction2)
    tl.store(mean_ptr + place, mean, mask=inside[None, :])
    tl.store(square_ptr + place, square, mask=inside[None, :])
    tl.store(W_ptr + place, w, mask=inside[None, :])
    if COPY:
        tl.store(operand_ptr + place, w.to(operand_ptr.dtype.element_ty), mask=inside[None, :])
    if tl.program_id(1) == 0:
        tiles = tl.cdiv(tl.minimum(tl.load(rows_ptr + stream), capacity), TILE)
        for tile in range(tiles):
            db += tl.load(db_share_ptr + tile * N + i)
            loss += tl.load(loss_share_ptr + tile * N + i)
        b = tl.load(b_ptr + i)
        r = tl.maximum(b, 0.0)
        empties = batch - tiles * TILE
        db += 2 * empties * r
        loss += empties * r * r
        before = tl.load(loss_ptr + this)
        b_mean = tl.load(b_mean_ptr + i)
        b_square = tl.load(b_square_ptr + i)
        rate = factor * tl.load(rate_ptr + 1)
        tl.debug_barrier()  # as above
        b, b_mean, b_square = _adam(b, db / batch, b_mean, b_square, rate, correction1, correction2)
        tl.store(loss_ptr + this, before + tl.sum(loss, 0).to(tl.float64))
        tl.store(b_mean_ptr + i, b_mean)
        tl.store(b_square_ptr + i, b_square)
        tl.store(b_ptr + i, b)


# -- memory --------------------------------------------------------------------------------------------------------------

Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _allocated(shapes: Shapes, device: torch.device) -> dict[str, Tensor]:
    return {name: torch.zeros(shape, dtype=dtype, device=device) for name, (shape, dtype) in shapes.items()}


def _bytes(shapes: Shapes) -> int:
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values())


def _stream_of(toy: Toy) -> tuple[str, float, int]:
    return toy.law, toy.density, toy.seed


def _stream_shapes(streams: int, n: int, slots: int, batch: int) -> Shapes:
    """Of the batches; `slots` is the most features that a sample can have on, by the tables of the sampler: it cannot be exceeded."""
    long, short = (streams, slots * batch), (streams, batch)
    entries: Shapes = dict.fromkeys(("index", "entry_row", "entry_feature"), (long, torch.int32))
    entries |= dict.fromkeys(("value", "entry_value"), (long, torch.float32))
    entries |= dict.fromkeys(("count", "order", "row"), (short, torch.int32))
    return entries | {
        "rows": ((streams,), torch.int32),
        "widest": ((streams,), torch.int32),
        "start": ((streams, _up(n, ROUND) // BIN + 1), torch.int32),
    }


def _state_shapes(runs: int, n: int, m: int) -> Shapes:
    """Features are padded by rows of zeros with b = -1, columns by zeros: they stay what they are in every step."""
    matrix, vector = (runs, _up(n, ROUND), _up(m, 16)), (runs, _up(n, ROUND))
    shapes: Shapes = dict.fromkeys(("W", "W_mean", "W_square"), (matrix, torch.float32))
    shapes |= dict.fromkeys(("b", "b_mean", "b_square"), (vector, torch.float32))
    return shapes | {"loss": ((runs, vector[1] // BIN), torch.float64)}


def _narrow_shapes(runs: int, n: int, m: int, batch: int, precision: str) -> Shapes:
    """`flipped` copies have their columns as rows: the tensor cores read tf32 only along the dimension they sum over."""
    kind, N, M, rows = PRECISIONS[precision], _up(n, ROUND), _up(m, 16), _up(batch, ROUND)
    shapes: Shapes = {"H": ((runs, rows, M), kind), "dH": ((runs, rows, M), torch.float32)}
    if precision == "tf32":
        shapes |= {"flipped": ((runs, M, N), kind), "H_flipped": ((runs, M, rows), kind)}
    if kind != torch.float32:
        shapes |= {"operand": ((runs, N, M), kind)}
    return _state_shapes(runs, n, m) | shapes


def _wide_shapes(runs: int, n: int, m: int, capacity: int, entries: int, precision: str) -> Shapes:
    kind, N, M = PRECISIONS[precision], _up(n, ROUND), _up(m, 16)
    shapes: Shapes = {"H": ((capacity, M), kind), "G": ((capacity, N), kind), "dH": ((capacity, M), torch.float32), "dW": ((N, M), torch.float32)}
    shapes |= dict.fromkeys(("db_share", "loss_share"), ((capacity // BIN, N), torch.float32))
    shapes |= {"length": ((N,), torch.float32), "seen": ((entries,), torch.float32)}
    if kind != torch.float32:
        shapes |= {"operand": ((runs, N, M), kind)}
    return _state_shapes(runs, n, m) | shapes


def _capacity(toy: Toy, batch: int) -> int:
    """Rows that a batch of a wide run has room for: the mean number of samples with an active feature, and SIGMAS deviations."""
    p = frequencies(toy.law, toy.n, toy.density)
    empty = 0.0 if p[0] == 1 else float(np.exp(np.log1p(-p).sum()))  # the probability that a sample has none
    return _up(min(batch, math.ceil(batch * (1 - empty) + SIGMAS * math.sqrt(batch * empty * (1 - empty)) + 1)), ROUND)


def memory(runs: Sequence[Toy], schedule: Schedule, precision: str = "tf32") -> int:
    """Bytes of GPU memory that `CudaGroup(runs, schedule, precision=precision)` holds; tables of a few megabytes are not counted."""
    samplers = {_stream_of(toy): Sampler(toy.n, toy.law, toy.density, toy.seed) for toy in runs}
    n, batch, slots = runs[0].n, schedule.batch, max(map(_slots, samplers.values()))
    total = _bytes(_stream_shapes(len(samplers), n, slots, batch))
    for m in {toy.m for toy in runs}:
        some = [toy for toy in runs if toy.m == m]
        if m <= NARROW:
            total += _bytes(_narrow_shapes(len(some), n, m, batch, precision))
        else:
            total += _bytes(_wide_shapes(len(some), n, m, max(_capacity(toy, batch) for toy in some), slots * batch, precision))
    return total


def _slots(sampler: Sampler) -> int:
    return max(1, len(sampler.always) + len(sampler.count_bounds))


# -- the group -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tiles:
    """How a kernel is cut: the tile it holds, the steps in which it passes over the rest, warps, and steps under way at a time."""

    tile: int
    step: int
    warps: int
    stages: int


def _tiles(width: int, precision: str, shared: int) -> _Tiles:
    """The largest tiles whose operands fit the shared memory of a multiprocessor, for narrow runs twice."""
    if precision == "fp32":
        return _Tiles(BIN, 32, 4, 1)  # no tensor cores: operands live in registers
    size = PRECISIONS[precision].itemsize
    budget = 0.9 * shared if width == NARROW else 0.45 * shared
    for tile, step in ((128, 64), (128, 32)):
        pass_over = 2 * step * width * size * (2 if precision == "tf32" else 1)
        if pass_over + tile * width * size + tile * step * 4 <= budget:
            return _Tiles(tile, step, 8 if width == NARROW else 4, 2)
    return _Tiles(BIN, 32, 4, 1)


class _Streams:
    """The batches of all streams: filled anew in every step."""

    def __init__(self, samplers: Sequence[Sampler], n: int, schedule: Schedule, step: Tensor):
        self.size, self.step, self.batch = len(samplers), step, schedule.batch
        self.N = _up(n, ROUND)
        self.slots = max(map(_slots, samplers))
        self.events = max(len(sampler.count_bounds) for sampler in samplers)
        self.halvings = n.bit_length()
        last = np.iinfo(np.int64).max

        def table(rows: list[np.ndarray], width: int) -> Tensor:
            padded = [np.concatenate([row, np.full(width - len(row), last)]) for row in rows]
            return torch.from_numpy(np.stack(padded).astype(np.int64)).to(step.device)

        def column(values: list[int], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=step.device)

        self.seed = column([sampler.key[0] | sampler.key[1] << 32 for sampler in samplers], torch.int64)
        self.always = column([len(sampler.always) for sampler in samplers], torch.int32)
        self.bounds = column([len(sampler.feature_bounds) for sampler in samplers], torch.int32)
        self.count_bounds = table([sampler.count_bounds for sampler in samplers], max(1, self.events))
        self.feature_bounds = table([sampler.feature_bounds for sampler in samplers], n)
        self.n = n
        self.at = _allocated(_stream_shapes(self.size, n, self.slots, self.batch), step.device)

    def fill(self) -> None:
        at, bins = self.at, self.N // BIN
        draws = int(triton.next_power_of_2(max(1, self.events)))
        samples = max(1, 2048 // draws)
        _sample[(self.size * triton.cdiv(self.batch, samples),)](
            self.seed, self.count_bounds, self.feature_bounds, self.always, self.bounds, self.step, at["index"], at["value"], at["count"], self.batch,
            self.n, self.slots, self.events, samples, draws, self.halvings,
        )  # fmt: skip
        _compact[(self.size,)](at["count"], at["order"], at["row"], at["rows"], at["widest"], self.batch, 1024)
        _bin[(self.size * bins,)](
            at["index"], at["value"], at["row"], at["widest"], at["start"], at["entry_row"], at["entry_feature"], at["entry_value"], self.batch,
            bins, self.slots, BIN, 1024,
        )  # fmt: skip


class _Runs:
    """Runs of one width: their state, stacked."""

    def __init__(self, runs: Sequence[Toy], members: list[int], streams: _Streams, table: Tensor, precision: str, shapes: Shapes):
        self.members, self.streams, self.table, self.precision = members, streams, table, precision
        self.n, self.m = runs[0].n, runs[0].m
        self.N, self.M = _up(self.n, ROUND), _up(self.m, 16)
        self.input_precision = "ieee" if precision == "fp32" else "tf32"
        self.at = _allocated(shapes, table.device)
        self.operand = self.at.get("operand", self.at["W"])
        self.rates = torch.tensor([(toy.lr, toy.rate_of_bias, toy.gamma) for toy in runs], dtype=torch.float32, device=table.device)
        starts: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}  # runs of one seed start alike
        self.at["b"].fill_(-1.0)
        for k, toy in enumerate(runs):
            if (toy.seed, toy.bias) not in starts:
                starts[toy.seed, toy.bias] = initial(toy)
            W, b = starts[toy.seed, toy.bias]
            self.own(self.at["W"])[k], self.own(self.at["b"])[k] = W, b
        self.copy_weights()

    def copy_weights(self) -> None:
        """W as the products read it"""
        if "operand" in self.at:
            self.at["operand"].copy_(self.at["W"])
        if "flipped" in self.at:
            self.at["flipped"].copy_(self.at["W"].transpose(1, 2))

    def own(self, padded: Tensor) -> Tensor:
        """The runs' own part of a stack of matrices or vectors, a view."""
        return padded[:, : self.n, : self.m] if padded.ndim == 3 else padded[:, : self.n]

    def advance(self) -> None:
        raise NotImplementedError


class _Narrow(_Runs):
    def __init__(self, runs: Sequence[Toy], members: list[int], places: list[int], streams: _Streams, table: Tensor, precision: str):
        super().__init__(runs, members, streams, table, precision, _narrow_shapes(len(runs), runs[0].n, runs[0].m, streams.batch, precision))
        self.places = torch.tensor(places, dtype=torch.int32, device=table.device)
        self.width = max(16, int(triton.next_power_of_2(self.m)))
        self.tiles = _tiles(self.width, precision, _shared_memory(table.device))

    def advance(self) -> None:
        at, of, t = self.at, self.streams.at, self.tiles
        rows, runs, flip = _up(self.streams.batch, ROUND), len(self.places), "flipped" in at
        flipped, h_flipped = at.get("flipped", at["W"]), at.get("H_flipped", at["H"])
        _to_samples[(runs * (rows // t.tile),)](
            self.places, of["order"], of["rows"], of["count"], of["index"], of["value"], at["W"], self.operand, flipped, at["b"], at["H"], h_flipped,
            at["dH"], self.streams.batch, self.N, self.M, rows, self.streams.slots, flip, self.input_precision, self.width, t.tile, t.step, t.stages,
            num_warps=t.warps,
        )  # fmt: skip
        _to_features[(runs * (self.N // t.tile),)](
            self.places, of["rows"], of["start"], of["entry_row"], of["entry_feature"], of["entry_value"], at["H"], h_flipped, at["dH"], at["W"],
            self.operand, flipped, at["b"], at["W_mean"], at["W_square"], at["b_mean"], at["b_square"], at["loss"], self.rates, self.table,
            self.streams.step, self.streams.batch, self.N, self.M, rows, self.streams.slots, BIN, flip, "operand" in at, self.input_precision,
            self.width, t.tile, t.step, t.stages, 32, num_warps=t.warps,
        )  # fmt: skip


class _Wide(_Runs):
    def __init__(
        self, runs: Sequence[Toy], members: list[int], places: list[int], streams: _Streams, table: Tensor, precision: str, overflow: Tensor
    ):
        self.capacities = [_capacity(toy, streams.batch) for toy in runs]
        entries = streams.slots * streams.batch
        shapes = _wide_shapes(len(runs), runs[0].n, runs[0].m, max(self.capacities), entries, precision)
        super().__init__(runs, members, streams, table, precision, shapes)
        self.places, self.overflow, self.entries = places, overflow, entries

    def advance(self) -> None:
        for k, (stream, capacity) in enumerate(zip(self.places, self.capacities, strict=True)):
            self._advance_one(k, stream, capacity)

    def _advance_one(self, k: int, stream: int, capacity: int) -> None:
        at, of, batch, slots = self.at, self.streams.at, self.streams.batch, self.streams.slots
        W, operand, b = at["W"][k], self.operand[k], at["b"][k]
        H, G, dH = at["H"][:capacity], at["G"][:capacity], at["dH"][:capacity]
        chunks = triton.cdiv(self.M, CHUNK)
        _encode[(capacity // 32, chunks)](
            of["order"], of["rows"], of["count"], of["index"], of["value"], W, H, self.overflow, stream, batch, capacity, self.M, slots, 32, CHUNK
        )
        tile, step, warps = (64, 32, 4) if self.precision == "fp32" else (ROUND, 128 // H.element_size(), 8)
        _outputs[(capacity // tile * (self.N // tile),)](
            H, operand, b, of["rows"], G, at["db_share"], at["loss_share"], stream, capacity // tile, self.N, self.M, self.input_precision,
            tile, step, 8, num_warps=warps, num_stages=3,
        )  # fmt: skip
        entries = (of["start"], of["entry_row"], of["entry_feature"], of["entry_value"])
        _scatter[(triton.cdiv(self.entries, 256),)](*entries, G, at["seen"], stream, batch, capacity, self.N, slots, self.N // BIN, 256)
        _product(G, operand, dH)
        _product(G.T, H, at["dW"])
        torch.linalg.vector_norm(W, dim=1, out=at["length"])
        _finish[(self.N // BIN, chunks)](
            of["rows"], *entries, at["seen"], dH, at["dW"], at["db_share"], at["loss_share"], at["length"], W, operand, b, at["W_mean"][k],
            at["W_square"][k], at["b_mean"][k], at["b_square"][k], at["loss"][k], self.rates[k], self.table, self.streams.step, stream, batch,
            capacity, self.N, self.M, slots, BIN, "operand" in at, self.input_precision, tile, CHUNK, 32, num_warps=8,
        )  # fmt: skip


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a b in fp32, whatever the operands are."""
    if a.dtype == torch.float32:
        torch.mm(a, b, out=out)
    elif a.is_cuda:
        torch.mm(a, b, out_dtype=torch.float32, out=out)
    else:  # Triton's interpreter: torch has no such product on the CPU
        torch.mm(a.float(), b.float(), out=out)


def _shared_memory(device: torch.device) -> int:
    """Bytes that one program can have; in Triton's interpreter those of a large GPU."""
    if device.type != "cuda":
        return 227 * 1024
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


@contextmanager
def _on(device: torch.device, precision: str) -> Iterator[None]:
    """The device, and the precision of its products, for a while."""
    if device.type != "cuda":
        yield
        return
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        with torch.cuda.device(device):
            yield
    finally:
        matmul.fp32_precision = before


class CudaGroup:
    """Runs of one n with the read-out "dot", trained together. Runs of one (law, density, seed) share their batches, runs of one m their kernels."""

    def __init__(self, runs: Sequence[Toy], schedule: Schedule, device: str = "cuda", precision: str = "tf32"):
        if precision not in PRECISIONS:
            raise UserError(f"precision {precision}: choose from {', '.join(PRECISIONS)}")
        if len({toy.n for toy in runs}) != 1 or {toy.readout for toy in runs} != {"dot"}:
            raise ValueError("a group on the GPU has runs of one n, with the read-out dot")
        self.runs, self.schedule, self.precision, self.device = list(runs), schedule, precision, torch.device(device)
        if self.device.type != "cuda" and isinstance(_sample, triton.runtime.JITFunction):
            raise ValueError(f"device {device}: these kernels need a GPU, or Triton's interpreter")
        self.step = self._counted = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._step = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._overflow = torch.zeros(1, dtype=torch.int32, device=self.device)
        rows = [(schedule.factor(t), 1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1)) for t in range(schedule.steps)]
        table = torch.tensor(rows, dtype=torch.float32, device=self.device)

        streams = {key: place for place, key in enumerate(dict.fromkeys(map(_stream_of, runs)))}
        n = runs[0].n
        self._streams = _Streams([Sampler(n, *key) for key in streams], n, schedule, self._step)
        self._parts: list[_Runs] = []
        for m in sorted({toy.m for toy in runs}):
            members = [index for index, toy in enumerate(runs) if toy.m == m]
            members.sort(key=lambda index: streams[_stream_of(runs[index])])  # neighbours share a batch, and find it in the cache
            some, places = [runs[index] for index in members], [streams[_stream_of(runs[index])] for index in members]
            if m <= NARROW:
                part: _Runs = _Narrow(some, members, places, self._streams, table, precision)
            else:
                part = _Wide(some, members, places, self._streams, table, precision, self._overflow)
            self._parts.append(part)

    def advance(self, steps: int) -> None:
        """Train so many more steps."""
        if self.step + steps > self.schedule.steps:
            raise ValueError(f"{steps} steps after step {self.step} of a schedule of {self.schedule.steps}")
        with _on(self.device, self.precision):
            for _ in range(steps):
                if self._graph is not None:
                    self._graph.replay()
                else:
                    self._advance_once()  # also compiles the kernels, which a capture cannot
                    if self.device.type == "cuda":
                        self._graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(self._graph):
                            self._advance_once()
        self.step += steps
        self._counted += steps

    def _advance_once(self) -> None:
        self._streams.fill()
        for part in self._parts:
            part.advance()
        self._step.add_(1)

    def losses(self) -> Tensor:
        """(R,) mean training loss per sample, summed over features, since last asked"""
        mean = self._summed() / max(self._counted, 1)
        for part in self._parts:
            part.at["loss"].zero_()
        self._counted = 0
        return mean

    def _summed(self) -> Tensor:
        """(R,) loss per sample, added up over the steps since last asked"""
        if self._overflow.item():
            raise RuntimeError(f"a batch had more nonempty samples than the mean and {SIGMAS} standard deviations: its last ones were lost")
        sums = torch.zeros(len(self.runs), dtype=torch.float64)
        for part in self._parts:
            sums[part.members] = part.at["loss"].sum(1).cpu() / self.schedule.batch
        return sums

    def state(self) -> dict[str, Tensor]:
        """W.i (n, m), b.i (n,) and their Adam moments of run i, the step, and what is summed for `losses`, on the CPU: as on other backends"""
        found = {"step": torch.tensor(self.step), "summed": self._summed(), "counted": torch.tensor(self._counted)}
        for part in self._parts:
            for name in STATE:
                stack = part.own(part.at[name]).cpu()
                found |= {f"{name}.{member}": stack[k].clone(memory_format=torch.contiguous_format) for k, member in enumerate(part.members)}
        return found

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue exactly where `state` was taken."""
        for part in self._parts:
            for name in STATE:
                part.own(part.at[name]).copy_(torch.stack([state[f"{name}.{member}"] for member in part.members]))
            part.at["loss"].zero_()
            part.at["loss"][:, 0] = state["summed"][part.members].to(self.device) * self.schedule.batch
            part.copy_weights()
        self.step, self._counted = int(state["step"]), int(state["counted"])
        self._step.fill_(self.step)
