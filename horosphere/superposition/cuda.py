"""Thousands of runs at once on a GPU: their batches, gradients and updates in Triton kernels, one step a CUDA graph.

With H = x W J (J = 1, or diag(-1, 1, …) for Minkowski's product) and R = ReLU(H Wᵀ + b), the batch times the loss is
    Σ R² + Σ_active (x² - 2 x R) + empties · Σ ReLU(b)²
where rows of H are the samples with an active feature; the empty ones have h = 0. So the dense part never sees x:
    G = 2R, dH = G W J, dW = Gᵀ H, db = Σ G
and an active entry (s, i) adds δ = -2x·1[R > 0] to G_si and x·dH_s to dW_i.
Up to m = 128 two kernels (`cuda_kernels.py`) make a step, and R is never written. `to_samples` holds a tile of H and
passes over W. `to_features` holds a tile of W, passes over H, then over the entries that fall on its features, and
updates. Wider runs go one by one, with G in memory between three products.
Nothing is added atomically: a run is the same to the last bit in any company and after any resume.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import triton
from torch import Tensor

from horosphere.errors import UserError
from horosphere.superposition import cuda_kernels as kernels
from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.sampling import Sampler
from horosphere.superposition.toy import BETA1, BETA2, PRODUCTS, STATE, Schedule, Toy, initial

# What the products read; sums, state and moments are fp32. fp16 runs on the tensor cores and gives the losses of fp32.
# tf32 is half as fast, cuts where fp16 rounds, and moved the losses by 0.5 %.
PRECISIONS = {"fp16": torch.float16, "fp32": torch.float32}
NARROW = 128  # widest m whose tiles stay on the chip
ROUND = 128  # samples and features are padded to multiples of this: no tile has a ragged end
BIN = 64  # features in a bin that active entries are sorted by, and in the tile that a program holds
CHUNK = 128  # columns of W that a program of a wide run updates
SIGMAS = 10  # a wide run has memory for the mean number of nonempty samples and so many standard deviations

# -- memory -----------------------------------------------------------------------------------------------------------

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
    """Shapes of the batches. `slots`: the most features that a sample can have on, by the tables of the sampler."""
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
    """Shapes of the state. Features are padded by rows of zeros with b = -1, columns by zeros; no step changes them."""
    matrix, vector = (runs, _up(n, ROUND), _up(m, 16)), (runs, _up(n, ROUND))
    shapes: Shapes = dict.fromkeys(("W", "W_mean", "W_square"), (matrix, torch.float32))
    shapes |= dict.fromkeys(("b", "b_mean", "b_square"), (vector, torch.float32))
    return shapes | {"loss": ((runs, vector[1] // BIN), torch.float64)}


def _narrow_shapes(runs: int, n: int, m: int, batch: int, precision: str) -> Shapes:
    kind, N, M, rows = PRECISIONS[precision], _up(n, ROUND), _up(m, 16), _up(batch, ROUND)
    shapes: Shapes = {"H": ((runs, rows, M), kind), "dH": ((runs, rows, M), torch.float32)}
    if kind != torch.float32:
        shapes |= {"operand": ((runs, N, M), kind)}
    return _state_shapes(runs, n, m) | shapes


def _wide_shapes(runs: int, n: int, m: int, capacity: int, entries: int, precision: str) -> Shapes:
    kind, N, M = PRECISIONS[precision], _up(n, ROUND), _up(m, 16)
    shapes: Shapes = {
        "H": ((capacity, M), kind),
        "G": ((capacity, N), kind),
        "dH": ((capacity, M), torch.float32),
        "dW": ((N, M), torch.float32),
    }
    shapes |= dict.fromkeys(("db_share", "loss_share"), ((capacity // BIN, N), torch.float32))
    shapes |= {"length": ((N,), torch.float32), "seen": ((entries,), torch.float32)}
    if kind != torch.float32:
        shapes |= {"operand": ((runs, N, M), kind)}
    return _state_shapes(runs, n, m) | shapes


def _capacity(toy: Toy, batch: int) -> int:
    """Rows that a batch of a wide run has room for: the mean number of nonempty samples, and SIGMAS deviations."""
    p = frequencies(toy.law, toy.n, toy.density)
    empty = 0.0 if p[0] == 1 else float(np.exp(np.log1p(-p).sum()))  # the probability that a sample has none
    return _up(min(batch, math.ceil(batch * (1 - empty) + SIGMAS * math.sqrt(batch * empty * (1 - empty)) + 1)), ROUND)


def memory(runs: Sequence[Toy], schedule: Schedule, precision: str = "fp16") -> int:
    """Bytes of GPU memory that `CudaGroup(runs, schedule, precision=precision)` holds, without a few MB of tables."""
    samplers = {_stream_of(toy): Sampler(toy.n, toy.law, toy.density, toy.seed) for toy in runs}
    n, batch, slots = runs[0].n, schedule.batch, max(map(_slots, samplers.values()))
    total = _bytes(_stream_shapes(len(samplers), n, slots, batch))
    for m in {toy.m for toy in runs}:
        some = [toy for toy in runs if toy.m == m]
        if m <= NARROW:
            total += _bytes(_narrow_shapes(len(some), n, m, batch, precision))
        else:
            capacity = max(_capacity(toy, batch) for toy in some)
            total += _bytes(_wide_shapes(len(some), n, m, capacity, slots * batch, precision))
    return total


def _slots(sampler: Sampler) -> int:
    return max(1, len(sampler.always) + len(sampler.count_bounds))


# -- the group --------------------------------------------------------------------------------------------------------


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

        self.tables = kernels.Tables(
            seed=column([sampler.key[0] | sampler.key[1] << 32 for sampler in samplers], torch.int64),
            count_bounds=table([sampler.count_bounds for sampler in samplers], max(1, self.events)),
            feature_bounds=table([sampler.feature_bounds for sampler in samplers], n),
            always=column([len(sampler.always) for sampler in samplers], torch.int32),
            bounds=column([len(sampler.feature_bounds) for sampler in samplers], torch.int32),
        )
        self.n = n
        at = self.at = _allocated(_stream_shapes(self.size, n, self.slots, self.batch), step.device)
        self.samples = kernels.Samples(at["order"], at["rows"], at["count"], at["index"], at["value"])
        self.entries = kernels.Entries(at["start"], at["entry_row"], at["entry_feature"], at["entry_value"])

    def fill(self) -> None:
        at, bins = self.at, self.N // BIN
        draws = int(triton.next_power_of_2(max(1, self.events)))
        samples = max(1, 2048 // draws)
        sizes = (self.n, self.slots, self.events, samples, draws, self.halvings)
        kernels.sample[(self.size * triton.cdiv(self.batch, samples),)](
            self.tables, self.step, self.samples, self.batch, *sizes
        )
        kernels.compact[(self.size,)](at["count"], at["order"], at["row"], at["rows"], at["widest"], self.batch, 1024)
        kernels.bin[(self.size * bins,)](
            at["index"], at["value"], at["row"], at["widest"], self.entries, self.batch, bins, self.slots, BIN, 1024
        )


class _Runs(ABC):
    """Runs of one width: their state, stacked."""

    def __init__(
        self, runs: Sequence[Toy], members: list[int], streams: _Streams, table: Tensor, precision: str, shapes: Shapes
    ):
        self.members, self.streams, self.table, self.precision = members, streams, table, precision
        self.n, self.m, self.sign = runs[0].n, runs[0].m, PRODUCTS[runs[0].readout]
        self.N, self.M = _up(self.n, ROUND), _up(self.m, 16)
        self.shape = kernels.Shape(self.N, self.M, streams.slots)
        self.input_precision = "ieee" if precision == "fp32" else "tf32"
        self.at = _allocated(shapes, table.device)
        self.operand = self.at.get("operand", self.at["W"])
        self.rates = torch.tensor(
            [(toy.lr, toy.rate_of_bias, toy.gamma) for toy in runs], dtype=torch.float32, device=table.device
        )
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

    def own(self, padded: Tensor) -> Tensor:
        """The runs' own part of a stack of matrices or vectors, a view."""
        return padded[:, : self.n, : self.m] if padded.ndim == 3 else padded[:, : self.n]

    @abstractmethod
    def advance(self) -> None: ...


class _Narrow(_Runs):
    """Runs up to m = NARROW, all at once."""

    def __init__(
        self,
        runs: Sequence[Toy],
        members: list[int],
        places: list[int],
        streams: _Streams,
        table: Tensor,
        precision: str,
    ):
        shapes = _narrow_shapes(len(runs), runs[0].n, runs[0].m, streams.batch, precision)
        super().__init__(runs, members, streams, table, precision, shapes)
        self.places = torch.tensor(places, dtype=torch.int32, device=table.device)
        width = max(16, int(triton.next_power_of_2(self.m)))
        # the best of a dozen at every width on an H200; without tensor cores (fp32) operands live in registers
        steps, stages = (32, 1) if precision == "fp32" else (32 if width == NARROW else 64, 3)
        self.tiling = kernels.Tiling(self.input_precision, width, BIN, steps, stages)

    def advance(self) -> None:
        at, streams, operand, runs = self.at, self.streams, self.operand, len(self.places)
        batch, rows = streams.batch, _up(streams.batch, ROUND)
        W, b, H, dH = at["W"], at["b"], at["H"], at["dH"]
        kernels.to_samples[(runs * (rows // BIN),)](
            self.places, streams.samples, W, operand, b, H, dH, batch, self.shape, rows, self.sign, self.tiling
        )
        moments = (at["W_mean"], at["W_square"], at["b_mean"], at["b_square"])
        weights = kernels.Weights(W, operand, b, *moments, at["loss"])
        pace = kernels.Pace(self.rates, self.table, streams.step)
        constants = (self.shape, rows, "operand" in at, self.tiling, 32)
        kernels.to_features[(runs * (self.N // BIN),)](
            self.places, streams.samples.rows, streams.entries, H, dH, weights, pace, batch, *constants
        )


class _Wide(_Runs):
    """Wider runs, one after the other."""

    def __init__(
        self,
        runs: Sequence[Toy],
        members: list[int],
        places: list[int],
        streams: _Streams,
        table: Tensor,
        precision: str,
        overflow: Tensor,
    ):
        self.capacities = [_capacity(toy, streams.batch) for toy in runs]
        self.places, self.overflow, self.entry_slots = places, overflow, streams.slots * streams.batch
        shapes = _wide_shapes(len(runs), runs[0].n, runs[0].m, max(self.capacities), self.entry_slots, precision)
        super().__init__(runs, members, streams, table, precision, shapes)

    def advance(self) -> None:
        for k, (stream, capacity) in enumerate(zip(self.places, self.capacities, strict=True)):
            self._advance_one(k, stream, capacity)

    def _advance_one(self, k: int, stream: int, capacity: int) -> None:
        at, batch, shape = self.at, self.streams.batch, self.shape
        samples, entries = self.streams.samples, self.streams.entries
        W, operand, b = at["W"][k], self.operand[k], at["b"][k]
        H, G, dH = at["H"][:capacity], at["G"][:capacity], at["dH"][:capacity]
        chunks = triton.cdiv(self.M, CHUNK)
        kernels.encode[(capacity // 32, chunks)](
            samples, W, H, self.overflow, stream, batch, capacity, shape, self.sign, 32, CHUNK
        )
        tile, step, warps = (64, 32, 4) if self.precision == "fp32" else (ROUND, 128 // H.element_size(), 8)
        shares = (at["db_share"], at["loss_share"])
        sizes = (stream, capacity // tile, shape, self.input_precision, tile, step, 8)
        kernels.outputs[(capacity // tile * (self.N // tile),)](
            H, operand, b, samples.rows, G, *shares, *sizes, num_warps=warps, num_stages=3
        )
        kernels.scatter[(triton.cdiv(self.entry_slots, 256),)](
            entries, G, at["seen"], stream, batch, capacity, shape, self.N // BIN, 256
        )
        _product(G, operand, dH)
        if self.sign < 0:
            dH[:, 0].neg_()
        _product(G.T, H, at["dW"])
        torch.linalg.vector_norm(W, dim=1, out=at["length"])
        products = kernels.Products(at["seen"], dH, at["dW"], *shares, at["length"])
        moments = (at["W_mean"][k], at["W_square"][k], at["b_mean"][k], at["b_square"][k])
        weights = kernels.Weights(W, operand, b, *moments, at["loss"][k])
        pace = kernels.Pace(self.rates[k], self.table, self.streams.step)
        constants = (shape, BIN, "operand" in at, self.input_precision, tile, CHUNK, 32)
        kernels.finish[(self.N // BIN, chunks)](
            samples.rows, entries, products, weights, pace, stream, batch, capacity, *constants, num_warps=8
        )


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a b in fp32, whatever the operands are."""
    if a.dtype == torch.float32:
        torch.mm(a, b, out=out)
    elif a.is_cuda:
        torch.mm(a, b, out_dtype=torch.float32, out=out)
    else:  # Triton's interpreter: torch has no such product on the CPU
        torch.mm(a.float(), b.float(), out=out)


@contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """The device for a while; its fp32 products are fp32."""
    if device.type != "cuda":
        yield
        return
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        with torch.cuda.device(device):
            yield
    finally:
        matmul.fp32_precision = before


class CudaGroup:
    """Runs of one n and one read-out, a product, trained together.

    Runs of one (law, density, seed) share their batches, those of one m their kernels.
    """

    def __init__(self, runs: Sequence[Toy], schedule: Schedule, device: str = "cuda", precision: str = "fp16"):
        if precision not in PRECISIONS:
            raise UserError(f"precision {precision}: choose from {', '.join(PRECISIONS)}")
        if len({(toy.n, toy.readout) for toy in runs}) != 1 or runs[0].readout not in PRODUCTS:
            raise ValueError(f"a group on the GPU has runs of one n and one read-out: {' or '.join(PRODUCTS)}")
        self.runs, self.schedule, self.precision, self.device = list(runs), schedule, precision, torch.device(device)
        if self.device.type != "cuda" and isinstance(kernels.sample, triton.runtime.JITFunction):
            raise ValueError(f"device {device}: these kernels need a GPU, or Triton's interpreter")
        self.step = self._counted = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._step = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._overflow = torch.zeros(1, dtype=torch.int32, device=self.device)
        rows = [(schedule.factor(t), 1 - BETA1 ** (t + 1), 1 - BETA2 ** (t + 1)) for t in range(schedule.steps)]
        table = torch.tensor(rows, dtype=torch.float32, device=self.device)

        streams = {key: place for place, key in enumerate(dict.fromkeys(map(_stream_of, runs)))}
        n = runs[0].n
        self._streams = _Streams([Sampler(n, *key) for key in streams], n, schedule, self._step)
        self._parts: list[_Runs] = []
        for m in sorted({toy.m for toy in runs}):
            members = [index for index, toy in enumerate(runs) if toy.m == m]
            members.sort(key=lambda index: streams[_stream_of(runs[index])])  # neighbours share a batch, in the cache
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
        with _on(self.device):
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
        """Mean training loss per sample, summed over features, since last asked.   -> (R,)"""
        mean = self._summed() / max(self._counted, 1)
        for part in self._parts:
            part.at["loss"].zero_()
        self._counted = 0
        return mean

    def _summed(self) -> Tensor:
        """Loss per sample, added up over the steps since last asked.   -> (R,)"""
        if self._overflow.item():
            raise RuntimeError(
                f"a batch had more nonempty samples than the mean and {SIGMAS} standard deviations: "
                "its last ones were lost"
            )
        sums = torch.zeros(len(self.runs), dtype=torch.float64)
        for part in self._parts:
            sums[part.members] = part.at["loss"].sum(1).cpu() / self.schedule.batch
        return sums

    def state(self) -> dict[str, Tensor]:
        """W.i (n, m), b.i (n,) and their Adam moments of run i, the step, and the sums behind `losses`, on the CPU"""
        state = {"step": torch.tensor(self.step), "summed": self._summed(), "counted": torch.tensor(self._counted)}
        for part in self._parts:
            for name in STATE:
                stack = part.own(part.at[name]).cpu()
                state |= {
                    f"{name}.{member}": stack[k].clone(memory_format=torch.contiguous_format)
                    for k, member in enumerate(part.members)
                }
        return state

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
