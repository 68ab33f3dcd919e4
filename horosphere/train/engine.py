"""The training loop of every recipe: one process or many, exact to resume, and nothing broken is ever saved.

A run is a folder: run.json (the resolved recipe, versions, device), metrics.jsonl, checkpoints/. Whatever is random in a step is seeded by
(seed, step, process), and a batch is a pure function of its step: a resumed run takes the very steps the uninterrupted one takes.
"""

import hashlib
import json
import math
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

import torch
from torch import Tensor, nn

from horosphere import __version__
from horosphere.errors import UserError
from horosphere.files import require_new_folder, write_whole
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.progress import progress
from horosphere.stopping import stop_asked
from horosphere.train import checkpoint
from horosphere.train.distributed import World, local, norms, reshard, shard
from horosphere.train.graphed import Graphed

RUN, METRICS, CHECKPOINTS = "run.json", "metrics.jsonl", "checkpoints"
FREE = {
    "save_every",
    "keep",
    "eval_every",
    "sample_every",
    "log_every",
    "micro_batch",
    "compile",
    "checkpointing",
}  # may change on resume
STOPPED = 130  # exit code, as shells have it


class Task(Protocol):
    """What a recipe gives the engine."""

    unit_name: str  # what throughput counts: "tokens"
    units_per_row: int

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """These rows of the global batch of a step, on the CPU or on the device already. A pure function."""

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over the rows, a scalar to back-propagate, and detached scalars to log, means as well."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Called in every process, without gradient."""

    def sample(self, model: nn.Module) -> str | None:
        """Something to look at. Called in every process, because a sharded model needs them all; the main one prints it."""

    def units(self, model: nn.Module) -> Sequence[nn.Module]:
        """The blocks of the model, to compile and to shard one by one."""

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        """Whether the loss of this batch may be replayed as a CUDA graph: no word to the host, no shape that depends on values."""


@dataclass(frozen=True)
class EngineConfig:
    steps: int
    batch: int  # rows of the global batch, whatever the number of processes
    lr: float
    micro_batch: int | None = None  # rows of one forward in one process; None: all of its share
    warmup: float = 0.03  # share of the steps, linear
    final: float = 0.1  # share of the peak learning rate that the cosine ends at
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    clip: float = 1.0  # largest length of the whole gradient
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # bf16: autocast over fp32 weights; auto: bf16 on CUDA
    compile: bool | Literal["auto"] = "auto"  # block by block, and on one GPU the step as a CUDA graph; auto: on CUDA
    checkpointing: bool = False  # recompute activations in the backward: less memory, a third more work
    save_every: int = 1000
    keep: int = 2  # checkpoints
    eval_every: int | None = None  # None: at the end only
    sample_every: int | None = None
    log_every: int = 10
    seed: int = 0

    def compiled(self, device: torch.device) -> bool:
        return self.compile is True or (self.compile == "auto" and device.type == "cuda")

    def check(self) -> None:
        for name in ("steps", "batch", "micro_batch", "save_every", "keep", "eval_every", "sample_every", "log_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: it must be at least 1")
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}={getattr(self, name)}: it must be positive")
        for name in ("warmup", "final"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}={getattr(self, name)}: it is a share, from 0 to 1")


@dataclass(frozen=True)
class FitResult:
    step: int
    seconds: float  # of training in all, before a resume too
    evaluation: dict[str, float]  # the last
    checkpoint: Path


def fit(
    model: nn.Module,
    task: Task,
    config: EngineConfig,
    folder: str | Path,
    world: World,
    *,
    resume: bool = False,
    overwrite: bool = False,
    about: dict[str, Any] | None = None,
    quiet: bool = False,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
) -> FitResult:
    """Train `model` in place, and keep it in `folder`. Every process of the world calls it with the same arguments.

    `about` is the resolved recipe, for run.json: a resumed run must have the same, but for FREE. `make_optimizer` gets the model after it
    was sharded; a group's `lr_scale` multiplies its learning rate. Ctrl-C and SIGTERM save and exit with 130, a second one at once.
    """
    folder = Path(folder)
    config.check()
    if config.batch % world.size:
        raise UserError(
            f"batch={config.batch} does not divide into {world.size} processes: choose a multiple of {world.size}"
        )
    run = _run(config, about or {}, world)
    found = world.from_main(lambda: _require_folder(folder, run, resume, overwrite))
    _prepare(model, task, config, world)
    if make_optimizer:
        optimizer = make_optimizer(model)
    else:
        optimizer = RiemannianAdam(
            _groups(model, config.weight_decay), lr=config.lr, betas=config.betas, decoupled_weight_decay=True
        )
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "evaluation": {}, "window": {"steps": 0, "sums": {}}}
    if found:
        state = checkpoint.restore(Path(found), model, world, optimizer, recipe=_fingerprint(run))
    world.from_main(lambda: _open_folder(folder, run, state["step"], resume))
    loop = _Loop(model, task, config, folder, world, optimizer, state, _fingerprint(run), quiet)
    with stop_asked() as asked, progress("training", config.steps, quiet or not world.is_main) as show:
        for step in range(state["step"], config.steps):
            loop.step(step)
            stop = world.any(asked())
            loop.report(step + 1, stop)
            show(step + 1, loop.note)
            if stop and step + 1 < config.steps:
                break
    if loop.done < config.steps:
        if world.is_main:
            how = f"the last step is saved in {folder}, and the same command with --resume goes on"
            print(f"horosphere: stopped after step {loop.done:,} of {config.steps:,}; {how}", file=sys.stderr)
        raise SystemExit(STOPPED)
    return FitResult(loop.done, loop.seconds(), loop.evaluation, folder / CHECKPOINTS / f"step-{loop.done:08d}")


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """`param_groups` for one learning rate: a step of Adam moves a row of n numbers by about lr·√n, but a point of a table by lr."""
    groups = param_groups(model, weight_decay)
    for group in groups:
        if "manifold" in group:
            group["lr_scale"] = math.sqrt(group["params"][0].shape[-1])
    return groups


def schedule(step: int, config: EngineConfig) -> float:
    """Share of the peak learning rate in a step (from 0): linear up to 1 over the warm-up, then a cosine down to `final` in the last step."""
    rise = config.warmup * config.steps
    if step + 1 < rise:
        return (step + 1) / rise
    done = (step + 1 - rise) / max(1.0, config.steps - rise)
    return config.final + (1 - config.final) * (1 + math.cos(math.pi * done)) / 2


# -- the loop ---------------------------------------------------------------------------------------------------------


def _prepare(model: nn.Module, task: Task, config: EngineConfig, world: World) -> None:
    """Onto the device, then activation checkpointing, compilation and sharding, in this order: each wraps what came before."""
    model.to(world.device)
    if config.checkpointing:
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise UserError(
                f"checkpointing=true: {type(model).__name__} cannot recompute its activations; use checkpointing=false"
            )
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    units = task.units(model)
    if config.compiled(world.device):
        for unit in units:
            unit.compile()
    if world.size > 1:
        shard(model, units, world)


class _Loop:
    """A run under way: takes steps, and says, evaluates and saves what is due after them."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: EngineConfig,
        folder: Path,
        world: World,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        recipe: str,
        quiet: bool,
    ):
        self.model, self.task, self.config, self.folder, self.world, self.optimizer = (
            model,
            task,
            config,
            folder,
            world,
            optimizer,
        )
        self.recipe, self.quiet = recipe, quiet
        self.trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        half = config.precision == "bf16" or (config.precision == "auto" and world.device.type == "cuda")
        self.precision = lambda: torch.autocast(world.device.type, dtype=torch.bfloat16, enabled=half)
        share = config.batch // world.size
        rows = range(world.rank * share, (world.rank + 1) * share)
        micro = config.micro_batch or share
        self.rows = [rows[i : i + micro] for i in range(0, share, micro)]
        self.share = share
        alone = world.device.type == "cuda" and world.size == 1 and not config.checkpointing
        self.graphed = Graphed(self._learn) if alone and config.compiled(world.device) else None

        self.done: int = state["step"]
        self.evaluation: dict[str, float] = state["evaluation"]
        self.note = ""
        # sums over the steps since the last line of metrics: they stay on the device, and a checkpoint takes them along
        self.window, self.counted = self._on_device(state["window"]["sums"]), int(state["window"]["steps"])
        self.broken = torch.full(
            (2,), -1, device=world.device
        )  # the first step, and the parameter in it, that was not finite
        self.order = torch.arange(len(self.trained), device=world.device)
        self.begin = time.perf_counter() - state["seconds"]
        self.clock, self.timed = time.perf_counter(), 0

    def _learn(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Forward and backward of some rows of this process: their share of the gradient, and numbers to log."""
        rows = next(iter(batch.values())).shape[0]
        with self.precision():
            loss, numbers = self.task.loss(self.model, batch)
        (loss * (rows / self.share)).backward()
        return {"loss": loss.detach(), **numbers}

    def step(self, step: int) -> None:
        """One step of the optimizer. Nothing here waits for the accelerator."""
        self._seed(step, self.world.rank)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=self.graphed is None)
        for rows in self.rows:
            batch = {name: self._to_device(t) for name, t in self.task.batch(step, rows).items()}
            graphed = self.graphed is not None and len(rows) == len(self.rows[0]) and self.task.graphable(batch)
            numbers = (self.graphed if graphed and self.graphed else self._learn)(batch)
            for name, value in numbers.items():
                self._add(name, value * (len(rows) / self.share))
        self._add("grad_norm", self._clip(step))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * schedule(step, self.config) * group.get("lr_scale", 1.0)
        self.optimizer.step()
        if hasattr(self.model, "after_step"):
            self.model.after_step()  # type: ignore[operator]
        self.done = step + 1
        self.counted += 1
        self.timed += 1

    def report(self, done: int, stop: bool) -> None:
        """What is due after this many steps. Evaluation comes before the checkpoint: a run killed between them does both again.

        Where data cannot be evaluated, what was trained is saved all the same; but for the last step, with which a run is done.
        """
        config, last = self.config, done == self.config.steps
        log = last or done % config.log_every == 0
        evaluate = last or (config.eval_every is not None and done % config.eval_every == 0)
        sample = last or (config.sample_every is not None and done % config.sample_every == 0)
        save = last or stop or done % config.save_every == 0
        if not (log or evaluate or sample or save):
            return
        numbers = self._read()
        if log:
            pace = self.timed * config.batch * self.task.units_per_row / (time.perf_counter() - self.clock)
            numbers = {name: value / self.counted for name, value in numbers.items()}
            line = {"lr": config.lr * schedule(done - 1, config), f"{self.task.unit_name}_per_second": round(pace, 1)}
            self._write({"step": done, **numbers, **line, "seconds": round(self.seconds(), 3)})
            self.note = f"loss {numbers['loss']:.4g}, {pace:,.0f} {self.task.unit_name}/s"
            self.window, self.counted = {}, 0
        else:
            self.window = self._on_device(numbers)
        aside = time.perf_counter()
        if evaluate:
            try:
                with self._at_rest():
                    self.evaluation = {name: float(value) for name, value in self.task.evaluate(self.model).items()}
            except UserError:
                if save and not last and self.world.size == 1:  # others would wait for this one elsewhere
                    self._save()
                raise
            if self.evaluation:
                self._write({"step": done, **{f"eval_{name}": value for name, value in self.evaluation.items()}})
                self.say(
                    f"step {done:,}: " + ", ".join(f"{name} {value:.4g}" for name, value in self.evaluation.items())
                )
        if sample:
            with (
                self._at_rest(),
                torch.compiler.set_stance("force_eager"),
            ):  # each length of a text would be compiled anew
                text = self.task.sample(self.model)
            if text:
                self.say(text)
        if save:
            self._save()
        self.clock = time.perf_counter() if log else self.clock + time.perf_counter() - aside
        self.timed = 0 if log else self.timed

    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def say(self, text: str) -> None:
        if self.world.is_main and not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def _seed(self, step: int, rank: int) -> None:
        torch.manual_seed(((self.config.seed * 1_000_003 + step) * 65_537 + rank) % 2**63)

    def _to_device(self, t: Tensor) -> Tensor:
        pinned = t.pin_memory() if self.world.device.type == "cuda" and t.device.type == "cpu" else t
        return pinned.to(self.world.device, non_blocking=True)

    def _on_device(self, numbers: dict[str, float]) -> dict[str, Tensor]:
        return {
            name: torch.tensor(value, dtype=torch.float64, device=self.world.device) for name, value in numbers.items()
        }

    def _add(self, name: str, value: Tensor) -> None:
        self.window[name] = self.window.get(name, 0.0) + value.detach().double()

    @torch.no_grad()
    def _clip(self, step: int) -> Tensor:
        """Shorten the gradient to `clip`, and return its length before. Remembers the first parameter whose gradient is not finite."""
        grads = [p.grad for _, p in self.trained]
        lengths = norms(grads, self.world)
        # back-propagation runs from the last parameter to the first: the last one that is broken is where it came in
        where = torch.where(lengths.isfinite(), -1, self.order).max()
        now = torch.stack([torch.full_like(where, step + 1), where])
        self.broken = torch.where((self.broken[0] < 0) & (where >= 0), now, self.broken)
        length = lengths.norm()
        torch._foreach_mul_(
            [local(g) for g in grads if g is not None], (self.config.clip / (length + 1e-6)).clamp(max=1.0)
        )
        return length

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
            self._fail(f"the gradient of {self.trained[index][0]} in step {step:,}")
        self._fail(f"the loss in steps {self.done - self.counted + 1:,} to {self.done:,}")

    def _fail(self, what: str) -> NoReturn:
        known = checkpoint.latest(self.folder / CHECKPOINTS)
        good = f"the last good checkpoint is {known}" if known else "no checkpoint was saved before it"
        raise UserError(
            f"{what} is not finite: {good}; lower lr (now {self.config.lr:g}) or clip (now {self.config.clip:g})"
        )

    def _save(self) -> None:
        reshard(self.model)
        sound = norms([p for _, p in self.trained], self.world).isfinite().tolist()
        if not all(sound):  # the gradient was sound, the step it led to was not
            self._fail(f"{self.trained[sound.index(False)][0]} after step {self.done:,}")
        window = {"steps": self.counted, "sums": {name: float(value) for name, value in self.window.items()}}
        notes = {"recipe": self.recipe, "seconds": self.seconds(), "evaluation": self.evaluation, "window": window}
        checkpoint.save(
            self.folder / CHECKPOINTS, self.done, self.model, self.optimizer, self.world, notes, self.config.keep
        )

    def _write(self, line: dict[str, Any]) -> None:
        if self.world.is_main:
            with (self.folder / METRICS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """No training, no gradient, and the same random numbers in every process: what they generate together must agree."""
        self._seed(self.done, 0)
        self.model.eval()
        with torch.no_grad(), self.precision():
            yield
        reshard(self.model)
        self.model.train()


# -- the folder of a run ----------------------------------------------------------------------------------------------


def _run(config: EngineConfig, about: dict[str, Any], world: World) -> dict[str, Any]:
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else platform.machine()
    versions = {"horosphere": __version__, "torch": torch.__version__, "python": platform.python_version()}
    run = {
        "recipe": about,
        "training": asdict(config),
        "versions": versions,
        "device": f"{world.device.type} ({device})",
        "processes": world.size,
    }
    same: dict[str, Any] = json.loads(json.dumps(run))  # as it will be read again: tuples are lists
    return same


def _require_folder(folder: Path, run: dict[str, Any], resume: bool, overwrite: bool) -> str | None:
    """Complain before anything is touched; the checkpoint to go on from."""
    if not resume:
        require_new_folder(folder, overwrite, mark=RUN)
        return None
    try:
        before = json.loads((folder / RUN).read_text(encoding="utf-8"))
        saved = _decisions(before)
    except FileNotFoundError as error:
        raise UserError(f"{folder} holds no {RUN}: there is no run to resume; start it without --resume") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / RUN}: a damaged file ({error}); start a new run") from error
    now = _decisions(run)
    differ = {name: (saved.get(name), now.get(name)) for name in (*saved, *now) if saved.get(name) != now.get(name)}
    if forbidden := [f"{name} {a} -> {b}" for name, (a, b) in differ.items() if name.rpartition(".")[2] not in FREE]:
        raise UserError(
            f"{folder} was begun with another recipe ({', '.join(forbidden)}): resume it with the saved values, or start a new run"
        )
    found = checkpoint.latest(folder / CHECKPOINTS)
    return str(found) if found else None


def _open_folder(folder: Path, run: dict[str, Any], step: int, resume: bool) -> None:
    """run.json, and the metrics up to this step: the lines of steps that will be taken again go."""
    if folder.exists() and not resume:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RUN, (json.dumps(run, indent=2) + "\n").encode())
    lines = (
        (folder / METRICS).read_text(encoding="utf-8").splitlines(keepends=True) if (folder / METRICS).is_file() else []
    )
    write_whole(
        folder / METRICS,
        "".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step).encode(),
    )


def _fingerprint(run: dict[str, Any]) -> str:
    """Of all that decides a run: what a checkpoint must have been made with."""
    fixed = {name: value for name, value in _decisions(run).items() if name.rpartition(".")[2] not in FREE}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _decisions(run: dict[str, Any]) -> dict[str, Any]:
    """The recipe and the settings of the training by name, "model.dim": what a run was asked for, not where it ran."""
    return {**_flat(run["recipe"]), **_flat(run["training"])}


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


# -- what a run left --------------------------------------------------------------------------------------------------


def read_run(folder: Path, what: str, holds: set[str]) -> dict[str, Any]:
    """The recipe of a run, from its run.json. `what` it must be a run of, as which its recipe `holds` these."""
    try:
        recipe = json.loads((folder / RUN).read_text(encoding="utf-8"))["recipe"]
        if not holds <= recipe.keys():
            raise LookupError(f"it is no run of {what}")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder}: no folder made by `horosphere train` (it has no {RUN}); check the path") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / RUN}: a damaged file ({error}); train the model again") from error
    return dict(recipe)


def last_checkpoint(folder: Path) -> Path:
    found = checkpoint.latest(folder / CHECKPOINTS)
    if found is None:
        raise UserError(f"{folder}: the run has no checkpoint yet; let it train on with --resume")
    return found
