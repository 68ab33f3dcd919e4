"""Speed of attention and of an encoder layer beside torch's own: flat, where they are the same, and on the hyperboloid.

    python benchmarks/transformer.py                # about a minute on two cores
    python benchmarks/transformer.py --device cuda  # compiled, bf16

Forward and backward in training. Measurements alternate, and the least of each is divided by that of torch's layer.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz
from horosphere.nn import EncoderLayer, MultiHeadAttention

ROUNDS = 15
CPU = ((32, 64, 128, 2), (8, 128, 256, 4), (4, 128, 512, 8))  # rows, tokens, width, heads
CUDA = ((64, 256, 512, 8), (32, 512, 1024, 16))


class TorchAttention(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x, x, x, need_weights=False)[0]


def layers(kind: str, width: int, heads: int) -> dict[str, nn.Module]:
    if kind == "attention":
        ours = [MultiHeadAttention(width, heads, m) for m in (Euclidean(), Lorentz())]
        torchs: nn.Module = TorchAttention(width, heads, batch_first=True)
    else:
        ours = [EncoderLayer(width, heads, 4 * width, m) for m in (Euclidean(), Lorentz())]
        torchs = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
    return {"torch": torchs, "flat": ours[0], "hyperboloid": ours[1]}


def job(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    device, layer = x.device.type, layer.to(x.device)
    run = torch.compile(layer) if device == "cuda" else layer

    def once() -> None:
        layer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = run(x)
        out.float().sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return once


def least(jobs: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Milliseconds; the first two calls of each are not counted."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(ROUNDS + 2):
        for name, once in jobs.items():
            begin = time.perf_counter()
            once()
            if number > 1:
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: min(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print(f"{'layer':10} {'rows, tokens, width, heads':28} {'torch':>9} {'flat':>7} {'hyperboloid':>12}")
    for kind in ("attention", "encoder"):
        for rows, tokens, width, heads in CUDA if device == "cuda" else CPU:
            x = torch.randn(rows, tokens, width, device=device)
            found = least({name: job(layer, x) for name, layer in layers(kind, width, heads).items()})
            sizes = f"{rows}, {tokens}, {width}, {heads}"
            ratios = [found[name] / found["torch"] for name in ("flat", "hyperboloid")]
            print(f"{kind:10} {sizes:28} {found['torch']:6.2f} ms {ratios[0]:6.2f}x {ratios[1]:11.2f}x", flush=True)


if __name__ == "__main__":
    main()
