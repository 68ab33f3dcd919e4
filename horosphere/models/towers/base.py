"""What every pair of towers is: texts and pictures become vectors of one space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import Channels, normalise
from horosphere.errors import UserError
from horosphere.models.towers.space import Space, SpaceConfig

LARGEST_SCALE = 100.0  # of logits, as in CLIP: beyond it a batch is decided by rounding


class Towers(nn.Module):
    """A text tower and an image tower of one space.

    An encoder says something (features), a projection makes it a vector of the common space, the space makes that a
    point. A subclass gives `tokens`, `text_features` and `image_features`, and projections where encoders have none.
    """

    width: int  # of the common space
    size: int  # pixels of the square pictures it was trained on
    mean: Channels  # of pixels from 0 to 1
    std: Channels
    text_tower: nn.Module  # where adapters look for attention
    image_tower: nn.Module
    space: Space
    sees = True  # it has an image tower
    projects = False  # features are projected by layers of its own: they can be kept where only those learn
    logit_scale: nn.Parameter  # log of what likenesses are multiplied by

    def __init__(self, config: SpaceConfig):
        super().__init__()
        self.space, self.width = Space(config), config.width

    # -- what a subclass gives --------------------------------------------------------------------------------------

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """What the text tower reads, on the CPU.   N texts -> {name: (N, T)}"""
        raise NotImplementedError

    def text_features(self, tokens: dict[str, Tensor]) -> Tensor:
        """{name: (N, T)} -> (N, text width)"""
        raise NotImplementedError

    def image_features(self, pixels: Tensor) -> Tensor:
        """(N, 3, size, size) uint8 -> (N, image width)"""
        raise NotImplementedError

    def text_vector(self, features: Tensor) -> Tensor:
        """(..., text width) -> (..., width), as long as they are"""
        return features

    def image_vector(self, features: Tensor) -> Tensor:
        """(..., image width) -> (..., width), as long as they are"""
        return features

    def patches(self, pixels: Tensor) -> Tensor:
        """A vector for each place of a picture.   (N, 3, H, W) uint8 -> (N, width, h, w)"""
        raise UserError(f"{type(self).__name__}: its image tower has no vectors of places; use towers with patches")

    def encoder(self, side: str) -> nn.Module:
        """All that features of a side depend on."""
        return self

    def parameters_of(self, side: str) -> Iterator[nn.Parameter]:
        """All weights of a side, its projection included."""
        raise NotImplementedError

    def projections(self) -> Iterator[nn.Parameter]:
        """Of the text tower's last layer, into the common space."""
        raise UserError(f"{type(self).__name__}: its text tower has no projection; use method=full")

    def settle(self) -> None:
        """Trained as they are to be used, and adapted."""

    # -- what all of them can ---------------------------------------------------------------------------------------

    def read(self, texts: dict[str, Tensor]) -> Tensor:
        """Texts as `Texts.at` gives them: features or tokens.   (..., F) or (..., T) -> (..., width)"""
        if "features" in texts:
            return self.text_vector(texts["features"])
        shape = next(iter(texts.values())).shape[:-1]
        return self.text({name: t.flatten(0, -2) for name, t in texts.items()}).unflatten(0, shape)

    def look(self, pictures: dict[str, Tensor]) -> Tensor:
        """Pictures as `Views.at` gives them: features or pixels.   -> (N, width)"""
        if "features" in pictures:
            return self.image_vector(pictures["features"])
        return self.image(pictures["pixels"].to(self.logit_scale.device))

    def text(self, tokens: dict[str, Tensor]) -> Tensor:
        return self.text_vector(self.text_features(tokens))

    def image(self, pixels: Tensor) -> Tensor:
        return self.image_vector(self.image_features(pixels))

    def forward(self, tokens: dict[str, Tensor], pixels: Tensor) -> tuple[Tensor, Tensor]:
        return self.text(tokens), self.image(pixels)

    def encode(self, texts: Sequence[str], batch: int = 256) -> Tensor:
        """Vectors of texts, without gradient.   N texts -> (N, width)"""
        device = self.logit_scale.device
        parts = [list(texts[i : i + batch]) for i in range(0, len(texts), batch)]
        with torch.no_grad():
            rows = [self.text({name: t.to(device) for name, t in self.tokens(part).items()}) for part in parts]
        return torch.cat(rows) if rows else torch.empty(0, self.width, device=device)

    def logits(self, text: Tensor, image: Tensor) -> Tensor:
        """Before the softmax.   points (N, width), (M, width) -> (N, M)"""
        return self.logit_scale.exp().clamp(max=LARGEST_SCALE) * self.space.alike(text, image)

    def contrast(self, text: Tensor, image: Tensor) -> Tensor:
        """CLIP's loss: each text finds its picture, each picture its text.   points (N, width), (N, width) -> ()"""
        logits, truth = self.logits(text, image), torch.arange(len(text), device=text.device)
        return (F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2

    def normalised(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) uint8 -> the same in floats, as the image tower reads them"""
        return normalise(pixels, self.mean, self.std)


def tokenized(tokenizer: Any, texts: Sequence[str], longest: int) -> dict[str, Tensor]:
    """What a text encoder of transformers reads.   N texts -> input_ids, attention_mask (N, T)"""
    made = tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: made[name] for name in ("input_ids", "attention_mask")}


def frozen(module: Any) -> Any:
    """Without gradients, in eval mode."""
    return module.requires_grad_(False).eval()
