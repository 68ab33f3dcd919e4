"""Speed of the recurrent layers on the hyperboloid and the ball beside their flat twins, which are torch's own.

    python benchmarks/recurrent.py                # about a minute on two cores
    python benchmarks/recurrent.py --device cuda  # steps compiled; the twin is cuDNN's

Forward and backward of one layer in training. Measurements alternate, and the least of each is divided by the twin's.
On a GPU the time is that of the kernels, as the profiler adds it up: a Python loop costs neither of them anything.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from horosphere.geometry import Euclidean, Lorentz, Manifold, Poincare
from horosphere.nn import GRU, LSTM, RNN

ROUNDS = 7
CPU = ((32, 35, 256), (64, 35, 256), (32, 64, 192))  # rows, steps, width
CUDA = ((512, 35, 1024), (2048, 35, 1024), (4096, 35, 2048))
KINDS = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}


def job(kind: str, m: Manifold, sizes: tuple[int, int, int], device: str) -> Callable[[], None]:
    rows, steps, width = sizes
    layer = KINDS[kind](width, width, m).to(device)
    x = m.lift(torch.randn(steps, rows, width) / width**0.5).to(device).requires_grad_()
    if device == "cuda" and not m.flat:
        layer.compile(fullgraph=True)

    def once() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = layer(x)[0]
        torch.autograd.grad(out.float().sum(), [x, *layer.parameters()])

    return once


def least(jobs: dict[str, Callable[[], None]], device: str) -> dict[str, float]:
    """Milliseconds; the first calls of each, which may compile, are not counted."""
    for once in jobs.values():
        once()
        once()
    seconds = on_gpu if device == "cuda" else on_cpu
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, once in jobs.items():
            times[name].append(1e3 * seconds(once))
    return {name: min(taken) for name, taken in times.items()}


def on_cpu(once: Callable[[], None]) -> float:
    begin = time.perf_counter()
    once()
    return time.perf_counter() - begin


def on_gpu(once: Callable[[], None]) -> float:
    """The time of all kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        once()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in seen.key_averages()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--kinds", default="RNN,GRU,LSTM")
    args = parser.parse_args()
    curved = {"lorentz": Lorentz(), "poincare": Poincare()}
    print(f"{'layer':6}{'rows x steps x width':>22}{'flat, ms':>12}{'lorentz':>12}{'poincare':>12}")
    for sizes in CPU if args.device == "cpu" else CUDA:
        for kind in args.kinds.split(","):
            begin = time.perf_counter()
            torch._dynamo.reset()  # sizes are compiled one by one
            jobs = {name: job(kind, m, sizes, args.device) for name, m in {"flat": Euclidean(), **curved}.items()}
            taken = least(jobs, args.device)
            cells = [" x ".join(map(str, sizes)), f"{taken['flat']:.2f}"]
            cells += [f"{taken[name] / taken['flat']:.2f}x" for name in curved]
            row = f"{kind:6}{cells[0]:>22}" + "".join(f"{cell:>12}" for cell in cells[1:])
            print(f"{row}   ({time.perf_counter() - begin:.0f} s in all)", flush=True)


if __name__ == "__main__":
    main()
