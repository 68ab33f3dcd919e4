"""Image and text towers of one space: CLIP of transformers and open_clip, and two towers of one's own."""

from horosphere.models.towers.base import Towers, frozen
from horosphere.models.towers.clip import HuggingFaceClip, OpenClip, contrastive, huggingface_clip, open_clip
from horosphere.models.towers.two import MeanPooled, TwoTowers, efficientnet_lite, minilm, two_towers

__all__ = [
    "HuggingFaceClip",
    "MeanPooled",
    "OpenClip",
    "Towers",
    "TwoTowers",
    "contrastive",
    "efficientnet_lite",
    "frozen",
    "huggingface_clip",
    "load_towers",
    "minilm",
    "open_clip",
    "two_towers",
]


def load_towers(name: str) -> Towers:
    """ "two" (MiniLM and EfficientNet-Lite0), "open_clip:ViT-B-32[:WEIGHTS]", a folder, or "hf:NAME"."""
    if name == "two":
        return two_towers()
    if name.startswith("open_clip:"):
        return open_clip(name.removeprefix("open_clip:"))
    return huggingface_clip(name)
