"""Layers of pictures as the page has them, point by point: loops over patches, the manifold's own functions."""

import torch
from torch import Tensor

from horosphere.geometry import Lorentz, Manifold


def patches(x: Tensor, kernel: tuple[int, int], stride: int, padding: int, dilation: int, outside: float) -> list:
    """rows of patches, each a list of its points (k, k) -> (C,); what lies outside has this value.   (C, H, W)"""
    (_, height, width), (rows, columns) = x.shape, kernel
    starts = [
        range(-padding, side + padding - dilation * (k - 1), stride) for side, k in ((height, rows), (width, columns))
    ]

    def point(i: int, j: int) -> Tensor:
        inside = 0 <= i < height and 0 <= j < width
        return x[:, i, j] if inside else torch.full_like(x[:, 0, 0], outside)

    steps = [(i * dilation, j * dilation) for i in range(rows) for j in range(columns)]
    return [[[point(top + i, left + j) for i, j in steps] for left in starts[1]] for top in starts[0]]


def conv2d(x, weight, time_weight, bias, L: Lorentz, stride=1, padding=0, dilation=1) -> Tensor:
    """W·patch + w_t·time(patch)/√(k²C) + b of the concatenated patch, which is a point itself.   (C, H, W)"""
    kernel = tuple(weight.shape[2:])

    def one(points: list[Tensor]) -> Tensor:
        patch = torch.stack(points, 1).flatten()  # as a row of the weight lies in memory
        return weight.flatten(1) @ patch + time_weight * L.time(patch) / patch.numel() ** 0.5 + bias

    made = [[one(points) for points in row] for row in patches(x, kernel, stride, padding, dilation, 0.0)]
    return torch.stack([torch.stack(row, 1) for row in made], 1)


def average_pool(x: Tensor, m: Manifold, kernel: int, stride: int, padding: int) -> Tensor:
    """The midpoint of each window; the origin outside.   (C, H, W)"""
    made = patches(x, (kernel, kernel), stride, padding, 1, 0.0)
    return torch.stack([torch.stack([m.midpoint(torch.stack(points)) for points in row], 1) for row in made], 1)


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, m: Manifold, eps: float = 1e-5):
    """The manifold's own functions on all points; what it makes of them, centroid, variance.   (N, C)

    bias: a point.
    """
    centre = m.midpoint(x)
    v = m.lower(m.translate(x, -centre))
    variance = v.square().mean(0)
    return m.translate(m.lift(v * weight / (variance + eps).sqrt()), bias), centre, variance
