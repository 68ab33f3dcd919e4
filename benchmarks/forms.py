"""The forms of language models side by side: a training step of each, over that of the plain flat twin of its kind.

    python benchmarks/forms.py                   # on a GPU: 12 x 768, bf16, compiled, replayed as a CUDA graph
    python benchmarks/forms.py --kind mixture    # HELM-MiCE and DeepSeek-V3 alone
    python benchmarks/forms.py --smoke           # anywhere: toy sizes, to see that it runs

A step is forward, backward and what a model does after an optimizer's step (`after_step`). All take turns in each
round; ratios are medians over rounds. The goal is 1.05 for dense forms and 1.10 for mixtures. Most of the minutes go
into compiling, so each kind is a call of its own where time is short.
"""

import argparse
import gc
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from helm import SHAPES, SMOKE, Step, turns

from horosphere.train.graphed import WARM_UPS

FLAT, SPHERE = {"geometry": "euclidean"}, {"geometry": "sphere"}
NORMED = {"qk_norm": True}
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
            "DeepSeek-V3": FLAT,
            "HELM-MiCE": NORMED,
            "HELM-MiCE, no qk_norm": {},
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


def measured(kind: str, only: str, smoke: bool, rounds: int, device: str) -> list[dict[str, Any]]:
    shape, toy, forms = KINDS[kind]
    config, rows, length, _ = {**SHAPES, **SMOKE}[toy if smoke else shape]
    plain, steps = next(iter(forms)), {}
    for form, changes in forms.items():
        if form == plain or only in form:
            steps[form] = WholeStep({**config, **changes}, rows, length, device)
            for _ in range(2):
                steps[form].compiled()
            for _ in range(WARM_UPS + 1):
                steps[form]()
    taken = turns(steps, device, rounds, 2 if smoke else 8)
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
    parser.add_argument("--only", default="", help="forms whose name contains this, beside the plain one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON, after each kind")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    torch._dynamo.config.recompile_limit = 8 * max(len(forms) for _, _, forms in KINDS.values())  # one function to it
    found = []
    for kind in [args.kind] if args.kind else KINDS:
        rows = measured(kind, args.only, args.smoke, 2 if args.smoke else args.rounds, device)
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
