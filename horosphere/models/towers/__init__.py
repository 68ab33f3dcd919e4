"""Image and text towers of one space: CLIP of transformers and open_clip, and two towers of one's own."""

from horosphere.models.towers.base import Towers, frozen
from horosphere.models.towers.clip import HuggingFaceClip, OpenClip, huggingface_clip, open_clip
from horosphere.models.towers.features import Texts, Views, has_adapter, image_features, text_features, weights_digest
from horosphere.models.towers.space import Space, SpaceConfig
from horosphere.models.towers.two import (
    MeanPooled,
    Pooled,
    TwoTowers,
    TwoTowersConfig,
    efficientnet_lite,
    minilm,
    text_alone,
    text_encoder,
    two_towers,
)

__all__ = [
    "HuggingFaceClip",
    "MeanPooled",
    "OpenClip",
    "Pooled",
    "Space",
    "SpaceConfig",
    "Texts",
    "Towers",
    "TwoTowers",
    "TwoTowersConfig",
    "Views",
    "efficientnet_lite",
    "frozen",
    "has_adapter",
    "huggingface_clip",
    "image_features",
    "load_towers",
    "minilm",
    "open_clip",
    "text_alone",
    "text_encoder",
    "text_features",
    "two_towers",
    "weights_digest",
]

KINDS = "two, text:minilm, text:FOLDER, open_clip:NAME[:WEIGHTS], the folder of a CLIP, hf:NAME"


def load_towers(name: str) -> Towers:
    """ "two" (MiniLM and EfficientNet-Lite0, untrained projections), or another of `KINDS`."""
    if name == "two":
        return two_towers()
    if name.startswith("text:"):
        return text_alone(text_encoder(name.removeprefix("text:")))
    if name.startswith("open_clip:"):
        return open_clip(name.removeprefix("open_clip:"))
    return huggingface_clip(name)
