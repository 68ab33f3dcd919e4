"""HCFormer beside Swin, ResNet and ConvNeXt: images a second in training and inference, against the work each does.

    python benchmarks/vision.py                  # on a GPU: bf16 autocast, channels last
    python benchmarks/vision.py --smoke          # anywhere: the same script on a few small images, to see that it runs

Blocks are compiled one by one and a step is replayed as a CUDA graph, as the training engine does it. So the GPU is
measured, not the host. A training step is forward and backward of the loss; no paths are dropped. Every model has its
own process, so that all are compiled at once. Then they take turns in rounds, alone on the GPU; numbers are medians.
GMACs are those of one image of 224 pixels: "layers" counts layers with weights, as papers do, "all" every matrix
product. "per GMAC" is images/s x GMACs of layers, in units of swin_t's: above 1, a model turns its work into images
faster than Swin-T does.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import StochasticDepth
from tqdm import tqdm

from horosphere.models.backbones import blocks_of
from horosphere.models.hcformer import HCFORMER, HCFormer, HCFormerConfig
from horosphere.train.engine import VARIANTS
from horosphere.train.graphed import WARM_UPS, Graphed

OURS = ("hcformer-nano", "hcformer-tiny", "hcformer-small", "hcformer-medium")
THEIRS = ("swin_t", "resnet50", "convnext_tiny")
UNIT = "swin_t"
SHARED = ("hcformer-nano", "hcformer-medium")  # whose window level's share is measured: the smallest and the largest
SWEPT = "hcformer-small"
PROFILED = ("hcformer-medium", "swin_t")
SIZES, IMAGES = (224, 384, 512, 768, 1024), 32
LONGEST = 12  # kernels of a profile that are named
PRODUCTS = ("gemm", "nvjet", "cutlass", "xmma", "cudnn", "conv", "flash", "fmha", "::mm", "::addmm", "::bmm")
WITH_WEIGHTS = {torch.ops.aten.convolution, torch.ops.aten.addmm, torch.ops.aten.mm}
KINDS = ("training", "inference")


@dataclass(frozen=True)
class Job:
    """A model on images of one size."""

    name: str
    batch: int
    size: int
    kinds: tuple[str, ...] = KINDS
    windows: bool = True  # False: the mean of the map in place of the clustering of windows

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        if self.name in HCFORMER:
            return HCFormer(HCFORMER[self.name] if self.windows else without_windows(HCFORMER[self.name]))
        model = torchvision.models.get_model(self.name)
        for module in model.modules():
            if isinstance(module, StochasticDepth):
                module.p = 0.0  # as HCFormer's is: every block works, and all of a kind are compiled once
        return model


def without_windows(config: HCFormerConfig) -> HCFormerConfig:
    return replace(config, window_centres=tuple(min(1, count) for count in config.window_centres))


def gmacs(model: nn.Module) -> dict[str, float]:
    """GMACs of one image of 224 pixels, counted on the CPU."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 3, 224, 224))
    counts = counter.get_flop_counts()["Global"]
    return {"layers": sum(n for op, n in counts.items() if op in WITH_WEIGHTS) / 2e9, "all": sum(counts.values()) / 2e9}


# -- in the process of a model ----------------------------------------------------------------------------------------


def steps(job: Job, device: str) -> dict[str, Callable[[], Any]]:
    """A training step and one of inference: compiled on a GPU, as they are elsewhere."""
    model = job.model().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    if device == "cuda":
        for block in blocks_of(model):
            block.compile(fullgraph=True, dynamic=False)
    x = torch.randn(job.batch, 3, job.size, job.size, device=device).to(memory_format=torch.channels_last)
    batch = {"x": x, "y": torch.randint(1000, (job.batch,), device=device)}

    def training(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        model.train()
        torch._foreach_zero_([p.grad for p in model.parameters()])
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        return {"loss": loss.detach()}

    def inference(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        model.eval()
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            return {"logits": model(batch["x"])}

    return {
        kind: partial(Graphed(step) if device == "cuda" else step, batch)
        for kind, step in (("training", training), ("inference", inference))
    }


def seconds(step: Callable[[], Any], device: str, times: int) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def kernels(step: Callable[[], Any], device: str, times: int) -> dict[str, float]:
    """Milliseconds of a step on the device by kernel, the longest first."""
    activity = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        seconds(step, device, times)
    spent = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    taken = {event.key: getattr(event, spent) / 1e3 / times for event in profiler.key_averages()}
    return dict(sorted(taken.items(), key=lambda item: -item[1]))


def serve(pipe: Any, job: Job, device: str) -> None:
    """Compile; then answer (seconds or kernels, kind of step, times), as long as the first process lives."""
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = VARIANTS
    known = steps(job, device)
    for kind in job.kinds:
        seconds(known[kind], device, WARM_UPS + 1)
    pipe.send("ready")
    while True:
        try:
            measure, kind, times = pipe.recv()
        except EOFError:
            return
        known[kind]()
        pipe.send(measure(known[kind], device, times))


# -- in the first process ---------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, job: Job, device: str):
        self.pipe, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, job, device), daemon=True).start()
        theirs.close()  # so that a process that ends is an end of file here

    def ask(self, *what: Any) -> Any:
        self.pipe.send(what)
        return self.answer()

    def answer(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            raise SystemExit("a model's process ended: see its error above") from None


def workers(jobs: Sequence[Job], device: str) -> dict[Job, Worker]:
    """A worker for each job, compiled and ready."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")  # of each
    ready = {job: Worker(job, device) for job in jobs}
    waiting = {worker.pipe: worker for worker in ready.values()}
    with tqdm(total=len(ready), desc="compiling", leave=False) as bar:
        while waiting:
            for pipe in connection.wait(list(waiting)):
                waiting.pop(pipe).answer()  # type: ignore[call-overload]
                bar.update()
    return ready


def turns(ready: dict[Job, Worker], kind: str, rounds: int, times: int) -> dict[Job, float]:
    """Median seconds of a step of each, in rounds in which they take turns: what disturbs one disturbs the others."""
    taken: dict[Job, list[float]] = {job: [] for job in ready if kind in job.kinds}
    for _ in tqdm(range(rounds), desc=kind, leave=False):
        for job, times_taken in taken.items():
            times_taken.append(ready[job].ask(seconds, kind, times))
    return {job: statistics.median(t) for job, t in taken.items()}


def kind_of(kernel: str) -> str:
    """products: of matrices, and convolutions; fused: kernels by the compiler and by us."""
    if kernel.startswith(("triton_", "_clusters")):
        return "fused"
    return "products" if any(mark in kernel for mark in PRODUCTS) else "other"


def throughput(jobs: Sequence[Job], taken: dict[str, dict[Job, float]]) -> list[dict[str, Any]]:
    work = {job: gmacs(job.model()) for job in jobs}
    unit = next(job for job in jobs if job.name == UNIT)
    print(f"{'':18}{'':>8}{'GMACs':>14}{'training':>22}{'inference':>22}")
    speed = f"{'images/s':>12}{'per GMAC':>10}"
    print(f"{'model':18}{'params':>8}{'layers':>7}{'all':>7}{speed}{speed}")
    rows = []
    for job in jobs:
        row: dict[str, Any] = {
            "name": job.name,
            "parameters": sum(p.numel() for p in job.model().parameters()) / 1e6,
            "gmacs": work[job],
        }
        for kind, t in taken.items():
            row[kind] = {
                "images_per_s": job.batch / t[job],
                "per_gmac": t[unit] / t[job] * work[job]["layers"] / work[unit]["layers"],
            }
        speeds = "".join(f"{row[k]['images_per_s']:12.0f}{row[k]['per_gmac']:10.2f}" for k in KINDS)
        print(
            f"{job.name:18}{row['parameters']:7.1f}M{row['gmacs']['layers']:7.2f}{row['gmacs']['all']:7.2f}{speeds}",
            flush=True,
        )
        rows.append(row)
    return rows


def windows(jobs: Sequence[Job], taken: dict[str, dict[Job, float]]) -> list[dict[str, Any]]:
    """The share of a step that the clustering of windows, in fp32, takes: 1 - time without it / time with it."""
    print(f"\n{'window level (fp32)':24}{'of training':>12}{'of inference':>14}")
    rows = []
    for job in jobs:
        rows.append(
            {"name": job.name} | {kind: 1 - t[replace(job, windows=False)] / t[job] for kind, t in taken.items()}
        )
        print(f"{job.name:24}{rows[-1]['training']:12.1%}{rows[-1]['inference']:14.1%}", flush=True)
    return rows


def sweep(jobs: Sequence[Job], taken: dict[Job, float]) -> dict[str, float]:
    """Inference of the same number of images at growing sizes: a linear cost is a constant one per pixel."""
    costs = {str(job.size): 1e9 * taken[job] / (job.batch * job.size**2) for job in jobs}
    print(f"\n{f'inference of {jobs[0].batch}, ns/pixel':24}" + "".join(f"{f'{size} px':>10}" for size in costs))
    print(f"{jobs[0].name:24}" + "".join(f"{t:10.2f}" for t in costs.values()), flush=True)
    return costs


def profile(ready: dict[Job, Worker], jobs: Sequence[Job], times: int) -> dict[str, dict[str, float]]:
    """Milliseconds of a training step on the device by kind of kernel, and the longest kernels."""
    print(f"\n{'training step, ms':24}" + "".join(f"{kind:>10}" for kind in ("products", "fused", "other")))
    rows = {job.name: ready[job].ask(kernels, "training", times) for job in jobs}
    for name, row in rows.items():
        totals = [
            sum(ms for kernel, ms in row.items() if kind_of(kernel) == kind) for kind in ("products", "fused", "other")
        ]
        print(f"{name:24}" + "".join(f"{ms:10.2f}" for ms in totals))
        print("".join(f"{ms:14.2f}  {kernel[:90]}\n" for kernel, ms in list(row.items())[:LONGEST]), end="", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few small images, to see that the script runs")
    parser.add_argument("--only", default="", help="models whose name contains this, beside swin_t")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7, help="in which the models take turns (default 7)")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON, with all kernels of the profile")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    full = (args.batch, 224, SIZES, IMAGES, args.rounds, 10)
    batch, size, sizes, images, rounds, times = (2, 64, (64, 96), 2, 1, 1) if args.smoke else full
    names = ["hcformer-nano", UNIT] if args.smoke else [n for n in (*OURS, *THEIRS) if args.only in n or n == UNIT]

    compared = [Job(name, batch, size) for name in names]
    ours = [job for job in compared if job.name in SHARED]
    swept = [Job(SWEPT, images, s, kinds=("inference",)) for s in sizes if args.smoke or args.only in SWEPT]
    ready = workers([*compared, *(replace(job, windows=False) for job in ours), *swept], device)
    taken = {kind: turns(ready, kind, rounds, times) for kind in KINDS}
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "batch": batch,
    }
    result["throughput"] = throughput(compared, taken)
    result["windows"] = windows(ours, taken)
    if swept:
        result["ns_per_pixel"] = sweep(swept, taken["inference"])
    result["profile"] = profile(ready, [job for job in compared if job.name in PROFILED], times)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
