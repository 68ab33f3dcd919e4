"""The named sizes of HELM, and its twins in other geometries."""

from typing import Any

TINY = {  # minutes on two cores
    "vocab_size": 4096,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 384,
}
NARROW = {  # for one GPU, like the two below it
    "vocab_size": 8192,
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 768,
}
SMALL = {
    "vocab_size": 8192,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "intermediate_size": 1536,
}
WIDE = {
    "vocab_size": 8192,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 2304,
}
BASE = {  # the smaller size of the paper
    "vocab_size": 128256,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
}
LARGE = {  # its larger size
    "vocab_size": 128256,
    "hidden_size": 896,
    "num_hidden_layers": 16,
    "num_attention_heads": 14,
    "intermediate_size": 3584,
}
# qk_norm is not the paper's: no other norm holds the one rotated key (docs/results/helm.md)
MIXTURE = {
    "attention": "latent",
    "qk_norm": True,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
}
FLAT = {"geometry": "euclidean"}
# with the care that nGPT takes: without it a stream on the sphere may stay near word frequencies
SPHERE = {"geometry": "sphere", "qk_norm": True, "unit_weights": True, "residual": "interpolate"}

HELM: dict[str, dict[str, Any]] = {
    "helm-d-tiny": {**TINY, "head_dim": 32},
    "helm-d-10m": {**NARROW, "intermediate_size": 1088, "head_dim": 64},  # as many parameters as the mixture
    "helm-d-small": {**SMALL, "head_dim": 64},
    "helm-d-134m": {**WIDE, "intermediate_size": 3328, "head_dim": 64},
    "helm-d-100m": {**BASE, "head_dim": 64},
    "helm-mice-tiny": {
        **TINY,
        **MIXTURE,
        "moe_intermediate_size": 128,
        "q_lora_rank": 96,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
    },
    "helm-mice-10m": {
        **NARROW,
        **MIXTURE,
        "moe_intermediate_size": 256,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    },
    "helm-mice-small": {
        **SMALL,
        **MIXTURE,
        "moe_intermediate_size": 512,
        "q_lora_rank": 192,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    },
    "helm-mice-134m": {
        **WIDE,
        **MIXTURE,
        "moe_intermediate_size": 768,
        "q_lora_rank": 288,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    },
    "helm-mice-120m": {
        **BASE,
        **MIXTURE,
        "moe_intermediate_size": 768,
        "q_lora_rank": 192,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
    },
    "helm-mice-1b": {
        **LARGE,
        **MIXTURE,
        "n_routed_experts": 8,
        "moe_intermediate_size": 1792,
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64,
        "v_head_dim": 64,
    },
}


def _others(curved: str, name: str, changes: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    return {own.replace(curved, name): (own, changes) for own in HELM if own.startswith(curved)}


# name: the HELM that it is a twin of, and what it changes there
TWINS: dict[str, tuple[str, dict[str, Any]]] = {
    **_others("helm-d", "llama", FLAT),
    **_others("helm-d", "qwen3", {**FLAT, "qk_norm": True}),
    **_others("helm-d", "sphere", SPHERE),
    **_others("helm-mice", "deepseek", {**FLAT, "qk_norm": False}),
}
