"""The GPU's kernels against autograd. test_cuda.py runs it under TRITON_INTERPRET=1 on the CPU, or plainly on a GPU."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from horosphere.superposition import cuda
from horosphere.superposition.sampling import Sampler
from horosphere.superposition.toy import Schedule, Toy, decay, initial, loss

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SCHEDULE = Schedule(steps=9, batch=100, warmup=3)
N = 90  # more than a tile of features, and no multiple of anything
RUNS = [
    Toy(n=N, m=5, law="power:1.2", gamma=0.3, seed=3),
    Toy(n=N, m=20, law="uniform", density=2.0, gamma=-0.5, seed=2**40 + 1, bias="zero", lr=3e-3),
    Toy(n=N, m=5, law="power:1.2", gamma=-1.0, seed=3, bias_lr=2e-3),
    Toy(n=N, m=5, law="linear", density=7.0, gamma=0.0, seed=3),
]
WIDE = [Toy(n=N, m=130, law="power:1.2", gamma=gamma, seed=1) for gamma in (-1.0, 0.5)]


def batch(toy: Toy, step: int) -> Tensor:
    return Sampler(toy.n, toy.law, toy.density, toy.seed).batches(step, 1, SCHEDULE.batch).dense()


def reference(toy: Toy, steps: int) -> tuple[dict[str, Tensor], float]:
    """The state after so many steps of the dense loss by autograd, first decay, then Adam; and the mean loss."""
    W, b = (tensor.requires_grad_() for tensor in initial(toy))
    state = {
        name: torch.zeros_like(W if name[0] == "W" else b) for name in ("W_mean", "W_square", "b_mean", "b_square")
    }
    total = 0.0
    for step in range(steps):
        value = loss(batch(toy, step), W, b, toy.readout)
        total += value.item()
        gradients = torch.autograd.grad(value, (W, b))
        factor = SCHEDULE.factor(step)
        with torch.no_grad():
            W.copy_(decay(W, toy.lr * factor, toy.gamma))
            for name, parameter, gradient, rate in zip(
                "Wb", (W, b), gradients, (toy.lr, toy.rate_of_bias), strict=True
            ):
                state[f"{name}_mean"].lerp_(gradient, 0.1)
                state[f"{name}_square"].lerp_(gradient.square(), 0.001)
                mean, square = (
                    state[f"{name}_mean"] / (1 - 0.9 ** (step + 1)),
                    state[f"{name}_square"] / (1 - 0.999 ** (step + 1)),
                )
                parameter -= rate * factor * mean / (square.sqrt() + 1e-8)
    return {**state, "W": W.detach(), "b": b.detach()}, total / steps


def close(value: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest."""
    scale = expected.abs().max().clamp_min(1e-12)
    assert_close(value / scale, expected / scale, atol=tolerance, rtol=0)


def compare(
    runs: list[Toy], steps: int, tolerance: float, precision: str = "fp32", names: tuple[str, ...] = cuda.STATE
) -> None:
    group = cuda.CudaGroup(runs, SCHEDULE, DEVICE, precision)
    group.advance(steps)
    state, losses = group.state(), group.losses()
    for index, toy in enumerate(runs):
        expected, mean = reference(toy, steps)
        assert abs(losses[index].item() / mean - 1) < tolerance, (losses[index], mean)
        for name in names:
            close(state[f"{name}.{index}"], expected[name], tolerance)


def sampler() -> None:
    """The batches are those of the CPU, entry for entry.

    Also with features that are always on, with seeds over 32 bits, and at other steps.
    """
    always = [Toy(n=N, m=4, law="uniform", density=float(N)), Toy(n=8, m=4, law="power:1", density=2.7178571428571425)]
    for runs in (RUNS, always[:1], always[1:]):
        group = cuda.CudaGroup(runs, SCHEDULE, DEVICE, "fp32")
        streams = list(dict.fromkeys((toy.law, toy.density, toy.seed) for toy in runs))
        for step in (0, 5):
            group._step.fill_(step)
            group._streams.fill()
            at = {name: tensor.cpu() for name, tensor in group._streams.at.items()}
            for place, (law, density, seed) in enumerate(streams):
                x = Sampler(runs[0].n, law, density, seed).batches(step, 1, SCHEDULE.batch).dense()
                assert int(at["rows"][place]) == int((x > 0).any(1).sum())
                entries = int(at["start"][place, -1])
                row, feature, value = (at[f"entry_{name}"][place, :entries] for name in ("row", "feature", "value"))
                drawn = torch.zeros_like(x).index_put_((row.long(), feature.long()), value, accumulate=True)
                assert torch.equal(drawn, x)
                bins = at["start"][place].diff()
                assert torch.equal(torch.bincount(feature // cuda.BIN, minlength=len(bins)), bins.long())
    assert int(at["count"].min()) >= 1  # the first feature is on in every sample


def gradient() -> None:
    """Adam's first mean after one step is a tenth of the gradient."""
    compare(RUNS, 1, 2e-6, names=("W_mean", "b_mean"))


def training() -> None:
    compare(RUNS[:3], 5, 2e-4)


def wide() -> None:
    compare(WIDE, 1, 2e-6, names=("W_mean", "b_mean"))
    compare(WIDE, 4, 2e-4)


def minkowski() -> None:
    for runs in (RUNS[:2], WIDE[:1]):
        curved = [replace(toy, readout="lorentz") for toy in runs]
        compare(curved, 1, 2e-6, names=("W_mean", "b_mean"))
        compare(curved, 3, 2e-4)


def always_on() -> None:
    compare([Toy(n=8, m=3, law="power:1", density=2.7178571428571425, gamma=-0.2)], 4, 2e-4)


def dense() -> None:
    """E = 7 with a first feature that is nearly always on: no sample is empty, many events meet."""
    p = 1 / np.arange(1, N + 1)
    compare([Toy(n=N, m=12, law="power:1", density=0.99 * p.sum(), gamma=0.1)], 3, 2e-4)


def half_precision() -> None:
    """It changes the gradient by its rounding, not more."""
    for runs in (RUNS[1:2], WIDE[:1]):
        compare(runs, 1, 3e-3, "fp16", ("W_mean", "b_mean"))


def resume() -> None:
    """Bit for bit, in any company: losses, weights, moments."""
    runs = [*RUNS[:2], *WIDE[:1]]
    whole = cuda.CudaGroup(runs, SCHEDULE, DEVICE, "fp16")
    whole.advance(2)
    kept = {name: tensor.clone() for name, tensor in whole.state().items()}
    whole.advance(2)
    other = cuda.CudaGroup(runs, SCHEDULE, DEVICE, "fp16")
    other.load(kept)
    assert other.step == 2
    other.advance(2)
    assert torch.equal(whole.losses(), other.losses())
    assert (whole.losses() == 0).all()  # asked a moment ago
    a, b = whole.state(), other.state()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    alone = cuda.CudaGroup(runs[1:2], SCHEDULE, DEVICE, "fp16")
    alone.advance(4)
    assert torch.equal(alone.state()["W.0"], a["W.1"])


def overflow() -> None:
    """A batch that does not fit is an error, not a number."""
    group = cuda.CudaGroup(WIDE[:1], Schedule(steps=2, batch=300, warmup=1), DEVICE)
    group._parts[0].capacities[0] = 128  # of about 190 rows
    group.advance(1)
    for ask in (group.losses, group.state):
        with pytest.raises(RuntimeError, match="nonempty"):
            ask()


def memory() -> None:
    """What is promised is what is taken."""
    for runs in (RUNS, WIDE, RUNS[:1] + WIDE[:1]):
        for precision in cuda.PRECISIONS:
            group = cuda.CudaGroup(runs, SCHEDULE, DEVICE, precision)
            taken = [*group._streams.at.values(), *(tensor for part in group._parts for tensor in part.at.values())]
            assert cuda.memory(runs, SCHEDULE, precision) == sum(
                tensor.numel() * tensor.element_size() for tensor in taken
            )


if __name__ == "__main__":
    for check in (
        sampler,
        gradient,
        training,
        wide,
        minkowski,
        always_on,
        dense,
        half_precision,
        resume,
        overflow,
        memory,
    ):
        try:
            check()
        except AssertionError as error:
            print(f"{check.__name__}: {error}", file=sys.stderr)
        else:
            print(f"agrees: {check.__name__}", flush=True)
