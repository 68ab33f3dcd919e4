"""Layers of the classics, forward and backward: ours flat to torch's, ours curved to ours flat, hypll's beside.

    python benchmarks/classics_layers.py                 # CPU: eager, one thread; GPU: compiled, larger batches
    python benchmarks/classics_layers.py --precision bf16
    python benchmarks/classics_layers.py --smoke         # anywhere: tiny sizes, to see that it runs

All of a case take turns in one run. Numbers are the best of the rounds, because other work on a machine only adds; on
a CPU they are seconds of this process.
hypll is eager and in fp32 everywhere, as it comes.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz, Manifold
from horosphere.nn import AvgPool2d, BatchNorm2d, Conv2d, Linear

HYPLL_CURVATURE = 0.5413  # softplus of it is 1
ROUNDS = 15
ENOUGH = 2.0  # seconds of one entrant
NAMES = ("torch", "flat", "curved", "hypll")


@dataclass(frozen=True)
class Case:
    """One layer: ours on a manifold, torch's in flat space, hypll's on the ball where it has one."""

    name: str
    ours: Callable[[int, Manifold], nn.Module]
    torchs: Callable[[int], nn.Module]
    hypll: Callable[[int, object], nn.Module] | None
    width: int  # channels or features
    places: tuple[int, ...] = ()  # axes after the channels
    on_cpu: int = 32  # rows of a batch
    on_gpu: int = 512


def _hypll(name: str, *sizes: object) -> Callable[[int, object], nn.Module]:
    def make(width: int, ball: object) -> nn.Module:
        import hypll.nn

        widths = (width, width) if name in ("HLinear", "HConvolution2d") else (width,) * (name != "HAvgPool2d")
        more = {"padding": 1} if name == "HConvolution2d" else {}
        made: nn.Module = getattr(hypll.nn, name)(*widths, *sizes, ball, **more)
        return made

    return make


CASES = (
    Case("linear", lambda d, m: Linear(d, d, m), lambda d: nn.Linear(d, d), _hypll("HLinear"), 512, (), 2048, 65536),
    Case(
        "conv 3x3, 64",
        lambda d, m: Conv2d(d, d, 3, m, padding=1),
        lambda d: nn.Conv2d(d, d, 3, padding=1),
        _hypll("HConvolution2d", 3),
        *(64, (28, 28), 32, 512),
    ),
    Case(
        "conv 3x3, 256",
        lambda d, m: Conv2d(d, d, 3, m, padding=1),
        lambda d: nn.Conv2d(d, d, 3, padding=1),
        _hypll("HConvolution2d", 3),
        *(256, (14, 14), 16, 512),
    ),
    Case(
        "batch norm, 64",
        lambda d, m: BatchNorm2d(d, m),
        lambda d: nn.BatchNorm2d(d),
        _hypll("HBatchNorm2d"),
        *(64, (28, 28), 32, 4096),
    ),
    Case(
        "batch norm, 256",
        lambda d, m: BatchNorm2d(d, m),
        lambda d: nn.BatchNorm2d(d),
        _hypll("HBatchNorm2d"),
        *(256, (14, 14), 32, 4096),
    ),
    Case(
        "free batch norm", lambda d, m: BatchNorm2d(d, m, form="free"), lambda d: nn.BatchNorm2d(d), None, 64, (28, 28)
    ),
    Case(
        "average pool", lambda d, m: AvgPool2d(2, m), lambda d: nn.AvgPool2d(2), _hypll("HAvgPool2d", 2), 64, (28, 28)
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    columns = "".join(f"{name:>9}" for name in NAMES)
    print(f"{'ms, forward and backward':26}{columns}   {'flat/torch':>10}{'curved/flat':>12}")
    for case in CASES:
        if args.only in case.name:
            print(row(case, args.precision, args.smoke), flush=True)


def row(case: Case, precision: str, smoke: bool) -> str:
    runs = entrants(case, precision, smoke)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compiles, warms up
    for _ in range(2 if smoke else ROUNDS):
        for name, run in runs.items():
            if sum(times[name]) < ENOUGH:
                times[name].append(run())
    ms = {name: min(seconds) * 1e3 for name, seconds in times.items()}
    shown = "".join(f"{ms[name]:9.2f}" if name in ms else f"{'-':>9}" for name in NAMES)
    return f"{case.name:26}{shown}   {ms['flat'] / ms['torch']:10.2f}{ms['curved'] / ms['flat']:12.2f}"


def entrants(case: Case, precision: str, smoke: bool) -> dict[str, Callable[[], float]]:
    """{name: a function that takes one forward and backward and gives its seconds}"""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = 2 if smoke else case.on_gpu if device.type == "cuda" else case.on_cpu
    x = torch.randn(rows, 8 if smoke else case.width, *(4 for _ in case.places) if smoke else case.places)
    x = x.to(device)
    x = x.contiguous(memory_format=torch.channels_last) if device.type == "cuda" and case.places else x
    width = x.shape[1]
    layers = {
        "torch": case.torchs(width),
        "flat": case.ours(width, Euclidean()),
        "curved": case.ours(width, Lorentz()),
    }
    runs = {}
    for name, layer in layers.items():
        layer = layer.to(device)
        compiled = torch.compile(layer) if device.type == "cuda" else layer
        runs[name] = timed(compiled, x, precision)
    if case.hypll is not None and (theirs := of_hypll(case, x)) is not None:
        runs["hypll"] = theirs
    return runs


def timed(layer: Callable[[Tensor], Tensor], x: Tensor, precision: str) -> Callable[[], float]:
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    weights: list[Tensor] = []

    def once() -> float:
        start = now(x)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            y = layer(x)
        if not weights:
            weights.append(torch.randn_like(y))
        y.backward(weights[0])
        return now(x) - start

    return once


def of_hypll(case: Case, x: Tensor) -> Callable[[], float] | None:
    """hypll's layer on points of the same place, where it is installed."""
    try:
        from hypll.manifolds.poincare_ball import Curvature, PoincareBall
        from hypll.tensors import ManifoldTensor, TangentTensor
    except ImportError:
        return None
    ball = PoincareBall(Curvature(HYPLL_CURVATURE)).to(x.device)
    layer = case.hypll(x.shape[1], ball).to(x.device)  # type: ignore[misc]
    points = ball.expmap(TangentTensor(0.1 * x, man_dim=1, manifold=ball)).tensor.detach()

    def once() -> float:
        leaf = points.clone().requires_grad_()
        start = now(x)
        y = layer(ManifoldTensor(leaf, manifold=ball, man_dim=1)).tensor
        y.sum().backward()
        return now(x) - start

    return once


def now(x: Tensor) -> float:
    if not x.is_cuda:
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
