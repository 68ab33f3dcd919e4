"""Language models so small that a run takes a second, and a text of many short documents for them."""

import json
from pathlib import Path

TEXTS = [
    f"Chapter {i}. The cat's hat cost {i * 137} euros; the dog's, größer, {'much ' * (i % 5)}more 猫."
    for i in range(120)
]
SMALL = (
    *(
        "vocab=300",
        "length=16",
        "batch=4",
        "steps=4",
        "lr=1e-2",
        "log_every=1",
        "eval_every=2",
        "save_every=2",
        "sample_every=none",
    ),
    *(
        "hidden_size=32",
        "num_hidden_layers=2",
        "num_attention_heads=2",
        "head_dim=16",
        "intermediate_size=48",
        "moe_intermediate_size=16",
    ),
    *("q_lora_rank=16", "kv_lora_rank=16", "qk_nope_head_dim=8", "qk_rope_head_dim=8", "v_head_dim=8"),
)


def write_text(path, texts=TEXTS):
    Path(path).write_text("\f".join(texts), encoding="utf-8")
    return str(path)


def lines(folder):
    """metrics.jsonl without what the clock decides"""
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "tokens_per_second")} for line in found
    ]
