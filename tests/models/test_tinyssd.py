"""TinySSD: the textbook's sizes, predictions that belong to their anchors, losses that are their definitions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from horosphere.models.tinyssd import ANCHORS, TinySSD, TinySSDConfig, by_anchor, detection_loss, detections
from horosphere.ops.boxes import assign, encode

GEOMETRIES = ["euclidean", "lorentz", "poincare"]


def test_maps_anchors_and_parameters_are_the_textbooks():
    network, x, sides = TinySSD(1, TinySSDConfig()).eval(), torch.zeros(1, 3, 256, 256), []
    for stage in network.stages:
        x = stage(x)
        sides.append((x.shape[1], x.shape[2]))
    assert sides == [(64, 32), (128, 16), (128, 8), (128, 4), (128, 1)]
    assert network.anchors.shape == (5444, 4)
    assert sum(p.numel() for p in network.parameters()) == 1_010_376
    logits, offsets = network(torch.zeros(2, 3, 256, 256))
    assert (logits.shape, offsets.shape) == ((2, 5444, 2), (2, 5444, 4))
    assert "anchors" not in network.state_dict()


class Position(nn.Module):
    """A map whose channels are the x of each place; a layer of a network that copies the position."""

    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def forward(self, x):
        side = x.shape[-1]
        row = (torch.arange(side) + 0.5) / side
        return row.expand(x.shape[0], self.channels, side, side)


def test_prediction_k_belongs_to_anchor_k():
    network = TinySSD(2, TinySSDConfig(), size=128)
    network.classifiers = nn.ModuleList(Position(ANCHORS * 3) for _ in network.stages)
    logits, _ = network(torch.zeros(2, 3, 128, 128))
    middle = (network.anchors[:, 0] + network.anchors[:, 2]) / 2
    assert_close(logits, middle[None, :, None].expand(2, -1, 3))


def test_the_numbers_of_an_anchor_stay_together():
    x = torch.randn(2, ANCHORS * 5, 3, 4)
    apart = by_anchor(x, 5).unflatten(1, (3, 4, ANCHORS))
    for anchor in range(ANCHORS):
        assert torch.equal(apart[:, :, :, anchor], x[:, 5 * anchor : 5 * anchor + 5].permute(0, 2, 3, 1))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_part_learns_in_every_geometry_and_the_flat_head_is_a_convolution(geometry):
    network = TinySSD(3, TinySSDConfig(geometry=geometry), size=64)
    logits, offsets = network(torch.randn(2, 3, 64, 64))
    (logits.square().mean() + offsets.square().mean()).backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for name, p in network.named_parameters() if "0.bias" not in name
    )
    if geometry == "euclidean":
        head, x = network.classifiers[0], torch.randn(1, 64, 8, 8)
        assert torch.equal(head(x), F.conv2d(x, head.weight, head.bias, padding=1))


# -- the loss ---------------------------------------------------------------------------------------------------------


def scene(objects=3, classes=2, pictures=2, seed=0):
    """Anchors, truth of which the last row of each picture is none, predictions."""
    torch.manual_seed(seed)
    anchors = TinySSD(classes, TinySSDConfig(), size=64).anchors
    corner, side = 0.6 * torch.rand(pictures, objects, 2), 0.1 + 0.3 * torch.rand(pictures, objects, 2)
    label = torch.randint(1, classes + 1, (pictures, objects, 1)).float()
    label[:, -1] = 0
    truth = torch.cat((label, corner, corner + side), -1)
    return anchors, truth, torch.randn(pictures, len(anchors), classes + 1), torch.randn(pictures, len(anchors), 4)


def by_hand(anchors, truth, logits, offsets, negatives=None):
    """One picture after another, one anchor after another."""
    totals = []
    for row in range(len(truth)):
        real = truth[row][truth[row, :, 0] > 0]
        matched = assign(anchors, real[None, :, 1:], torch.tensor([len(real)]))[0]
        by_class = torch.stack(
            [
                F.cross_entropy(logits[row, i], real[m, 0].long() if m >= 0 else torch.tensor(0))
                for i, m in enumerate(matched.tolist())
            ]
        )
        moved = [offsets[row, i] - encode(real[m, 1:], anchors[i]) for i, m in enumerate(matched.tolist()) if m >= 0]
        apart = torch.stack(moved) if moved else torch.zeros(0, 4)
        if negatives is None:
            totals.append((by_class.mean(), apart.abs().sum() / (4 * len(anchors))))
            continue
        found = matched >= 0
        count = int(found.sum())
        hardest = by_class[~found].sort(descending=True).values[: negatives * count]
        smooth = torch.where(apart.abs() < 1, apart.square() / 2, apart.abs() - 0.5)
        n = max(1, count)
        totals.append(((by_class[found].sum() + hardest.sum()) / n, smooth.sum() / n))
    return tuple(torch.stack(part).mean() for part in zip(*totals, strict=True))


@pytest.mark.parametrize("negatives", [None, 3])
def test_losses_are_those_by_hand_and_means_over_rows(negatives):
    anchors, truth, logits, offsets = scene()
    made = detection_loss(logits, offsets, anchors, truth, negatives)
    assert_close(made, by_hand(anchors, truth, logits, offsets, negatives))
    rows = [detection_loss(logits[i : i + 1], offsets[i : i + 1], anchors, truth[i : i + 1], negatives) for i in (0, 1)]
    assert_close(made, tuple(torch.stack(part).mean() for part in zip(*rows, strict=True)))


@pytest.mark.parametrize("negatives", [None, 3])
def test_a_picture_without_truth_teaches_background_and_no_box(negatives):
    anchors, truth, logits, offsets = scene(objects=1)
    classes, boxes = detection_loss(logits, offsets.requires_grad_(), anchors, truth, negatives)
    assert boxes == 0
    background = F.cross_entropy(logits.flatten(0, 1), torch.zeros(logits.shape[:2]).long().flatten())
    assert_close(classes, background if negatives is None else torch.tensor(0.0))
    (classes + boxes).backward()
    assert not offsets.grad.any()


@pytest.mark.parametrize("negatives", [None, 3])
def test_right_predictions_cost_nothing(negatives):
    anchors, truth, _, _ = scene()
    matched = assign(anchors, truth[..., 1:], (truth[..., 0] > 0).sum(1))
    rows = torch.arange(len(truth))[:, None]
    labels = torch.where(matched >= 0, truth[rows, matched, 0], 0).long()
    sure = 200.0 * F.one_hot(labels, 3)
    right = encode(torch.where((matched >= 0)[..., None], truth[rows, matched, 1:], anchors), anchors)
    assert_close(detection_loss(sure, right, anchors, truth, negatives), (torch.tensor(0.0), torch.tensor(0.0)))
    found = detections(sure[0], right[0], anchors, height=100, width=200)
    real = truth[0][truth[0, :, 0] > 0]
    assert sorted(found["labels"].tolist()) == sorted(real[:, 0].long().tolist())
    order = found["boxes"][:, 0].argsort()
    assert_close(found["boxes"][order], (real[:, 1:] * torch.tensor([200, 100, 200, 100]))[real[:, 1].argsort()])


def test_nothing_found_is_an_empty_answer():
    anchors, _, logits, offsets = scene()
    nothing = torch.tensor([200.0, 0, 0]).expand_as(logits[0])
    found = detections(nothing, offsets[0], anchors, 10, 10)
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "boxes": (0, 4),
        "scores": (0,),
        "labels": (0,),
    }
