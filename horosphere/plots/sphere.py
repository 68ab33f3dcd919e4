"""Embeddings on the sphere: two hemispheres side by side, with edges along great circles.

The projection is Lambert's, from which areas can be read. So points crowd in the picture where they crowd on the
sphere, and the room that is left is the room there is. A globe (orthographic) squeezes its rim, where half of the
points are. The stereographic chart, in which points are stored, keeps angles and draws the rim four times too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from horosphere.geometry import Sphere
from horosphere.plots.chart import Chart, Shown, draw_chart, tangents
from horosphere.plots.directions import in_a_plane
from horosphere.plots.style import LINE, MUTED
from horosphere.plots.style import WIDTH as PAGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

APART, MARGIN = 0.03, 0.04  # half of the gap between the hemispheres, and what lies around them, in radii
STEP = 30  # degrees between two lines of the ground
MEASURED = 1_000  # points whose distances are compared with the drawn ones
PARALLEL = 1e-12  # vectors whose cross product is shorter have no great circle of their own


def on_a_sphere(points: Tensor, manifold: Sphere) -> tuple[np.ndarray, str]:
    """Unit vectors of R³ with the mean of the points on top, and what they keep.   (N, d) -> (N, 3), note

    The height is cos(√c·dist to the mean). The direction is the one seen from the mean: `in_a_plane`. Points that
    cancel each other are seen from the origin.
    """
    tangents(points, manifold)  # refuses what is not finite, before a mean hides which
    with torch.no_grad():
        points = points.double()
        seen = manifold.translate(points, -manifold.midpoint(points))
        root = float(torch.as_tensor(manifold.c)) ** 0.5
    tangent = root * tangents(seen, manifold)
    direction, angle = in_a_plane(tangent)
    height = np.linalg.norm(tangent, axis=-1, keepdims=True)
    vectors = np.concatenate([np.sin(height) * direction, np.cos(height)], -1)
    if tangent.shape[-1] <= 2:
        return vectors, "exact; equal areas are drawn equal"
    off = _distances_off(vectors, points, manifold, root)
    return vectors, f"distances exact to the mean, off by {100 * off:.0f} % between points; {angle}"


def _distances_off(vectors: np.ndarray, points: Tensor, manifold: Sphere, root: float) -> float:
    """Mean difference of drawn and true distances, as a share of the mean true one."""
    some = np.unique(np.linspace(0, len(points) - 1, MEASURED).astype(int))
    true = root * manifold.pairwise(points[some], points[some]).detach().cpu().numpy()
    drawn = np.arccos(np.clip(vectors[some] @ vectors[some].T, -1, 1))
    return float(np.abs(drawn - true).mean() / max(true.mean(), np.finfo(np.float64).tiny))


def great_arc(a: np.ndarray, b: np.ndarray, points: int = 32) -> np.ndarray:
    """Unit vectors along the great circles from a to b, equally far apart.   (E, 3), (E, 3) -> (E, points, 3)

    cos(sω) A + sin(sω) T, T the unit tangent at A towards B. Between opposite ends one of the ways is taken.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    angle = 2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))
    axis = np.cross(a, b)
    any_axis = np.cross(a, np.eye(3)[np.abs(a).argmin(-1)])
    axis = _unit(np.where(np.linalg.norm(axis, axis=-1, keepdims=True) > PARALLEL, axis, any_axis))
    turn = np.linspace(0, 1, points)[:, None] * angle[:, None, None]
    return np.cos(turn) * a[:, None] + np.sin(turn) * np.cross(axis, a)[:, None]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def over_the_equator(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where great circles between points on different sides cross the equator.   (E, 3), (E, 3) -> (E, 3)"""
    between = np.abs(b[:, 2:]) * a + np.abs(a[:, 2:]) * b
    across = np.stack([-a[:, 1], a[:, 0], np.zeros(len(a))], -1)  # opposite ends: beside them
    across = np.where(np.abs(across).max(-1, keepdims=True) > PARALLEL, across, [1.0, 0.0, 0.0])
    between = np.where(np.linalg.norm(between, axis=-1, keepdims=True) > PARALLEL, between, across)
    return _unit(between * [1, 1, 0])


def equal_area(vectors: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Lambert's projection of both hemispheres, which touch at (1, 0, 0).   (..., 3), (...) -> (..., 2)

    (x, y)/√(1 + |z|) in the unit disk, for equal areas; the back is rolled over to the right.

    >>> equal_area(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), np.array([False, False]))
    array([[-1.03,  0.  ],
           [-0.03,  0.  ]])
    """
    flat = vectors[..., :2] / np.sqrt(1 + np.abs(vectors[..., 2:]))
    side = np.where(back, 1.0, -1.0)
    return np.stack([side * (1 + APART - flat[..., 0]), flat[..., 1]], -1)


class Hemispheres(Chart):
    """Around the mean of the points on the left, what lies behind on the right."""

    name = "sphere"
    reach = (2 + APART + MARGIN, 1 + MARGIN)
    size = (PAGE, PAGE * reach[1] / reach[0])
    centres = ((-1 - APART, 0.0), (1 + APART, 0.0))

    def __init__(self, points: Tensor, manifold: Sphere):
        self.vectors, self.note = on_a_sphere(points, manifold)
        self.back = self.vectors[:, 2] < 0
        self.position = equal_area(self.vectors, self.back)
        self.outwards = -self.vectors[:, 2]
        self.shrink = np.ones(len(self.vectors))

    def lines(self, pairs: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
        """Cut in two at the equator."""
        a, b = self.vectors[pairs[:, 0]], self.vectors[pairs[:, 1]]
        from_back, to_back = self.back[pairs].T
        split = from_back != to_back
        way, number = over_the_equator(a[split], b[split]), np.arange(len(pairs))
        arcs = np.concatenate([
            great_arc(a[~split], b[~split], points), great_arc(a[split], way, points), great_arc(way, b[split], points)
        ])  # fmt: skip
        sides = np.concatenate([from_back[~split], from_back[split], to_back[split]])
        return equal_area(arcs, sides[:, None]), np.concatenate([number[~split], number[split], number[split]])

    def draw_ground(self, axes: Axes) -> None:
        """With lines of equal distance to the middle, and of equal direction from it."""
        from matplotlib.collections import LineCollection

        super().draw_ground(axes)
        around, down = np.radians(np.arange(0, 361, 3)), np.radians(np.arange(0, 91, 3))
        rings = [_globe(around, np.full(len(around), np.radians(height))) for height in range(STEP, 90, STEP)]
        rays = [_globe(np.full(len(down), np.radians(turn)), down) for turn in range(0, 360, STEP)]
        lines = [equal_area(line * [1, 1, 1 - 2 * back], np.array(back)) for line in rings + rays for back in (0, 1)]
        axes.add_collection(LineCollection(lines, colors=LINE, linewidths=0.5, zorder=0.5))
        for side, said in ((-1, "around the mean"), (1, "behind")):
            place = side * (2 + APART), 1.0
            how: Any = {"ha": "left" if side < 0 else "right", "va": "top", "fontsize": 9, "color": MUTED}
            axes.text(*place, said, **how)


def _globe(turn: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Unit vectors at this angle around the axis, and this far down from the top."""
    return np.stack([np.sin(down) * np.cos(turn), np.sin(down) * np.sin(turn), np.cos(down)], -1)


def draw_sphere(
    points: Tensor, manifold: Sphere, edges: Any = None, labels: Sequence[str] | None = None, **shown: Unpack[Shown]
) -> Figure:
    """`draw_points` on two hemispheres. Edges are arcs of great circles, cut in two where they cross the equator."""
    return draw_chart(Hemispheres(points, manifold), edges, labels, **shown)
