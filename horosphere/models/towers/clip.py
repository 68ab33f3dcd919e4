"""CLIP as transformers and as open_clip have it, behind one face."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from horosphere.data.augment import Channels
from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.foreign import Unreadable, open_tensors, read_json
from horosphere.models.pretrained import files_in, files_of_hub, require_plain
from horosphere.models.towers.base import Towers, tokenized
from horosphere.models.towers.space import SpaceConfig
from horosphere.models.writing import hushed

# OpenAI's, and nearly everybody's
MEAN: Channels = (0.48145466, 0.4578275, 0.40821073)
STD: Channels = (0.26862954, 0.26130258, 0.27577711)
PIXELS = "preprocessor_config.json"
VOCABULARIES = ("tokenizer.json", "vocab.json")  # without one transformers makes up an empty tokenizer


class Clip(Towers):
    """A CLIP of another library, and its tokenizer. What its encoders say are vectors of the common space already."""

    def __init__(self, model: Any, tokenizer: Any, width: int, size: int, mean: Channels = MEAN, std: Channels = STD):
        super().__init__(SpaceConfig("sphere", width))
        self.model, self.tokenizer = model, tokenizer
        self.size, self.mean, self.std = size, mean, std

    @property
    def logit_scale(self) -> nn.Parameter:  # type: ignore[override]
        return self.model.logit_scale


class HuggingFaceClip(Clip):
    """transformers' CLIPModel."""

    def __init__(self, model: Any, tokenizer: Any, mean: Channels = MEAN, std: Channels = STD):
        config = model.config
        super().__init__(model, tokenizer, config.projection_dim, config.vision_config.image_size, mean, std)

    @property
    def text_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.text_model

    @property
    def image_tower(self) -> nn.Module:  # type: ignore[override]
        return self.model.vision_model

    def parameters_of(self, side: str) -> Iterator[nn.Parameter]:
        projection = self.model.text_projection if side == "text" else self.model.visual_projection
        return chain((self.text_tower if side == "text" else self.image_tower).parameters(), projection.parameters())

    def projections(self) -> Iterator[nn.Parameter]:
        return self.model.text_projection.parameters()

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return tokenized(self.tokenizer, texts, self.model.config.text_config.max_position_embeddings)

    def text_features(self, tokens: dict[str, Tensor]) -> Tensor:
        # [0] of what it returns are hidden states, not the vector
        return self.model.get_text_features(**tokens).pooler_output

    def image_features(self, pixels: Tensor) -> Tensor:
        return self.model.get_image_features(pixel_values=self.normalised(pixels)).pooler_output

    def patches(self, pixels: Tensor) -> Tensor:
        """Each patch goes the way of the class token: last norm, then projection."""
        vision, x = self.model.vision_model, self.normalised(pixels)
        states = vision(pixel_values=x, interpolate_pos_encoding=True).last_hidden_state[:, 1:]
        vectors = self.model.visual_projection(vision.post_layernorm(states))
        side = self.model.config.vision_config.patch_size
        return vectors.transpose(1, 2).unflatten(2, (x.shape[-2] // side, x.shape[-1] // side))


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

    def parameters_of(self, side: str) -> Iterator[nn.Parameter]:
        """The text side may lie open in the model: all that is neither the picture's nor the scale of logits."""
        seen = {id(p) for p in self.model.visual.parameters()}
        rest = (p for name, p in self.model.named_parameters() if id(p) not in seen and "logit" not in name)
        return self.model.visual.parameters() if side == "image" else rest

    def projections(self) -> Iterator[nn.Parameter]:
        words = self.model if hasattr(self.model, "text_projection") else self.model.text
        yield words.text_projection

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return {"text": self.tokenizer(list(texts))}

    def text_features(self, tokens: dict[str, Tensor]) -> Tensor:
        return self.model.encode_text(tokens["text"])

    def image_features(self, pixels: Tensor) -> Tensor:
        return self.model.encode_image(self.normalised(pixels))

    def patches(self, pixels: Tensor) -> Tensor:
        """Each patch goes the way of the class token: last norm, then projection."""
        visual: Any = self.model.visual
        if getattr(visual, "proj", None) is None or not hasattr(visual, "forward_intermediates"):
            return super().patches(pixels)
        how = {"indices": 1, "normalize_intermediates": True, "intermediates_only": True}
        places = visual.forward_intermediates(self.normalised(pixels), **how)["image_intermediates"][0]
        return (places.movedim(1, -1) @ visual.proj).movedim(-1, 1)


# -- by name ----------------------------------------------------------------------------------------------------------


def huggingface_clip(source: str) -> HuggingFaceClip:
    """A folder, or "hf:NAME" of the hub, which is then fetched."""
    require("language")
    from transformers import AutoTokenizer, CLIPConfig, CLIPModel

    name = source.removeprefix("hf:")
    local = {} if name != source else {"local_files_only": True}
    if local and not Path(source).is_dir():
        raise UserError(f"{source}: no such folder; hf:{source} would fetch a model of the hub")
    if local and not any(Path(source, name).is_file() for name in VOCABULARIES):
        raise UserError(f"{source}: it has no tokenizer ({' or '.join(VOCABULARIES)}); save one beside the model")
    try:
        files = files_in(Path(name)) if local else files_of_hub(name)
        require_plain(files, "clip", lambda config: CLIPModel(CLIPConfig.from_dict(config)), hub=not local)
        with hushed():
            asked: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True, **local}
            model, loaded = CLIPModel.from_pretrained(name, **asked)
            if loaded["missing_keys"] or loaded["mismatched_keys"]:  # transformers would make up the rest
                raise ValueError(f"{len(loaded['missing_keys'])} of its weights are missing")
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **local)
        pixels = files(PIXELS)
    except Exception as error:  # what transformers and safetensors raise for a broken file is anyone's guess
        how = "give a folder that save_pretrained wrote, or hf:NAME"
        raise UserError(f"{source}: no CLIP of transformers ({one_line(error)}); {how}") from error
    return HuggingFaceClip(model, tokenizer, *((MEAN, STD) if pixels is None else _pixels(pixels)))


def _pixels(file: Path) -> tuple[Channels, Channels]:
    """Mean and deviation of pixels, as preprocessor_config.json says them."""
    try:
        given = read_json(file)
        mean, std = (_channels(given.get(key)) for key in ("image_mean", "image_std"))
        if min(std) <= 0:
            raise Unreadable("a deviation is positive")
    except Unreadable as error:
        raise UserError(f"{file} is damaged ({error}); mend it, or remove it") from error
    return mean, std


def _channels(given: Any) -> Channels:
    numbers = given if isinstance(given, list) else []
    if len(numbers) != 3 or not all(type(number) in (int, float) for number in numbers):
        raise Unreadable("mean and deviation are three numbers each")
    red, green, blue = map(float, numbers)
    return red, green, blue


def open_clip(source: str) -> OpenClip:
    """ "ViT-B-32", with random weights, or "ViT-B-32:laion2b_s34b_b79k", or "ViT-B-32:weights.safetensors"."""
    require("open_clip")
    import open_clip as library

    name, _, weights = source.partition(":")
    if name not in library.list_models():
        raise UserError(f"{name}: open_clip has no such model; see open_clip.list_models()")
    file = bool(weights) and (Path(weights).exists() or bool(Path(weights).suffix))
    if file and Path(weights).suffix != ".safetensors":
        raise UserError(f"{weights}: weights are read from .safetensors only, which hold no code")
    if (not weights or file) and library.get_model_config(name)["text_cfg"].get("hf_tokenizer_name"):
        raise UserError(f"{source}: its tokenizer is fetched from the hub; name published weights, {name}:NAME")
    try:
        if file:
            open_tensors(weights)  # it is one
        model = library.create_model(name, pretrained=weights or None)
    except Exception as error:  # what others raise for weights that do not fit is anyone's guess
        raise UserError(f"{source}: open_clip cannot make it ({one_line(error)})") from error
    mean, std = getattr(model.visual, "image_mean", MEAN), getattr(model.visual, "image_std", STD)
    return OpenClip(model, library.get_tokenizer(name), tuple(mean), tuple(std))
