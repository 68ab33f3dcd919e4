"""Moving averages of weights: what is trained answers in training, its average when it counts."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from horosphere.errors import UserError
from horosphere.train.distributed import local


class Averaged(nn.Module):
    """A network and, with a decay, the average of its weights. In training the network answers, else the average."""

    def __init__(self, network: nn.Module, decay: float | None):
        super().__init__()
        self.network, self.decay = network, decay
        self.average = None if decay is None else deepcopy(network).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.steps: Tensor
        # as `steps`, on the host: the accelerator is asked once, after a checkpoint was read
        self.taken: int | None = None

    @property
    def answering(self) -> nn.Module:
        return self.network if self.average is None or self.training else self.average

    def forward(self, *inputs: Any) -> Any:
        return self.answering(*inputs)

    def gradient_checkpointing_enable(self) -> None:
        if not hasattr(self.network, "set_grad_checkpointing"):
            what = f"{type(self.network).__name__} cannot recompute its activations"
            raise UserError(f"checkpointing=true: {what}; use checkpointing=false")
        self.network.set_grad_checkpointing()  # type: ignore[operator]

    @torch.no_grad()
    def after_step(self) -> None:
        """average += (1 - d)(weights - average), d = min(decay, (1 + n)/(10 + n)) in step n.

        So a short run forgets its beginning too.
        """
        if self.average is None or self.decay is None:
            return
        self.taken = int(self.steps) + 1 if self.taken is None else self.taken + 1
        self.steps += 1
        mine, theirs = ([local(t) for t in (*m.parameters(), *m.buffers())] for m in (self.average, self.network))
        real = [t.is_floating_point() for t in mine]
        blend = get_ema_multi_avg_fn(min(self.decay, (1 + self.taken) / (10 + self.taken)))
        averaged, trained = ([t for t, is_real in zip(ts, real, strict=True) if is_real] for ts in (mine, theirs))
        blend(averaged, trained, self.taken)
        for average, current, is_real in zip(mine, theirs, real, strict=True):
            if not is_real:
                average.copy_(current)
