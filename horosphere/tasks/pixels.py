"""A class for every pixel, on any backbone: Semantic FPN, FCN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import normalise
from horosphere.data.classes import read_classes
from horosphere.data.dense import IGNORED, DenseData, open_semantic
from horosphere.data.dense_batches import resized, short_side
from horosphere.data.photographs import read_photograph
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.pixels import evaluate_semantic
from horosphere.models.backbones import laid_out
from horosphere.models.segmentation import FCN, SemanticFPN, segmentation_loss
from horosphere.runs import Run
from horosphere.settings import Size
from horosphere.tasks.masks import OnBackbone
from horosphere.train.answers import Answers, best_of


@dataclass(frozen=True, eq=False)
class TrainedPixels:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # of `normalise`d pictures
    classes: list[str]
    size: int

    @torch.no_grad()
    def classify(self, picture: np.ndarray) -> Tensor:
        """The class of each pixel.   (H, W, 3) uint8 -> (H, W) int64"""
        seen = resized(picture, *short_side(picture.shape[0], picture.shape[1], self.size))
        logits = self.network(normalise(torch.from_numpy(seen.copy()).permute(2, 0, 1)[None]))
        return F.interpolate(logits, picture.shape[:2], mode="bilinear", align_corners=False).argmax(1)[0]

    def answer(self, inputs: list[str], k: int) -> Answers:
        """Of pictures in files the classes that cover most."""
        shares = []
        for file in inputs:
            counts = torch.bincount(self.classify(read_photograph(file)).flatten(), minlength=len(self.classes))
            shares.append(counts / counts.sum())
        best = [[said for said in row if said[1]] for row in best_of(torch.stack(shares), self.classes, k)]
        return Answers("class", "share of pixels", inputs, best)


@dataclass(kw_only=True)
class Pixels(OnBackbone):
    kind = "pixels"
    then = "horosphere predict {run} PICTURE.jpg"
    asks = "files of pictures"
    best = 5
    metrics = (Metric("miou", "mIoU", 4, "high", "judged"), Metric("accuracy", "pixels right", 4, "high"))

    ignore: int | None = 255  # the number in masks that counts for nothing
    classes: Size | None = None  # how many; none: as the masks have them

    def open_data(self) -> DenseData[Any]:
        return open_semantic(self.data, self.valid, self.ignore, self.classes)

    def network_for(self, classes: int, image_size: int, pretrained: bool = False) -> nn.Module:
        backbone = self.made_backbone(image_size, pretrained)
        if self.model == "fcn":
            return FCN(backbone, classes, self.configuration())
        return SemanticFPN(backbone, classes, self.width)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        logits = model(laid_out(normalise(batch["images"])))
        return segmentation_loss(logits, batch["masks"].long(), IGNORED), {}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return True

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        scores = evaluate_semantic(model, self.pictures, self.size, self.world)
        return {"miou": scores.miou, "accuracy": scores.accuracy}

    def trained(self, network: nn.Module, run: Run) -> TrainedPixels:
        classes, _ = read_classes(run.folder)
        return TrainedPixels(network, classes, self.size)
