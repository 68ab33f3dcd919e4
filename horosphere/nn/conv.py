"""Convolutions and pools of points. Points lie along the channels: (B, C, T), (B, C, H, W)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold
from horosphere.geometry.manifold import full_precision
from horosphere.nn.axes import free_along, one_geometry, point_along, require_width, sq_along, through
from horosphere.nn.first_call import settle
from horosphere.nn.linear import TABLE, scores_of

# -- convolutions ------------------------------------------------------------------------------------------------------


class _Conv(nn.modules.conv._ConvNd):
    """`Linear` of the concatenated patch: conv(u, W, b) + w_t·√(1/c + Σ_patch|u|²)/√(kᴺC), read off as a point.

    Zero padding is the origin, because only free coordinates are stored.
    """

    manifold: Manifold
    time_weight: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        manifold: Manifold,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        bias: bool = True,
    ):
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "bias": bias}
        super().__init__(in_channels, out_channels, kernel_size, **options)  # type: ignore[arg-type]
        self.channels = -1 - len(self.kernel_size)  # the axis of the channels, in a batch or not
        self.manifold = settle(self, one_geometry(manifold, type(self).__name__), dim=self.channels)
        self.time_weight = None
        if manifold.ambient_extra:  # zero at first, as in `Linear`
            self.time_weight = nn.Parameter(self.weight.new_zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if getattr(self, "time_weight", None) is not None:  # torch's __init__ calls this before there is one
            nn.init.zeros_(self.time_weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.in_channels, self, self.channels)
        u = free_along(x, self.manifold, self.channels)
        y: Tensor = self._conv_forward(u, self.weight, self.bias)
        if self.time_weight is not None:
            columns = self.time_weight.view(-1, *(1 for _ in self.kernel_size)).to(y.dtype)
            y = torch.addcmul(y, columns, self._time(u, self.manifold.c).to(y.dtype))
        return point_along(y, self.manifold, self.channels)

    @full_precision
    def _time(self, u: Tensor, c: float | Tensor) -> Tensor:
        """√(1/c + Σ_patch|u|²)/√(kᴺC) of each patch.   (B, C, …) -> (B, 1, …)"""
        # /√(kᴺC): as in `Linear`, where the time of a normalised point is about √d
        return patch_times(u, c, self) / math.sqrt(self.in_channels * math.prod(self.kernel_size))


def patch_times(u: Tensor, c: float | Tensor, conv: nn.modules.conv._ConvNd) -> Tensor:
    """√(1/c + Σ_patch|u|²): the time of each patch that a convolution reads, as one point.   (B, C, …) -> (B, 1, …)

    >>> patch_times(torch.ones(1, 3, 2, 2), 1.0, nn.Conv2d(3, 1, 2)).squeeze()  # √(1 + 12)
    tensor(3.6056)
    """
    channels = -1 - len(conv.kernel_size)
    squares = F.pad(sq_along(u, channels), conv._reversed_padding_repeated_twice)
    sizes = zip(conv.kernel_size, conv.stride, conv.dilation, strict=True)
    for axis, (kernel, stride, dilation) in enumerate(sizes, channels + 1):
        # one axis after the other: a box of k·k squares is 2k additions, in the dtype of u
        squares = squares.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation].sum(-1)
    return (1 / c + squares).sqrt()


class Conv1d(_Conv, nn.Conv1d):
    """Convolution of a sequence of points; torch's in flat space.   (B, C, T) -> (B, C', T')

    conv(u, W, b) + w_t·√(1/c + Σ_patch|u|²)/√(kC), w_t = 0 at first. Zero padding is the origin.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.randn(2, 3, 8), Conv1d(3, 5, 3, Euclidean(), padding=1)
    >>> torch.equal(flat(x), F.conv1d(x, flat.weight, flat.bias, padding=1))
    True
    >>> Conv1d(3, 5, 3, Lorentz())(x).shape
    torch.Size([2, 5, 6])
    """


class Conv2d(_Conv, nn.Conv2d):
    """Convolution of a picture of points; torch's in flat space.   (B, C, H, W) -> (B, C', H', W')

    conv(u, W, b) + w_t·√(1/c + Σ_patch|u|²)/√(k²C), w_t = 0 at first. Zero padding is the origin.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.randn(2, 3, 8, 8), Conv2d(3, 5, 3, Euclidean(), stride=2)
    >>> torch.equal(flat(x), F.conv2d(x, flat.weight, flat.bias, stride=2))
    True
    >>> Conv2d(3, 5, 3, Lorentz(), stride=2)(x).shape
    torch.Size([2, 5, 3, 3])
    """


class ConvClassifier(nn.Conv2d):
    """Logits of every place of a picture of points; torch's convolution in flat space.   (B, C, H, W) -> (B, K, H', W')

    The points of a patch, side by side, are one point. Logits are |w| times its signed distances to hyperplanes, as in
    `Classifier`. Zero padding is the origin.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.randn(2, 3, 8, 8), ConvClassifier(3, 5, 3, Euclidean(), padding=1)
    >>> torch.equal(flat(x), F.conv2d(x, flat.weight, flat.bias, padding=1))
    True
    >>> ConvClassifier(3, 5, 3, Lorentz(), padding=1)(x).shape
    torch.Size([2, 5, 8, 8])
    """

    def __init__(self, in_channels: int, classes: int, kernel_size: int, manifold: Manifold, padding: int = 0):
        super().__init__(in_channels, classes, kernel_size, padding=padding)
        self.manifold = settle(self, one_geometry(manifold, "ConvClassifier"), makes=Euclidean(), dim=-3)

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.in_channels, self, -3)
        if self.manifold.flat:
            return super().forward(x)
        u = free_along(x, self.manifold, -3)
        return self._logits(u, self.weight.flatten(1), self.bias, self.manifold.c)

    @full_precision
    def _logits(self, u: Tensor, planes: Tensor, bias: Tensor | None, c: float | Tensor) -> Tensor:
        def convolved(u: Tensor, planes: Tensor, bias: Tensor | None = None) -> Tensor:
            return self._conv_forward(u, planes.view_as(self.weight), bias)

        form = TABLE._replace(linear=convolved, of_planes=lambda number: number.view(-1, 1, 1))
        return scores_of(u, patch_times(u, c, self), planes, bias, c, form)


# -- pools -------------------------------------------------------------------------------------------------------------


class MaxPool1d(nn.MaxPool1d):
    """The largest of each free coordinate; torch's in flat space.   (B, C, T) -> (B, C, T')

    A maximum has the meaning of coordinates only: it moves with the origin.

    >>> from horosphere.geometry import Lorentz
    >>> MaxPool1d(2, Lorentz())(torch.tensor([[[1.0, 3.0, 2.0, 0.0]]]))
    tensor([[[3., 2.]]])
    """

    def __init__(self, kernel_size: int, manifold: Manifold, stride: int | None = None, padding: int = 0):
        super().__init__(kernel_size, stride, padding)
        self.manifold = settle(self, manifold, dim=-2)

    def forward(self, x: Tensor) -> Tensor:
        return through(super().forward, x, self.manifold, -2)


class MaxPool2d(nn.MaxPool2d):
    """The largest of each free coordinate; torch's in flat space.   (B, C, H, W) -> (B, C, H', W')

    >>> from horosphere.geometry import Lorentz
    >>> MaxPool2d(2, Lorentz())(torch.tensor([[[[1.0, 3.0], [2.0, 0.0]]]]))
    tensor([[[[3.]]]])
    """

    def __init__(self, kernel_size: int, manifold: Manifold, stride: int | None = None, padding: int = 0):
        super().__init__(kernel_size, stride, padding)
        self.manifold = settle(self, manifold, dim=-3)

    def forward(self, x: Tensor) -> Tensor:
        return through(super().forward, x, self.manifold, -3)


class AvgPool2d(nn.AvgPool2d):
    """Centroid of the points in each window; torch's average in flat space.   (B, C, H, W) -> (B, C, H', W')

    z/√(-c<z, z>) of the mean z = (pool(u), pool(time)). Padding is the origin and counts, as torch's zeros do.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> x = L.exp0(torch.tensor([[2.0], [0.0]])).mT.view(1, 1, 1, 2)
    >>> L.dist0(AvgPool2d((1, 2), L)(x).flatten()).round(decimals=3)  # half the way
    tensor(1.)
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        manifold: Manifold,
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ):
        super().__init__(kernel_size, stride, padding)
        self.manifold = settle(self, one_geometry(manifold, "AvgPool2d"), dim=-3)

    def forward(self, x: Tensor) -> Tensor:
        if self.manifold.flat:
            return super().forward(x)
        u = free_along(x, self.manifold, -3)
        return point_along(self._centroids(u, self.manifold.c), self.manifold, -3)

    @full_precision
    def _centroids(self, u: Tensor, c: float | Tensor) -> Tensor:
        return to_centroid(super().forward(u), super().forward(rise(u, c, -3)), c, -3)


class GlobalAvgPool2d(nn.Module):
    """Centroid of all points of a picture; their mean in flat space.   (B, C, H, W) -> (B, C)

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x = torch.randn(2, 3, 4, 4)
    >>> torch.equal(GlobalAvgPool2d(Euclidean())(x), F.adaptive_avg_pool2d(x, 1).flatten(1))
    True
    >>> L = Lorentz()
    >>> torch.allclose(GlobalAvgPool2d(L)(x), L.midpoint(x.flatten(2).mT))
    True
    """

    output_size = 1  # as torch's AdaptiveAvgPool2d(1) has it

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, one_geometry(manifold, "GlobalAvgPool2d"), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        if self.manifold.flat:
            return F.adaptive_avg_pool2d(x, 1).flatten(1)
        u = free_along(x, self.manifold, 1)
        return self.manifold.point(self._centroid(u, self.manifold.c))

    @full_precision
    def _centroid(self, u: Tensor, c: float | Tensor) -> Tensor:
        return to_centroid(u.mean((2, 3)), rise(u, c, 1).mean((2, 3)), c, 1)


class MaxOverTime(nn.Module):
    """The largest of each free coordinate over a sequence; steps past its length do not count.   (B, C, T) -> (B, C)

    lengths: (B,) whole numbers from 1 to T; none: all of them.

    >>> from horosphere.geometry import Lorentz
    >>> x = torch.tensor([[[1.0, 2.0, 9.0]]])
    >>> MaxOverTime(Lorentz())(x, torch.tensor([2]))
    tensor([[2.]])
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, manifold, dim=1)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        u = free_along(x, self.manifold, 1)
        if lengths is not None:
            past = torch.arange(x.shape[-1], device=x.device) >= lengths.clamp_min(1).view(-1, 1, 1)
            u = u.masked_fill(past, -torch.inf)  # clamped: a row of -∞ would be no point
        return self.manifold.point(u.max(-1).values)


# -- points side by side -----------------------------------------------------------------------------------------------


class Flatten(nn.Flatten):
    """All points of a picture as one point: their free coordinates side by side.   (B, C, H, W) -> (B, C·H·W)

    >>> from horosphere.geometry import Lorentz
    >>> Flatten(Lorentz())(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, one_geometry(manifold, "Flatten"), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.point(super().forward(free_along(x, self.manifold, 1)))


def concat(points: Sequence[Tensor], manifold: Manifold, dim: int = -1) -> Tensor:
    """P([u₁, u₂, …]): free coordinates side by side along `dim`, the time follows; torch.cat in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> x, y = torch.ones(2, 3), torch.zeros(2, 4)
    >>> concat((x, y), Lorentz()).shape
    torch.Size([2, 7])
    """
    manifold = one_geometry(manifold, "concat")
    return point_along(torch.cat([free_along(x, manifold, dim) for x in points], dim), manifold, dim)


# -- centroids ---------------------------------------------------------------------------------------------------------


def rise(u: Tensor, c: float | Tensor, dim: int) -> Tensor:
    """time - 1/√c = |u|²/(time + 1/√c), which does not cancel. 0 at the origin, and so in zero padding."""
    squares = sq_along(u, dim)
    return squares / ((1 / c + squares).sqrt() + c**-0.5)


def to_centroid(mean: Tensor, mean_rise: Tensor, c: float | Tensor, dim: int) -> Tensor:
    """z/√(-c<z, z>) of a mean of points with weights that sum to 1, by its free coordinates and its `rise`.

    -c<z, z> = 1 + 2√c·rise + c(rise² - |z|²) >= 1: the floor under a difference that cancels, as in `midpoint`.
    """
    above = 2 * c**0.5 * mean_rise + c * (mean_rise.square() - sq_along(mean, dim))
    return mean * (1 + above.clamp_min(0)).rsqrt()
