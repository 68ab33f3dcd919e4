"""Training on the CPU with compiled kernels: the mathematics of `toy.loss` for read-outs that are products.

A batch has few distinct features D. All it needs of W is their Gram matrix with the others, G = W_D J Wᵀ (D, n) with
J = 1 or diag(-1, 1, …):
    row s of R = ReLU(X_s G + b)       a sum of a few rows of G
    C = Xᵀ(R - X·1[R > 0])             rows added up where they came from (D, n)
    ½ B ∂L/∂W = Cᵀ W_D J, and C W J on the rows D: decoder and encoder
These are three products of D·n·m instead of five of B·n·m. No array has B rows, and tiles of features stay in cache.
Samples without an active feature are counted, not computed. Features whose bound max|h|·|W_i| + b_i is not positive
are left out. W lives transposed (m, n): vectors run along the features. One thread computes a run from start to end, so
the number of threads changes nothing.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from horosphere.superposition.sampling import Sampler, streams
from horosphere.superposition.toy import BETA1, BETA2, EPSILON, PRODUCTS, Schedule, Toy, initial

BLOCK = 16  # steps a run makes before the next has its turn: its weights stay in cache, few batches are in memory
TILE_BYTES = 2**20  # of one tile of G: about what a core's cache holds
LANES = 64  # tiles are multiples of it: no tails in the vector loops

# Sums may be reordered and contracted, so that they become vectors. NaN and infinity keep their meaning.
compiled: Any = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


class State(NamedTuple):
    """Weights of one run and Adam's moments, transposed. Fields are those of `toy.STATE`."""

    W: np.ndarray  # (m, n)
    b: np.ndarray  # (n,)
    W_mean: np.ndarray
    W_square: np.ndarray
    b_mean: np.ndarray
    b_square: np.ndarray


class Plan(NamedTuple):
    """The batches of some steps, as all runs of a stream need them.

    Batch k has the rows rows[k] … rows[k + 1] - 1 and the features distinct[distinct_at[k]] … [distinct_at[k + 1] - 1].
    """

    rows: np.ndarray  # (steps + 1,)
    starts: np.ndarray  # (rows + 1,): the entries of row r are starts[r] … starts[r + 1] - 1
    local: np.ndarray  # (entries,): place of an entry's feature among the distinct ones of its batch
    values: np.ndarray  # (entries,)
    distinct_at: np.ndarray  # (steps + 1,)
    distinct: np.ndarray


class Batch(NamedTuple):
    """One batch of a plan."""

    starts: np.ndarray
    local: np.ndarray
    values: np.ndarray
    distinct: np.ndarray  # (D,)
    size: int  # samples, also those without an active feature


class Steps(NamedTuple):
    """What steps of a run need beside its weights and batches."""

    rates: np.ndarray  # (steps, 2): learning rates of W and b
    gamma: float
    sign: float  # of the first term of the read-out
    first: int  # number of the first step
    batch: int  # samples


class Room(NamedTuple):
    """Memory for `_gradient`, used anew each step. D features, tiles of w features, all padded."""

    WD: np.ndarray  # (D, m): rows of the distinct features
    dWD: np.ndarray  # (D, m)
    G: np.ndarray  # (D·w,)
    C: np.ndarray  # (D·w,)
    columns: np.ndarray  # (m·w,): of W
    d_columns: np.ndarray  # (m·w,)
    rows: np.ndarray  # (w, m): the same, transposed
    d_rows: np.ndarray  # (w, m)
    bias: np.ndarray  # (w,)
    d_bias: np.ndarray  # (w,)
    scratch: np.ndarray  # (w,)


class CompiledGroup:
    """Runs of one n whose read-out is a product. Runs of the same law, density and seed share their batches."""

    def __init__(self, runs: Sequence[Toy], schedule: Schedule, device: str = "cpu", jobs: int | None = None):
        if any(toy.readout not in PRODUCTS for toy in runs):
            raise ValueError(f"the compiled kernels know the read-outs {', '.join(PRODUCTS)}")
        self.runs, self.schedule, self.step, self.jobs = list(runs), schedule, 0, jobs or cores()
        self._streams = [(Sampler(*stream), members) for stream, members in streams(runs).items()]
        self._states = [_start(toy) for toy in runs]
        self._summed, self._counted = np.zeros(len(runs)), 0

    def advance(self, steps: int) -> None:
        """Train so many more steps."""
        last = self.step + steps
        with ThreadPoolExecutor(self.jobs) as pool:

            def plans(first: int) -> list[Future[Plan]]:
                """A plan a stream for the steps from `first` on, made while the steps before them are trained"""
                block = min(BLOCK, last - first)
                if block <= 0:
                    return []
                return [pool.submit(_plan, sampler, first, block, self.schedule.batch) for sampler, _ in self._streams]

            coming = plans(self.step)
            for first in range(self.step, last, BLOCK):
                ready, coming = [plan.result() for plan in coming], plans(first + BLOCK)
                work = [
                    (self.runs[index].m, index, plan)
                    for plan, (_, members) in zip(ready, self._streams, strict=True)
                    for index in members
                ]
                work.sort(key=lambda job: -job[0])  # the longest first: nobody waits for them at the end
                for done in [pool.submit(self._train, index, plan, first) for _, index, plan in work]:
                    done.result()
        self._counted += steps
        self.step = last

    def losses(self) -> Tensor:
        """Mean training loss a sample since last asked.   -> (R,)"""
        mean = self._summed / max(self._counted, 1)
        self._summed, self._counted = np.zeros(len(self.runs)), 0
        return torch.from_numpy(mean)

    def state(self) -> dict[str, Tensor]:
        """W.i (n, m), b.i (n,) and their Adam moments of run i, the step, and the sums behind `losses`"""
        named = {
            f"{name}.{index}": torch.from_numpy(array.T.copy())
            for index, state in enumerate(self._states)
            for name, array in state._asdict().items()
        }
        return {
            **named,
            "step": torch.tensor(self.step),
            "summed": torch.from_numpy(self._summed.copy()),
            "counted": torch.tensor(self._counted),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        for index, own in enumerate(self._states):
            for name, array in own._asdict().items():
                array[...] = state[f"{name}.{index}"].numpy().T
        self.step, self._counted = int(state["step"]), int(state["counted"])
        self._summed = state["summed"].numpy().copy()

    def _train(self, index: int, plan: Plan, first: int) -> None:
        toy = self.runs[index]
        factors = np.array([self.schedule.factor(step) for step in range(first, first + len(plan.rows) - 1)])
        rates = np.stack([toy.lr * factors, toy.rate_of_bias * factors], 1)
        steps = Steps(rates, toy.gamma, PRODUCTS[toy.readout], first, self.schedule.batch)
        self._summed[index] = _train(self._states[index], plan, steps, self._summed[index])


def _start(toy: Toy) -> State:
    W, b = (tensor.numpy() for tensor in initial(toy))
    W = np.ascontiguousarray(W.T)
    return State(W, b, np.zeros_like(W), np.zeros_like(W), np.zeros_like(b), np.zeros_like(b))


def cores() -> int:
    """Cores this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory(runs: Sequence[Toy], schedule: Schedule) -> int:
    """Bytes that a group of these runs takes, roughly.

    Weights and moments, two blocks of batches a stream, a workspace for each core.

    >>> memory([Toy(n=1000, m=10, law="power:1")], Schedule()) < 10**9
    True
    """
    states = sum(3 * 4 * toy.n * (toy.m + 1) for toy in runs)
    plans = sum(2 * BLOCK * schedule.batch * (24 + 60 * density) for _, _, density, _ in streams(runs))
    return int(states + plans + cores() * max(8 * 4 * toy.n * (toy.m + 16) + 2 * TILE_BYTES for toy in runs))


def _plan(sampler: Sampler, first: int, steps: int, size: int) -> Plan:
    """The batches of some steps."""
    batches = sampler.batches(first, steps, size)
    return _sort(batches.n, batches.rows, batches.starts, batches.features, batches.values)


@compiled
def _sort(n, rows, starts, features, values):
    """A plan whose rows are sorted by their first feature, those with no other feature first.

    So rows that use the same row of G follow each other.
    """
    steps = len(rows) - 1
    new_starts, local, new_values = np.empty_like(starts), np.empty_like(features), np.empty_like(values)
    distinct_at, distinct = np.zeros(steps + 1, np.int64), np.empty(len(features), np.int32)
    place, begin = np.empty(n, np.int32), np.empty(2 * n + 1, np.int64)
    order = np.empty(len(starts) - 1, np.int64)
    new_starts[0], entry = 0, 0
    for step in range(steps):
        begin[:] = 0
        for row in range(rows[step], rows[step + 1]):
            begin[2 * features[starts[row]] + (starts[row + 1] - starts[row] > 1) + 1] += 1
        for key in range(2 * n):
            begin[key + 1] += begin[key]
        for row in range(rows[step], rows[step + 1]):
            key = 2 * features[starts[row]] + (starts[row + 1] - starts[row] > 1)
            order[rows[step] + begin[key]] = row
            begin[key] += 1
        place[:] = -1
        for e in range(starts[rows[step]], starts[rows[step + 1]]):
            place[features[e]] = 0
        count = distinct_at[step]
        for feature in range(n):
            if place[feature] == 0:
                place[feature] = count - distinct_at[step]
                distinct[count] = feature
                count += 1
        distinct_at[step + 1] = count
        for new in range(rows[step], rows[step + 1]):
            for e in range(starts[order[new]], starts[order[new] + 1]):
                local[entry], new_values[entry] = place[features[e]], values[e]
                entry += 1
            new_starts[new + 1] = entry
    return Plan(rows, new_starts, local, new_values, distinct_at, distinct[: distinct_at[steps]])


@compiled
def _train(state, plan, steps, total):
    """Steps of one run. Returns `total` with their losses a sample added one by one, so no block changes the sum."""
    W, b = state.W, state.b
    dW, db = np.empty_like(W), np.empty_like(b)
    room = _room(W, np.max(plan.distinct_at[1:] - plan.distinct_at[:-1]))
    for k in range(len(steps.rates)):
        starts = plan.starts[plan.rows[k] : plan.rows[k + 1] + 1]
        distinct = plan.distinct[plan.distinct_at[k] : plan.distinct_at[k + 1]]
        batch = Batch(starts, plan.local, plan.values, distinct, steps.batch)
        total += _gradient(W, b, batch, steps.sign, dW, db, room)
        _decay(W, steps.rates[k, 0], steps.gamma)
        _adam(W, dW, state.W_mean, state.W_square, steps.rates[k, 0], steps.first + k + 1)
        mean, square = state.b_mean.reshape(1, -1), state.b_square.reshape(1, -1)
        _adam(b.reshape(1, -1), db.reshape(1, -1), mean, square, steps.rates[k, 1], steps.first + k + 1)
    return total


@compiled
def _room(W, most):
    """Room for up to `most` distinct features, padded with zeros: products go four by four, rows of W by vectors."""
    D, deep, wide = _up(most, 4), _up(W.shape[0], 4), _up(W.shape[0], 16)
    tile = _tile(W, 0)
    area = max(TILE_BYTES // 4, D * LANES)
    return Room(
        np.zeros((D, wide), W.dtype),
        np.zeros((D, wide), W.dtype),
        np.zeros(area, W.dtype),
        np.zeros(area, W.dtype),
        np.zeros(deep * tile, W.dtype),
        np.zeros(deep * tile, W.dtype),
        np.zeros((tile, wide), W.dtype),
        np.zeros((tile, wide), W.dtype),
        np.zeros(tile, W.dtype),
        np.zeros(tile, W.dtype),
        np.zeros(tile, W.dtype),
    )


@compiled
def _tile(W, D):
    """Features in a tile: as many as fit into TILE_BYTES with D rows.

    It depends on the step only, not on the block: sums must not depend on where a block began.
    """
    fit = TILE_BYTES // (4 * max(D, 1)) // LANES * LANES
    return max(min(_up(W.shape[1], LANES), fit), LANES)


@compiled
def _gradient(W, b, batch, sign, dW, db, room):
    """Loss a sample, and its gradients into dW (m, n), db (n,)."""
    m, n = W.shape
    starts, values, distinct, size = batch.starts, batch.values, batch.distinct, batch.size
    zero, scale = W.dtype.type(0), W.dtype.type(2.0 / size)
    D, deep = _up(len(distinct), 4), _up(m, 4)
    tile = _tile(W, D)
    WD, dWD = room.WD[:D], room.dWD[:D]
    G, C = room.G[: D * tile].reshape(D, tile), room.C[: D * tile].reshape(D, tile)
    columns = room.columns[: deep * tile].reshape(deep, tile)
    d_columns = room.d_columns[: deep * tile].reshape(deep, tile)
    rows, d_rows = room.rows[:tile], room.d_rows[:tile]
    bias, d_bias, scratch = room.bias[:tile], room.d_bias[:tile], room.scratch[:tile]
    for d in range(len(distinct)):
        for k in range(m):
            WD[d, k] = W[k, distinct[d]]
        WD[d, 0] *= W.dtype.type(sign)
    WD[len(distinct) :] = 0
    dWD[:], dW[:], db[:] = 0, 0, 0

    live, L = _live(W, b, batch)
    place = np.full(n, -1, np.int32)
    for i in range(L):
        place[live[i]] = i
    loss, empty = 0.0, size - (len(starts) - 1)
    for e in range(starts[0], starts[-1]):
        loss += values[e] * values[e]
    for low in range(0, L, tile):
        width = min(tile, L - low)
        columns[m:], columns[:, width:], bias[width:] = 0, 0, 0
        for i in range(width):
            bias[i] = b[live[low + i]]
        for k in range(m):
            for i in range(width):
                columns[k, i] = W[k, live[low + i]]
        _product(WD, columns, G)
        C[:], d_bias[:] = 0, 0
        loss += _outputs(G, bias, batch, C, d_bias, scratch)
        loss += _targets(G, bias, batch, place, low, width, C, d_bias)
        if _count(C) < min(m / 200, 0.5) * C.size:  # as measured, skipping zeros is then faster than a product
            rows[:width, :m], d_rows[:] = columns[:m, :width].T, 0
            _sparse_products(C, WD, rows, dWD, d_rows)
            d_columns[:m, :width] = d_rows[:width, :m].T
        else:
            _product(WD.T, C, d_columns)
            _add_dots(C, columns, dWD)
        for k in range(m):
            for i in range(width):
                dW[k, live[low + i]] = scale * d_columns[k, i]
        for i in range(width):
            alone = max(bias[i], zero)
            loss += empty * alone * alone
            db[live[low + i]] = scale * (d_bias[i] + empty * alone)
    for d in range(len(distinct)):
        dWD[d, 0] *= W.dtype.type(sign)
        for k in range(m):
            dW[k, distinct[d]] += scale * dWD[d, k]
    return loss / size


@compiled
def _live(W, b, batch):
    """Features that some sample may switch on, max|h|·|W_i| + b_i > 0 with |h| <= Σ x_k |W_k|, and their number"""
    starts, local, values, distinct = batch.starts, batch.local, batch.values, batch.distinct
    zero, norm = W.dtype.type(0), np.zeros(W.shape[1], W.dtype)
    for k in range(W.shape[0]):
        for i in range(len(norm)):
            norm[i] += W[k, i] * W[k, i]
    for i in range(len(norm)):
        norm[i] = np.sqrt(norm[i])
    longest = zero
    for row in range(len(starts) - 1):
        reach = zero
        for e in range(starts[row], starts[row + 1]):
            reach += values[e] * norm[distinct[local[e]]]
        longest = max(longest, reach)
    live, L = np.empty(len(norm), np.int32), 0
    for i in range(len(norm)):
        if W.dtype.type(1.001) * longest * norm[i] + b[i] > 0:  # a margin for rounding
            live[L] = i
            L += 1
    return live, L


@compiled
def _outputs(G, b, batch, C, db, scratch):
    """R = ReLU(X G + b) row by row: C += Xᵀ R, db += Σ R; returns Σ R²."""
    starts, local, values = batch.starts, batch.local, batch.values
    zero = G.dtype.type(0)
    total, row, end = 0.0, 0, len(starts) - 1
    while row < end:
        e, entries = starts[row], starts[row + 1] - starts[row]
        g0, c0, x0 = G[local[e]], C[local[e]], values[e]
        part = zero
        if entries == 1:
            alike = 1
            while (
                alike < 4
                and row + alike < end
                and starts[row + alike + 1] - starts[row + alike] == 1
                and local[e + alike] == local[e]
            ):
                alike += 1
            if alike == 4:  # four rows read and write the same row of G and C
                x1, x2, x3 = values[e + 1], values[e + 2], values[e + 3]
                for i in range(len(b)):
                    r0, r1 = max(b[i] + x0 * g0[i], zero), max(b[i] + x1 * g0[i], zero)
                    r2, r3 = max(b[i] + x2 * g0[i], zero), max(b[i] + x3 * g0[i], zero)
                    part += r0 * r0 + r1 * r1 + r2 * r2 + r3 * r3
                    db[i] += r0 + r1 + r2 + r3
                    c0[i] += x0 * r0 + x1 * r1 + x2 * r2 + x3 * r3
                row += 3
            else:
                for i in range(len(b)):
                    r = max(b[i] + x0 * g0[i], zero)
                    part += r * r
                    db[i] += r
                    c0[i] += x0 * r
        elif entries == 2:
            g1, c1, x1 = G[local[e + 1]], C[local[e + 1]], values[e + 1]
            for i in range(len(b)):
                r = max(b[i] + x0 * g0[i] + x1 * g1[i], zero)
                part += r * r
                db[i] += r
                c0[i] += x0 * r
                c1[i] += x1 * r
        else:
            for i in range(len(b)):
                scratch[i] = b[i] + x0 * g0[i]
            for e in range(starts[row] + 1, starts[row + 1]):
                g, x = G[local[e]], values[e]
                for i in range(len(b)):
                    scratch[i] += x * g[i]
            for i in range(len(b)):
                r = max(scratch[i], zero)
                scratch[i] = r
                part += r * r
                db[i] += r
            for e in range(starts[row], starts[row + 1]):
                c, x = C[local[e]], values[e]
                for i in range(len(b)):
                    c[i] += x * scratch[i]
        total += part
        row += 1
    return total


@compiled
def _targets(G, b, batch, place, low, width, C, db):
    """The part of the targets that are not zero: C -= Xᵀ X·1[R > 0], db likewise; returns -2 Σ X R."""
    starts, local, values, distinct = batch.starts, batch.local, batch.values, batch.distinct
    total = 0.0
    for row in range(len(starts) - 1):
        for target in range(starts[row], starts[row + 1]):
            i = place[distinct[local[target]]] - low
            if 0 <= i < width:
                r = b[i]
                for e in range(starts[row], starts[row + 1]):
                    r += values[e] * G[local[e], i]
                if r > 0:
                    total -= 2 * values[target] * r
                    db[i] -= values[target]
                    for e in range(starts[row], starts[row + 1]):
                        C[local[e], i] -= values[e] * values[target]
    return total


@compiled
def _product(A, B, out):
    """out = A B.   (P, >= Q), (Q, w) -> (P, w), P and Q multiples of four

    Sixteen factors are in registers, vectors run along w.
    """
    out[:] = 0
    for p in range(0, out.shape[0], 4):
        o0, o1, o2, o3 = out[p], out[p + 1], out[p + 2], out[p + 3]
        for q in range(0, B.shape[0], 4):
            a00, a01, a02, a03 = A[p, q], A[p, q + 1], A[p, q + 2], A[p, q + 3]
            a10, a11, a12, a13 = A[p + 1, q], A[p + 1, q + 1], A[p + 1, q + 2], A[p + 1, q + 3]
            a20, a21, a22, a23 = A[p + 2, q], A[p + 2, q + 1], A[p + 2, q + 2], A[p + 2, q + 3]
            a30, a31, a32, a33 = A[p + 3, q], A[p + 3, q + 1], A[p + 3, q + 2], A[p + 3, q + 3]
            b0, b1, b2, b3 = B[q], B[q + 1], B[q + 2], B[q + 3]
            for i in range(out.shape[1]):
                # read once: the compiler cannot know that writing to out leaves B alone
                x0, x1, x2, x3 = b0[i], b1[i], b2[i], b3[i]
                o0[i] += a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
                o1[i] += a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
                o2[i] += a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
                o3[i] += a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3


@compiled
def _add_dots(A, B, out):
    """out += A Bᵀ.   (P, w), (Q, w) -> (P, >= Q), P and Q multiples of four

    Sixteen sums are in registers, vectors run along w.
    """
    zero = A.dtype.type(0)
    for p in range(0, A.shape[0], 4):
        a0, a1, a2, a3 = A[p], A[p + 1], A[p + 2], A[p + 3]
        for q in range(0, B.shape[0], 4):
            b0, b1, b2, b3 = B[q], B[q + 1], B[q + 2], B[q + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
            for i in range(A.shape[1]):
                x0, x1, x2, x3, y0, y1, y2, y3 = a0[i], a1[i], a2[i], a3[i], b0[i], b1[i], b2[i], b3[i]
                s00, s01, s02, s03 = s00 + x0 * y0, s01 + x0 * y1, s02 + x0 * y2, s03 + x0 * y3
                s10, s11, s12, s13 = s10 + x1 * y0, s11 + x1 * y1, s12 + x1 * y2, s13 + x1 * y3
                s20, s21, s22, s23 = s20 + x2 * y0, s21 + x2 * y1, s22 + x2 * y2, s23 + x2 * y3
                s30, s31, s32, s33 = s30 + x3 * y0, s31 + x3 * y1, s32 + x3 * y2, s33 + x3 * y3
            p0, p1, p2, p3 = out[p], out[p + 1], out[p + 2], out[p + 3]
            p0[q], p0[q + 1], p0[q + 2], p0[q + 3] = p0[q] + s00, p0[q + 1] + s01, p0[q + 2] + s02, p0[q + 3] + s03
            p1[q], p1[q + 1], p1[q + 2], p1[q + 3] = p1[q] + s10, p1[q + 1] + s11, p1[q + 2] + s12, p1[q + 3] + s13
            p2[q], p2[q + 1], p2[q + 2], p2[q + 3] = p2[q] + s20, p2[q + 1] + s21, p2[q + 2] + s22, p2[q + 3] + s23
            p3[q], p3[q + 1], p3[q + 2], p3[q + 3] = p3[q] + s30, p3[q + 1] + s31, p3[q + 2] + s32, p3[q + 3] + s33


@compiled
def _count(C):
    """How many entries are not zero, counted row by row in the array's own type, which makes it a vector loop"""
    total, one, zero = 0.0, C.dtype.type(1), C.dtype.type(0)
    for d in range(C.shape[0]):
        row, part = C[d], zero
        for i in range(len(row)):
            part += one if row[i] != zero else zero
        total += part
    return total


@compiled
def _sparse_products(C, WD, rows, dWD, d_rows):
    """dWD += C rows and d_rows += Cᵀ WD over what is not zero in C, four entries at a time, vectors along m."""
    index = np.empty(C.shape[1] + 1, np.int32)
    for d in range(C.shape[0]):
        count = 0
        for i in range(C.shape[1]):
            index[count] = i
            count += C[d, i] != 0
        w, dw = WD[d], dWD[d]
        for k in range(0, count - 3, 4):
            i0, i1, i2, i3 = index[k], index[k + 1], index[k + 2], index[k + 3]
            c0, c1, c2, c3 = C[d, i0], C[d, i1], C[d, i2], C[d, i3]
            w0, w1, w2, w3 = rows[i0], rows[i1], rows[i2], rows[i3]
            d0, d1, d2, d3 = d_rows[i0], d_rows[i1], d_rows[i2], d_rows[i3]
            for j in range(len(w)):
                x = w[j]
                dw[j] += c0 * w0[j] + c1 * w1[j] + c2 * w2[j] + c3 * w3[j]
                d0[j] += c0 * x
                d1[j] += c1 * x
                d2[j] += c2 * x
                d3[j] += c3 * x
        for k in range(count - count % 4, count):
            c0, w0, d0 = C[d, index[k]], rows[index[k]], d_rows[index[k]]
            for j in range(len(w)):
                dw[j] += c0 * w0[j]
                d0[j] += c0 * w[j]


@compiled
def _decay(W, lr, gamma):
    """`toy.decay` of W (m, n), in place"""
    m, n = W.shape
    if gamma >= 0:
        W *= W.dtype.type(1 - lr * gamma)
        return
    factor = np.zeros(n, W.dtype)
    for k in range(m):
        for i in range(n):
            factor[i] += W[k, i] * W[k, i]
    rate = W.dtype.type(lr * gamma)
    for i in range(n):
        if factor[i] > 0:
            factor[i] = 1 + rate * (1 - 1 / np.sqrt(factor[i]))
    for k in range(m):
        for i in range(n):
            W[k, i] *= factor[i]


@compiled
def _adam(W, dW, mean, square, lr, step):
    """One bias-corrected step of Adam, in place"""
    of = W.dtype.type
    keep1, keep2, new1, new2, epsilon = of(BETA1), of(BETA2), of(1 - BETA1), of(1 - BETA2), of(EPSILON)
    rate, root = of(lr / (1 - BETA1**step)), of(1 / np.sqrt(1 - BETA2**step))
    for k in range(W.shape[0]):
        w, d, mu, nu = W[k], dW[k], mean[k], square[k]
        for i in range(len(w)):
            mu[i] = keep1 * mu[i] + new1 * d[i]
            nu[i] = keep2 * nu[i] + new2 * d[i] * d[i]
            w[i] -= rate * mu[i] / (root * np.sqrt(nu[i]) + epsilon)


@compiled
def _up(count, multiple):
    return (count + multiple - 1) // multiple * multiple
