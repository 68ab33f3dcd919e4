"""transformers' own tests of a causal language model, on HELM-D and HELM-MiCE in both geometries.

`./run peers` gets the tests from the source archive of the installed version and runs this file. The archive leaves out
the tests of exporters, which are not run, and those of generation, which `./run peers --checkout FOLDER` adds.
"""

import sys
import unittest
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType, ModuleType

import torch

PACKAGE = "transformers_tests"


class Nothing(ModuleType):
    """In the place of a file that is not there: the others import classes of it, and get empty ones."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for folder, file in (("exporters", "test_export"), ("generation", "test_utils")):
    if find_spec(f"{PACKAGE}.{folder}") is None:
        sys.modules[f"{PACKAGE}.{folder}"] = ModuleType(folder)
        sys.modules[f"{PACKAGE}.{folder}.{file}"] = Nothing(file)

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

    def __init__(self, parent: unittest.TestCase, config: Mapping[str, object]):
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
    config: Mapping[str, object]

    def setUp(self) -> None:
        self.model_tester = Tester(self, self.config)


class LatentSuite(Suite):
    def _check_past_key_values_for_generate(self, batch_size, past_key_values, seq_length, config) -> None:
        """The one expectation that cannot apply, and that the suite lets models replace: what a cache holds.

        DeepSeek's keeps a latent as the key and the rotated key as the value. Ours keeps both as the key, and on the
        hyperboloid the times of every head's key and value beside them: so a decoding step never expands the history.
        """
        times = 2 * config.num_attention_heads if config.geometry == "lorentz" else 0
        width = config.kv_lora_rank + config.qk_rope_head_dim + times
        assert len(past_key_values) == config.num_hidden_layers
        for layer in past_key_values.layers:
            assert layer.keys.shape == (batch_size, 1, seq_length, width)
            assert layer.values.shape == (batch_size, 1, seq_length, 0)


class TestHelmD(Suite, unittest.TestCase):
    config = MappingProxyType(DENSE)


class TestLlama(Suite, unittest.TestCase):
    config = MappingProxyType({**DENSE, "geometry": "euclidean"})


class TestHelmMiCE(LatentSuite, unittest.TestCase):
    config = MappingProxyType(MIXTURE)


class TestDeepSeek(LatentSuite, unittest.TestCase):
    config = MappingProxyType({**MIXTURE, "geometry": "euclidean"})
