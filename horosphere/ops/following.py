"""A box followed through frames by the points in it, without learning: the tracker of Kanade, Lucas and Tomasi."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.ops.flow import track

GRID = 10  # points along each side of a box that are followed
WIDEST = 15  # pixels a side of the window around a point; a third of the box where that is less
BACK = 1.0  # pixels: who is farther from where it began, there and back again, was not followed
FEWEST = 0.1  # of the points must come back
LEVELS = 3  # of the pyramid, where the picture has room


class Followed(NamedTuple):
    """A box in one frame, and how many of its points led there. In the first frame none had to."""

    box: Tensor  # (4,) left, top, right, bottom
    began: int = 0  # points in the frame before
    came_back: int = 0  # of them
    lost: bool = False


def follow_box(frames: Iterable[Tensor], box: Tensor) -> Iterator[Followed]:
    """Where a box of the first frame is in each frame.   frames (1, 1, H, W), box (4,)

    In every frame a grid of points inside the box is tracked to the next frame, and back again. The box moves by the
    median motion of the better half of those that come back to within `BACK` pixels (Kalal et al. 2010, without its
    change of scale). It keeps its size. The first frame's is the box as given. Where fewer than `FEWEST` of the points
    come back it is lost: that frame is the last one given, with the box where it was.

    Convention: boxes are left, top, right, bottom, pixel i covering [i, i + 1).

    >>> from horosphere.data.scenes import moving_patch
    >>> frames, boxes = moving_patch(0, frames=4)
    >>> grey = (torch.from_numpy(frame).float().mean(-1)[None, None] / 255 for frame in frames)
    >>> found = torch.stack([step.box for step in follow_box(grey, torch.from_numpy(boxes[0]))])
    >>> bool((found - torch.from_numpy(boxes)).abs().max() < 0.5)
    True
    """
    before, box = None, box.double()
    for frame in frames:
        if before is None:
            yield Followed(box)
        else:
            step = _moved(before, frame, box)
            box = step.box
            yield step
            if step.lost:
                return
        before = frame


def _moved(first: Tensor, second: Tensor, box: Tensor) -> Followed:
    if first.shape != second.shape:
        raise UserError(f"frames of {_size(first)} and {_size(second)} pixels: all must have one size")
    height, width = first.shape[-2:]
    left, top, right, bottom = box.tolist()
    window = 2 * (min(WIDEST, max(3, int(min(right - left, bottom - top) / 3))) // 2) + 1
    margin = window / 2 - 0.5  # windows of the outermost points end with the box
    # pixel i covers [i, i + 1) of a box, and its centre is called i
    across = torch.linspace(left + margin, right - 1 - margin, GRID, device=first.device)
    down = torch.linspace(top + margin, bottom - 1 - margin, GRID, device=first.device)
    points = torch.cartesian_prod(across, down).to(first)
    inside = (points >= 0) & (points <= points.new_tensor([width - 1, height - 1]))
    points = points[inside.all(1)][None]
    if points.shape[1] < FEWEST * GRID**2:  # it has left the picture
        return Followed(box, points.shape[1], lost=True)
    levels = max(1, min(LEVELS, (min(height, width) // WIDEST).bit_length()))
    there, found = track(first, second, points, window, levels)
    back, found_back = track(second, first, there, window, levels)
    error = torch.linalg.vector_norm(back - points, dim=-1)
    good = found & found_back & (error < BACK)
    count = int(good.sum())
    if count < FEWEST * GRID**2:
        return Followed(box, points.shape[1], count, lost=True)
    better = good & (error <= error[good].median())
    motion = (there - points)[better].double().median(0).values
    return Followed(box + motion.repeat(2), points.shape[1], count)


def _size(frame: Tensor) -> str:
    return f"{frame.shape[-1]} x {frame.shape[-2]}"
