"""SiamFC (Bertinetto et al. 2016): one network looks at a template and at a larger picture, and a cross-correlation of
what it saw says where the template lies.

It is called a correlation filter in textbooks, and is neither MOSSE nor KCF: nothing is learned while it tracks.
No layer is padded, and a norm comes after every convolution. Without padding a place of the
answer means the same shift everywhere, and the network cannot learn places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import normalise
from horosphere.data.tracks import cropped, middle, require_inside
from horosphere.errors import UserError
from horosphere.ops.correlation import correlated, normalised_correlation
from horosphere.settings import Amount, Size, check

KERNELS = (5, 3, 3, 3)  # of the convolutions
STRIDE = 2  # of the first of them; a step of the map in pixels of a crop
SEES = KERNELS[0] + STRIDE * sum(kernel - 1 for kernel in KERNELS[1:])  # pixels a side that a place of a map sees
# what the answers begin with: a template over itself correlates by about 1, over something else by about 0
GAIN, BIAS = 8.0, -3.0


@dataclass(frozen=True)
class SiamFCConfig:
    template: Size = 32  # pixels a side of what is looked for
    search: Size = 80  # pixels a side of where it is looked for, at the same scale
    context: Amount = 0.0  # of the template beyond the box, as a share of its width and height; the paper has 0.5
    width: Size = 32  # channels of the first two convolutions; the last two have twice as many

    def __post_init__(self) -> None:
        check(self)
        if self.template < SEES:
            raise UserError(f"template={self.template}: the network sees {SEES} pixels at once; give at least as many")
        room = self.search - self.template
        if room < 2 * STRIDE or room % (2 * STRIDE):
            how = f"their difference must be a multiple of {2 * STRIDE}, and not 0"
            raise UserError(f"template={self.template} search={self.search}: {how}")

    def sides(self, box: np.ndarray) -> tuple[float, float]:
        """Sides of the squares around a box that become template and search, in pixels of the frame.   (4,)

        √((w + p)(h + p)) with p = context·(w + h), as in the paper.
        """
        width, height = (float(side) for side in box[2:] - box[:2])
        margin = self.context * (width + height)
        side = ((width + margin) * (height + margin)) ** 0.5
        return side, side * self.search / self.template


class Matcher(Protocol):
    """What says where a template lies in a larger picture."""

    config: SiamFCConfig
    stride: int  # pixels of a crop between two places of the answer

    def __call__(self, template: Tensor, search: Tensor) -> Tensor:
        """(B, 3, t, t), (B, 3, s, s) uint8 -> (B, n, n), largest where the template lies"""
        ...


class SiamFC(nn.Module):
    """gain · (φ(search) ⋆ φ(template)) / numel + bias: log odds of the template at each shift.

    (B, 3, t, t), (B, 3, s, s) uint8 -> (B, n, n) with n = (s - t)/stride + 1

    >>> SiamFC()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.zeros(2, 3, 80, 80, dtype=torch.uint8)).shape
    torch.Size([2, 25, 25])
    """

    stride = STRIDE

    def __init__(self, config: SiamFCConfig | None = None):
        super().__init__()
        self.config = config or SiamFCConfig()
        narrow, wide = self.config.width, 2 * self.config.width
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise((3, narrow, narrow, wide, wide))):
            conv = nn.Conv2d(before, after, KERNELS[number], STRIDE if number == 0 else 1, bias=False)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(after), nn.ReLU()]
        self.embed = nn.Sequential(*layers[:-1])  # signs at its end: what differs speaks against
        self.gain, self.bias = nn.Parameter(torch.full((1,), GAIN)), nn.Parameter(torch.full((1,), BIAS))

    def forward(self, template: Tensor, search: Tensor) -> Tensor:
        wanted = self.embed(normalise(template))
        return self.gain * correlated(self.embed(normalise(search)), wanted / wanted[0].numel()) + self.bias


class PixelMatcher:
    """Normalised cross-correlation of pixels: what is had without learning."""

    stride = 1

    def __init__(self, config: SiamFCConfig):
        self.config = config

    def __call__(self, template: Tensor, search: Tensor) -> Tensor:
        return normalised_correlation(normalise(search), normalise(template))


# -- learning ---------------------------------------------------------------------------------------------------------


def signs(shifts: Tensor, config: SiamFCConfig, radius: float) -> Tensor:
    """+1 where an answer is at most `radius` from the true shift, -1 elsewhere.   (B, 2) as (x, y) -> (B, n, n)

    Convention: shifts are from the middle of the search to the middle of what is looked for, in pixels of crops.

    >>> signs(torch.tensor([[2.0, 0.0]]), SiamFCConfig(template=32, search=40), radius=1.0)
    tensor([[[-1., -1., -1., -1., -1.],
             [-1., -1., -1., -1., -1.],
             [-1., -1., -1.,  1., -1.],
             [-1., -1., -1., -1., -1.],
             [-1., -1., -1., -1., -1.]]])
    """
    reach = (config.search - config.template) // 2
    places = torch.arange(-reach, reach + 1, STRIDE, device=shifts.device, dtype=shifts.dtype)
    x, y = (places - shift[:, None] for shift in shifts.unbind(1))
    return torch.where(x[:, None, :].square() + y[:, :, None].square() <= radius**2, 1.0, -1.0)


def balanced_loss(logits: Tensor, signs: Tensor) -> Tensor:
    """Mean over rows of the logistic loss log(1 + e^(-y v)), the places of each sign weighing a half together.

    (B, n, n), (B, n, n) -> ()

    >>> balanced_loss(torch.zeros(1, 2, 2), torch.tensor([[[1.0, -1.0], [-1.0, -1.0]]]))
    tensor(0.6931)
    """
    loss, positive = F.softplus(-signs * logits), signs > 0
    halves = [(loss * part).sum((1, 2)) / part.sum((1, 2)).clamp(min=1) for part in (positive, ~positive)]
    return (0.5 * (halves[0] + halves[1])).mean()


def peak(answers: Tensor, stride: int) -> Tensor:
    """The shift of the largest answer from the middle, in pixels.   (B, n, n) -> (B, 2) as (x, y)

    Between places answers are interpolated, bicubically, pixel by pixel.

    >>> peak(torch.eye(3)[None, :, [1, 0, 2]] * torch.tensor([1.0, 0.0, 0.0])[:, None], stride=2)
    tensor([[ 0., -2.]])
    """
    side = (answers.shape[-1] - 1) * stride + 1
    fine = F.interpolate(answers[:, None], (side, side), mode="bicubic", align_corners=True)[:, 0]
    place = fine.flatten(1).argmax(1)
    return torch.stack([place % side, place // side], 1).to(answers.dtype) - (side - 1) / 2


# -- tracking ---------------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What is looked for, and how large the squares around it are in the frame."""

    template: Tensor  # (3, t, t) uint8
    sides: tuple[float, float]  # of template and search


def look_at(frame: np.ndarray, box: np.ndarray, config: SiamFCConfig) -> Look:
    """(H, W, 3) uint8, (4,)"""
    sides = config.sides(box)
    return Look(cropped(frame, middle(box), sides[0], config.template), sides)


def search_around(frame: np.ndarray, centre: np.ndarray, look: Look, config: SiamFCConfig) -> Tensor:
    """Where to look for it, around a point.   (H, W, 3) uint8, (2,) -> (3, s, s) uint8"""
    return cropped(frame, centre, look.sides[1], config.search)


@torch.no_grad()
def track_box(network: Matcher, frames: Iterable[np.ndarray], box: np.ndarray) -> np.ndarray:
    """Where the thing in a box of the first frame is in all of them.   (T, H, W, 3) uint8, (4,) -> (T, 4)

    The template is the first frame's and stays so. Each frame is searched around the last place. The box keeps its
    size: other scales, which the paper tries as well, are not tried.
    Convention: left, top, right, bottom, pixel i covering [i, i + 1). Frames may be read one by one.

    >>> from horosphere.data.scenes import moving_patch
    >>> frames, boxes = moving_patch(0, frames=4)
    >>> found = track_box(PixelMatcher(SiamFCConfig()), frames, boxes[0])
    >>> bool(abs(found - boxes).max() < 1)
    True
    """
    return np.stack(list(_followed(network, frames, np.asarray(box, dtype=np.float64))))


def _followed(network: Matcher, frames: Iterable[np.ndarray], box: np.ndarray) -> Iterator[np.ndarray]:
    config, look, centre, device = network.config, None, middle(box), _device(network)
    for frame in frames:
        if look is None:
            require_inside(box, frame.shape[0], frame.shape[1], "the first frame")
            look = look_at(frame, box, config)
            yield box
            continue
        search = search_around(frame, centre, look, config)
        answers = network(look.template[None].to(device), search[None].to(device))
        height, width = frame.shape[:2]
        scale = look.sides[0] / config.template
        moved = centre + scale * peak(answers, network.stride)[0].cpu().numpy()
        centre = moved.clip(0, (width, height))  # what leaves the picture is waited for at its edge
        yield np.concatenate([centre, centre]) + box - np.tile(middle(box), 2)
    if look is None:
        raise UserError("no frames to track a box in; give at least one")


def _device(network: Matcher) -> torch.device:
    return next(network.parameters()).device if isinstance(network, nn.Module) else torch.device("cpu")
