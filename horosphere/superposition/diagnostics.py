"""What a trained W looks like: how many features it represents, and how much they overlap. Rows of W (n, m) are features."""

import math

import torch
from torch import Tensor

PAIRS_AT_ONCE = 2**25  # overlaps in memory while their variance is taken


def represented(W: Tensor, length: float = 0.5) -> float:
    """φ: the share of rows with a norm above `length`. 1/2 tells represented features from ignored ones."""
    return (torch.linalg.vector_norm(W, dim=-1) > length).double().mean().item()


def dead_fraction(W: Tensor, b: Tensor) -> float:
    """Features that stay silent when they are alone and as strong as they get: 2|W_i|² + b_i <= 0."""
    return (2 * W.square().sum(-1) + b <= 0).double().mean().item()


def overlaps(W: Tensor, rows: Tensor | None = None) -> tuple[float, float]:
    """Mean and variance of (Ŵ_i·Ŵ_j)² over pairs i ≠ j; rows: a mask (n,) or indices of those that count. Zero rows have no direction: left out.

    The mean is (|ŴᵀŴ|² - ν)/(ν(ν - 1)), O(ν m²) and no ν x ν matrix. The variance needs fourth powers, block by block. NaN for fewer than two rows.
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
        block[:, start : start + size].fill_diagonal_(
            0
        )  # a row with itself: one up to rounding, which would drown small variances
        fourth += block.square_().square_().sum(dtype=torch.float64).item()
    return mean, max(fourth / pairs - mean**2, 0.0)  # where all overlaps are equal only rounding is left


def welch(nu: int, m: int) -> float:
    """The least mean square overlap that ν unit vectors in m dimensions can have, (ν - m)/(m(ν - 1)); zero where they fit."""
    return (nu - m) / (m * (nu - 1)) if nu > m else 0.0


def random_overlap(m: int) -> tuple[float, float]:
    """Mean and variance of the squared overlap of two random directions: 1/m, 2(m - 1)/(m²(m + 2))."""
    return 1 / m, 2 * (m - 1) / (m**2 * (m + 2))
