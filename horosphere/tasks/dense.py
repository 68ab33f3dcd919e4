"""A class for every pixel (Semantic FPN), or objects with boxes and masks (Mask R-CNN), on any backbone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.augment import normalise
from horosphere.data.classes import read_classes
from horosphere.data.dense import IGNORED, DenseData, coco_masks, open_instances, open_semantic
from horosphere.data.dense_batches import collate_instances, flipped, separated
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.objects import evaluate_instances
from horosphere.evaluate.pixels import evaluate_semantic
from horosphere.extras import require
from horosphere.models.backbones import HCFORMER, adapt, create_backbone, for_cuda, laid_out
from horosphere.models.dense import SemanticFPN, mask_rcnn, segmentation_loss
from horosphere.models.himapper import HiMapper
from horosphere.models.weights import begin_with, require_one_source
from horosphere.runs import Run
from horosphere.settings import Size
from horosphere.tasks.masks import Masks
from horosphere.train.config import EngineConfig

SEMANTIC, DETECTION = "semantic-fpn", "mask-rcnn"


@dataclass(frozen=True, eq=False)
class TrainedDense:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # SemanticFPN, of `normalise`d pictures; or torchvision's MaskRCNN, of pictures from 0 to 1
    classes: list[str]  # of mask-rcnn the labels 1, 2, …
    size: int
    detects: bool


@dataclass(kw_only=True)
class Dense(Masks):
    """The model says which of the two it is; the backbone is any network of the task `pictures`."""

    kind = "dense"
    configured = "backbone"
    metrics = (
        Metric("miou", "mIoU", 4, "high", "judged"),
        Metric("accuracy", "pixels right", 4, "high"),
        Metric("box_ap", "box AP", 4, "high", "judged"),
        Metric("box_ap50", "box AP50", 4, "high", "detail"),
        Metric("box_ap75", "box AP75", 4, "high", "detail"),
        Metric("mask_ap", "mask AP", 4, "high"),
        Metric("mask_ap50", "mask AP50", 4, "high", "detail"),
        Metric("mask_ap75", "mask AP75", 4, "high", "detail"),
    )

    backbone: str = "hcformer-nano"  # or "timm:…", "torchvision:…"
    classes: Size | None = None  # of semantic-fpn: how many; none: as the masks have them
    width: Size = 256  # channels of the feature pyramid
    pretrained: bool = False  # fetch the backbone's published weights

    @property
    def detects(self) -> bool:
        return self.model == DETECTION

    @classmethod
    def network(cls, name: str) -> catalogue.Model:
        return catalogue.model(name, "pictures", "backbone")

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        catalogue.model(self.model, self.kind)
        require("torchvision")
        super().check(engine)
        if self.detects:
            require("torchmetrics")
            coco_masks()  # the evaluation needs it: better to know now
            if engine.compile is True:
                raise UserError(f"compile=true: the shapes in {DETECTION} depend on what it finds; use compile=false")
        require_one_source(self.start, self.pretrained)

    def open_data(self) -> DenseData[Any]:
        if self.detects:
            return open_instances(self.data, self.valid)
        return open_semantic(self.data, self.valid, self.ignore, self.classes)

    def facts(self, data: DenseData[Any]) -> dict[str, Any]:
        return {**super().facts(data), "image_size": self._image_size()}

    def _image_size(self) -> int:
        """What position biases of the backbone are learned on."""
        return self.size if self.start is None else int(Run.open(self.start, "pictures").load().size)

    def build(self, data: DenseData[Any]) -> nn.Module:
        model = self.network_for(len(data.classes), self._image_size(), self.pretrained)
        if self.start is not None:
            trained = Run.open(self.start, "pictures").load().network
            given = (trained.backbone if isinstance(trained, HiMapper) else adapt(trained)[0]).state_dict()
            begin_with(_backbone(model), given, self.start)
        return for_cuda(model, self.world.device, self.world.size)

    def network_for(self, classes: int, image_size: int, pretrained: bool = False) -> nn.Module:
        changes = {**self.config, "image_size": image_size} if self.backbone.startswith(HCFORMER) else {}
        backbone = create_backbone(self.backbone, 1, pretrained, any_size=True, **changes)
        if self.detects:
            return mask_rcnn(backbone, classes, self.width, self.size, (self.scale[0], self.scale[1]))
        return SemanticFPN(backbone, classes, self.width)

    def ready(self, data: DenseData[Any]) -> None:
        if self.detects:
            self.engine = dataclasses.replace(self.engine, compile=False)
        super().ready(data)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """mask-rcnn: images (B, 3, H, W) uint8, filled up to one shape, sizes (B, 2), counts (B,), and of all T objects
        one after another boxes (T, 4), labels (T,), masks (T, H, W) uint8.
        """
        return collate_instances(self.read(step, rows)()) if self.detects else super().batch(step, rows)

    def started(self, step: int, rows: range) -> Callable[[], list[Any]]:
        if not self.detects:
            return super().started(step, rows)
        chosen, draws = self.drawn(step, rows, len(self.pictures.train)), self.chances(step, rows)
        return self.pictures.train.later(
            chosen, lambda image, target, i: flipped(image, target, self.flip and draws[i, 3] < 0.5)
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.detects:
            logits = model(laid_out(normalise(batch["images"])))
            return segmentation_loss(logits, batch["masks"].long(), IGNORED), {}
        losses: dict[str, Tensor] = model(*separated(batch))
        return torch.stack(list(losses.values())).sum(), {name: value.detach() for name, value in losses.items()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return not self.detects

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        if self.detects:
            return evaluate_instances(model, self.pictures, self.world.device)
        scores = evaluate_semantic(model, self.pictures, self.size, self.world)
        return {"miou": scores.miou, "accuracy": scores.accuracy}

    # -- the network of a run ---------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        return self.network_for(run.about.count("classes"), run.about.count("image_size"))

    def trained(self, network: nn.Module, run: Run) -> TrainedDense:
        classes, _ = read_classes(run.folder)
        return TrainedDense(network, classes, self.size, self.detects)

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        return [["model", f"{self.model} on {self.backbone}, {facts['parameters']:,} parameters"]]


def _backbone(model: nn.Module) -> nn.Module:
    pyramid = model.pyramid if isinstance(model, SemanticFPN) else model.backbone
    return cast(nn.Module, cast(Any, pyramid).backbone)
