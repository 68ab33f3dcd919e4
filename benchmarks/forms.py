"""The forms of language models side by side: a training step of each, over that of the plain flat twin of its kind.

    python benchmarks/forms.py                   # on a GPU: 12 x 768, bf16, compiled, replayed as a CUDA graph
    python benchmarks/forms.py --kind mixture    # HELM-MiCE and DeepSeek-V3 alone
    python benchmarks/forms.py --smoke           # anywhere: toy sizes, to see that it runs

A step is forward, backward and what a model does after an optimizer's step (`after_step`). All take turns in each
round; ratios are medians over rounds. The goal is 1.05 for dense forms and 1.10 for mixtures. Most of the minutes would
go into compiling, so the forms are first compiled side by side, each in a process that leaves its kernels in torch's
cache.
"""

import argparse
import gc
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from helm import SHAPES, SMOKE, Step, turns

from horosphere.train.graphed import WARM_UPS

FLAT, SPHERE = {"geometry": "euclidean"}, {"geometry": "sphere"}
NORMED, BARE = {"qk_norm": True}, {"qk_norm": False}
UNIT = {**NORMED, "unit_weights": True, "residual": "interpolate"}
# kind: shape, toy shape, forms, of which the first is the plain one
KINDS: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "dense": (
        "HELM-D 12 x 768",
        "HELM-D toy",
        {
            "Llama": FLAT,
            "HELM-D": {},
            "Qwen3": {**FLAT, **NORMED},
            "Sphere": {**SPHERE, **UNIT},
            "HELM-D, qk_norm": NORMED,
            "HELM-D, unit rows, interpolating": UNIT,
            "Qwen3, unit rows, interpolating": {**FLAT, **UNIT},
            "Llama, scores by distance": {**FLAT, "score": "distance"},
            "sphere, centroids": SPHERE,
        },
    ),
    "mixture": (
        "HELM-MiCE 12 x 768",
        "HELM-MiCE toy",
        {
            "DeepSeek-V3": {**FLAT, **BARE},
            "HELM-MiCE": NORMED,
            "HELM-MiCE, no qk_norm": BARE,
            "MiCE-Const": {**NORMED, "expert_curvature": "constant"},
            "DeepSeek-V3, qk_norm": {**FLAT, **NORMED},
        },
    ),
}


class WholeStep(Step):
    def learn(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        out = super().learn(batch)
        self.model.after_step()
        return out


def step_of(kind: str, form: str, smoke: bool, device: str) -> WholeStep:
    """Of a form, compiled: the second time for gradients that are there already."""
    shape, toy, forms = KINDS[kind]
    config, rows, length, _ = {**SHAPES, **SMOKE}[toy if smoke else shape]
    step = WholeStep({**config, **forms[form]}, rows, length, device)
    for _ in range(2):
        step.compiled()
    return step


def compile_alone(*what: Any) -> None:
    torch.set_num_threads(1)
    step_of(*what)


def measured(
    kind: str, wanted: list[str], smoke: bool, rounds: int, jobs: int, device: str, begun: float
) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for done in [pool.submit(compile_alone, kind, form, smoke, device) for form in wanted]:
            done.result()
    print(f"{kind}: compiled after {time.perf_counter() - begun:.0f} s", flush=True)
    steps = {form: step_of(kind, form, smoke, device) for form in wanted}
    for step in steps.values():
        for _ in range(WARM_UPS + 1):
            step()
    print(f"{kind}: ready after {time.perf_counter() - begun:.0f} s", flush=True)
    taken, plain = turns(steps, device, rounds, 2 if smoke else 8), wanted[0]
    return [
        {
            "kind": kind,
            "form": form,
            "parameters": sum(p.numel() for p in step.model.parameters()),
            "ms": 1e3 * statistics.median(taken[form]),
            "ratio": statistics.median(a / b for a, b in zip(taken[form], taken[plain], strict=True)),
        }
        for form, step in steps.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="toy sizes")
    parser.add_argument("--kind", choices=KINDS, help="one kind alone")
    parser.add_argument("--only", default="", help="forms whose name contains this (or|that), beside the plain one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=8, help="forms compiled at once")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON, after each kind")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    torch._dynamo.config.recompile_limit = 8 * max(len(forms) for _, _, forms in KINDS.values())  # one function to it
    found, begun = [], time.perf_counter()
    for kind in [args.kind] if args.kind else KINDS:
        plain, *others = KINDS[kind][2]
        wanted = [plain, *(form for form in others if any(part in form for part in args.only.split("|")))]
        rows = measured(kind, wanted, args.smoke, 2 if args.smoke else args.rounds, args.jobs, device, begun)
        print(f"{'toy' if args.smoke else KINDS[kind][0]:34} {'params':>8} {'ms':>8} {'ratio':>6}")
        for row in rows:
            print(f"{row['form']:34} {row['parameters'] / 1e6:7.1f}M {row['ms']:8.1f} {row['ratio']:6.3f}", flush=True)
        found += rows
        if args.out:
            args.out.write_text(json.dumps(found, indent=1))
        gc.collect()
        torch.compiler.reset()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
