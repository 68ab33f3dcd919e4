"""HCFormer beside Swin, ResNet and ConvNeXt: images a second in training and inference, against the work each does, in one run.

    python benchmarks/vision.py                  # on a GPU: bf16 autocast, channels last, compiled block by block as the training engine does it
    python benchmarks/vision.py --smoke          # anywhere: the same script on a few small images, to see that it runs

A training step is forward and backward of the loss; no paths are dropped. Models take turns in rounds; numbers are medians. GMACs are those of one
image of 224 pixels: "layers" counts layers with weights, as papers do, "all" every matrix product. "per GMAC" is images/s x GMACs of layers, in units
of swin_t's: above 1, a model turns its work into images faster than Swin-T does.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import StochasticDepth

from horosphere.models.hcformer import HCFORMER, HCFormer, HCFormerConfig
from horosphere.train.images import VARIANTS, units

OURS = ("hcformer-nano", "hcformer-tiny", "hcformer-small", "hcformer-medium")
THEIRS = ("swin_t", "resnet50", "convnext_tiny")
UNIT = "swin_t"
SWEPT = ("hcformer-small", "swin_t")
PROFILED = ("hcformer-medium", "swin_t")
SIZES = (224, 336, 448, 672, 1008, 1024)  # but for the last, windows and cells cut every map evenly, as the kernels want it
LONGEST = 12  # kernels of a profile that are named
PRODUCTS = ("gemm", "nvjet", "cutlass", "xmma", "cudnn", "conv", "flash", "fmha", "::mm", "::addmm", "::bmm")
WITH_WEIGHTS = {torch.ops.aten.convolution, torch.ops.aten.addmm, torch.ops.aten.mm}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = HCFormer(HCFORMER[name]) if name in HCFORMER else torchvision.models.get_model(name)
    for module in model.modules():
        if isinstance(module, StochasticDepth):
            module.p = 0.0  # as HCFormer's is: every block works, and all of a kind are compiled once
    return model


def without_windows(config: HCFormerConfig) -> HCFormerConfig:
    """The same model with the mean of the map in place of the clustering of windows."""
    return replace(config, window_centres=tuple(min(1, count) for count in config.window_centres))


def gmacs(model: nn.Module) -> dict[str, float]:
    """Of one image of 224 pixels, on CPU."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(torch.zeros(1, 3, 224, 224))
    counts = counter.get_flop_counts()["Global"]
    return {"layers": sum(n for op, n in counts.items() if op in WITH_WEIGHTS) / 2e9, "all": sum(counts.values()) / 2e9}


class Runner:
    """One model ready to be timed: its blocks compiled on a GPU, as it is elsewhere."""

    def __init__(self, model: nn.Module, device: str, mode: str):
        self.model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device = device
        if device == "cuda":
            for unit in units(self.model):
                unit.compile(fullgraph=True, dynamic=False, mode=mode)

    def images(self, batch: int, size: int) -> Tensor:
        return torch.randn(batch, 3, size, size, device=self.device).to(memory_format=torch.channels_last)

    def training(self, batch: int, size: int) -> Callable[[], None]:
        x, y = self.images(batch, size), torch.randint(1000, (batch,), device=self.device)

        def step() -> None:
            self.model.train()
            for p in self.model.parameters():
                p.grad = None
            with torch.autocast(self.device, torch.bfloat16):
                loss = F.cross_entropy(self.model(x), y)
            loss.backward()

        return step

    def inference(self, batch: int, size: int) -> Callable[[], None]:
        x = self.images(batch, size)

        def step() -> None:
            self.model.eval()
            with torch.no_grad(), torch.autocast(self.device, torch.bfloat16):
                self.model(x)

        return step


def seconds(step: Callable[[], None], device: str, times: int) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def turns(steps: Mapping[str, Callable[[], None]], device: str, rounds: int, times: int) -> dict[str, float]:
    """Median seconds of each, in rounds in which they take turns: what disturbs one disturbs the others."""
    for step in steps.values():
        seconds(step, device, 3)  # compiles, and warms up
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            taken[name].append(seconds(step, device, times))
    return {name: statistics.median(t) for name, t in taken.items()}


def clean(device: str) -> None:
    gc.collect()
    torch.compiler.reset()
    if device == "cuda":
        torch.cuda.empty_cache()


def throughput(names: list[str], device: str, mode: str, batch: int, size: int, rounds: int, times: int) -> list[dict[str, Any]]:
    models = {name: make(name) for name in names}
    work = {name: gmacs(model) for name, model in models.items()}
    parameters = {name: sum(p.numel() for p in model.parameters()) / 1e6 for name, model in models.items()}
    runners = {name: Runner(model, device, mode) for name, model in models.items()}
    speed = {}
    for kind in ("training", "inference"):
        taken = turns({name: getattr(r, kind)(batch, size) for name, r in runners.items()}, device, rounds, times)
        speed[kind] = {name: batch / t for name, t in taken.items()}
    rows = []
    for name in names:
        row: dict[str, Any] = {"name": name, "parameters": parameters[name], "gmacs": work[name]}
        for kind, rate in speed.items():
            unit = rate[UNIT] * work[UNIT]["layers"] if UNIT in rate else float("nan")
            row[kind] = {"images_per_s": rate[name], "per_gmac": rate[name] * work[name]["layers"] / unit}
        rows.append(row)
    return rows


def window_share(name: str, device: str, mode: str, batch: int, size: int, rounds: int, times: int) -> dict[str, Any]:
    """What the clustering of windows, in fp32, adds to a step: 1 - time without it / time with it."""
    config = HCFORMER[name]
    runners = {"with": Runner(HCFormer(config), device, mode), "without": Runner(HCFormer(without_windows(config)), device, mode)}
    row: dict[str, Any] = {"name": name}
    for kind in ("training", "inference"):
        taken = turns({which: getattr(r, kind)(batch, size) for which, r in runners.items()}, device, rounds, times)
        row[kind] = 1 - taken["without"] / taken["with"]
    return row


def profile(name: str, device: str, mode: str, batch: int, size: int, times: int) -> dict[str, Any]:
    """Milliseconds of a training step on the device by kind of kernel, and the longest ones by name."""
    step = Runner(make(name), device, mode).training(batch, size)
    seconds(step, device, 3)
    activities = [torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as found:
        seconds(step, device, times)
    on_device = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    kernels = {event.key: getattr(event, on_device) / 1e3 / times for event in found.key_averages()}
    kinds = {kind: sum(ms for name, ms in kernels.items() if kind_of(name) == kind) for kind in ("products", "fused", "other")}
    return {"name": name, "kinds": kinds, "longest": dict(sorted(kernels.items(), key=lambda item: -item[1])[:LONGEST])}


def kind_of(kernel: str) -> str:
    """products: of matrices, and convolutions; fused: what the compiler and we wrote."""
    if kernel.startswith(("triton_", "_clusters")):
        return "fused"
    return "products" if any(mark in kernel for mark in PRODUCTS) else "other"


def sweep(name: str, sizes: tuple[int, ...], pixels: int, device: str, mode: str, rounds: int, times: int) -> dict[str, Any]:
    """Inference at growing sizes, as many images at once as make up `pixels`: a linear cost is a constant one per pixel."""
    row: dict[str, Any] = {"name": name, "ms_per_image": {}, "ns_per_pixel": {}}
    for size in sizes:
        batch = max(1, pixels // size**2)
        taken = turns({name: Runner(make(name), device, mode).inference(batch, size)}, device, rounds, times)[name] / batch
        row["ms_per_image"][size], row["ns_per_pixel"][size] = 1e3 * taken, 1e9 * taken / size**2
        clean(device)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few small images, to see that the script runs")
    parser.add_argument("--only", default="", help="models whose name contains this, beside swin_t")
    parser.add_argument("--part", choices=("throughput", "windows", "sizes", "profile"), help="one part alone")
    parser.add_argument("--mode", default="default", help="of torch.compile: default, max-autotune-no-cudagraphs, …")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5, help="in which the models take turns (default 5)")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    names = [n for n in (*OURS, *THEIRS) if args.only in n or n == UNIT]
    ours = [n for n in names if n in OURS]
    full = (args.batch, 224, SIZES, 64 * 224**2, args.rounds, 10)
    batch, size, sizes, pixels, rounds, times = (2, 64, (64, 96), 2 * 64**2, 1, 1) if args.smoke else full
    if args.smoke:
        names, ours = [n for n in names if n in SWEPT], ours[:1]
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = VARIANTS
    common = (device, args.mode, batch, size, rounds, times)
    result: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "batch": batch}

    if args.part in (None, "throughput"):
        print(f"{'':18}{'':>8}{'GMACs':>14}{'training':>22}{'inference':>22}")
        print(f"{'model':18}{'params':>8}{'layers':>7}{'all':>7}{'images/s':>12}{'per GMAC':>10}{'images/s':>12}{'per GMAC':>10}", flush=True)
        result["throughput"] = throughput(names, *common)
        for row in result["throughput"]:
            speeds = "".join(f"{row[k]['images_per_s']:12.0f}{row[k]['per_gmac']:10.2f}" for k in ("training", "inference"))
            print(f"{row['name']:18}{row['parameters']:7.1f}M{row['gmacs']['layers']:7.2f}{row['gmacs']['all']:7.2f}{speeds}")
        clean(device)
    if args.part in (None, "windows"):
        print(f"\n{'window level (fp32)':24}{'of training':>12}{'of inference':>14}", flush=True)
        result["windows"] = []
        for name in ours:
            result["windows"].append(row := window_share(name, *common))
            print(f"{name:24}{row['training']:12.1%}{row['inference']:14.1%}", flush=True)
            clean(device)
    if args.part in (None, "sizes"):
        print(f"\n{'inference, ns/pixel':24}" + "".join(f"{f'{s} px':>10}" for s in sizes), flush=True)
        result["sizes"] = []
        for name in [n for n in names if n in SWEPT]:
            result["sizes"].append(row := sweep(name, sizes, pixels, device, args.mode, rounds, times))
            print(f"{name:24}" + "".join(f"{t:10.2f}" for t in row["ns_per_pixel"].values()), flush=True)
    if args.part in (None, "profile"):
        print(f"\n{'training step, ms':24}{'products':>10}{'fused':>10}{'other':>10}", flush=True)
        result["profile"] = []
        for name in [n for n in names if n in PROFILED]:
            result["profile"].append(row := profile(name, device, args.mode, batch, size, times))
            print(f"{name:24}" + "".join(f"{ms:10.2f}" for ms in row["kinds"].values()))
            print("".join(f"{ms:14.2f}  {kernel[:90]}\n" for kernel, ms in row["longest"].items()), end="", flush=True)
            clean(device)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
