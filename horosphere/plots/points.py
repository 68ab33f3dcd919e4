"""The picture that fits a geometry: hemispheres for the sphere, the disk for every other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from horosphere.geometry import Manifold, Sphere
from horosphere.plots.chart import Chart, draw_chart
from horosphere.plots.disk import Disk
from horosphere.plots.sphere import Hemispheres

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def chart_of(manifold: Manifold) -> type[Chart]:
    """Products are drawn on the disk, those with a sphere too: its note says what that keeps.

    >>> chart_of(Sphere(c=2.0)).name
    'sphere'
    """
    return Hemispheres if isinstance(manifold, Sphere) else Disk


def draw_points(
    points: Tensor,
    manifold: Manifold,
    edges: Any = None,
    labels: Sequence[str] | None = None,
    *,
    depth: Any = None,
    values: Any = None,
    title: str | None = None,
    max_labels: int = 30,
    path: str | Path | None = None,
) -> Figure:
    """Draw (N, d) points and (E, 2) edges; save it where a path ending in .png, .svg or .pdf is given.

    depth: of a hierarchy. The colour shows `values` (numbers, or names), else the branches of a hierarchy with labels,
    else `depth`. Labels of the largest branches come first, so those of the top. Edges follow geodesics. The caption
    says what the picture keeps.

    >>> import torch
    >>> ring = Sphere().lift(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]))
    >>> figure = draw_points(ring, Sphere(), edges=[(0, 1), (1, 2), (2, 3), (3, 0)])
    >>> figure.texts[0].get_text()
    '4 points, 4 edges · exact; equal areas are drawn equal'
    """
    chart = chart_of(manifold)(points, manifold)
    shown: Any = {"depth": depth, "values": values, "title": title, "max_labels": max_labels, "path": path}
    return draw_chart(chart, edges, labels, **shown)
