"""What decides a training, whatever is trained. Imports nothing heavy."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from horosphere import settings
from horosphere.errors import UserError
from horosphere.settings import Amount, Count, Decay, Extent, Natural, Positive, Range, Seed, Share

MOMENTUM = ("sgd", "rmsprop")  # optimizers that have one

# may change when a run is resumed
FREE = {"save_every", "keep", "eval_every", "sample_every", "log_every", "micro_batch", "compile", "checkpointing"}


@dataclass(frozen=True)
class EngineConfig:
    lr: Positive  # learning rate at its peak
    steps: Natural = 0  # of the optimizer; 0: as many as `epochs` ask for
    epochs: Annotated[float, Range(above=0, most=10**6)] | None = None  # passes over the data, in place of steps
    batch: Extent = 0  # rows of a step, whatever the number of processes; 0: as the task chooses
    micro_batch: Count | None = None  # rows of one forward in one process; none: all of its share
    optimizer: Literal["adam", "sgd", "adagrad", "rmsprop", "adadelta"] = "adam"  # adam: with AdamW's decay
    momentum: Decay = 0.0  # of sgd and rmsprop
    schedule: Literal["cosine", "constant", "step"] = "cosine"  # of the learning rate, after the warm-up
    warmup: Amount = 0.03  # linear; a share of the steps, or from 1 on a number of steps
    final: Share = 0.1  # share of the peak learning rate that a schedule ends at
    betas: tuple[Decay, Decay] = (0.9, 0.95)  # of Adam
    weight_decay: Amount = 0.01  # λ of matrices; biases and points have none
    clip: Positive | None = 1.0  # largest length of the whole gradient; none: as long as it is
    precision: Literal["auto", "bf16", "fp32"] = "auto"  # bf16: autocast over fp32 weights; auto: bf16 on CUDA
    compile: bool | Literal["auto"] = "auto"  # block by block, on one GPU the step as a CUDA graph; auto: on CUDA
    checkpointing: bool = False  # recompute activations in the backward: less memory, a third more work
    save_every: Count = 1000  # steps between checkpoints
    keep: Count = 2  # checkpoints
    eval_every: Count | None = None  # steps between evaluations; none: at the end only
    sample_every: Count | None = None  # steps between samples
    log_every: Count = 10  # steps between lines of metrics
    seed: Seed = 0  # of all randomness

    def compiled(self, device_type: str) -> bool:
        return self.compile is True or (self.compile == "auto" and device_type == "cuda")

    def check(self) -> None:
        settings.check(self)
        if bool(self.steps) == (self.epochs is not None):
            raise UserError("how long to train: give either steps=… or epochs=…")
        if self.momentum and self.optimizer not in MOMENTUM:
            how = f"leave it out, or choose optimizer={' or '.join(MOMENTUM)}"
            raise UserError(f"momentum={self.momentum:g}: {self.optimizer} has none such; {how}")
        if self.lr * self.weight_decay >= 1:
            most = f"a step would take all of a weight, or more; give less than 1/lr = {1 / self.lr:g}"
            raise UserError(f"weight_decay={self.weight_decay:g} with lr={self.lr:g}: {most}")

    def rows_of(self, rank: int, size: int) -> list[range]:
        """The rows of a step that a process of so many takes, as many at once as it takes."""
        share = self.batch // size
        micro = self.micro_batch or share
        mine = range(rank * share, (rank + 1) * share)
        return [mine[i : i + micro] for i in range(0, share, micro)]

    def for_data(self, rows: int, batch: int) -> "EngineConfig":
        """With steps and batch as numbers, for so many rows to learn from and the batch that the task would choose."""
        batch = self.batch or batch
        steps = self.steps or math.ceil((self.epochs or 0) * math.ceil(rows / batch))
        return replace(self, steps=steps, batch=batch)
