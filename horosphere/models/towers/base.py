"""What every pair of towers is: texts and pictures become vectors of one space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.data.augment import Channels, normalise


class Towers(nn.Module):
    """A text tower and an image tower of one space.

    A subclass gives `tokens`, `text` and `image`, and names its parts: `text_tower` and `image_tower` are the modules
    that adapters look into.
    """

    width: int  # of the common space
    size: int  # pixels of the square pictures it was trained on
    mean: Channels  # of pixels from 0 to 1
    std: Channels
    text_tower: nn.Module
    image_tower: nn.Module
    logit_scale: nn.Parameter  # log of what cosines are multiplied by

    def tokens(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """What `text` reads, on the CPU.   N texts -> {name: (N, T)}"""
        raise NotImplementedError

    def text(self, tokens: dict[str, Tensor]) -> Tensor:
        """{name: (N, T)} -> (N, width), as long as they are"""
        raise NotImplementedError

    def image(self, pixels: Tensor) -> Tensor:
        """(N, 3, size, size) uint8 -> (N, width), as long as they are"""
        raise NotImplementedError

    def normalised(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) uint8 -> the same in floats, as the image tower reads them"""
        return normalise(pixels, self.mean, self.std)

    def encode(self, texts: Sequence[str], batch: int = 256) -> Tensor:
        """Vectors of texts, without gradient.   N texts -> (N, width)"""
        device = self.logit_scale.device
        parts = [list(texts[i : i + batch]) for i in range(0, len(texts), batch)]
        with torch.no_grad():
            rows = [self.text({name: t.to(device) for name, t in self.tokens(part).items()}) for part in parts]
        return torch.cat(rows) if rows else torch.empty(0, self.width, device=device)

    def forward(self, tokens: dict[str, Tensor], pixels: Tensor) -> tuple[Tensor, Tensor]:
        return self.text(tokens), self.image(pixels)


def tokenized(tokenizer: Any, texts: Sequence[str], longest: int) -> dict[str, Tensor]:
    """What a text encoder of transformers reads.   N texts -> input_ids, attention_mask (N, T)"""
    made = tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: made[name] for name in ("input_ids", "attention_mask")}


def frozen(module: Any) -> Any:
    """Without gradients, in eval mode."""
    return module.requires_grad_(False).eval()
