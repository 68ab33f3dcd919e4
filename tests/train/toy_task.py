"""A tiny task that can fail in every way, and a worker: `python toy_task.py JOBS` and under torchrun."""

import errno
import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Lorentz
from horosphere.nn import Embedding
from horosphere.runs import About
from horosphere.train import checkpoint
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World, world
from horosphere.train.engine import Place, fit
from horosphere.train.task import Task

SYMBOLS, DIM, ROW = 7, 6, 5
LAST = (
    int(os.environ.get("RANK", 0)) == int(os.environ.get("WORLD_SIZE", 1)) - 1
)  # one of several fails, the others must notice


class Block(nn.Module):
    def __init__(self, manifold, dropout):
        super().__init__()
        self.manifold = manifold
        self.linear = nn.Linear(DIM, DIM)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.manifold.log0(self.manifold.exp0(x) + 0.1) + self.dropout(torch.tanh(self.linear(x)))


class Toy(nn.Module):
    """A table of points with a learned curvature, blocks that share another one, a tied head, buffers of both kinds."""

    def __init__(self, dropout=0.0, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        inner = Lorentz(0.5, learn=True)  # belongs to two blocks, and to nobody else
        self.outer = Lorentz(1.0, learn=True)  # belongs to the root and to a block
        self.table = Embedding(SYMBOLS, DIM, self.outer)
        self.layers = nn.ModuleList(Block(m, dropout) for m in (inner, inner, self.outer))
        self.head = nn.Linear(DIM, SYMBOLS)
        self.tied = nn.Linear(DIM, SYMBOLS, bias=False)
        self.tied.weight = self.head.weight
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("passing", torch.ones(2), persistent=False)

    def forward(self, symbols):
        x = self.outer.log0(self.table(symbols))
        for block in self.layers:
            x = block(x)
        return self.head(x) + self.tied(x * x)

    def blocks(self):
        return list(self.layers)

    def after_step(self):
        self.steps_taken += 1


@dataclass(kw_only=True)
class ToyTask(Task):
    """Next symbol of random rows; in the given steps (from 1) it fails."""

    kind = "toy"
    unit = "symbols"
    model: str = "toy"
    data: str = "random"
    interrupt_at: int = 0
    terminate_at: int = 0
    kill_at: int = 0
    nan_at: int = 0
    raise_at: int = 0
    torn_at: int = 0
    step = 0
    units_per_row = ROW

    def batch(self, step, rows):
        self.step = step + 1
        if self.step == self.torn_at and LAST:
            raise UserError("7.png: torn.")
        data = torch.randint(SYMBOLS, (self.engine.batch, ROW), generator=torch.Generator().manual_seed(step))
        return {"symbols": data[rows.start : rows.stop]}

    def loss(self, model, batch):
        x = batch["symbols"]
        logits = model(x[:, :-1])
        if self.step == self.interrupt_at and LAST:
            os.kill(os.getpid(), signal.SIGINT)
        if self.step == self.terminate_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.step == self.raise_at and LAST:
            raise RuntimeError("this process fails alone")
        loss = F.cross_entropy(logits.float().flatten(0, 1), (x[:, 1:] + x[:, :-1]).flatten() % SYMBOLS)
        if self.step == self.nan_at:
            loss = loss * float("nan")
        return loss, {"top": logits.detach().float().amax(-1).mean()}

    def evaluate(self, model, last):
        assert not model.training
        x = self.batch(10**6, range(self.engine.batch))["symbols"]
        return {"mean_logit": model(x).float().mean().item()}

    def sample(self, model):
        return f"symbol {model(torch.arange(ROW)[None]).argmax().item()}"


def fit_task(model, task, config, place, here=None, about=None):
    """`fit` of a task that is told all it must know; `about`: more that decides the run."""
    task.engine, task.world = config, here or World()
    config.check()
    facts = About(
        task.kind, {"task": {}, "model": about or {}, "engine": json.loads(json.dumps(asdict(config)))}, {}, {}
    )
    return fit(model, task, facts, place)


def train(
    folder,
    here=None,
    *,
    dropout=0.0,
    resume=False,
    overwrite=False,
    about=None,
    quiet=True,
    model=None,
    task=None,
    **config,
):
    settings = {
        "steps": 6,
        "batch": 8,
        "lr": 0.02,
        "log_every": 1,
        "save_every": 2,
        "keep": 2,
        "eval_every": 3,
        **config,
    }
    model = Toy(dropout) if model is None else model
    task = ToyTask(**(task or {})) if not isinstance(task, Task) else task
    return fit_task(model, task, EngineConfig(**settings), Place(Path(folder), resume, overwrite, quiet), here, about)


def lines(folder):
    """The numbers of metrics.jsonl without what the clock decides"""
    logged = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    clock = ("seconds", "_per_second")
    return [{k: v for k, v in line.items() if not k.endswith(clock)} for line in logged if "sample" not in line]


def kill_while_saving(file):
    """Die in the middle of writing this file of a checkpoint."""
    write = checkpoint.write_synced

    def half(path, content):
        if path.match(file):
            path.write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, content)

    checkpoint.write_synced = half


@contextmanager
def full_disk(file):
    write = checkpoint.write_synced

    def fail(path, content):
        if path.match(file):
            path.write_bytes(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    checkpoint.write_synced = fail
    try:
        yield
    finally:
        checkpoint.write_synced = write


def work(jobs):
    """Each job is the arguments of `train`; what came of it is written beside its folder."""
    with world("cpu") as here:
        for number, job in enumerate(jobs):
            folder, name = job.pop("folder"), job.pop("name", number)
            if here.size == 1:  # every job may be killed, and must not take the others along
                if os.fork():
                    os.wait()
                    continue
                if file := job.pop("kill_while_saving", None):
                    kill_while_saving(file)
            disk = full_disk(job.pop("full_disk", "nothing"))
            try:
                with disk:
                    train(folder, here, **job)
                outcome = "done"
            except (UserError, OSError) as error:
                outcome = str(error)
            except SystemExit as stopped:
                outcome = f"exit {stopped.code}"
            if here.is_main:
                Path(f"{folder}.{name}.outcome").write_text(outcome)
            if here.size == 1:
                os._exit(0)


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
