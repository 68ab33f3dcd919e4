"""R-CNN (Girshick et al. 2014) in its four steps: proposals, crops, features of a network, a linear SVM a class.

    python docs/examples/rcnn.py --crops crops.npz                 # crops and their classes, for the network to learn
    horosphere train resnet18 data=crops.npz size=32 channels=3 epochs=2 --out runs/crops          # a minute
    python docs/examples/rcnn.py --start runs/crops                # average precision on held-out scenes
    python docs/examples/rcnn.py --backbone torchvision:resnet18   # the same with random weights

The paper's last step, which moves boxes by a regression, is left out. Faster R-CNN does all of this in one network.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor
from torchmetrics.detection import MeanAveragePrecision
from torchvision.ops import batched_nms, box_iou, roi_align

from horosphere.data.augment import normalise
from horosphere.data.dense import DenseSet, Instances, open_instances
from horosphere.models.backbones import adapt, create_backbone
from horosphere.ops.proposals import selective_search
from horosphere.runs import Run

SIDE, MARGIN = 32, 1.25  # of a crop, and how much more than its box it shows
OBJECT, BACKGROUND, NEGATIVES = 0.7, 0.3, 40  # IoU with the truth: above, below; boxes of the background a picture
SHOWN, OVERLAP, MOST = -1.0, 0.3, 100  # margin of an answer; IoU of two that are one; answers a picture, as COCO's

Features = Callable[[Tensor], np.ndarray]


def crops(picture: Tensor, boxes: Tensor) -> Tensor:
    """(3, H, W) uint8, (N, 4) -> (N, 3, SIDE, SIDE) uint8, whatever the shape of a box"""
    middle, half = (boxes[:, 2:] + boxes[:, :2]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2 * MARGIN
    seen = roi_align(picture[None].float(), [torch.cat([middle - half, middle + half], 1)], SIDE, aligned=True)
    return seen.round().to(torch.uint8)


def proposed(part: DenseSet[Instances], count: int) -> Iterator[tuple[Tensor, Tensor, Instances]]:
    """Pictures, their proposals, and the truth."""
    for number in range(min(count, len(part))):
        image, truth = part.read(number)
        picture = torch.from_numpy(image).permute(2, 0, 1)
        yield picture, selective_search(picture / 255)[0].unique(dim=0), truth


def examples(part: DenseSet[Instances], count: int) -> tuple[Tensor, np.ndarray]:
    """Crops of objects and of the background, and their classes, 0 for the background."""
    seen, classes = [], []
    for number, (picture, found, truth) in enumerate(proposed(part, count)):
        exact, labels = torch.from_numpy(truth.boxes), torch.from_numpy(truth.labels)
        boxes = torch.cat([exact, found])
        overlap, which = box_iou(boxes, torch.cat([exact, torch.zeros(1, 4)])).max(1)  # one more: there may be none
        apart = (overlap < BACKGROUND).nonzero()[:, 0]
        apart = apart[torch.randperm(len(apart), generator=torch.Generator().manual_seed(number))[:NEGATIVES]]
        near = (overlap > OBJECT).nonzero()[:, 0]
        seen.append(crops(picture, boxes[torch.cat([near, apart])]))
        classes.append(torch.cat([labels[which[near]], torch.zeros(len(apart), dtype=torch.int64)]))
    return torch.cat(seen), torch.cat(classes).numpy()


@torch.no_grad()
def features_of(start: str | None, backbone: str) -> Features:
    network = create_backbone(backbone, 11) if start is None else Run.open(start, "pictures").load().network
    trunk = adapt(network)[0].eval()
    return lambda seen: torch.cat([trunk.features(normalise(x))[1] for x in seen.split(256)]).detach().numpy()


def answer(picture: Tensor, boxes: Tensor, features: Features, svm: Pipeline) -> dict[str, Tensor]:
    scores = torch.from_numpy(svm.decision_function(features(crops(picture, boxes))))[:, 1:]  # without the background's
    place, label = (scores > SHOWN).nonzero(as_tuple=True)
    boxes, scores = boxes[place], scores[place, label]
    kept = batched_nms(boxes, scores.float(), label, OVERLAP)[:MOST]
    return {"boxes": boxes[kept], "scores": scores[kept], "labels": torch.from_numpy(svm.classes_)[1:][label[kept]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crops", help="write crops and their classes to this .npz, and stop")
    parser.add_argument("--start", help="a run of `horosphere train` whose network gives the features")
    parser.add_argument("--backbone", default="torchvision:resnet18", help="without --start: any, with random weights")
    parser.add_argument("--train", type=int, default=500, help="scenes to learn from")
    parser.add_argument("--test", type=int, default=200, help="scenes to judge by")
    said = parser.parse_args()
    data = open_instances("builtin:scenes")
    seen, classes = examples(data.train, said.train)
    if said.crops:
        names = np.array(["background", *data.classes])
        np.savez(said.crops, train_images=seen.permute(0, 2, 3, 1).numpy(), train_labels=classes, fine_names=names)
        return
    features = features_of(said.start, said.backbone)
    svm = make_pipeline(StandardScaler(), LinearSVC(C=0.01)).fit(features(seen), classes)
    metric = MeanAveragePrecision(iou_type="bbox")
    for picture, boxes, truth in proposed(data.valid, said.test):
        expected = {"boxes": torch.from_numpy(truth.boxes), "labels": torch.from_numpy(truth.labels)}
        metric.update([answer(picture, boxes, features, svm)], [expected])
    scores = metric.compute()
    print(f"AP50 {scores['map_50']:.3f}, AP {scores['map']:.3f} on {min(said.test, len(data.valid))} held-out scenes")


if __name__ == "__main__":
    main()
