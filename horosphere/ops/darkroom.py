"""What can be done to one photograph, by name: each filter is a dataclass of its settings, called with pictures.

Most of it is kornia's. A filter says what its values are (`gives`), so that they can be shown:

light       brightness from 0 to 1
signed      differences of brightness, around 0
bends       second derivatives, around 0, in brightness a squared pixel
slopes      how steep it is, in brightness a pixel
edges       0 or 1
inks        cyan, magenta, yellow, black, from 0 to 1
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.ops import edges, filters
from horosphere.ops.checks import need_border, need_pictures
from horosphere.progress import progress
from horosphere.settings import Positive, Range

Gives = Literal["light", "signed", "bends", "slopes", "edges", "inks"]
Window = Annotated[int, Range(least=3, most=99)]
Levels = Annotated[int, Range(least=2, most=256)]
RATIO = 1.6  # of the two Gaussians of DoG: nearest to a Laplacian of a Gaussian (Marr and Hildreth 1980)
AT_ONCE = 1 << 24  # numbers that a median sorts at a time: 64 MB in fp32


class Filter(Protocol):
    """What is done to pictures.   (B, 1 or 3, H, W) -> (B, C, H, W)"""

    gives: ClassVar[Gives]

    def __call__(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Gaussian:
    """The mean of what is near, weighed by a Gaussian.

    >>> Gaussian(sigma=1)(torch.ones(1, 1, 9, 9)).mean().round(decimals=4)
    tensor(1.)
    """

    gives: ClassVar[Gives] = "light"
    sigma: Positive = 2.0  # pixels

    def __call__(self, x: Tensor) -> Tensor:
        return _blurred(x, self.sigma)


@dataclass(frozen=True)
class Box:
    """The mean of a square."""

    gives: ClassVar[Gives] = "light"
    size: Window = 5  # pixels a side, odd

    def __call__(self, x: Tensor) -> Tensor:
        require("kornia")
        from kornia.filters import box_blur

        _need_window(x, self.size)
        return box_blur(x, self.size)


@dataclass(frozen=True)
class Median:
    """The median of a square: dots go, edges stay."""

    gives: ClassVar[Gives] = "light"
    size: Window = 5  # pixels a side, odd

    def __call__(self, x: Tensor) -> Tensor:
        require("kornia")
        from kornia.filters import median_blur

        _need_window(x, self.size)
        margin, height = self.size // 2, x.shape[-2]
        rows = max(self.size, AT_ONCE // (x[:, :, 0].numel() * self.size**2))  # of a strip: all at once fill the memory
        parts = []
        with progress("median", height) as update:
            for top in range(0, height, rows):
                above = min(margin, top)
                strip = x[:, :, top - above : top + rows + margin]
                parts.append(median_blur(strip, self.size)[:, :, above : above + rows])
                update(min(top + rows, height), "")
        return torch.cat(parts, 2)


@dataclass(frozen=True)
class Sharpen:
    """The picture, and what it has beyond a blurred one: x + amount·(x - blurred)."""

    gives: ClassVar[Gives] = "light"
    sigma: Positive = 1.0  # pixels of the blur
    amount: Positive = 1.0  # of what is added

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.amount * (x - _blurred(x, self.sigma))


@dataclass(frozen=True)
class HighPass:
    """What the other pixels of a square do not have."""

    gives: ClassVar[Gives] = "signed"
    size: Window = 3  # pixels a side, odd

    def __call__(self, x: Tensor) -> Tensor:
        return filters.high_pass(x, self.size)


@dataclass(frozen=True)
class Laplacian:
    """The second derivative, of 3 x 3 pixels. x² + y² gives 4."""

    gives: ClassVar[Gives] = "bends"

    def __call__(self, x: Tensor) -> Tensor:
        require("kornia")
        from kornia.filters import laplacian

        _need_window(x, 3)
        return laplacian(x, 3, normalized=False) / 3  # kornia's has 1 all around and -8: three times the derivative


@dataclass(frozen=True)
class Log:
    """The Laplacian of a Gaussian: the second derivative seen at a scale."""

    gives: ClassVar[Gives] = "bends"
    sigma: Positive = 2.0  # pixels

    def __call__(self, x: Tensor) -> Tensor:
        return filters.laplacian_of_gaussian(x, self.sigma)


@dataclass(frozen=True)
class Dog:
    """The difference of two Gaussians, the wider less the narrower: nearly a Laplacian of a Gaussian."""

    gives: ClassVar[Gives] = "signed"
    sigma: Positive = 2.0  # pixels of the narrower; the other is 1.6 times as wide

    def __call__(self, x: Tensor) -> Tensor:
        return _blurred(x, RATIO * self.sigma) - _blurred(x, self.sigma)


@dataclass(frozen=True)
class Prewitt:
    """How steep it is, by differences averaged over three pixels across."""

    gives: ClassVar[Gives] = "slopes"

    def __call__(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(filters.prewitt(grey(x)), dim=2) / 2  # Prewitt's are twice the derivative


@dataclass(frozen=True)
class Sobel:
    """How steep it is, by differences averaged over three pixels across, the middle one twice.

    >>> Sobel()(torch.arange(5.0).expand(1, 1, 5, 5))[0, 0, 2, 2]
    tensor(1.)
    """

    gives: ClassVar[Gives] = "slopes"

    def __call__(self, x: Tensor) -> Tensor:
        return _slopes(grey(x))


@dataclass(frozen=True)
class Canny:
    """Thin edges: the steepest pixels across, in chains."""

    gives: ClassVar[Gives] = "edges"
    low: Positive | None = None  # Sobel's raw slope, 8 x brightness a pixel, where edges go on; none: half of high
    high: Positive | None = None  # and where they begin; none: what the steepest tenth of the pixels exceed
    sigma: Positive = 1.0  # pixels of the blur before

    def __call__(self, x: Tensor) -> Tensor:
        return edges.canny(grey(x), self.low, self.high, self.sigma)[0]


@dataclass(frozen=True)
class Bayer:
    """What a sensor with one colour a pixel sees, and the picture that is made of it again."""

    gives: ClassVar[Gives] = "light"

    def __call__(self, x: Tensor) -> Tensor:
        require("kornia")
        from kornia.color import CFA, raw_to_rgb, rgb_to_raw

        need_pictures(x, channels=3)
        height, width = x.shape[-2:]
        even = torch.nn.functional.pad(x, (0, width % 2, 0, height % 2), mode="replicate")
        return raw_to_rgb(rgb_to_raw(even, CFA.BG), CFA.BG)[..., :height, :width]


@dataclass(frozen=True)
class Cmyk:
    """The four plates of a printer."""

    gives: ClassVar[Gives] = "inks"

    def __call__(self, x: Tensor) -> Tensor:
        return filters.cmyk(x)


@dataclass(frozen=True)
class Quantise:
    """Only so many levels of each channel. The error is half a step at most.

    >>> Quantise(levels=3)(torch.tensor([0.0, 0.2, 0.3, 1.0]))
    tensor([0.0000, 0.0000, 0.5000, 1.0000])
    """

    gives: ClassVar[Gives] = "light"
    levels: Levels = 8  # of each channel

    def __call__(self, x: Tensor) -> Tensor:
        return (x * (self.levels - 1)).round() / (self.levels - 1)


def grey(x: Tensor) -> Tensor:
    """Brightness of colours, 0.299 r + 0.587 g + 0.114 b; grey stays as it is.   (B, 1 or 3, H, W) -> (B, 1, H, W)

    >>> grey(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)).item()
    0.29899999499320984
    """
    if x.shape[1] == 1:
        return x
    need_pictures(x, channels=3)
    return (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)


def mean_slope(x: Tensor) -> float:
    """How steep pictures are in the mean, in brightness a pixel, by Sobel's slopes.   (B, C, H, W) -> a number

    >>> mean_slope(torch.full((1, 1, 8, 8), 0.5))
    0.0
    """
    return float(_slopes(x).mean())


def _slopes(x: Tensor) -> Tensor:
    require("kornia")
    from kornia.filters import spatial_gradient

    need_pictures(x)
    return torch.linalg.vector_norm(spatial_gradient(x), dim=2)


def _blurred(x: Tensor, sigma: float) -> Tensor:
    require("kornia")
    from kornia.filters import gaussian_blur2d

    need_pictures(x)
    reach = max(1, round(3 * sigma))
    need_border(x, "reflect", reach)
    return gaussian_blur2d(x, (2 * reach + 1,) * 2, (sigma, sigma))


def _need_window(x: Tensor, size: int) -> None:
    need_pictures(x)
    if size % 2 == 0:
        raise UserError(f"size={size}: a window needs a centre, so give an odd number, such as {size + 1}")
    need_border(x, "reflect", size // 2)
