"""Objects with boxes, and masks where the model has them: TinySSD, Fast, Faster and Mask R-CNN."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.data.augment import normalise
from horosphere.data.classes import read_classes
from horosphere.data.dense import DenseData, coco_masks, open_instances
from horosphere.data.dense_batches import (
    collate_boxes,
    collate_instances,
    flipped,
    flipped_boxes,
    framed,
    resized,
    separated,
)
from horosphere.data.photographs import read_photograph
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.objects import evaluate_instances
from horosphere.extras import require
from horosphere.models.backbones import for_cuda, laid_out
from horosphere.models.detection import FastRCNN, faster_rcnn, mask_rcnn
from horosphere.models.tinyssd import TinySSD, detection_loss, detections
from horosphere.models.weights import begin_with
from horosphere.ops.proposals import selective_search
from horosphere.runs import Run
from horosphere.tasks.masks import OnBackbone
from horosphere.train.answers import Answers, Said
from horosphere.train.config import EngineConfig

ONE_LOOK, GIVEN, MASKS = "tinyssd", "fast-rcnn", "mask-rcnn"  # those that are special
RCNNS: dict[str, Callable[..., nn.Module]] = {GIVEN: FastRCNN, "faster-rcnn": faster_rcnn, MASKS: mask_rcnn}
SURE = 0.5  # score of an object that people are told of
SMALLEST = 64  # pixels a side that TinySSD needs: its maps are 8 to 64 times coarser


class Found(NamedTuple):
    """One object in a picture."""

    name: str  # of its class
    box: tuple[float, ...]  # left, top, right, bottom in pixels
    score: float  # from 0 to 1


@dataclass(frozen=True, eq=False)
class TrainedObjects:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # TinySSD, of `normalise`d squares; or one of torchvision's parts, of lists of pictures
    classes: list[str]  # the labels 1, 2, …
    size: int

    def find(self, picture: Tensor) -> dict[str, Tensor]:
        """boxes (D, 4), scores (D,), labels (D,), and of mask-rcnn masks (D, 1, H, W).   (3, H, W) from 0 to 1"""
        return find(self.network, picture, self.size)

    def likely(self, picture: np.ndarray) -> list[Found]:
        """The objects that are more likely there than not, the surest first.   (H, W, 3) uint8"""
        found = self.find(torch.from_numpy(picture).permute(2, 0, 1) / 255)
        each = zip(found["labels"].tolist(), found["boxes"].tolist(), found["scores"].tolist(), strict=True)
        sure = [Found(self.classes[label - 1], tuple(box), score) for label, box, score in each if score >= SURE]
        return sorted(sure, key=lambda found: -found.score)

    def answer(self, inputs: list[str], k: int) -> Answers:
        """The likely objects in pictures in files, and their boxes."""
        best: list[list[Said]] = []
        for file in inputs:
            likely = self.likely(read_photograph(file))[:k]
            best.append([(f"{f.name} at {','.join(f'{side:.0f}' for side in f.box)}", f.score) for f in likely])
        return Answers("object at left,top,right,bottom", "score", inputs, best)


@dataclass(kw_only=True)
class Objects(OnBackbone):
    kind = "objects"
    then = "horosphere predict {run} PICTURE.jpg"
    asks = "files of pictures"
    best = 10
    metrics = (
        Metric("box_ap", "box AP", 4, "high", "judged"),
        Metric("box_ap50", "box AP50", 4, "high", "detail"),
        Metric("box_ap75", "box AP75", 4, "high", "detail"),
        Metric("mask_ap", "mask AP", 4, "high"),
        Metric("mask_ap50", "mask AP50", 4, "high", "detail"),
        Metric("mask_ap75", "mask AP75", 4, "high", "detail"),
    )

    @property
    def one_look(self) -> bool:
        """All pictures have one size, and the loss no shape that depends on values."""
        return self.model == ONE_LOOK

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        super().check(engine)
        require("torchmetrics")
        coco_masks()  # the evaluation needs it: better to know now
        if not self.one_look and engine.compile is True:
            raise UserError(f"compile=true: the shapes in {self.model} depend on what it finds; use compile=false")
        if self.model == GIVEN:
            require("skimage")  # selective search
        if self.one_look and self.size < SMALLEST:
            raise UserError(f"size={self.size}: TinySSD needs at least {SMALLEST} pixels a side; use a larger one")
        if self.one_look and self.pretrained:
            raise UserError(f"pretrained=true: {ONE_LOOK} has no published weights; leave it out")
        for name in ("backbone", "width", "head_lr") if self.one_look else ():
            if (given := getattr(self, name)) != getattr(OnBackbone, name):
                said = f"{name}={given}".removesuffix(".0")
                raise UserError(f"{said}: {ONE_LOOK} has no backbone beside its head; leave it out")

    def open_data(self) -> DenseData[Any]:
        return open_instances(self.data, self.valid)

    def image_size(self) -> int:
        return self.size if self.one_look else super().image_size()

    def build(self, data: DenseData[Any]) -> nn.Module:
        if not self.one_look:
            return super().build(data)
        network = TinySSD(len(data.classes), self.configuration(), self.size)
        if self.start is not None:
            given = Run.open(self.start, self.kind).load().network.state_dict()
            begin_with(network, given, self.start, missing=len(network.classifiers.state_dict()))
        return for_cuda(network, self.world.device, self.world.size)

    def network_for(self, classes: int, image_size: int, pretrained: bool = False) -> nn.Module:
        config = self.configuration()
        if self.one_look:
            return TinySSD(classes, config, self.size)
        backbone = self.made_backbone(image_size, pretrained)
        options: dict[str, Any] = {"width": self.width, "size": self.size, "scale": tuple(self.scale)}
        return RCNNS[self.model](backbone, classes, None if self.model == MASKS else config, **options)

    def ready(self, data: DenseData[Any]) -> None:
        if not self.one_look:
            self.engine = dataclasses.replace(self.engine, compile=False)
        self.proposed: dict[int, np.ndarray] = {}  # proposals of pictures, by number: slow to find, small to keep
        super().ready(data)

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return super(OnBackbone, self).groups(model) if self.one_look else super().groups(model)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """tinyssd: images (B, 3, s, s) uint8, truth (B, M, 5): class, left, top, right, bottom, in shares of a side.
        Rows with fewer objects end in class 0.

        R-CNNs: images (B, 3, H, W) uint8, filled up to one shape, sizes (B, 2), counts (B,), and of all T objects one
        after another boxes (T, 4), labels (T,), of mask-rcnn masks (T, H, W) uint8, of fast-rcnn proposals (P, 4) with
        their counts.
        """
        read = self.read(step, rows)()
        return collate_boxes(read) if self.one_look else collate_instances(read, masks=self.model == MASKS)

    def started(self, step: int, rows: range) -> Callable[[], list[Any]]:
        chosen, draws = self.drawn(step, rows, len(self.pictures.train)), self.chances(step, rows)

        def prepared(image: np.ndarray, objects: Any, i: int) -> tuple[Any, ...]:
            if self.one_look:
                return framed(image, objects, self.size, self.scale, self.flip, draws[i])
            turn = bool(self.flip and draws[i, 3] < 0.5)
            if self.model != GIVEN:
                return flipped(image, objects, turn)
            boxes = self._proposals(int(chosen[i]), image)
            return *flipped(image, objects, turn), flipped_boxes(boxes, image.shape[1]) if turn else boxes

        return self.pictures.train.later(chosen, prepared)

    def _proposals(self, number: int, image: np.ndarray) -> np.ndarray:
        if number not in self.proposed:
            picture = torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255
            self.proposed[number] = selective_search(picture)[0].numpy()
        return self.proposed[number]

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        if self.one_look:
            logits, offsets = model(laid_out(normalise(batch["images"])))
            anchors, negatives = cast(TinySSD, model).anchors, self.configuration().negatives
            classes, boxes = detection_loss(logits, offsets, anchors, batch["truth"], negatives)
            parts = {"classes": classes, "boxes": boxes}
        else:
            parts = model(*separated(batch))
        return torch.stack(list(parts.values())).sum(), {name: value.detach() for name, value in parts.items()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return self.one_look

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        has_masks = self.model == MASKS
        return evaluate_instances(lambda x: find(model, x, self.size), self.pictures, self.world.device, has_masks)

    # -- the network of a run ---------------------------------------------------------------------------------------

    def trained(self, network: nn.Module, run: Run) -> TrainedObjects:
        classes, _ = read_classes(run.folder)
        return TrainedObjects(network, classes, self.size)

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        return [["model", f"{ONE_LOOK}, {facts['parameters']:,} parameters"]] if self.one_look else super().about(facts)


@torch.no_grad()
def find(model: nn.Module, picture: Tensor, size: int) -> dict[str, Tensor]:
    """What a detector finds in a picture (3, H, W) from 0 to 1, as torchvision's answer."""
    if not isinstance(model, TinySSD):
        return cast(dict[str, Tensor], model([picture])[0])
    height, width = picture.shape[1:]
    pixels = (255 * picture).round().byte().permute(1, 2, 0).cpu().numpy()
    square = torch.from_numpy(resized(pixels, size, size).copy()).permute(2, 0, 1)[None].to(picture.device)
    logits, offsets = model(laid_out(normalise(square)))
    return detections(logits[0], offsets[0], model.anchors, height, width)
