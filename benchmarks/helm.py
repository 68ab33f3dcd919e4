"""HELM against its Euclidean twins: a training step, its memory, and decoding, side by side in one run.

    python benchmarks/helm.py                    # on a GPU: three shapes, bf16, compiled
    python benchmarks/helm.py --smoke            # anywhere: the same script on toy shapes, to see that it runs

A step is forward and backward of the loss, compiled block by block and replayed as a CUDA graph, as the training engine
does it. "no graph" is the ratio without the graph, where launching kernels takes the time. Ratios are medians over
rounds in which both models take turns.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from horosphere.models.helm import HelmConfig, HelmForCausalLM
from horosphere.models.helm_sizes import MIXTURE
from horosphere.train.graphed import WARM_UPS, Graphed

GEOMETRIES = ("lorentz", "euclidean")
K = TypeVar("K")


def shape(layers: int, dim: int, inner: int, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": dim,
        "num_attention_heads": dim // 64,
        "intermediate_size": inner,
        "vocab_size": 32000,
        **more,
    }


def latent(kv: int, q: int, nope: int, rope: int, v: int, experts: int) -> dict[str, Any]:
    """kv, q: widths of latents. nope, rope, v: widths of a head, without positions, rotated, and of values."""
    sizes = {"kv_lora_rank": kv, "q_lora_rank": q, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": v}
    return {**MIXTURE, **sizes, "moe_intermediate_size": experts}


# name: (configuration, rows, length, goal for the ratio)
SHAPES = {
    "HELM-D 8 x 512": (shape(layers=8, dim=512, inner=1536), 16, 1024, 1.15),
    "HELM-D 12 x 768": (shape(layers=12, dim=768, inner=2048), 8, 2048, 1.05),
    "HELM-D 16 x 2048 (1B)": (shape(layers=16, dim=2048, inner=5632), 4, 2048, 1.05),
    "HELM-MiCE 8 x 512": (
        shape(layers=8, dim=512, inner=1536, **latent(kv=128, q=192, nope=32, rope=32, v=64, experts=768)),
        16,
        1024,
        1.15,
    ),
    "HELM-MiCE 12 x 768": (
        shape(layers=12, dim=768, inner=2048, **latent(kv=256, q=384, nope=64, rope=64, v=64, experts=1024)),
        8,
        2048,
        1.10,
    ),
    "HELM-MiCE 16 x 896 (1B)": (
        {
            **shape(layers=16, dim=896, inner=3584, **latent(kv=256, q=768, nope=64, rope=64, v=64, experts=1792)),
            "n_routed_experts": 8,
            "vocab_size": 128256,
        },
        4,
        2048,
        1.10,
    ),
}
TOY = {**shape(layers=2, dim=128, inner=256), "vocab_size": 512}
SMOKE = {
    "HELM-D toy": (TOY, 2, 64, None),
    "HELM-MiCE toy": ({**TOY, **latent(kv=32, q=48, nope=16, rope=16, v=32, experts=64)}, 2, 64, None),
}


def twin(config: dict[str, Any], geometry: str) -> dict[str, Any]:
    """The norm of queries and keys is HELM-MiCE's; DeepSeek-V3 has none."""
    return {**config, "geometry": geometry, "qk_norm": config.get("qk_norm", False) and geometry != "euclidean"}


class Step:
    """Forward and backward of one model, ready to be repeated: compiled, or replayed as a CUDA graph."""

    def __init__(self, config: dict[str, Any], rows: int, length: int, device: str):
        torch.manual_seed(0)
        self.device = device
        self.model = HelmForCausalLM(HelmConfig(**config, max_position_embeddings=length)).to(device).train()
        self.batch = {"tokens": torch.randint(config["vocab_size"], (rows, length + 1), device=device)}
        self.graphed = Graphed(self.learn)
        if device == "cuda":
            for unit in self.model.blocks():
                unit.compile()

    def learn(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        for p in self.model.parameters():
            p.grad = None
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(batch["tokens"][:, :-1], shift_labels=batch["tokens"][:, 1:]).loss
        loss.backward()
        return {"loss": loss.detach()}

    def compiled(self) -> None:
        self.learn(self.batch)

    def __call__(self) -> None:
        (self.graphed if self.device == "cuda" else self.learn)(self.batch)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(step: Callable[[], Any], device: str, times: int) -> float:
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(times):
        step()
    synchronize(device)
    return (time.perf_counter() - begin) / times


def peak_memory(step: Callable[[], None], device: str) -> float:
    """GiB of one step, weights and gradients included."""
    if device != "cuda":
        return float("nan")
    synchronize(device)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    synchronize(device)
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def training(
    name: str, config: dict[str, Any], rows: int, length: int, goal: float | None, device: str, rounds: int, times: int
) -> dict[str, Any]:
    steps: dict[str, Step] = {}
    memory: dict[str, float] = {}
    for geometry in GEOMETRIES:
        step = steps[geometry] = Step(twin(config, geometry), rows, length, device)
        step.compiled()
        step.compiled()
        for p in step.model.parameters():
            p.grad = None
        weights = sum(p.numel() * p.element_size() for p in step.model.parameters()) / 2**30
        memory[geometry] = peak_memory(step.compiled, device) + weights  # nan on the CPU
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")  # a step that asks the device for a number stops here
        for step in steps.values():
            step.compiled()
        torch.cuda.set_sync_debug_mode("default")
    plain = turns({g: s.compiled for g, s in steps.items()}, device, 2, times)
    for step in steps.values():
        for _ in range(WARM_UPS + 1):
            step()
    taken = turns(steps, device, rounds, times)
    ms = {g: 1e3 * statistics.median(t) for g, t in taken.items()}
    return {
        "name": name,
        "parameters": sum(p.numel() for p in steps["lorentz"].model.parameters()),
        "ms": ms["lorentz"],
        "twin_ms": ms["euclidean"],
        "ratio": ratio(taken),
        "goal": goal,
        "ratio_without_graph": ratio(plain),
        "gib": memory["lorentz"],
        "twin_gib": memory["euclidean"],
        "memory_ratio": memory["lorentz"] / memory["euclidean"],
    }


def turns(steps: Mapping[K, Callable[[], Any]], device: str, rounds: int, times: int) -> dict[K, list[float]]:
    """Seconds of each, in rounds in which they take turns: what disturbs one disturbs the other."""
    taken: dict[K, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            taken[name].append(seconds(step, device, times))
    return taken


def ratio(taken: dict[str, list[float]]) -> float:
    return statistics.median(a / b for a, b in zip(taken["lorentz"], taken["euclidean"], strict=True))


@torch.no_grad()
def decoding(
    name: str, config: dict[str, Any], device: str, prompt: int, new: int, rows: int, rounds: int
) -> dict[str, Any]:
    """Greedy `generate` with bf16 weights, with a static and a dynamic cache.

    transformers compiles the steps of the static one on a GPU; the dynamic one, its default, goes step by step in
    Python. A step is the difference of a long and a short answer, over the difference of their lengths.
    """
    models, cache = {}, {}
    for geometry in GEOMETRIES:
        torch.manual_seed(0)
        changes = {"max_position_embeddings": prompt + new, "eos_token_id": None}
        models[geometry] = (
            HelmForCausalLM(HelmConfig(**{**twin(config, geometry), **changes})).to(device, torch.bfloat16).eval()
        )
    ids = torch.randint(config["vocab_size"], (rows, prompt), device=device)
    for geometry, model in models.items():
        layer = model(ids, use_cache=True).past_key_values.layers[0]
        cache[geometry] = sum(t.numel() * t.element_size() for t in (layer.keys, layer.values)) // (rows * prompt)
    result: dict[str, Any] = {"name": name, "cache_bytes_per_token_and_layer": cache}
    for kind, long, short in (("static", new, new // 2), ("dynamic", new // 4, 1)):
        options = {
            "do_sample": False,
            "pad_token_id": 0,
            **({"cache_implementation": "static"} if kind == "static" else {}),
        }
        answers = {
            (g, length): partial(m.generate, ids, max_new_tokens=length, **options)
            for g, m in models.items()
            for length in (long, short)
        }
        turns(answers, device, 1, 3)  # compiles
        answered = turns(answers, device, rounds, 2)
        taken = {
            g: [max(a - b, 1e-9) / (long - short) for a, b in zip(answered[g, long], answered[g, short], strict=True)]
            for g in models
        }
        result[kind] = {
            "tokens_per_s": {g: rows / statistics.median(t) for g, t in taken.items()},
            "ratio": 1 / ratio(taken),
            "step_s": taken,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="toy shapes, to see that the script runs")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--part", choices=("training", "decoding"), help="one part alone")
    parser.add_argument("--rounds", type=int, default=7, help="in which the models take turns (default 7)")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    shapes = {n: s for n, s in (SMOKE if args.smoke else SHAPES).items() if args.only in n}
    rounds, times = (2, 2) if args.smoke else (args.rounds, 8)

    rows, decoded = [], []
    if args.part != "decoding":
        heads = f"{'ms':>8} {'twin ms':>8} {'ratio':>6} {'goal':>5} {'no graph':>8} {'GiB':>6} {'twin':>6} {'ratio':>6}"
        print(f"{'training step':26} {'params':>8} {heads}", flush=True)
        for name, (config, batch, length, goal) in shapes.items():
            rows.append(row := training(name, config, batch, length, goal, device, rounds, times))
            ratios = f"{row['ratio']:6.3f} {goal or '':>5} {row['ratio_without_graph']:8.3f}"
            memory = f"{row['gib']:6.1f} {row['twin_gib']:6.1f} {row['memory_ratio']:6.2f}"
            ms = f"{row['ms']:8.1f} {row['twin_ms']:8.1f}"
            print(f"{name:26} {row['parameters'] / 1e6:7.0f}M {ms} {ratios} {memory}", flush=True)
            gc.collect()
            torch.compiler.reset()
            if device == "cuda":
                torch.cuda.empty_cache()
    if args.part != "training":
        print(
            f"\n{'decoding':26} {'cache':8} {'tokens/s':>10} {'twin':>10} {'ratio':>6} {'cache bytes/token/layer':>25}",
            flush=True,
        )
        for name, (config, *_) in shapes.items():
            if not args.smoke and "12 x 768" not in name:
                continue
            sizes = (16, 8, 2) if args.smoke else (512, 256, 16)
            decoded.append(row := decoding(name, config, device, *sizes, rounds))
            cache = " / ".join(str(row["cache_bytes_per_token_and_layer"][g]) for g in GEOMETRIES)
            for kind in ("static", "dynamic"):
                speed = row[kind]["tokens_per_s"]
                speeds = f"{speed['lorentz']:10.0f} {speed['euclidean']:10.0f} {row[kind]['ratio']:6.2f}"
                print(f"{name:26} {kind:8} {speeds} {cache:>25}", flush=True)
            torch.compiler.reset()
    if args.out:
        args.out.write_text(json.dumps({"training": rows, "decoding": decoded, "torch": torch.__version__}, indent=1))


if __name__ == "__main__":
    main()
