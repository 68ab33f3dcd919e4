"""Learners of a few pictures a class, on frozen towers: a linear probe, and texts of classes that learn.

    linear-probe        a linear classifier on the vectors of pictures
    coop                the words before the names of the classes are learned
    lathadapter         attributes between classes and pictures are learned
    coop-lathadapter    both: LatHAdapter's loss beside prompt learning

All of them read vectors of pictures, (B, width), and answer for the classes `which`, a slice of all classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.models.adapters import Learner
from horosphere.models.lathadapter import LatHAdapter, LatHAdapterConfig
from horosphere.models.prompts import ContextConfig, LearnedContext, filled
from horosphere.models.towers import Towers, frozen, text_features
from horosphere.models.towers.base import LARGEST_SCALE

ALL = slice(None)
Parts = dict[str, Tensor]  # of a loss, by name


@dataclass(frozen=True)
class ContextAdapterConfig(LatHAdapterConfig, ContextConfig):
    """LatHAdapter beside CoOp."""


class FewShotLearner(Learner):
    """Holds the towers, which stay as they are."""

    def __init__(self, towers: Towers):
        super().__init__()
        self.towers = frozen(towers)
        self.scale = float(towers.logit_scale.detach().exp().clamp(max=LARGEST_SCALE))  # 1/τ

    def train(self, mode: bool = True) -> FewShotLearner:
        super().train(mode)
        self.towers.eval()  # they drop nothing out while others learn
        return self

    def loss(self, images: Tensor, labels: Tensor, which: slice = ALL) -> tuple[Tensor, Parts]:
        """What to minimise, and its parts.   (B, width), (B,) among `which` -> ()"""
        return F.cross_entropy(self(images, which), labels), {}


class LinearProbe(FewShotLearner):
    """scale·(W v/|v| + b), zero at the start."""

    def __init__(self, towers: Towers, classes: int):
        super().__init__(towers)
        self.weight = nn.Parameter(torch.zeros(classes, towers.width))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, images: Tensor, which: slice = ALL) -> Tensor:
        return self.scale * F.linear(F.normalize(images, dim=-1), self.weight[which], self.bias[which])


class TextLearner(FewShotLearner):
    """Classes are their texts: those of a template, or with a learned context. An adapter may refine them."""

    texts: Tensor

    def __init__(self, towers: Towers, names: Sequence[str], template: str, config: Any):
        super().__init__(towers)
        self.register_buffer("texts", class_vectors(towers, names, template))
        self.context = self.adapter = None
        if isinstance(config, ContextConfig):
            self.context = LearnedContext(towers, names, template, config.context)
        if isinstance(config, LatHAdapterConfig):
            self.adapter = LatHAdapter(towers.width, config, self.scale)

    def classes(self, which: slice = ALL) -> Tensor:
        """Vectors of the classes.   -> (C, width)"""
        return self.texts[which] if self.context is None else self.context(self.towers, which)

    def forward(self, images: Tensor, which: slice = ALL) -> Tensor:
        texts = self.classes(which)
        return alike(self.towers, images, texts) if self.adapter is None else self.adapter(images, texts)

    def loss(self, images: Tensor, labels: Tensor, which: slice = ALL) -> tuple[Tensor, Parts]:
        if self.adapter is None:
            return super().loss(images, labels, which)
        total, *parts = self.adapter.loss(images, self.classes(which), labels)
        return total, dict(zip(("ecls", "hcls", "va", "at"), parts, strict=True))


def alike(towers: Towers, images: Tensor, texts: Tensor) -> Tensor:
    """What the towers say themselves: without training this is zero-shot.   (B, width), (C, width) -> (B, C)"""
    return towers.logits(towers.space.image(images), towers.space.text(texts))


def class_vectors(towers: Towers, names: Sequence[str], template: str) -> Tensor:
    """What the towers make of the texts of the classes.   -> (C, width)"""
    features = text_features(towers, filled(template, names)).to(towers.logit_scale.device)
    with torch.no_grad():
        return towers.text_vector(features)


def few_shot_learner(model: str, towers: Towers, names: Sequence[str], template: str, config: object) -> FewShotLearner:
    """A learner by name, at its start."""
    if model == "linear-probe":
        return LinearProbe(towers, len(names))
    return TextLearner(towers, names, template, config)
