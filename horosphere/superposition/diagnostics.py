"""What a trained W (n, m) looks like: how many features, its rows, it represents, and how much they overlap."""

import math

import torch
from torch import Tensor

PAIRS_AT_ONCE = 2**25  # overlaps in memory while their variance is taken


def represented(W: Tensor, length: float = 0.5) -> float:
    """φ: the share of rows with a norm above `length`. 1/2 tells represented features from ignored ones.

    >>> represented(torch.tensor([[1.0, 0.0], [0.0, 0.9], [0.1, 0.0], [0.0, 0.0]]))
    0.5
    """
    return (torch.linalg.vector_norm(W, dim=-1) > length).double().mean().item()


def dead_fraction(W: Tensor, b: Tensor) -> float:
    """The share of features that stay silent when they are alone and as strong as they get: 2|W_i|² + b_i <= 0.

    >>> dead_fraction(torch.eye(2), torch.tensor([0.0, -3.0]))
    0.5
    """
    return (2 * W.square().sum(-1) + b <= 0).double().mean().item()


def overlaps(W: Tensor, rows: Tensor | None = None) -> tuple[float, float]:
    """Mean and variance of (Ŵ_i·Ŵ_j)² over pairs i ≠ j of the ν rows that are not zero. NaN for fewer than two.

    rows: a mask (n,) or indices of the rows that count. The mean is (|ŴᵀŴ|² - ν)/(ν(ν - 1)), O(ν m²) without a ν x ν
    matrix. The variance needs fourth powers, taken block by block.

    >>> mean, variance = overlaps(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -1.0]]))
    >>> round(mean, 3), round(variance, 3)
    (0.333, 0.222)
    """
    W = W if rows is None else W[rows]
    norms = torch.linalg.vector_norm(W.double(), dim=-1, keepdim=True)
    W = (W.double() / norms)[norms.squeeze(-1) > 0]
    nu = len(W)
    if nu < 2:
        return math.nan, math.nan
    pairs = nu * (nu - 1)
    mean = ((W.T @ W).square().sum().item() - nu) / pairs
    W, fourth, size = W.float(), 0.0, max(1, PAIRS_AT_ONCE // nu)
    for start in range(0, nu, size):
        block = W[start : start + size] @ W.T
        block[:, start : start + size].fill_diagonal_(0)  # ones up to rounding, which would drown small variances
        fourth += block.square_().square_().sum(dtype=torch.float64).item()
    return mean, max(fourth / pairs - mean**2, 0.0)  # where all overlaps are equal only rounding is left


def welch(nu: int, m: int) -> float:
    """The least mean square overlap of ν unit vectors in m dimensions: (ν - m)/(m(ν - 1)), or 0 where they fit.

    >>> welch(3, 2), welch(2, 2)
    (0.25, 0.0)
    """
    return (nu - m) / (m * (nu - 1)) if nu > m else 0.0


def random_overlap(m: int) -> tuple[float, float]:
    """Mean and variance of the squared overlap of two random directions: 1/m, 2(m - 1)/(m²(m + 2)).

    >>> random_overlap(2)
    (0.5, 0.125)
    """
    return 1 / m, 2 * (m - 1) / (m**2 * (m + 2))
