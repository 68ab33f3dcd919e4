"""HCFormer in timm: import this module, then timm.create_model knows "hcformer_nano" and its sisters.

>>> import timm
>>> timm.create_model("hcformer_nano_32", num_classes=10).num_classes
10
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from horosphere.errors import UserError
from horosphere.models.hcformer import HCFORMER, HCFormer, hcformer_config

__all__ = ["hcformer_medium", "hcformer_nano", "hcformer_nano_32", "hcformer_small", "hcformer_tiny"]


class TimmHCFormer(HCFormer):
    """HCFormer with timm's names for its settings. Every other setting of `HCFormerConfig` is passed on."""

    def __init__(
        self,
        name: str,
        num_classes: int = 1000,
        in_chans: int = 3,
        img_size: int | None = None,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "avg",
        device: Any = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ):
        if img_size is not None:
            settings["image_size"] = img_size
        if not 0 <= drop_rate < 1:
            raise UserError(f"drop_rate={drop_rate}: give a share from 0 to below 1")
        config = hcformer_config(
            name, num_classes=num_classes, in_channels=in_chans, drop_path=drop_path_rate, **settings
        )
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config)
        self.to(dtype=dtype)
        self.global_pool, self.drop_rate = _pool(global_pool), drop_rate

    def forward_head(self, x: Any, pre_logits: bool = False) -> Any:
        """Mean, dropout, linear.   (B, C, h, w) -> (B, num_classes); without pooling the map itself, (B, C, h, w)"""
        if not self.global_pool:
            return x
        x = F.dropout(super().forward_head(x, pre_logits=True), self.drop_rate, self.training)
        return x if pre_logits else self.head(x)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            self.global_pool = _pool(global_pool)
        super().reset_classifier(num_classes)


def _pool(name: str) -> str:
    if name not in ("avg", ""):
        raise UserError(f'global_pool="{name}": choose avg, or "" for the map itself')
    return name


def _cfg(name: str) -> dict[str, Any]:
    config = HCFORMER[name]
    size = (config.in_channels, config.image_size, config.image_size)
    last = -(-config.image_size // config.strides[-1])
    return {
        "url": "",  # no trained weights are published for these
        "num_classes": config.num_classes,
        "input_size": size,
        "pool_size": (last, last),
        "fixed_input_size": False,
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "downs.0",
        "classifier": "head",
        "license": "apache-2.0",
    }


default_cfgs = generate_default_cfgs({name.replace("-", "_"): _cfg(name) for name in HCFORMER})


def _create(name: str, pretrained: bool, **settings: Any) -> TimmHCFormer:
    variant = name.replace("-", "_")
    settings.setdefault("num_classes", HCFORMER[name].num_classes)
    feature_cfg = {"out_indices": (0, 1, 2, 3), "feature_cls": "getter"}
    model: TimmHCFormer = build_model_with_cfg(
        TimmHCFormer, variant, pretrained, feature_cfg=feature_cfg, name=name, **settings
    )
    return model


@register_model
def hcformer_nano(pretrained: bool = False, **settings: Any) -> TimmHCFormer:
    return _create("hcformer-nano", pretrained, **settings)


@register_model
def hcformer_tiny(pretrained: bool = False, **settings: Any) -> TimmHCFormer:
    return _create("hcformer-tiny", pretrained, **settings)


@register_model
def hcformer_small(pretrained: bool = False, **settings: Any) -> TimmHCFormer:
    return _create("hcformer-small", pretrained, **settings)


@register_model
def hcformer_medium(pretrained: bool = False, **settings: Any) -> TimmHCFormer:
    return _create("hcformer-medium", pretrained, **settings)


@register_model
def hcformer_nano_32(pretrained: bool = False, **settings: Any) -> TimmHCFormer:
    return _create("hcformer-nano-32", pretrained, **settings)
