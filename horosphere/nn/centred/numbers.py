"""What the passes tell each other: a few numbers of every point, and of every coordinate."""

from typing import NamedTuple

from torch import Tensor

Pair = tuple[Tensor, Tensor]


class Seen(NamedTuple):
    """Numbers of points, as seen from the centroid."""

    time: Tensor
    along: Tensor  # μ·x
    k: Tensor
    distance2: Tensor  # |y|²
    s: Tensor


class Lifted(NamedTuple):
    """Numbers of points on the way back."""

    q: Tensor
    length: Tensor  # l
    rise: Tensor  # cosh(√q) - 1
    along: Tensor  # β·w


class Channels(NamedTuple):
    """Numbers of coordinates. In the gradient of v, v itself counts `shift` times, by way of the variance."""

    mean: Tensor  # μ
    scale: Tensor  # γ/√(var + ε)
    bias: Tensor  # β
    shift: Tensor
