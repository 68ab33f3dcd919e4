"""Objects with boxes and masks: COCO's average precision, by torchmetrics."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere.data.augment import on_device
from horosphere.data.dense import DenseData, Instances, coco_masks
from horosphere.data.read_ahead import ahead
from horosphere.extras import require

EVAL_ROWS = 16  # pictures that are read together
KINDS = {"box": "bbox", "mask": "segm"}
# COCO's own, in double precision. In single, torchmetrics' default, 0.6 is 0.60000002, and a recall of 3/5 falls short.
IOUS, RECALLS = np.linspace(0.5, 0.95, 10).tolist(), np.linspace(0, 1, 101).tolist()


class AveragePrecision:
    """Of boxes, and of masks if there are some: over IoU 0.50 to 0.95, and at 0.50 and 0.75.

    -1 where there is nothing to find.
    """

    def __init__(self, masks: bool = True) -> None:
        self.kinds = {ours: theirs for ours, theirs in KINDS.items() if masks or ours != "mask"}
        require("torchmetrics")
        from torchmetrics.detection import MeanAveragePrecision

        backend = coco_masks().__name__.partition(".")[0]
        self.metric: Any = MeanAveragePrecision(
            iou_type=tuple(self.kinds.values()),  # type: ignore[arg-type]
            iou_thresholds=IOUS,
            rec_thresholds=RECALLS,
            backend=backend,
            sync_on_compute=False,
        )

    def add(self, answer: dict[str, Tensor], truth: Instances) -> None:
        """One picture: an answer as torchvision's detectors give it, and what there is to find."""
        answer = {name: value.float() if name != "labels" else value for name, value in answer.items()}
        target = {
            "boxes": torch.from_numpy(truth.boxes),
            "labels": torch.from_numpy(truth.labels),
            "iscrowd": torch.from_numpy(truth.crowd).long(),
        }
        if "mask" in self.kinds:
            answer["masks"] = answer["masks"][:, 0] > 0.5
            target["masks"] = torch.from_numpy(truth.masks)
        self.metric.update([{name: value.cpu() for name, value in answer.items()}], [target])

    def compute(self) -> dict[str, float]:
        """box_ap, box_ap50, box_ap75, mask_ap, …"""
        scores = self.metric.compute()
        ends = {"": "", "50": "_50", "75": "_75"}
        several = len(self.kinds) > 1  # torchmetrics then says which
        return {
            f"{ours}_ap{at}": float(scores[f"{theirs}_map{end}" if several else f"map{end}"])
            for ours, theirs in self.kinds.items()
            for at, end in ends.items()
        }


@torch.no_grad()
def evaluate_instances(
    find: Callable[[Tensor], dict[str, Tensor]], data: DenseData[Instances], device: torch.device, masks: bool = True
) -> dict[str, float]:
    """COCO's average precision of boxes and, where `find` gives them, of masks.

    find: what a detector finds in a picture (3, H, W) from 0 to 1, as torchvision's answer.

    Every process goes through all pictures: a sharded model needs them in every forward, and masks are not sent around.
    """
    score, held = AveragePrecision(masks), data.valid
    chunks = [range(i, min(i + EVAL_ROWS, len(held))) for i in range(0, len(held), EVAL_ROWS)]
    for pictures in ahead(lambda number: held.later(chunks[number], lambda *pair: pair[:2]), len(chunks)):
        for image, truth in pictures:
            x = on_device(torch.from_numpy(image.copy()), device).permute(2, 0, 1).float() / 255
            score.add(find(x), truth)
    return score.compute()
