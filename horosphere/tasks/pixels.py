"""A class for every pixel, on any backbone: Semantic FPN, FCN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from horosphere.data.augment import normalise
from horosphere.data.classes import read_classes
from horosphere.data.dense import IGNORED, DenseData, open_semantic
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.pixels import evaluate_semantic
from horosphere.models.backbones import laid_out
from horosphere.models.segmentation import FCN, SemanticFPN, segmentation_loss
from horosphere.runs import Run
from horosphere.settings import Size
from horosphere.tasks.masks import OnBackbone


@dataclass(frozen=True, eq=False)
class TrainedPixels:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # of `normalise`d pictures
    classes: list[str]
    size: int


@dataclass(kw_only=True)
class Pixels(OnBackbone):
    kind = "pixels"
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
