"""Many runs of the toy model: trained together, killed and resumed, in bounded memory, into one table.

sweep.json               the grid, and the rows of runs that are done
results.csv              the same rows for other programs (and results.parquet, where asked for)
checkpoint.safetensors   the runs under way; removed when they are done
"""

import csv
import hashlib
import importlib.util
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.files import (
    abandon,
    forget_partial,
    locked,
    make_staged,
    require_new_folder,
    settle,
    write_whole,
)
from horosphere.foreign import LARGE, open_tensors, parse_json, read_json
from horosphere.progress import Update, progress
from horosphere.runs import SWEEP
from horosphere.stopping import stop_asked
from horosphere.superposition.diagnostics import dead_fraction, overlaps, represented, welch
from horosphere.superposition.frequencies import weights_of
from horosphere.superposition.results import RESULTS
from horosphere.superposition.sampling import EVALUATION, Batches, Sampler, streams
from horosphere.superposition.toy import PRODUCTS, Schedule, Toy, preactivation

ABOUT, PARQUET, CHECKPOINT = SWEEP, "results.parquet", "checkpoint.safetensors"
EVALUATED = (128, 1024)  # fresh batches, and samples in each, that measure the loss of a trained run
OUTPUTS_AT_ONCE = 2**24  # numbers in memory while it is measured
INTERVALS = 100  # of a run; its training loss is the mean over the last of them
SAVING = 0.05  # share of the time that may go into checkpoints
PIECE = 1.0  # seconds of training between two looks at the clock

Row = dict[str, Any]


class Group(Protocol):
    """Runs of one n and one read-out that are trained together."""

    step: int

    def advance(self, steps: int) -> None: ...
    def losses(self) -> Tensor: ...
    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep is run. On one device its results do not depend on any of this."""

    device: str = "cpu"
    jobs: int | None = None  # threads on the CPU; None: one for each core
    memory_gb: float | None = None  # for runs trained at once; None: 4 on the CPU, half of what is free on a GPU
    save_every_s: float = 60.0  # seconds between checkpoints
    resume: bool = False  # go on with a sweep that was stopped
    overwrite: bool = False
    parquet: bool = False  # write results.parquet too
    quiet: bool = False
    report: Update | None = None  # report(done, note) instead of a bar


def sweep(runs: Sequence[Toy], schedule: Schedule, out: str | Path, options: SweepOptions | None = None) -> list[Row]:
    """Train all runs, and return one row each, in their order. A run does not depend on the others, nor on a resume.

    Ctrl-C and SIGTERM keep what is done, then raise KeyboardInterrupt.

    >>> import tempfile
    >>> runs = [Toy(n=20, m=m, law="power:1", readout="distance") for m in (2, 4)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sweep(runs, Schedule(steps=5, batch=8, warmup=1), folder, SweepOptions(quiet=True))
    >>> [(row["m"], row["steps"], row["loss"] > 0) for row in rows]
    [(2, 5, True), (4, 5, True)]
    """
    out, runs, options = Path(out), list(runs), options or SweepOptions()
    if not runs:
        raise UserError("an empty grid: there is nothing to train")
    if roomy := [toy for toy in runs if toy.m > toy.n]:
        n, m = roomy[0].n, roomy[0].m
        raise UserError(
            f"m = {m} dimensions for n = {n} features: with more room than features there is no superposition; "
            "lower the widths"
        )
    if options.parquet:
        require("parquet")
    for stream in streams(runs):
        Sampler(*stream)  # refuses impossible frequencies now, and not in the middle of the night
    grid = grid_of(runs, schedule)
    silent = options.quiet or options.report is not None
    with (
        locked(out),
        _begun(out, grid, options) as files,
        stop_asked() as asked,
        progress("training", len(runs) * schedule.steps, silent) as bar,
    ):
        rows, (chunk, state, spent) = files.rows, files.checkpoint()
        update = options.report or bar
        while len(rows) < len(runs):
            if asked():  # while the last runs were measured: their rows are written
                raise KeyboardInterrupt
            if not chunk:
                waiting = [index for index in range(len(runs)) if index not in rows]
                chunk = _chunk(runs, waiting, schedule, options)
            members = [runs[index] for index in chunk]
            group = _group(members, schedule, options)
            if state:
                group.load(state)
            keep = _Keeper(files, chunk, spent, options.save_every_s)
            tell = partial(_tell, update, len(rows) * schedule.steps, len(chunk))
            losses = _train(group, schedule, keep, asked, tell)
            measures = _measure(members, group.state(), options.device)
            seconds = round(keep.seconds() / len(chunk), 3)
            for index, toy, loss, measured in zip(chunk, members, losses, measures, strict=True):
                rows[index] = {
                    **asdict(toy),
                    "steps": schedule.steps,
                    "batch": schedule.batch,
                    **measured,
                    "train_loss": loss,
                    "seconds": seconds,
                }
            files.write_rows()
            chunk, state, spent = [], {}, 0.0
        files.write_rows()
    return [rows[index] for index in range(len(runs))]


def _tell(update: Update, before: int, size: int, step: int, note: str) -> None:
    """Progress counts the steps of all runs."""
    update(before + step * size, note)


# -- groups -----------------------------------------------------------------------------------------------------------


def _group(runs: Sequence[Toy], schedule: Schedule, options: SweepOptions) -> Group:
    """The fastest backend that can train these runs."""
    device = options.device
    if runs[0].readout in PRODUCTS and device.startswith("cuda"):
        from horosphere.superposition.cuda import CudaGroup

        return CudaGroup(runs, schedule, device)
    if runs[0].readout in PRODUCTS and device == "cpu":
        if importlib.util.find_spec("numba"):
            from horosphere.superposition.cpu import CompiledGroup

            return CompiledGroup(runs, schedule, jobs=options.jobs)
        if not options.quiet:
            print(
                "numba is not installed, so this takes some twenty times longer: "
                "pip install 'horosphere[superposition]'",
                file=sys.stderr,
            )
    from horosphere.superposition.autograd import AutogradGroup

    return AutogradGroup(runs, schedule, device)


def _chunk(runs: Sequence[Toy], waiting: list[int], schedule: Schedule, options: SweepOptions) -> list[int]:
    """The next runs to train together: of one n and read-out, as many as the memory takes, but at least one.

    Runs of one stream are kept together.
    """
    first, device, memory_gb = runs[waiting[0]], options.device, options.memory_gb
    alike = [index for index in waiting if (runs[index].n, runs[index].readout) == (first.n, first.readout)]
    ordered = [alike[place] for members in streams([runs[index] for index in alike]).values() for place in members]
    if memory_gb is None:
        memory_gb = torch.cuda.mem_get_info(device)[0] / 2e9 if device.startswith("cuda") else 4.0
    need = _memory(first.readout, device)
    low, high = 1, len(ordered)
    while low < high:  # need grows with the number of runs
        middle = (low + high + 1) // 2
        fits = need([runs[index] for index in ordered[:middle]], schedule) <= memory_gb * 1e9
        low, high = (middle, high) if fits else (low, middle - 1)
    return ordered[:low]


def _memory(readout: str, device: str) -> Callable[[Sequence[Toy], Schedule], float]:
    """A function of runs and their schedule: the bytes that a group of them takes"""
    if readout in PRODUCTS and device.startswith("cuda"):
        from horosphere.superposition import cuda

        return cuda.memory
    if readout in PRODUCTS and device == "cpu" and importlib.util.find_spec("numba"):
        from horosphere.superposition import cpu

        return cpu.memory
    # weights with their moments, and the graph of one run
    return lambda runs, schedule: sum(12 * toy.n * (toy.m + 1) for toy in runs) + 32 * schedule.batch * runs[0].n


def _train(group: Group, schedule: Schedule, keep: "_Keeper", asked: Callable[[], bool], update: Update) -> list[float]:
    """Train to the end. Returns the mean training loss of each run over the last interval.

    Before it stops because it was asked to, it saves what is done.
    """
    interval = math.ceil(schedule.steps / INTERVALS)
    pace, note = 1, ""
    while group.step < schedule.steps:
        begin, steps = time.perf_counter(), min(pace, interval - group.step % interval, schedule.steps - group.step)
        group.advance(steps)
        pace = max(1, min(2 * pace, round(PIECE / max(time.perf_counter() - begin, 1e-9) * steps)))
        if group.step % interval == 0 and group.step < schedule.steps:
            note = f"loss {group.losses().nanmean():.3f}"
        stop = asked()
        keep(group, now=stop)
        if stop:
            raise KeyboardInterrupt
        update(group.step, note)
    return group.losses().tolist()


# -- what a trained run is --------------------------------------------------------------------------------------------


def _measure(runs: Sequence[Toy], state: dict[str, Tensor], device: str) -> list[Row]:
    """Loss on fresh samples, and the geometry of W, of each run. All runs of a stream see the same samples."""
    rows: dict[int, Row] = {}
    for stream, members in streams(runs).items():
        count, size = EVALUATED
        batches = Sampler(*stream).batches(0, count, size, EVALUATION)
        weights = [
            (state[f"W.{index}"].to(device), state[f"b.{index}"].to(device), runs[index].readout) for index in members
        ]
        for index, (W, b, _), loss in zip(members, weights, _losses(weights, batches, device), strict=True):
            mean, variance = overlaps(W)
            directions = int((torch.linalg.vector_norm(W.double(), dim=-1) > 0).sum())  # rows that `overlaps` counts
            strong, _ = overlaps(W, torch.linalg.vector_norm(W, dim=-1) > 1)
            rows[index] = {
                "loss": loss,
                "phi_half": represented(W, 0.5),
                "phi_1": represented(W, 1.0),
                "dead": dead_fraction(W, b),
                "overlap_mean": mean,
                "overlap_var": variance,
                "overlap_mean_strong": strong,
                "welch": welch(directions, W.shape[1]),  # the least overlap_mean can be
            }
    return [rows[index] for index in range(len(runs))]


def _losses(weights: Sequence[tuple[Tensor, Tensor, str]], batches: Batches, device: str) -> list[float]:
    """Mean loss a sample of each (W, b, readout).

    Samples without an active feature all cost Σ ReLU(preactivation(0))²: they are counted, not computed.
    """
    samples, rows = batches.size * (len(batches.rows) - 1), len(batches.starts) - 1
    totals = [
        (samples - rows) * preactivation(W.new_zeros(W.shape[1]), W, b, readout).relu().square().sum().double()
        for W, b, readout in weights
    ]
    block = max(1, OUTPUTS_AT_ONCE // batches.n)
    for low in range(0, rows, block):
        x = batches.dense_rows(low, min(low + block, rows)).to(device)
        for k, (W, b, readout) in enumerate(weights):
            y = preactivation(x @ W, W, b, readout).relu_()
            totals[k] += y.sub_(x).square_().sum(dtype=torch.float64)
    return [float(total) / samples for total in totals]


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass
class _Files:
    """The files of a sweep. One that replaces another is written aside, until it has something to keep."""

    place: Path
    folder: Path  # where they are: the place, or aside
    grid: Row
    rows: dict[int, Row]  # of runs that are done
    parquet: bool

    def write_rows(self) -> None:
        write_rows(self.folder, self.grid, self.rows, self.parquet)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        self.folder = settle(self.folder, self.place)

    def write_checkpoint(self, content: bytes) -> None:
        write_whole(self.folder / CHECKPOINT, content)
        self.folder = settle(self.folder, self.place)

    def checkpoint(self) -> tuple[list[int], dict[str, Tensor], float]:
        """Runs that were under way, their state, and the seconds they took so far; nothing where there are none."""
        chunk, state, spent = _checkpoint(self.folder, self.grid)
        # killed after the rows were written, before the checkpoint was removed
        return ([], {}, 0.0) if self.rows.keys() >= set(chunk) else (chunk, state, spent)


@contextmanager
def _begun(out: Path, grid: Row, options: SweepOptions) -> Iterator[_Files]:
    """The files of a sweep that begins or goes on. Where it fails before it has anything to keep, it leaves nothing."""
    rows = finished(out, grid, options.resume, options.overwrite)
    folder = out.resolve() if rows is not None else begin(out, grid)
    if rows is not None:
        forget_partial(folder)
    files = _Files(out, folder, grid, rows or {}, options.parquet)
    try:
        yield files
    except BaseException:
        abandon(files.folder, out)
        raise


class _Keeper:
    """Saves the state of a group every so many seconds, but never spends more than SAVING of the time on it."""

    def __init__(self, files: _Files, chunk: list[int], spent: float, every: float):
        self.files, self.chunk, self.every = files, chunk, every
        self.begin = time.perf_counter() - spent  # the time of earlier processes on this chunk counts
        self.due = time.perf_counter() + every

    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def __call__(self, group: Group, now: bool = False) -> None:
        from safetensors.torch import save

        begin = time.perf_counter()
        if begin < self.due and not now:
            return
        chunk, seconds = json.dumps(self.chunk), f"{self.seconds():.3f}"
        about = {"grid": mark_of(self.files.grid), "chunk": chunk, "seconds": seconds}
        self.files.write_checkpoint(save(group.state(), about))
        end = time.perf_counter()
        self.due = end + max(self.every, (end - begin) / SAVING)


def grid_of(runs: Sequence[Toy], schedule: Schedule) -> Row:
    """What decides a sweep, as its file keeps it."""
    about = {"schedule": asdict(schedule), "runs": [asdict(toy) for toy in runs], **_counts(runs)}
    grid: Row = json.loads(json.dumps(about))
    return grid


def _counts(runs: Sequence[Toy]) -> Row:
    """Hashes of the files of counts, by law; nothing where no law has a file.

    With their names alone, files could change under a sweep.
    """
    digests: dict[str, Any] = {}
    for law, n in sorted({(toy.law, toy.n) for toy in runs if toy.law.startswith("counts:")}):
        digests.setdefault(law, hashlib.sha256()).update(weights_of(law, n).tobytes())
    return {"counts": {law: digest.hexdigest() for law, digest in digests.items()}} if digests else {}


def mark_of(grid: Row) -> str:
    return hashlib.sha256(json.dumps(grid, sort_keys=True).encode()).hexdigest()


def finished(out: Path, grid: Row, resume: bool, overwrite: bool) -> dict[int, Row] | None:
    """Rows of the runs that an earlier process finished; None where the sweep begins. Touches nothing."""
    if resume and (out / ABOUT).is_file():
        try:
            about = read_json(out / ABOUT, most=LARGE, infinite=True)
            before, rows = about["grid"], {int(index): dict(row) for index, row in about["rows"].items()}
            difference = "" if before == grid else _difference(before, grid)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{out / ABOUT}: damaged ({one_line(error)}); start again with --overwrite") from error
        if difference:
            how = "give the same grid, or another --out"
            raise UserError(f"{out} holds a sweep over another grid ({difference}): {how}")
        return rows
    if not overwrite and (out / ABOUT).is_file():
        raise UserError(
            f"{out} holds a sweep already: "
            "pass --resume to go on with it, --overwrite to start again, or choose another --out"
        )
    require_new_folder(out, overwrite, mark=ABOUT)
    return None


def begin(out: Path, grid: Row) -> Path:
    """The folder of a new sweep, without rows yet; aside, where another one is."""
    new = make_staged(out)
    write_rows(new, grid, {}, parquet=False)
    return new if (out / ABOUT).is_file() else settle(new, out)


def _difference(before: Row, grid: Row) -> str:
    """The first thing in which two grids differ, in words"""
    for key, value in grid["schedule"].items():
        if before["schedule"].get(key) != value:
            return f"{key} {before['schedule'].get(key)} there, {value} here"
    there, here = len(before["runs"]), len(grid["runs"])
    if there != here:
        return f"{there} runs there, {here} here"
    changed = [law for law, digest in grid.get("counts", {}).items() if before.get("counts", {}).get(law) != digest]
    return f"{changed[0]} held other counts" if changed and before["runs"] == grid["runs"] else "the runs differ"


def _checkpoint(out: Path, grid: Row) -> tuple[list[int], dict[str, Tensor], float]:
    """Runs that were under way, their state, and the seconds they took so far; nothing where there is no checkpoint."""
    from safetensors import SafetensorError

    path = out / CHECKPOINT
    if not path.exists():
        return [], {}, 0.0
    try:
        with open_tensors(path) as file:
            about = file.metadata() or {}
            if about["grid"] != mark_of(grid):
                raise ValueError("it belongs to another grid")
            return (
                parse_json(about["chunk"].encode()),
                {name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118 (a handle, not a dict)
                float(about["seconds"]),
            )
    except (ValueError, LookupError, SafetensorError) as error:
        how = "delete this file, and its runs start again"
        raise UserError(f"{path}: a damaged checkpoint ({one_line(error)}); {how}") from error


def write_rows(out: Path, grid: Row, rows: dict[int, Row], parquet: bool) -> None:
    """Write the table, then sweep.json, which says what rows are done and must not promise more than there is."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    # .get: a sweep begun by an older version lacks a column
    ordered = [{name: rows[index].get(name) for name in names} for index in sorted(rows)]
    if ordered:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
        write_whole(out / RESULTS, text.getvalue().encode())
    if ordered and parquet:
        import pyarrow
        from pyarrow.parquet import write_table

        buffer = io.BytesIO()
        write_table(pyarrow.Table.from_pylist(ordered), buffer)
        write_whole(out / PARQUET, buffer.getvalue())
    write_whole(out / ABOUT, json.dumps({"grid": grid, "rows": rows}).encode())
