"""The toy model of superposition: compiled kernels beside the published way of training it; and whole grids on a GPU.

    pip install 'horosphere[superposition]'
    python benchmarks/superposition.py                 # on one core, about three minutes
    python benchmarks/superposition.py --device cuda   # the cost of half precision; the pace of grids A (ten seeds), C
    python benchmarks/superposition.py --smoke         # does it run

Published: a dense batch from torch.rand, x W Wᵀ, autograd and AdamW, one width after the other. Both sides train the
same six widths at the same points of the grid (n = 1000, batch 2048, fp32). Both start from the weights after some
thousand steps, where a run spends its time. Rounds alternate.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor

from horosphere.superposition.cpu import CompiledGroup
from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.toy import WIDTHS, Schedule, Toy, decay, grid, loss

GOAL = 15.0  # times the published script, per core
# strong and weak superposition, even and skewed
POINTS = (("power:0", -5 / 9), ("power:1", -5 / 9), ("power:1", 1 / 3), ("power:2", 1 / 3))


def published_steps(W: Tensor, b: Tensor, p: Tensor, toy: Toy, batch: int, steps: int) -> None:
    """As the published scripts do it: everything dense."""
    W, b = W.clone().requires_grad_(), b.clone().requires_grad_()
    optimizer = torch.optim.AdamW([W, b], lr=toy.lr, weight_decay=0.0)
    for _ in range(steps):
        x = (torch.rand(batch, toy.n) < p) * (2 * torch.rand(batch, toy.n))
        optimizer.zero_grad()
        loss(x, W, b).backward()
        with torch.no_grad():
            W.copy_(decay(W, toy.lr, toy.gamma))
        optimizer.step()


def seconds(job: object, *arguments: object) -> float:
    begin = time.perf_counter()
    job(*arguments)  # type: ignore[operator]
    return time.perf_counter() - begin


def cpu(n: int, widths: tuple[int, ...], schedule: Schedule, trained: int, steps: int, rounds: int) -> None:
    """One row a point: milliseconds of a step of all widths, on both sides, and their ratio."""
    torch.set_num_threads(1)
    sizes = f"n = {n}, batch {schedule.batch}, widths {', '.join(map(str, widths))}"
    print(f"{sizes}; one thread; after {trained} steps; ms a step of all widths")
    print(f"{'law':12}{'gamma':>8}{'published':>12}{'horosphere':>12}{'faster':>9}{'whole run so far':>19}")
    for law, gamma in POINTS:
        runs = [Toy(n=n, m=m, law=law, gamma=gamma) for m in widths]
        group = CompiledGroup(runs, schedule, jobs=1)
        group.advance(1)  # compiles
        whole = seconds(group.advance, trained) / trained
        p = torch.from_numpy(frequencies(law, n, 1.0)).float()
        state = group.state()
        published_steps(state["W.0"], state["b.0"], p, runs[0], schedule.batch, 1)  # warms up
        slow, fast = [], []
        for _ in range(rounds):
            taken = [
                seconds(published_steps, state[f"W.{k}"], state[f"b.{k}"], p, toy, schedule.batch, steps)
                for k, toy in enumerate(runs)
            ]
            slow.append(sum(taken) / steps)
            fast.append(seconds(group.advance, 16 * steps) / (16 * steps))
        a, b = statistics.median(slow), statistics.median(fast)
        print(f"{law:12}{gamma:8.3f}{a * 1e3:12.1f}{b * 1e3:12.2f}{a / b:8.1f}x{a / whole:18.1f}x", flush=True)
    print(f"goal: {GOAL:g}x")


def cuda(steps: int, trained: int) -> None:
    """Losses after a short training, against fp32; and the time of a step of a whole grid, the same at any step."""
    from horosphere.superposition.cuda import PRECISIONS, CudaGroup, memory

    runs = [
        Toy(n=1000, m=m, law=law, gamma=gamma, seed=seed) for law, gamma in POINTS for m in WIDTHS for seed in range(4)
    ]
    schedule = Schedule(steps=trained, warmup=trained // 10)
    losses = {}
    for precision in PRECISIONS:
        group = CudaGroup(runs, schedule, "cuda", precision)
        group.advance(trained - trained // 10)
        group.losses()
        group.advance(trained // 10)
        losses[precision] = group.losses().log()
    off, spread = losses["fp16"] - losses["fp32"], losses["fp32"].view(-1, 4).std(1).mean()
    error = off.std() / len(off) ** 0.5
    print(f"log of the losses of {len(runs)} runs after {trained} steps: fp16 - fp32 = {off.mean():.4f} ± {error:.4f}")
    print(f"between seeds: {spread:.4f}\n")

    print(f"{'grid':16}{'runs':>8}{'GiB':>8}{'ms a step':>11}{'whole grid, minutes':>21}", flush=True)
    for name, seeds in (("a", 10), ("c", 1)):
        runs, schedule = grid(name, seeds)
        group = CudaGroup(runs, schedule, "cuda")
        group.advance(3)  # compiles, and captures the graph
        torch.cuda.synchronize()
        pace = seconds(lambda group=group: (group.advance(steps), torch.cuda.synchronize())) / steps
        size, gib = f"{name}, {seeds} seed" + "s" * (seeds > 1), memory(runs, schedule) / 2**30
        print(f"{size:16}{len(runs):8}{gib:8.1f}{pace * 1e3:11.2f}{pace * schedule.steps / 60:21.1f}", flush=True)
        del group
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: the numbers mean nothing")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args()
    if args.device == "cuda":
        cuda(steps=5 if args.smoke else 50, trained=100 if args.smoke else 2000)
    elif args.smoke:
        cpu(n=60, widths=(3, 8), schedule=Schedule(steps=400, batch=64, warmup=10), trained=20, steps=1, rounds=2)
    else:
        cpu(n=1000, widths=WIDTHS, schedule=Schedule(), trained=3000, steps=2, rounds=7)


if __name__ == "__main__":
    main()
