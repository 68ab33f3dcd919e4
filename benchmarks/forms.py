"""The forms of dense language models side by side: a training step of each, over that of the plain flat twin, Llama.

    python benchmarks/forms.py                   # on a GPU: 12 x 768, bf16, compiled, replayed as a CUDA graph
    python benchmarks/forms.py --smoke           # anywhere: toy sizes, to see that it runs

A step is forward, backward and what a model does after an optimizer's step (`after_step`). All take turns in each
round; ratios are medians over rounds.
"""

import argparse
import statistics
from typing import Any

import torch
from helm import SHAPES, SMOKE, Step, turns

from horosphere.train.graphed import WARM_UPS

FLAT, SPHERE = {"geometry": "euclidean"}, {"geometry": "sphere"}
UNIT = {"unit_weights": True, "qk_norm": True, "residual": "interpolate"}
PLAIN = "Llama"
FORMS: dict[str, dict[str, Any]] = {
    PLAIN: FLAT,
    "Qwen3": {**FLAT, "qk_norm": True},
    "Llama, scores by distance": {**FLAT, "score": "distance"},
    "Qwen3, unit rows, interpolating": {**FLAT, **UNIT},
    "sphere": {**SPHERE, "residual": "interpolate"},
    "sphere, unit rows": {**SPHERE, **UNIT},
    "HELM-D": {},
    "HELM-D, qk_norm": {"qk_norm": True},
    "HELM-D, unit rows, interpolating": UNIT,
}


class WholeStep(Step):
    def learn(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        out = super().learn(batch)
        self.model.after_step()
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="toy sizes")
    parser.add_argument("--only", default="", help="forms whose name contains this, beside the plain one")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.smoke:
        parser.error("no GPU here: pass --smoke for a toy run")
    name = "HELM-D toy" if args.smoke else "HELM-D 12 x 768"
    config, rows, length, _ = {**SHAPES, **SMOKE}[name]
    torch._dynamo.config.recompile_limit = 8 * len(FORMS)  # all forms are one function to the compiler
    steps = {}
    for form, changes in FORMS.items():
        if form != PLAIN and args.only not in form:
            continue
        steps[form] = WholeStep({**config, **changes}, rows, length, device)
        for _ in range(2):
            steps[form].compiled()
        for _ in range(WARM_UPS + 1):
            steps[form]()
    taken = turns(steps, device, 2 if args.smoke else args.rounds, 2 if args.smoke else 8)
    print(f"{name.replace('HELM-D ', ''):34} {'params':>8} {'ms':>8} {'ratio':>6}")
    for form, step in steps.items():
        ratio = statistics.median(a / b for a, b in zip(taken[form], taken[PLAIN], strict=True))
        parameters = sum(p.numel() for p in step.model.parameters()) / 1e6
        print(f"{form:34} {parameters:7.1f}M {1e3 * statistics.median(taken[form]):8.1f} {ratio:6.3f}", flush=True)


if __name__ == "__main__":
    main()
