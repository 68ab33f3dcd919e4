"""How far from the origin points lie. In a good embedding general things are near and specific ones far."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure.ranks import rank_correlation


@dataclass(frozen=True)
class Radius:
    """Distances from the origin, summed up."""

    mean: float
    std: float
    min: float
    median: float
    max: float

    def rows(self) -> list[list[str]]:
        """For a table."""
        return [[name, f"{value:.3f}"] for name, value in asdict(self).items()]


def radius(points: Tensor, manifold: Manifold) -> Radius:
    """Distances from the origin, d(0, x).   (N, d) -> Radius

    >>> from horosphere.geometry import Euclidean
    >>> radius(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), Euclidean())
    Radius(mean=3.0, std=2.0, min=1.0, median=3.0, max=5.0)
    """
    r = _radii(points, manifold)
    return Radius(
        mean=float(r.mean()), std=float(r.std()), min=float(r.min()), median=float(np.median(r)), max=float(r.max())
    )


def radius_by_group(points: Tensor, manifold: Manifold, groups: np.ndarray | Tensor) -> dict[int, float]:
    """Mean distance from the origin of each group, for example of each depth.   (N, d), (N,) -> {group: mean}

    >>> from horosphere.geometry import Euclidean
    >>> radius_by_group(torch.tensor([[0.0], [1.0], [-3.0]]), Euclidean(), np.array([0, 1, 1]))
    {0: 0.0, 1: 2.0}
    """
    names, group, sizes = np.unique(_labels(groups, points), return_inverse=True, return_counts=True)
    sums = np.bincount(group, weights=_radii(points, manifold))
    return dict(zip(names.tolist(), (sums / sizes).tolist(), strict=True))


def depth_correlation(points: Tensor, manifold: Manifold, depth: np.ndarray | Tensor) -> float:
    """Spearman's rank correlation of depth with distance from the origin, -1 to 1.   (N, d), (N,) -> float

    >>> from horosphere.geometry import Euclidean
    >>> round(depth_correlation(torch.tensor([[0.0], [1.0], [-3.0]]), Euclidean(), np.array([0, 1, 2])), 3)
    1.0
    """
    depth, r = _labels(depth, points), _radii(points, manifold)
    if np.ptp(depth) == 0 or np.ptp(r) == 0:
        raise UserError(
            "all nodes have the same depth or the same radius: a correlation needs two different ones of each."
        )
    return rank_correlation(depth, r)


@torch.no_grad()
def _radii(points: Tensor, manifold: Manifold) -> np.ndarray:
    if not len(points):
        raise UserError("there are no points. Give at least one.")
    return manifold.dist0(points.double()).cpu().numpy()


def _labels(values: np.ndarray | Tensor, points: Tensor) -> np.ndarray:
    labels = torch.as_tensor(values).cpu().numpy()
    if labels.shape != (len(points),):
        raise UserError(
            f"{len(points)} points need as many labels, shape ({len(points)},); these have shape {labels.shape}."
        )
    return labels
