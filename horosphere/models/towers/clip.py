"""CLIP as transformers and as open_clip have it, behind one face."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.data.augment import Channels
from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.models.towers.base import Towers, tokenized

# OpenAI's, and nearly everybody's
MEAN: Channels = (0.48145466, 0.4578275, 0.40821073)
STD: Channels = (0.26862954, 0.26130258, 0.27577711)
VOCABULARIES = ("tokenizer.json", "vocab.json")  # without one transformers makes up an empty tokenizer


class Clip(Towers):
    """A CLIP of another library, and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, width: int, size: int, mean: Channels = MEAN, std: Channels = STD):
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        self.width, self.size, self.mean, self.std = width, size, mean, std

    @property
    def logit_scale(self) -> nn.Parameter:  # type: ignore[override]
        return self.model.logit_scale


class HuggingFaceClip(Clip):
    """transformers' CLIPModel."""

    def __init__(self, model: Any, tokenizer: Any):
        super().__init__(model, tokenizer, model.config.projection_dim, model.config.vision_config.image_size)

    @property
    def text_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.text_model

    @property
    def image_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.vision_model

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return tokenized(self.tokenizer, texts, self.model.config.text_config.max_position_embeddings)

    def text(self, tokens: dict[str, Tensor]) -> Tensor:
        # [0] of what it returns are hidden states, not the vector
        return self.model.get_text_features(**tokens).pooler_output

    def image(self, pixels: Tensor) -> Tensor:
        return self.model.get_image_features(pixel_values=self.normalised(pixels)).pooler_output


class OpenClip(Clip):
    """A CLIP of open_clip's, whose attention keeps queries, keys and values in one weight."""

    def __init__(self, model: Any, tokenizer: Any, mean: Channels = MEAN, std: Channels = STD):
        words = model if hasattr(model, "text_projection") else model.text
        size = model.visual.image_size
        width = words.text_projection.shape[1]
        super().__init__(model, tokenizer, width, size if isinstance(size, int) else size[0], mean, std)

    @property
    def text_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.transformer if hasattr(self.model, "transformer") else self.model.text

    @property
    def image_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.visual

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return {"text": self.tokenizer(list(texts))}

    def text(self, tokens: dict[str, Tensor]) -> Tensor:
        return self.model.encode_text(tokens["text"])

    def image(self, pixels: Tensor) -> Tensor:
        return self.model.encode_image(self.normalised(pixels))


# -- by name ----------------------------------------------------------------------------------------------------------


def huggingface_clip(source: str) -> HuggingFaceClip:
    """A folder, or "hf:NAME" of the hub, which is then fetched."""
    require("language")
    from transformers import AutoTokenizer, CLIPModel

    name = source.removeprefix("hf:")
    local = {} if name != source else {"local_files_only": True}
    if local and not Path(source).is_dir():
        raise UserError(f"{source}: no such folder; hf:{source} would fetch a model of the hub")
    if local and not any(Path(source, name).is_file() for name in VOCABULARIES):
        raise UserError(f"{source}: it has no tokenizer ({' or '.join(VOCABULARIES)}); save one beside the model")
    try:
        model = CLIPModel.from_pretrained(name, use_safetensors=True, **local)
        tokenizer = AutoTokenizer.from_pretrained(name, **local)
    except (OSError, ValueError) as error:
        how = "give a folder that save_pretrained wrote, or hf:NAME"
        raise UserError(f"{source}: no CLIP of transformers ({one_line(error)}); {how}") from error
    return HuggingFaceClip(model, tokenizer)


def open_clip(source: str) -> OpenClip:
    """ "ViT-B-32", with random weights, or "ViT-B-32:laion2b_s34b_b79k", or "ViT-B-32:weights.safetensors"."""
    require("open_clip")
    import open_clip as library

    name, _, weights = source.partition(":")
    if name not in library.list_models():
        raise UserError(f"{name}: open_clip has no such model; see open_clip.list_models()")
    if weights and Path(weights).suffix and Path(weights).suffix != ".safetensors":
        raise UserError(f"{weights}: weights are read from .safetensors only, which hold no code")
    try:
        model = library.create_model(name, pretrained=weights or None)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{source}: open_clip cannot make it ({one_line(error)})") from error
    mean, std = getattr(model.visual, "image_mean", MEAN), getattr(model.visual, "image_std", STD)
    return OpenClip(model, library.get_tokenizer(name), tuple(mean), tuple(std))


def contrastive(text: Tensor, image: Tensor, scale: Tensor) -> Tensor:
    """CLIP's loss: each text finds its picture, each picture its text.   (N, D), (N, D), () -> ()"""
    text, image = (nn.functional.normalize(x, dim=-1) for x in (text, image))
    logits = scale * text @ image.T
    truth = torch.arange(len(text), device=text.device)
    return (nn.functional.cross_entropy(logits, truth) + nn.functional.cross_entropy(logits.T, truth)) / 2
