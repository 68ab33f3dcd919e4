"""The training loop of every task: one process or many, exact to resume, and nothing broken is ever saved.

Whatever is random in a step is seeded by (seed, step, process), and a batch is a pure function of its step: a resumed
run takes the very steps the uninterrupted one takes.
"""

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from horosphere import runs, settings
from horosphere.errors import Diverged, NotFinite, UserError
from horosphere.files import abandon, settle
from horosphere.nn.eager import eager
from horosphere.optim import gradient_lengths
from horosphere.optim.schedules import share_of_peak
from horosphere.progress import progress
from horosphere.runs import CHECKPOINTS, About
from horosphere.stopping import stop_asked
from horosphere.train import checkpoint
from horosphere.train.config import FREE, EngineConfig
from horosphere.train.distributed import local, norms, reshard, shard
from horosphere.train.graphed import Graphed
from horosphere.train.task import Task

STOPPED = 130  # exit code, as shells have it
VARIANTS = 256  # of one kind of block that are compiled, at most: stages differ; torch would stop at 8
LENGTH = {"engine.steps", "engine.epochs"}  # may grow on resume, where that leaves the steps taken as they were


@dataclass(frozen=True)
class Place:
    """Where a run is kept, and how it is begun."""

    folder: Path
    resume: bool = False
    overwrite: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class FitResult:
    step: int
    seconds: float  # of training in all, before a resume too
    evaluation: dict[str, float]  # the last


def fit(model: nn.Module, task: Task[Any], about: About, place: Place) -> FitResult:
    """Train `model` in place, and keep it in a folder. Every process of the task's world calls it alike.

    Ctrl-C and SIGTERM save and exit with 130, a second one at once.
    """
    engine, world, folder = task.engine, task.world, place.folder
    if engine.batch % world.size:
        how = f"choose a multiple of {world.size}"
        raise UserError(f"batch={engine.batch} does not divide into {world.size} processes: {how}")
    last = world.from_main(lambda: _resumable(about, place, task.mark))
    _prepare(model, task)
    optimizer = task.optimizer(model)
    state = _fresh()
    if last:
        state |= checkpoint.restore(Path(last), model, world, optimizer, recipe=_fingerprint(about))
    written = Path(world.from_main(lambda: str(_begin(task, about, place, state["step"]))))
    loop = _Loop(model, task, optimizer, place, state, _fingerprint(about), written)
    with (
        loop.abandoned_where_it_fails(),
        _shapes(task),
        stop_asked() as asked,
        progress("training", engine.steps, place.quiet or not world.is_main) as show,
    ):
        if task.measures_before and state["step"] == 0:
            loop.evaluate(0, last=False)
        for step in range(state["step"], engine.steps):
            loop.step(step)
            stop = world.any(asked())
            loop.report(step + 1, stop)
            show(step + 1, loop.note)
            if stop and step + 1 < engine.steps:
                break
    if loop.done < engine.steps:
        if world.is_main:
            how = f"the last step is saved in {folder}, and the same command with --resume goes on"
            print(f"horosphere: stopped after step {loop.done:,} of {engine.steps:,}; {how}", file=sys.stderr)
        raise SystemExit(STOPPED)
    return FitResult(loop.done, loop.seconds(), loop.evaluation)


def learn(model: nn.Module, task: Task[Any]) -> None:
    """The steps of `fit` alone, in this process: nothing is evaluated or written. Trains `model` in place.

    For models that live in memory only. The random numbers of torch go on as if nothing had been drawn.
    """
    nowhere = Path(os.devnull)
    with torch.random.fork_rng(devices=[]):
        _prepare(model, task)
        loop = _Loop(model, task, task.optimizer(model), Place(nowhere, quiet=True), _fresh(), "", nowhere)
        for step in range(task.engine.steps):
            loop.step(step)
        loop.require_finite()
    model.eval()


def rate(step: int, engine: EngineConfig) -> float:
    """Share of the peak learning rate in a step, counted from 0."""
    return share_of_peak(step, engine.steps, engine.warmup, engine.final, engine.schedule)


def precision(engine: EngineConfig, device: torch.device) -> torch.autocast:
    half = engine.precision == "bf16" or (engine.precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


# -- before the first step --------------------------------------------------------------------------------------------


def _fresh() -> dict[str, Any]:
    return {"step": 0, "seconds": 0.0, "evaluation": {}, "window": {"steps": 0, "sums": {}}}


def _resumable(about: About, place: Place, mark: str) -> str | None:
    """Complain before anything is touched; the checkpoint to go on from. mark: the last file of an export."""
    before = runs.require_place(place.folder, place.resume, place.overwrite)
    if before is None:
        return None
    last = runs.latest(place.folder / CHECKPOINTS)
    if last is None and (place.folder / mark).is_file():
        how = "nothing is left to go on from; pass --overwrite to train it anew"
        raise UserError(f"{place.folder} is trained to its end, and its checkpoints are gone: {how}")
    saved, now = before.decisions(), about.decisions()
    differ = {name: (saved.get(name), now.get(name)) for name in (*saved, *now) if saved.get(name) != now.get(name)}
    if differ.keys() & LENGTH:
        _require_same_steps(before, about, checkpoint.step_of(last) if last else 0, place.folder)
    others = {name: change for name, change in differ.items() if name not in LENGTH and not _is_free(name)}
    if others and all(name.startswith("facts.") for name in others):
        what = ", ".join(name.partition(".")[2] for name in others)
        how = "resume it with the data it was begun with, choose another --out, or pass --overwrite"
        raise UserError(f"{place.folder}: the data have changed since it was begun ({what}): {how}")
    if others or before.task != about.task:
        changes = ", ".join(f"{name.partition('.')[2]} {a} -> {b}" for name, (a, b) in others.items()) or about.task
        how = "resume it with the saved values, choose another --out, or pass --overwrite"
        raise UserError(f"{place.folder} was begun with another recipe ({changes}): {how}")
    return str(last) if last else None


def _require_same_steps(before: About, about: About, done: int, folder: Path) -> None:
    """A run may become longer where the steps that were taken would have been the same."""
    old, new = (settings.build(EngineConfig, a.recipe["engine"], str(folder)) for a in (before, about))
    if new.steps <= done:
        raise UserError(f"steps={new.steps}: {folder} is at step {done:,} already; give more, or start a new run")
    if any(rate(step, old) != rate(step, new) for step in range(done)):
        raise UserError(
            f"steps {old.steps} -> {new.steps}: the learning rates of the {done:,} steps taken would have been "
            f"others. Start a new run with start={folder}; or train with schedule=constant, and warmup=N as a number "
            f"of steps: that can be prolonged"
        )


def _is_free(name: str) -> bool:
    section, _, setting = name.partition(".")
    return section == "engine" and setting in FREE


def _fingerprint(about: About) -> str:
    """Of all that decides a run but its length: what a checkpoint must have been made with."""
    fixed = {name: value for name, value in about.decisions().items() if name not in LENGTH and not _is_free(name)}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _begin(task: Task[Any], about: About, place: Place, step: int) -> Path:
    """Where the run is written."""
    folder = runs.go_on(place.folder, about, step) if place.resume else runs.begin(place.folder, about)
    checkpoint.forget(folder / CHECKPOINTS, task.engine.keep)  # a run that was killed may have left one more
    if step < task.engine.steps:
        (folder / task.mark).unlink(missing_ok=True)  # a run that is prolonged is no longer what it exported
    try:
        task.begin(folder)
    except BaseException:
        abandon(folder, place.folder)
        raise
    return folder


def _prepare(model: nn.Module, task: Task[Any]) -> None:
    """Onto the device, then activation checkpointing, compilation and sharding: each wraps what came before."""
    model.to(task.world.device)
    if task.engine.checkpointing:
        if not hasattr(model, "gradient_checkpointing_enable"):
            what = f"{type(model).__name__} cannot recompute its activations"
            raise UserError(f"checkpointing=true: {what}; use checkpointing=false")
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    blocks = task.blocks(model)
    if task.engine.compiled(task.world.device.type):
        for block in blocks:
            block.compile()
    if task.world.size > 1:
        shard(model, blocks, task.world)


def _shapes(task: Task[Any]) -> AbstractContextManager[None]:
    """Where batches have one shape, each block is compiled for its own. By itself torch compiles the second shape it
    meets for all shapes, and gives up at the eighth."""
    if not (task.one_shape and task.engine.compiled(task.world.device.type)):
        return nullcontext()
    from torch._dynamo import config  # takes a second to import

    patch: AbstractContextManager[None] = config.patch(automatic_dynamic_shapes=False, recompile_limit=VARIANTS)
    return patch


# -- the loop ---------------------------------------------------------------------------------------------------------


class _Loop:
    """A run under way: takes steps, and says, evaluates and saves what is due after them."""

    def __init__(
        self,
        model: nn.Module,
        task: Task[Any],
        optimizer: torch.optim.Optimizer,
        place: Place,
        state: dict[str, Any],
        fingerprint: str,
        folder: Path,
    ):
        self.model, self.task, self.optimizer, self.place, self.fingerprint = model, task, optimizer, place, fingerprint
        self.folder = folder  # where the run is written: aside, until it takes the place of another one
        self.engine, self.world = task.engine, task.world
        engine, world = self.engine, self.world
        self.trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.share, self.rows = engine.batch // world.size, engine.rows_of(world.rank, world.size)
        alone = world.device.type == "cuda" and world.size == 1 and not engine.checkpointing
        self.graphed = Graphed(self._learn) if alone and engine.compiled("cuda") else None

        self.done: int = state["step"]
        self.saved = self.done
        self.evaluation: dict[str, float] = state["evaluation"]
        self.note = ""
        # sums over the steps since the last line of metrics: they stay on the device, and a checkpoint takes them along
        self.window, self.counted = self._on_device(state["window"]["sums"]), int(state["window"]["steps"])
        # the first step, and the parameter in it, that was not finite
        self.broken = torch.full((2,), -1, device=world.device)
        self.order = torch.arange(len(self.trained), device=world.device)
        self.begin = time.perf_counter() - state["seconds"]
        self.clock, self.timed = time.perf_counter(), 0

    def _learn(self, batch: dict[str, Tensor], rows: int | None = None) -> dict[str, Tensor]:
        """Forward and backward of some rows of this process: their share of the gradient, and numbers to log."""
        rows = next(iter(batch.values())).shape[0] if rows is None else rows
        with precision(self.engine, self.world.device):
            loss, numbers = self.task.loss(self.model, batch)
        (loss * (rows / self.share)).backward()
        return {"loss": loss.detach(), **numbers}

    def step(self, step: int) -> None:
        """One step of the optimizer. Nothing here waits for the accelerator."""
        self._seed(step, self.world.rank)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=self.graphed is None)
        for rows in self.rows:
            batch = self._batch(step, rows)
            whole = len(rows) == len(self.rows[0])
            if self.graphed is not None and whole and self.task.graphable(batch):
                numbers = self.graphed(batch)
            else:
                numbers = self._learn(batch, len(rows))
            for name, value in numbers.items():
                self._add(name, value * (len(rows) / self.share))
        self._add("grad_norm", self._clip(step))
        share = rate(step, self.engine)
        for group in self.optimizer.param_groups:
            group["lr"] = self.engine.lr * share * group.get("lr_scale", 1.0)
        self.optimizer.step()
        if hasattr(self.model, "after_step"):
            self.model.after_step()  # type: ignore[operator]
        self.done = step + 1
        self.counted += 1
        self.timed += 1

    def _batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """Rows of a step, on the device. Where they cannot be read, what was learned before is saved.

        That is so for the first rows of a step: at later ones the model may have counted those before.
        """
        first, failure = rows == self.rows[0], None
        batch: dict[str, Tensor] = {}
        try:
            batch = {name: self._to_device(t) for name, t in self.task.batch(step, rows).items()}
        except UserError as error:
            if not first:
                raise
            failure = error
        said = self.world.failure(failure) if first else None
        if said is None:
            return batch
        if self.done > self.saved:
            self._save()
        if self.saved:
            said = f"{said.removesuffix('.')}. The {self.saved:,} steps before it are saved: go on with --resume."
        raise UserError(said) from failure

    def report(self, done: int, stop: bool) -> None:
        """What is due after this many steps.

        Evaluation comes before the checkpoint: a run that is killed between them does both again.
        Where data cannot be evaluated, what was trained is saved all the same, but for the last step: it ends a run.
        """
        engine, last = self.engine, done == self.engine.steps
        log = last or done % engine.log_every == 0
        evaluate = last or (engine.eval_every is not None and done % engine.eval_every == 0)
        sample = last or (engine.sample_every is not None and done % engine.sample_every == 0)
        save = last or stop or done % engine.save_every == 0
        if not (log or evaluate or sample or save):
            return
        numbers = self._read()
        if log:
            pace = self.timed * engine.batch * self.task.units_per_row / (time.perf_counter() - self.clock)
            numbers = {name: value / self.counted for name, value in numbers.items()}
            line = {"lr": engine.lr * rate(done - 1, engine), f"{self.task.unit}_per_second": float(f"{pace:.4g}")}
            self._write({"step": done, **numbers, **line, "seconds": round(self.seconds(), 3)})
            self.note = f"loss {numbers['loss']:.4g}, {pace:,.0f} {self.task.unit}/s"
            self.window, self.counted = {}, 0
        else:
            self.window = self._on_device(numbers)
        aside = time.perf_counter()
        if evaluate:
            self.evaluate(done, last, save and not last and self.world.size == 1)
        for name, scores in self.task.baselines().items() if last and self.world.is_main else ():
            self._write({"step": done, "baseline": name, **scores})
        if sample:
            with self._at_rest(), eager():  # each length of a text would be compiled anew
                text = self.task.sample(self.model)
            if text:
                self._write({"step": done, "sample": text})
                self.say(text)
        if save:
            self._save()
        self.clock = time.perf_counter() if log else self.clock + time.perf_counter() - aside
        self.timed = 0 if log else self.timed

    def evaluate(self, done: int, last: bool, rescue: bool = False) -> None:
        """rescue: save what was trained where the data cannot be read; with several processes others wait elsewhere."""
        try:
            with self._at_rest():
                scores = self.task.evaluate(self.model, last)
                readings = self.task.readings(self.model)
        except NotFinite as error:
            self._fail(f"the evaluation after step {done:,}", done, error)
        except UserError:
            if rescue:
                self._save()
            raise
        self.evaluation = {name: float(value) for name, value in scores.items()}
        if self.evaluation:
            self._write({"step": done, **{f"eval_{name}": value for name, value in self.evaluation.items()}})
            self.say(f"step {done:,}: " + ", ".join(f"{name} {value:.4g}" for name, value in self.evaluation.items()))
        if readings:
            self._write({"step": done, **{f"read_{name}": value for name, value in readings.items()}})

    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def say(self, text: str) -> None:
        if self.world.is_main and not self.place.quiet:
            print(text, file=sys.stderr, flush=True)

    def _seed(self, step: int, rank: int) -> None:
        """torch.manual_seed would ask accelerators that are not there too, and keep a traceback each time."""
        seed = ((self.engine.seed * 1_000_003 + step) * 65_537 + rank) % 2**63
        torch.default_generator.manual_seed(seed)
        if self.world.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _to_device(self, t: Tensor) -> Tensor:
        pinned = t.pin_memory() if self.world.device.type == "cuda" and t.device.type == "cpu" else t
        return pinned.to(self.world.device, non_blocking=True)

    def _on_device(self, numbers: dict[str, float]) -> dict[str, Tensor]:
        device = self.world.device
        return {name: torch.tensor(value, dtype=torch.float64, device=device) for name, value in numbers.items()}

    def _add(self, name: str, value: Tensor) -> None:
        self.window[name] = self.window.get(name, 0.0) + value.detach().double()

    @torch.no_grad()
    def _clip(self, step: int) -> Tensor:
        """Shorten the gradient to `clip`; its length before. Remembers the first parameter that broke.

        The gradient of a point is as long as the metric says, g·rgrad squared; of all others torch's own length.
        """
        grads = [p.grad for _, p in self.trained]
        of_points = gradient_lengths(self.optimizer)
        lengths = norms([of_points.get(p, grad) for (_, p), grad in zip(self.trained, grads, strict=True)], self.world)
        # back-propagation runs from the last parameter to the first: the last one that is broken is where it came in
        where = torch.where(lengths.isfinite(), -1, self.order).max()
        now = torch.stack([torch.full_like(where, step + 1), where])
        self.broken = torch.where((self.broken[0] < 0) & (where >= 0), now, self.broken)
        length = lengths.norm()
        if self.engine.clip is not None:
            factor = (self.engine.clip / (length + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_([local(g) for g in grads if g is not None], factor)
        return length

    def require_finite(self) -> None:
        """Stop where a step was broken."""
        self._read()

    def _read(self) -> dict[str, float]:
        """The window summed up, the same in every process; stops the run when it is broken."""
        values = self.world.mean(torch.stack(list(self.window.values()))).tolist()
        numbers = dict(zip(self.window, values, strict=True))
        if not (math.isfinite(numbers["loss"]) and math.isfinite(numbers["grad_norm"])):
            self._stop_broken()
        return numbers

    def _stop_broken(self) -> NoReturn:
        step, index = self.broken.tolist()
        if step > 0:
            self._fail(f"the gradient of {self.trained[index][0]} in step {step:,}", step - 1)
        first = self.done - self.counted
        self._fail(f"the loss in steps {first + 1:,} to {self.done:,}", first)

    def _fail(self, what: str, learned: int, cause: Exception | None = None) -> NoReturn:
        """learned: how many steps had been taken before it."""
        known = runs.latest(self.folder / CHECKPOINTS)
        good = f"the last good checkpoint is {known}" if known else "no checkpoint was saved before it"
        clip = "none" if self.engine.clip is None else f"{self.engine.clip:g}"
        how = f"lower lr (now {self.engine.lr:g}) or clip (now {clip})"
        if not learned:
            given = ", ".join(f"{name}={value}" for name, value in self.task.config.items())
            how = f"no step came before it, so lr is not the reason: look at the data, and at {given or 'the network'}"
        raise Diverged(f"{what} is not finite: {good}; {how}") from cause

    def _save(self) -> None:
        reshard(self.model)
        sound = norms([p for _, p in self.trained], self.world).isfinite().tolist()
        if not all(sound):  # the gradient was sound, the step it led to was not
            self._fail(f"{self.trained[sound.index(False)][0]} after step {self.done:,}", self.done)
        window = {"steps": self.counted, "sums": {name: float(value) for name, value in self.window.items()}}
        kept = {"seconds": self.seconds(), "evaluation": self.evaluation, "window": window}
        notes = {"step": self.done, "recipe": self.fingerprint, **kept}
        checkpoint.save(self.folder / CHECKPOINTS, self.model, self.optimizer, self.world, notes)
        self.saved = self.done
        self.folder = Path(self.world.from_main(lambda: str(settle(self.folder, self.place.folder))))
        self.world.from_main(lambda: checkpoint.forget(self.folder / CHECKPOINTS, self.engine.keep))

    def _write(self, line: dict[str, Any]) -> None:
        if self.world.is_main:
            runs.append(self.folder, line)

    @contextmanager
    def abandoned_where_it_fails(self) -> Iterator[None]:
        """A run that failed before its first step leaves nothing; one that diverged later says so.

        One that was to replace another one, and failed before its first checkpoint, leaves that one.
        """
        try:
            yield
        except BaseException as error:
            if isinstance(error, Diverged) and self.done:
                self._write({"step": self.done, "failed": str(error)})
            if self.world.is_main:
                abandon(self.folder, self.place.folder, empty=not self.done and not self.place.resume)
            raise

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """No training, no gradient, and the same random numbers in all processes, for what they generate together."""
        self._seed(self.done, 0)
        self.model.eval()
        with torch.no_grad(), precision(self.engine, self.world.device):
            yield
        reshard(self.model)
        self.model.train()
