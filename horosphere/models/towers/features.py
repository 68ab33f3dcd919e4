"""What frozen encoders say, computed once: kept in the cache, under the content of all that it depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from horosphere.cache import alone, cache_folder
from horosphere.data.augment import whole_box
from horosphere.data.images import Chosen, Pictures
from horosphere.data.read_ahead import ahead
from horosphere.errors import UserError
from horosphere.files import digest
from horosphere.foreign import Unreadable, read_tensors
from horosphere.models.towers.base import Towers
from horosphere.progress import progress

TEXTS, PICTURES = 256, 64  # at once
MIDDLE = partial(whole_box, 1.0)  # the largest square in the middle of a picture, as CLIP crops


def text_features(towers: Towers, texts: Sequence[str], quiet: bool = True) -> Tensor:
    """N texts -> (N, text width), on the CPU"""
    if not texts:
        raise UserError("there are no texts to read; give some")
    parts = [towers.tokens(list(texts[i : i + TEXTS])) for i in range(0, len(texts), TEXTS)]

    def compute(update: Callable[[int, str], None]) -> list[Tensor]:
        rows: list[Tensor] = []
        for tokens in parts:
            rows.append(towers.text_features({name: t.to(_device(towers)) for name, t in tokens.items()}).float().cpu())
            update(sum(map(len, rows)), "")
        return rows

    encoder = towers.encoder("text")
    # tokens, not texts: another tokenizer reads something else
    read = [t.numpy().tobytes() for tokens in parts for t in tokens.values()]
    known_by = "" if has_adapter(encoder) else digest("text", weights_digest(encoder), *read)
    return _kept(known_by, "reading texts", len(texts), compute, quiet)


def image_features(towers: Towers, pictures: Pictures, numbers: np.ndarray, quiet: bool = True) -> Tensor:
    """Of these pictures.   (N,) -> (N, image width), on the CPU"""
    parts = [numbers[i : i + PICTURES] for i in range(0, len(numbers), PICTURES)]

    def start(number: int) -> Callable[[], Tensor]:
        return pictures.crops(parts[number], MIDDLE, np.zeros((len(parts[number]), 4)), towers.size)

    def compute(update: Callable[[int, str], None]) -> list[Tensor]:
        rows = []
        for pixels in ahead(start, len(parts)):
            rows.append(towers.image_features(pixels.to(_device(towers))).float().cpu())
            update(sum(map(len, rows)), "")
        return rows

    how = f"{towers.size} {towers.mean} {towers.std}"
    encoder = towers.encoder("image")
    known_by = "" if has_adapter(encoder) else digest("image", weights_digest(encoder), how, pictures.digest(numbers))
    return _kept(known_by, "looking at pictures", len(numbers), compute, quiet)


class Texts:
    """Texts as a tower reads them: features where its encoder is frozen, tokens where it learns."""

    def __init__(self, towers: Towers, texts: Sequence[str], learns: bool = False, quiet: bool = True):
        read = towers.tokens(texts) if learns else {"features": text_features(towers, texts, quiet)}
        self.read = {name: t.to(_device(towers)) for name, t in read.items()}

    def __len__(self) -> int:
        return len(next(iter(self.read.values())))

    def part(self, numbers: np.ndarray) -> Texts:
        """Some of them, numbered anew."""
        some = copy(self)
        some.read = self.at(numbers)
        return some

    def at(self, numbers: Tensor | np.ndarray) -> dict[str, Tensor]:
        """(...) -> {name: (..., F or T)}"""
        return {name: t[torch.as_tensor(numbers, device=t.device)] for name, t in self.read.items()}


class Views:
    """Pictures as a tower sees them: features where its encoder is frozen, pixels where it learns."""

    def __init__(self, towers: Towers, pictures: Pictures, learns: bool = False, quiet: bool = True):
        self.pictures, self.size = pictures, towers.size
        numbers = np.arange(len(pictures))
        seen = None if learns else image_features(towers, pictures, numbers, quiet)
        self.features = None if seen is None else seen.to(_device(towers))

    def __len__(self) -> int:
        return len(self.pictures)

    def part(self, numbers: np.ndarray) -> Views:
        """Some of them, numbered anew."""
        some = copy(self)
        some.pictures = Chosen(self.pictures, numbers)
        some.features = None if self.features is None else self.at(numbers)["features"]
        return some

    def at(self, numbers: np.ndarray) -> dict[str, Tensor]:
        """(B,) -> features (B, F), or pixels (B, 3, size, size) uint8"""
        if self.features is not None:
            return {"features": self.features[torch.from_numpy(numbers).to(self.features.device)]}
        return {"pixels": self.pictures.crops(numbers, MIDDLE, np.zeros((len(numbers), 4)), self.size)()}


def weights_digest(module: nn.Module) -> str:
    """What a network is known by: its layers, its configurations, names and values of its weights."""
    known = hashlib.sha256(str(module).encode())
    for part in module.modules():
        config: Any = getattr(part, "config", None)
        if hasattr(config, "to_json_string"):
            known.update(config.to_json_string().encode())
    for name, t in module.state_dict().items():
        known.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        known.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return known.hexdigest()


def has_adapter(module: nn.Module) -> bool:
    """A parametrization of torch's, or a layer of peft's, around a weight."""
    return any("parametrizations" in name or "base_layer" in name for name, _ in module.named_parameters())


def _device(towers: Towers) -> torch.device:
    return towers.logit_scale.device


def _kept(known_by: str, title: str, count: int, compute: Callable[..., list[Tensor]], quiet: bool) -> Tensor:
    """known_by: empty where nothing may be kept: an adapter can be on or off, which its weights do not say."""
    file = cache_folder() / "features" / f"{known_by}.safetensors"
    if known_by and (found := _found(file, count)) is not None:
        return found

    def make() -> Tensor:
        with progress(title, count, quiet) as update, torch.no_grad():
            return torch.cat(compute(update))

    if not known_by:
        return make()
    with alone(file) as aside:
        if (found := _found(file, count)) is not None:  # another process was first
            return found
        made = make()
        aside.write_bytes(save({"features": made.contiguous()}))
        aside.replace(file)
    return made


def _found(file: Path, count: int) -> Tensor | None:
    """None where there is none, or one that a full disk tore: it is made again."""
    try:
        found = read_tensors(file)["features"]
    except (Unreadable, KeyError):
        return None
    return found if len(found) == count else None
