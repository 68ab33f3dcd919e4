"""transformers' own tests of a causal language model, on HELM-D and HELM-MiCE in both geometries.

`./run peers` gets the tests from the source archive of the installed version and runs this file. The archive leaves out
the tests of generation and of exporters. A checkout of transformers (`./run peers --transformers FOLDER`) has them.
"""

import sys
import unittest
from importlib.util import find_spec
from types import ModuleType

import torch

LEFT_OUT = {"exporters.test_export": "ExportTesterMixin", "generation.test_utils": "GenerationTesterMixin"}


def _stand_in(package: str) -> None:
    """Empty classes for the tests that the archive leaves out: the others import them."""
    for name, mixin in LEFT_OUT.items():
        parent = f"{package}.{name.partition('.')[0]}"
        if find_spec(parent) is None:
            sys.modules[parent] = ModuleType(parent)
            sys.modules[f"{package}.{name}"] = module = ModuleType(f"{package}.{name}")
            setattr(module, mixin, type(mixin, (), {}))


_stand_in("transformers_tests")

from transformers_tests.test_modeling_common import GenerationTesterMixin, ModelTesterMixin, ids_tensor  # noqa: E402

from horosphere.models.helm import HelmConfig, HelmForCausalLM, HelmModel  # noqa: E402

SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
DENSE = {**SIZES, "intermediate_size": 32, "head_dim": 8, "max_position_embeddings": 512}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16}
MIXTURE = {**DENSE, **LATENT, **EXPERTS, "attention": "latent"}


class Tester:
    """What the suite asks of a model: a small configuration, and inputs for it."""

    causal_lm_class = HelmForCausalLM
    batch_size, seq_length, is_training = 13, 7, True

    def __init__(self, parent: unittest.TestCase, config: dict[str, object]):
        self.parent, self.config = parent, config
        for name, value in config.items():
            setattr(self, name, value)

    def get_config(self) -> HelmConfig:
        return HelmConfig(**self.config)

    def prepare_config_and_inputs_for_common(self) -> tuple[HelmConfig, dict[str, torch.Tensor]]:
        ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids).tril()}


class Suite(ModelTesterMixin, GenerationTesterMixin):
    all_model_classes = (HelmModel, HelmForCausalLM)
    all_generative_model_classes = (HelmForCausalLM,)
    config: dict[str, object]

    def setUp(self) -> None:
        self.model_tester = Tester(self, self.config)


class TestHelmD(Suite, unittest.TestCase):
    config = DENSE


class TestLlama(Suite, unittest.TestCase):
    config = {**DENSE, "geometry": "euclidean"}


class TestHelmMiCE(Suite, unittest.TestCase):
    config = MIXTURE


class TestDeepSeek(Suite, unittest.TestCase):
    config = {**MIXTURE, "geometry": "euclidean"}
