"""What transformers, and those who work with its models, expect of a language model beside its layers."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

from horosphere.errors import UserError
from horosphere.files import write_whole
from horosphere.models.pretrained import CODE, auto_map, opening_code
from horosphere.nn.attention import Mask

NEVER = -1e30  # a score; of a row that sees nothing, such as padding, the weights stay finite


class Engine:
    """Attention by a function of transformers' interface. Further options of a call go to it; so engines find theirs.

    weights: those of each layer, (B, H, T, S), where they are asked for.
    """

    def __init__(self, name: str, keep: bool, options: dict[str, Any]):
        self.function, self.options = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager), options
        self.weights: list[Tensor] | None = [] if keep else None

    def __call__(self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float) -> Tensor:
        out, weights = self.function(layer, q, k, v, mask, scaling=scale, dropout=0.0, **self.options)
        if self.weights is not None:
            self.weights.append(weights)
        return out


def engine_for(config: Any, output_attentions: bool | None, options: dict[str, Any]) -> Engine | None:
    """The engine that a configuration names; None for ours, which is torch's attention ("sdpa").

    That one never has the weights at once: a call that asks for them is `eager`.
    """
    name, keep = config._attn_implementation, output_attentions
    if config.output_attentions if keep is None else keep:
        if name not in ("eager", "sdpa"):
            how = 'load the model with attn_implementation="eager"'
            raise UserError(f"output_attentions: {name} attention never has its weights at once; {how}")
        return Engine("eager", True, options)
    return None if name == "sdpa" else Engine(name, False, options)


def eager(
    layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **options: Any
) -> tuple[Tensor, Tensor]:
    """softmax(scale·q kᵀ) v, and the softmax.   (B, H, T, n), (B, H, S, n), (B, H, S, m) -> (B, T, H, m), (B, H, T, S)

    mask: booleans, True where a query sees a key, or numbers that are added to the scores; None: causal.
    """
    scores = scaling * (q @ k.mT).float()
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
    scores = scores.masked_fill(~mask, NEVER) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1).to(q.dtype)
    return (weights @ v).transpose(1, 2), weights


def next_labels(labels: Tensor | None, options: dict[str, Any]) -> Tensor | None:
    """The next tokens, from `shift_labels` among the options, or from labels (B, T), the inputs again.

    Not by an argument of that name: transformers' Trainer would wait for it in every batch.

    >>> next_labels(torch.tensor([[5, 6, 7]]), {})
    tensor([[   6,    7, -100]])
    """
    shifted: Tensor | None = options.pop("shift_labels", None)
    if shifted is None and labels is not None:
        shifted = F.pad(labels[:, 1:], (0, 1), value=-100)
    return shifted


class Shared:
    """Of a model or configuration whose folder can be opened by those who have not imported horosphere.

    `trust_remote_code=True` runs a file beside the weights, which imports the classes from the package.
    """

    config: Any

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        self.config.auto_map = auto_map(self.config.model_type)
        result = super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]
        if kwargs.get("is_main_process", True) and Path(save_directory).is_dir():
            write_whole(Path(save_directory) / CODE, opening_code(self.config.model_type).encode())
        return result

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Nothing: transformers would copy the module of the class into every folder that is saved."""


class SharedConfig:
    """The same of a configuration: no code of its own is copied."""

    register_for_auto_class = Shared.register_for_auto_class


def register(config: Any, causal: Any, base: Any = None) -> None:
    """By the model_type of the configuration, and by names: transformers' pipelines, server and Trainer go by those."""
    AutoConfig.register(config.model_type, config)
    AutoModelForCausalLM.register(config, causal)
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = causal.__name__
    if base is not None:
        AutoModel.register(config, base)
        MODEL_MAPPING_NAMES[config.model_type] = base.__name__
