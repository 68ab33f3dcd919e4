"""Training in plain torch: dense batches, autograd, one run after the other. Slow, for any read-out and any device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from horosphere.superposition.sampling import Sampler, streams
from horosphere.superposition.toy import BETA1, BETA2, EPSILON, STATE, Schedule, Toy, decay, initial, loss


class AutogradGroup:
    """Runs of one n. Runs of the same law, density and seed share their batches.

    >>> group = AutogradGroup([Toy(n=20, m=4, law="power:1")], Schedule(steps=9, batch=16, warmup=2))
    >>> group.advance(3)
    >>> group.step, group.state()["W.0"].shape
    (3, torch.Size([20, 4]))
    """

    def __init__(self, runs: Sequence[Toy], schedule: Schedule, device: str = "cpu"):
        self.runs, self.schedule, self.device, self.step = list(runs), schedule, device, 0
        self._streams = [(Sampler(*stream), members) for stream, members in streams(runs).items()]
        self._states = [self._fresh(toy) for toy in runs]
        self._summed, self._counted = torch.zeros(len(runs), dtype=torch.float64), 0

    def advance(self, steps: int) -> None:
        """Train so many more steps."""
        for _ in range(steps):
            for sampler, members in self._streams:
                x = sampler.batches(self.step, 1, self.schedule.batch).dense().to(self.device)
                for index in members:
                    self._summed[index] += self._update(self.runs[index], self._states[index], x)
            self.step += 1
        self._counted += steps

    def losses(self) -> Tensor:
        """Mean training loss a sample since last asked.   -> (R,)"""
        mean = self._summed / max(self._counted, 1)
        self._summed, self._counted = torch.zeros_like(self._summed), 0
        return mean

    def state(self) -> dict[str, Tensor]:
        """W.i (n, m), b.i (n,) and their Adam moments of run i, the step, and the sums behind `losses`"""
        named = {
            f"{name}.{index}": tensor.to("cpu", copy=True)
            for index, state in enumerate(self._states)
            for name, tensor in state.items()
        }
        return {
            **named,
            "step": torch.tensor(self.step),
            "summed": self._summed.clone(),
            "counted": torch.tensor(self._counted),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        for index, own in enumerate(self._states):
            for name, tensor in own.items():
                tensor.copy_(state[f"{name}.{index}"])
        self.step, self._counted, self._summed = int(state["step"]), int(state["counted"]), state["summed"].clone()

    def _fresh(self, toy: Toy) -> dict[str, Tensor]:
        W, b = initial(toy)
        tensors = (W, b, torch.zeros_like(W), torch.zeros_like(W), torch.zeros_like(b), torch.zeros_like(b))
        return {name: tensor.to(self.device) for name, tensor in zip(STATE, tensors, strict=True)}

    def _update(self, toy: Toy, state: dict[str, Tensor], x: Tensor) -> float:
        """One step of a run. Returns its loss before the step."""
        W, b = (state[name].requires_grad_() for name in ("W", "b"))
        value = loss(x, W, b, toy.readout)
        gradients = torch.autograd.grad(value, (W, b))
        factor = self.schedule.factor(self.step)
        rates = (toy.lr * factor, toy.rate_of_bias * factor)
        with torch.no_grad():
            for name, gradient, rate in zip(("W", "b"), gradients, rates, strict=True):
                weight, mean, square = (state[part].detach() for part in (name, f"{name}_mean", f"{name}_square"))
                if name == "W":
                    weight.copy_(decay(weight, rate, toy.gamma))
                mean.lerp_(gradient, 1 - BETA1)
                square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
                root = (square / (1 - BETA2 ** (self.step + 1))).sqrt()
                weight.sub_(rate / (1 - BETA1 ** (self.step + 1)) * mean / (root + EPSILON))
        state["W"], state["b"] = W.detach(), b.detach()
        return value.item()
