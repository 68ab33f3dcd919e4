"""TinySSD: a detector of one look, as textbooks have it (after Liu et al. 2016), with a classifier in any geometry.

Five maps, each coarser than the last. Every place of a map has four anchors: boxes that are classified and moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.models.config import InAnyGeometry
from horosphere.models.heads import LiftedConvClassifier
from horosphere.ops.boxes import anchors, assign, decode, encode
from horosphere.settings import Few

SIZES = ((0.2, 0.272), (0.37, 0.447), (0.54, 0.619), (0.71, 0.79), (0.88, 0.961))  # of the anchors of each map
RATIOS = (1.0, 2.0, 0.5)
ANCHORS = len(SIZES[0]) + len(RATIOS) - 1  # at a place
BASE, WIDTH = (16, 32, 64), 128  # channels
# as torchvision's detectors have them
LEAST, OVERLAP, MOST = 0.05, 0.5, 100  # score of an answer, overlap of two of one class, answers


@dataclass(frozen=True, kw_only=True)
class TinySSDConfig(InAnyGeometry):
    """The classifier's geometry, and the loss."""

    negatives: Few | None = None  # background anchors for each with a truth, the worst ones, as the paper; none: all


class TinySSD(nn.Module):
    """(B, 3, size, size) -> logits (B, N, classes + 1), class 0 the background, and offsets (B, N, 4) of N anchors

    >>> network = TinySSD(1, TinySSDConfig())
    >>> sum(p.numel() for p in network.parameters()), len(network.anchors)
    (1010376, 5444)
    """

    anchors: Tensor

    def __init__(self, num_classes: int, config: TinySSDConfig, size: int = 256):
        super().__init__()
        base = nn.Sequential(*(downsampling(*pair) for pair in zip((3, *BASE), BASE, strict=False)))
        deeper = [downsampling(before, WIDTH) for before in (BASE[-1], WIDTH, WIDTH)]
        self.stages = nn.ModuleList([base, *deeper, nn.AdaptiveMaxPool2d(1)])
        widths, m = (BASE[-1], *(WIDTH,) * 4), config.manifold()
        self.labels = num_classes + 1
        self.classifiers = nn.ModuleList(
            LiftedConvClassifier(width, ANCHORS * self.labels, m, kernel_size=3) for width in widths
        )
        self.offsets = nn.ModuleList(nn.Conv2d(width, ANCHORS * 4, 3, padding=1) for width in widths)
        sides = [size // 8, size // 16, size // 32, size // 64, 1]
        every = [anchors(side, side, sizes, RATIOS) for side, sizes in zip(sides, SIZES, strict=True)]
        self.register_buffer("anchors", torch.cat(every), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, offsets = [], []
        for stage, classify, move in zip(self.stages, self.classifiers, self.offsets, strict=True):
            x = stage(x)
            logits.append(by_anchor(classify(x), self.labels))
            offsets.append(by_anchor(move(x), 4))
        return torch.cat(logits, 1).float(), torch.cat(offsets, 1).float()

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return list(self.stages[:-1])


def downsampling(before: int, width: int) -> nn.Sequential:
    """Twice convolution, norm and ReLU; then half the side.   (B, before, H, W) -> (B, width, H/2, W/2)

    >>> downsampling(3, 10)(torch.zeros(2, 3, 20, 20)).shape
    torch.Size([2, 10, 10, 10])
    """
    layers: list[nn.Module] = []
    for channels in (before, width):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))


def by_anchor(x: Tensor, numbers: int) -> Tensor:
    """The numbers of each anchor, place after place.   (B, a·numbers, H, W) -> (B, H·W·a, numbers)

    Channels go last before anything is flattened: otherwise the numbers of different anchors are mixed.

    >>> by_anchor(torch.arange(8).view(1, 4, 1, 2), 2)[0]
    tensor([[0, 2],
            [4, 6],
            [1, 3],
            [5, 7]])
    """
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, numbers)


# -- the loss ---------------------------------------------------------------------------------------------------------


def detection_loss(
    logits: Tensor, offsets: Tensor, anchors: Tensor, truth: Tensor, negatives: int | None = None
) -> tuple[Tensor, Tensor]:
    """Losses of classes and of boxes, means over the rows.

    logits (B, N, K + 1), offsets (B, N, 4), anchors (N, 4), truth (B, M, 5): class, left, top, right, bottom in shares
    of the picture. Rows with fewer than M objects are filled up with class 0 at their end. M is at least 1.
    negatives None: cross-entropy of all anchors, L1 of the offsets of those with a truth, means over anchors.
    negatives k, as Liu et al. 2016: cross-entropy of the n anchors with a truth and of the k·n worst others, smooth L1
    of the offsets. Both are sums, divided by n.

    >>> anchors = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]])
    >>> truth = torch.tensor([[[1.0, 0.0, 0.0, 0.5, 0.5]]])
    >>> sure = torch.tensor([[[-99.0, 99.0], [99.0, -99.0]]])
    >>> detection_loss(sure, torch.zeros(1, 2, 4), anchors, truth)
    (tensor(0.), tensor(0.))
    """
    labels, boxes = truth[..., 0].long(), truth[..., 1:]
    matched = assign(anchors, boxes, (labels > 0).sum(1))
    found, rows = matched >= 0, torch.arange(len(truth), device=truth.device)[:, None]
    chosen = matched.clamp(min=0)
    classes = torch.where(found, labels[rows, chosen], 0)
    wanted = encode(torch.where(found[..., None], boxes[rows, chosen], anchors), anchors)
    by_class = F.cross_entropy(logits.mT, classes, reduction="none")  # (B, N)
    apart = (offsets - wanted) * found[..., None]
    if negatives is None:
        return by_class.mean(), apart.abs().mean()
    counts = found.sum(1, keepdim=True)
    worst = by_class.masked_fill(found, 0).argsort(1, descending=True).argsort(1) < negatives * counts
    share = 1 / counts.clamp(min=1)
    smooth = F.smooth_l1_loss(apart, torch.zeros_like(apart), reduction="none").sum(-1)
    return (by_class * (found | worst) * share).sum(1).mean(), (smooth * share).sum(1).mean()


# -- answers ----------------------------------------------------------------------------------------------------------


def detections(logits: Tensor, offsets: Tensor, anchors: Tensor, height: int, width: int) -> dict[str, Tensor]:
    """Boxes (D, 4) in pixels of a picture, scores (D,) and labels (D,) from 1, as torchvision's detectors answer.

    logits (N, K + 1), offsets (N, 4), anchors (N, 4)
    """
    from torchvision.ops import batched_nms

    scores = logits.softmax(-1)[:, 1:]
    boxes = decode(offsets, anchors).clamp(0, 1) * anchors.new_tensor([width, height, width, height])
    place, label = (scores > LEAST).nonzero(as_tuple=True)
    score = scores[place, label]
    kept = batched_nms(boxes[place], score, label, OVERLAP)[:MOST]
    return {"boxes": boxes[place[kept]], "scores": score[kept], "labels": 1 + label[kept]}
