"""What adapters of a CLIP cost: a training step and an inference of each, beside frozen and LoRA-adapted towers.

    python benchmarks/image_text.py              # ViT-B/16 with random weights; on a GPU in bf16 autocast
    python benchmarks/image_text.py --smoke      # anywhere: two small layers, to see that it runs

All methods take turns in rounds on one machine; numbers are medians of ratios within a round. A step is forward,
backward and optimizer of CLIP's loss on pictures and texts. An inference is both towers without gradient.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from tqdm import tqdm
from transformers import CLIPConfig, CLIPModel

from horosphere.models.adapters import Adaptation, adapt
from horosphere.models.towers import HuggingFaceClip
from horosphere.tables import table_lines

METHODS = ("none", "projection", "hyperclip", "lora", "oft", "full")
# pictures and texts at once, rounds, repeats in a round
ON_GPU, ON_CPU, SMOKE = (64, 7, 5), (4, 9, 1), (4, 3, 1)


def clip(smoke: bool, device: str) -> HuggingFaceClip:
    """ViT-B/16 as OpenAI's CLIP has it; the same weights every time."""
    torch.manual_seed(0)
    small = (
        {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
        if smoke
        else {}
    )
    vision = {"patch_size": 16, "image_size": 64 if smoke else 224, **small}
    config = CLIPConfig(text_config=small, vision_config=vision, projection_dim=128 if smoke else 512)
    return HuggingFaceClip(CLIPModel(config).to(device).eval(), None)


def seconds(work: Callable[[], object], repeats: int, device: str) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small towers, few rounds")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, rounds, repeats = SMOKE if args.smoke else ON_GPU if device == "cuda" else ON_CPU
    side = 64 if args.smoke else 224
    pixels = torch.randint(0, 256, (rows, 3, side, side), dtype=torch.uint8, device=device)
    ids = torch.randint(1, 400, (rows, 32), device=device)
    ids[:, -1] = 49407  # the end of a text
    tokens = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    steps: dict[str, Callable[[], object]] = {}
    inferences: dict[str, Callable[[], object]] = {}
    counts: dict[str, int] = {}
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")
    for method in METHODS:
        towers = clip(args.smoke, device)
        adapter = adapt(towers, Adaptation(method, "both", block=32 if args.smoke else 128, rank=8))
        counts[method] = adapter.count()
        if adapter.count():
            optimizer = torch.optim.AdamW(adapter.trainable(), lr=1e-5)

            def step(towers=towers, optimizer=optimizer) -> None:
                with half:
                    text, image = towers(tokens, pixels)
                    loss = towers.contrast(towers.space.text(text.float()), towers.space.image(image.float()))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            steps[method] = step

        def infer(towers=towers) -> None:
            with half, torch.no_grad():
                towers(tokens, pixels)

        inferences[method] = infer
        if method in ("hyperclip", "lora", "oft"):
            merged = clip(args.smoke, device)
            adapt(merged, adapter.how).merge()
            inferences[f"{method}, merged"] = lambda towers=merged: infer(towers)

    taken: dict[tuple[str, str], list[float]] = {}
    for number in tqdm(range(rounds + 1), desc="rounds"):
        for kind, works in (("step", steps), ("inference", inferences)):
            for method, work in works.items():
                spent = seconds(work, repeats, device)
                if number:  # the first one warms up
                    taken.setdefault((kind, method), []).append(spent)

    def ratio(kind: str, method: str, base: str) -> str:
        if (kind, method) not in taken or (kind, base) not in taken:
            return ""
        pairs = zip(taken[kind, method], taken[kind, base], strict=True)
        return f"{statistics.median(a / b for a, b in pairs):.3f}"

    lines = [
        [
            {"none": "frozen"}.get(method, method),
            f"{counts[method]:,}" if method in counts else "",
            ratio("step", method, "lora"),
            ratio("inference", method, "none"),
            ratio("inference", method, "lora"),
        ]
        for method in inferences
    ]
    heads = ["method", "learned", "step / LoRA's", "inference / frozen", "inference / LoRA's"]
    what = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{what}, torch {torch.__version__}, {rows} pictures of {side} pixels and {rows} texts of 32 tokens")
    if device == "cuda":
        print(f"LoRA's step: {1e3 * statistics.median(taken['step', 'lora']):.1f} ms")
    print(*table_lines(heads, lines), sep="\n")


if __name__ == "__main__":
    main()
