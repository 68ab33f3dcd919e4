"""Embeddings in the Poincaré disk, with edges along geodesics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from horosphere.geometry.manifold import Curved, Manifold
from horosphere.plots.chart import Chart, Shown, draw_chart, tangents
from horosphere.plots.directions import in_a_plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGIBLE = 0.6  # disk radius of the median point where the geometry sets no scale of its own
FILLED = 0.9  # largest radius of the median point: beyond it, all would lie at the rim
WIDTH = 7.0  # inches: the disk with its margin


def geodesic_arc(a: np.ndarray, b: np.ndarray, points: int = 32) -> np.ndarray:
    """Points of the unit disk along the geodesics from a to b, equally far apart.   (E, 2), (E, 2) -> (E, points, 2)

    On the hyperboloid: (sinh((1-s)d)·A + sinh(sd)·B) / sinh d.  Every term of the time is positive, so nothing cancels
    at the rim.
    """
    a, b = np.asarray(a, np.float64)[:, None], np.asarray(b, np.float64)[:, None]
    # the rim is infinitely far away: a point that rounds onto it is taken one rounding inside
    gap_a, gap_b = (np.maximum(1 - (p**2).sum(-1, keepdims=True), np.finfo(np.float64).eps) for p in (a, b))
    d = 2 * np.arcsinh(np.linalg.norm(a - b, axis=-1, keepdims=True) / np.sqrt(gap_a * gap_b))
    d = np.maximum(d, 1e-9)  # sinh d is d to the last digit from here down, and a == b divides by something
    s = np.linspace(0, 1, points)[:, None]
    to_a, to_b = 2 * np.sinh((1 - s) * d) / (np.sinh(d) * gap_a), 2 * np.sinh(s * d) / (np.sinh(d) * gap_b)
    return (to_a * a + to_b * b) / (1 + to_a * (1 - gap_a / 2) + to_b * (1 - gap_b / 2))


def layout(points: Tensor, manifold: Manifold) -> tuple[np.ndarray, str]:
    """Positions in the unit disk, and what they keep of the original.   (N, d) -> (N, 2), note

    The radius is tanh(√c·dist0/2); where most would lie at the rim, with a smaller c. The direction is the one seen
    from the origin, `in_a_plane`.
    """
    tangent = tangents(points, manifold)
    distance, dim = np.linalg.norm(tangent, axis=-1), tangent.shape[-1]
    direction, angle = in_a_plane(tangent)
    middle, c = float(np.median(distance)), _curvature(manifold)
    if c and np.tanh(np.sqrt(c) * middle / 2) <= FILLED:
        radius, kept = np.tanh(np.sqrt(c) * distance / 2), "radius exact"
    elif c:
        flatter = (2 * np.arctanh(FILLED) / middle) ** 2
        radius, kept = np.tanh(np.sqrt(flatter) * distance / 2), f"curvature -{c:.2g} drawn as -{flatter:.2g} to fit"
    else:
        scale = middle / np.arctanh(LEGIBLE) or 1.0
        radius, kept = np.tanh(distance / scale), f"radius tanh(distance / {scale:.3g}) to fit"
    return radius[:, None] * direction, "exact" if kept == "radius exact" and dim <= 2 else f"{kept}, {angle}"


def _curvature(manifold: Manifold) -> float:
    """c, or 0 where there is no single one (flat space, products) or it is of the other sign."""
    hyperbolic = isinstance(manifold, Curved) and manifold.sign < 0
    return float(torch.as_tensor(manifold.c).detach()) if hyperbolic else 0.0


class Disk(Chart):
    """Lengths at radius r are drawn 1 - r² times as long as in the middle."""

    name, size, reach, centres = "disk", (WIDTH, WIDTH), (1.04, 1.04), ((0.0, 0.0),)

    def __init__(self, points: Tensor, manifold: Manifold):
        self.position, self.note = layout(points, manifold)
        self.curved = _curvature(manifold) > 0
        self.outwards = (self.position**2).sum(-1)
        self.shrink = 1 - self.outwards

    def lines(self, pairs: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = self.position[pairs[:, 0]], self.position[pairs[:, 1]]
        return geodesic_arc(a, b, points) if self.curved else np.stack([a, b], 1), np.arange(len(pairs))


def draw_disk(
    points: Tensor, manifold: Manifold, edges: Any = None, labels: Sequence[str] | None = None, **shown: Unpack[Shown]
) -> Figure:
    """`draw_points` on the disk, in any geometry. Points shrink towards the rim, as lengths do.

    Edges follow the geodesics of the disk; where the geometry has no negative curvature of its own, they are straight.
    """
    return draw_chart(Disk(points, manifold), edges, labels, **shown)
