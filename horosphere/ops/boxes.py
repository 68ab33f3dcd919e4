"""Boxes that a detector starts from, and which of them answers for which object.

What torchvision has is not written again: `box_iou`, `batched_nms`, `roi_pool`. `tests/ops/test_boxes.py` pins their
conventions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from horosphere.errors import UserError

TAKEN = -1.0  # below every IoU: a pair that nobody may choose (again)


def anchors(
    height: int,
    width: int,
    sizes: Sequence[float],
    ratios: Sequence[float],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Boxes around the centre of every cell of a map, row by row.   -> (height·width·(n + m - 1), 4)

    Size s and ratio r give width s√r·height/width and height s/√r, around ((j + ½)/width, (i + ½)/height).
    A cell has the n sizes with the first ratio, then the first size with the other m - 1 ratios.

    Convention: left, top, right, bottom in shares of the picture, not in pixels; they may reach beyond it. A ratio is
    the width over the height in pixels, where cells are square. torchvision's `AnchorGenerator` has all n·m pairs in
    pixels, and its ratio is the height over the width.

    >>> anchors(1, 1, sizes=[0.5, 0.25], ratios=[1])
    tensor([[0.2500, 0.2500, 0.7500, 0.7500],
            [0.3750, 0.3750, 0.6250, 0.6250]])
    >>> anchors(561, 728, [0.75, 0.5, 0.25], [1, 2, 0.5]).shape
    torch.Size([2042040, 4])
    """
    if not sizes or not ratios or min(*sizes, *ratios) <= 0:
        raise UserError(f"sizes={list(sizes)}, ratios={list(ratios)}: give one of each at least, all above 0")
    shapes = [(size, ratios[0]) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    half = [(size * ratio**0.5 * height / width / 2, size / ratio**0.5 / 2) for size, ratio in shapes]
    reach = torch.tensor([(-x, -y, x, y) for x, y in half], device=device, dtype=dtype)  # (n + m - 1, 4)
    y, x = ((torch.arange(n, device=device, dtype=reach.dtype) + 0.5) / n for n in (height, width))
    y, x = torch.meshgrid(y, x, indexing="ij")
    centres = torch.stack([x, y, x, y], -1).reshape(-1, 1, 4)
    return (centres + reach).reshape(-1, 4)


def assign(anchors: Tensor, boxes: Tensor, counts: Tensor, threshold: float = 0.5) -> Tensor:
    """Which object each anchor has to find, -1 for none.   (N, 4), (B, M, 4), (B,) -> (B, N) int64

    First the pair with the largest IoU of all, then the largest among the other anchors and objects, until each object
    has an anchor. Then each anchor left takes the object it has most in common with, if that is `threshold` at least.

    boxes: of picture b the first counts[b] are objects, the rest fills up. Of equals the first object is taken, and for
    it the first anchor. There is a loop over objects, none over anchors or pictures, and nothing waits for a GPU.

    >>> whole, left = [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0]
    >>> assign(torch.tensor([whole, left]), torch.tensor([[left, whole], [left, left]]), torch.tensor([1, 0]))
    tensor([[ 0,  0],
            [-1, -1]])
    """
    (pictures, objects), number = boxes.shape[:2], len(anchors)
    if objects == 0 or number == 0:
        return torch.full((pictures, number), -1, dtype=torch.int64, device=anchors.device)
    real = torch.arange(objects, device=counts.device) < counts[:, None]
    free = _overlaps(boxes, anchors).masked_fill_(~real[..., None], TAKEN)
    most, nearest = free.max(1)
    answer = nearest.where(most >= threshold, -1)
    for _ in range(objects):
        row = free.amax(2).argmax(1)[:, None]  # an argmax over objects and anchors would take far longer on a CPU
        largest, column = free.take_along_dim(row[..., None], 1)[:, 0].max(1, keepdim=True)
        answer.scatter_(1, column, row.where(largest > TAKEN, answer.gather(1, column)))
        # scatters of a number, because an assignment to places would wait for a GPU to copy it there
        free.scatter_(1, row[..., None].expand(-1, 1, number), TAKEN)
        free.scatter_(2, column[..., None].expand(-1, objects, 1), TAKEN)
    return answer


def _overlaps(boxes: Tensor, anchors: Tensor) -> Tensor:
    """torchvision's `box_iou` to the last bit, for a batch.   (B, M, 4), (N, 4) -> (B, M, N)

    It goes coordinate by coordinate and in place, where torchvision's has pairs of them and a new tensor for each step:
    five times as fast on a CPU, which mostly waits for new memory.
    """
    left, top, right, bottom = boxes[..., None].unbind(-2)
    a, b, c, d = anchors.T.contiguous()
    shared = torch.minimum(right, c).sub_(torch.maximum(left, a)).clamp_(min=0)
    shared *= torch.minimum(bottom, d).sub_(torch.maximum(top, b)).clamp_(min=0)
    return shared.div_(((right - left) * (bottom - top) + (c - a) * (d - b)).sub_(shared))


# -- offsets ----------------------------------------------------------------------------------------------------------

STEADY = (0.1, 0.1, 0.2, 0.2)  # what offsets are divided by: about their spread, so that they are about 1
LARGEST = math.log(1000 / 16)  # log of how many times as large as its anchor a box may be, as in torchvision


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Offsets of boxes from anchors.   (..., 4), (..., 4) -> (..., 4)

    ((x_b - x_a)/w_a)/0.1, ((y_b - y_a)/h_a)/0.1, log(w_b/w_a)/0.2, log(h_b/h_a)/0.2 of centres and sides.
    Convention: torchvision's `BoxCoder((10, 10, 5, 5))`, which copies its weights from the host in every call.

    >>> encode(torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[0.0, 0.0, 2.0, 1.0]]))
    tensor([[0.0000, 5.0000, 0.0000, 3.4657]])
    """
    (x, y, w, h), (to_x, to_y, to_w, to_h) = _centred(anchors), _centred(boxes)
    offsets = (to_x - x) / w, (to_y - y) / h, (to_w / w).log(), (to_h / h).log()
    return torch.stack([offset / spread for offset, spread in zip(offsets, STEADY, strict=True)], -1)


def decode(offsets: Tensor, anchors: Tensor) -> Tensor:
    """Boxes with these offsets from anchors: the inverse of `encode`.   (..., 4), (..., 4) -> (..., 4)

    A box is at most 62.5 times as large as its anchor, so that no exponential overflows.

    >>> decode(torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 2.0, 1.0]]))
    tensor([[0., 0., 2., 1.]])
    """
    x, y, w, h = _centred(anchors)
    by_x, by_y, by_w, by_h = (part * spread for part, spread in zip(offsets.unbind(-1), STEADY, strict=True))
    x, y = x + by_x * w, y + by_y * h
    half_w, half_h = w * by_w.clamp(max=LARGEST).exp() / 2, h * by_h.clamp(max=LARGEST).exp() / 2
    return torch.stack((x - half_w, y - half_h, x + half_w, y + half_h), -1)


def _centred(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x and y of the centre, width, height."""
    left, top, right, bottom = boxes.unbind(-1)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
