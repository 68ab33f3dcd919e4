"""A picture of points, edges and names on a chart: what the disk and the sphere share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure.branches import branch_of
from horosphere.plots.style import BRANCHES, LINE, MUTED, PANEL, QUIET, finish, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VECTOR_LIMIT = 5_000  # more points or edges than this are one image inside a vector file
PROMINENT = 8  # this many labels are set larger
SIDES = (
    (1, 0, "left", "center"),
    (-1, 0, "right", "center"),
    (0, 1, "center", "bottom"),
    (0, -1, "center", "top"),
)  # of a point, for its label
TITLE, KEY, CAPTION = 0.45, 0.55, 0.5  # inches: what stands above and below a chart
TITLE_FITS = 97  # letters times their size in typographic points that an inch holds
INK_SHARE, LARGEST = 0.04, 12  # points cover this share of a chart; the widest, in typographic points


class Shown(TypedDict, total=False):
    """What a picture shows of its points beside their places; `draw_points` says what each is."""

    depth: Any
    values: Any
    title: str | None
    max_labels: int
    path: str | Path | None


class Chart(ABC):
    """Where points lie on a page, and what the space around them looks like there. It consists of unit disks."""

    name: str  # of a file
    size: tuple[float, float]  # inches: width and height, margins too
    reach: tuple[float, float]  # how far it goes from the middle to the right and upwards, margins too
    centres: tuple[tuple[float, float], ...]  # of its disks

    position: np.ndarray  # (N, 2)
    note: str  # what the places keep of the original
    shrink: np.ndarray  # (N,) from 0 to 1: how short a length is drawn there, beside one in the middle
    outwards: np.ndarray  # (N,) how far out a point lies: edges have the colour of their outer end

    @abstractmethod
    def __init__(self, points: Tensor, manifold: Manifold): ...

    @abstractmethod
    def lines(self, pairs: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
        """Edges as lines of at most so many points, and which edge each shows.   (E, 2) -> (L, points, 2), (L,)"""

    def draw_ground(self, axes: Axes) -> None:
        """What lies below the points."""
        from matplotlib.patches import Circle

        for centre in self.centres:
            axes.add_patch(Circle(centre, 1, facecolor=PANEL, edgecolor=LINE, linewidth=1.2, zorder=0))

    @property
    def side(self) -> float:
        """Of the square around its disks, or of one as large as theirs together, in inches."""
        return float(self.size[0] / self.reach[0] * len(self.centres) ** 0.5)

    @property
    def widths(self) -> np.ndarray:
        """Of the points' markers, in typographic points. They shrink as lengths do, but stay visible.   (N,)"""
        widest = min(LARGEST, 72 * self.side * np.sqrt(INK_SHARE / max(np.square(self.shrink).sum(), 1e-9)))
        return np.maximum(widest * self.shrink, np.clip(12 / len(self.position) ** 0.25, 1, 4))


def tangents(points: Tensor, manifold: Manifold) -> np.ndarray:
    """Points as vectors from the origin, as long as they lie far from it; refused where they are not finite."""
    with torch.no_grad():
        tangent = manifold.lower(points.double()).cpu().numpy()
    if lost := int((~np.isfinite(tangent).all(-1)).sum()):
        raise UserError(f"{lost} of {len(tangent)} points are not finite: train again with a smaller learning rate")
    return tangent


def draw_chart(
    chart: Chart,
    edges: Any = None,
    labels: Sequence[str] | None = None,
    *,
    depth: Any = None,
    values: Any = None,
    title: str | None = None,
    max_labels: int = 30,
    path: str | Path | None = None,
) -> Figure:
    count = len(chart.position)
    pairs = np.zeros((0, 2), np.int64) if edges is None else _array(edges).reshape(-1, 2)
    for name, given in {"labels": labels, "depth": depth, "values": values}.items():
        if given is not None and len(given) != count:
            raise UserError(f"{len(given)} {name} for {count} points: give one each")
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < count:
        raise UserError(
            f"an edge names point {pairs.min() if pairs.min() < 0 else pairs.max()}: the {count} points count from 0"
        )

    below_each = None
    if depth is not None and labels is not None and len(pairs):
        branch, below_each = branch_of(pairs, _array(depth), labels)
        values = branch if values is None else values

    with style():
        counted = f"{count:,} points" + (f", {len(pairs):,} edges" if len(pairs) else "")
        keyed = depth is not None or values is not None
        figure, axes = _page(chart, title, counted, keyed)
        chart.draw_ground(axes)
        colors = np.tile(BRANCHES[0], count)
        if keyed:
            colors = _colors(figure, *((depth, "depth") if values is None else (values, "value")))
        if len(pairs):
            _edges(axes, chart, pairs, colors)
        sizes = chart.widths**2
        order = np.argsort(sizes, kind="stable")  # the large, central ones on top
        (x, y), many = chart.position[order].T, count > VECTOR_LIMIT
        axes.scatter(
            x,
            y,
            sizes[order],
            colors[order],
            edgecolors="white",
            linewidths=0 if many else 0.4,
            rasterized=many,
            zorder=2,
        )
        if labels is not None:
            prominence = chart.shrink * np.log2(2 + np.bincount(pairs.ravel(), minlength=count))
            _label(axes, chart, labels, prominence if below_each is None else below_each, max_labels)
    return finish(figure, path)


def _page(chart: Chart, title: str | None, counted: str, keyed: bool) -> tuple[Figure, Axes]:
    """The chart's frame between its title and its caption, with room for a key."""
    from matplotlib.figure import Figure

    width, tall = chart.size
    below = CAPTION + KEY * keyed
    height = below + tall + TITLE * bool(title)
    figure = Figure(figsize=(width, height))
    right, up = chart.reach
    place = (0, below / height, 1, tall / height)
    axes = figure.add_axes(place, xlim=(-right, right), ylim=(-up, up), aspect="equal")
    axes.axis("off")
    if title:
        size = min(15, TITLE_FITS * width / len(title))  # a long one still fits
        figure.text(0.5, 1 - 0.2 / height, title, ha="center", va="top", fontsize=size, fontweight="bold")
    said = f"{counted}{' · ' if len(chart.note) < 40 else chr(10)}{chart.note}"
    how: Any = {"ha": "center", "va": "bottom", "fontsize": 9, "linespacing": 1.5, "color": MUTED}
    figure.text(0.5, 0.12 / height, said, **how)
    return figure, axes


def _array(given: Any) -> np.ndarray:
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def _edges(axes: Axes, chart: Chart, pairs: np.ndarray, colors: np.ndarray) -> None:
    """All edges as one collection, each in the colour of its outer end; fainter and thinner the more there are."""
    from matplotlib.collections import LineCollection

    many = len(pairs) > VECTOR_LIMIT
    lines, shown = chart.lines(pairs, 24 if many else 64)
    first, second = chart.outwards[pairs].T
    outer = np.where(first > second, pairs[:, 0], pairs[:, 1])[shown]
    alpha, width = np.clip(np.array([10, 20]) / np.sqrt(len(pairs)), [0.04, 0.3], [0.55, 1.0])
    axes.add_collection(
        LineCollection(list(lines), colors=colors[outer], alpha=alpha, linewidths=width, rasterized=many, zorder=1)
    )


def _colors(figure: Figure, values: Any, name: str) -> np.ndarray:
    """One colour per point, and their key below the chart.

    The key is a legend for names and for a few whole numbers, else a colour bar.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize, to_rgba
    from matplotlib.lines import Line2D

    values, height = _array(values), figure.get_figheight()
    if values.dtype.kind in "OUS":
        values = values.astype(str)
        common = Counter(name for name in values.tolist() if name).most_common()
        color = {branch: to_rgba(c) for (branch, _), c in zip(common, BRANCHES, strict=False)}
        colors = np.array([color.get(branch, to_rgba(QUIET)) for branch in values])
        key = [(_short(branch, 20), c) for branch, c in color.items()] + [("other", to_rgba(QUIET))] * (
            len(set(values)) > len(color)
        )
    else:
        values = values.astype(np.float64)
        scale = ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256))).with_extremes(
            bad=QUIET
        )  # its last yellow is lost on white
        norm = Normalize(np.nanmin(values), np.nanmax(values))
        colors = scale(norm(values))
        levels = np.unique(values[np.isfinite(values)])
        if len(levels) > len(BRANCHES) or (levels % 1).any():
            place = figure.add_axes((0.3, (CAPTION + 0.24) / height, 0.4, 0.09 / height))
            bar = figure.colorbar(ScalarMappable(norm, scale), cax=place, orientation="horizontal")
            bar.outline.set_visible(False)
            place.tick_params(length=0, labelsize=8)
            place.text(-0.02, 0.5, name, transform=place.transAxes, ha="right", va="center", fontsize=9, color=MUTED)
            return colors
        key = [(f"{level:g}", scale(norm(level))) for level in levels]
        key[0] = f"{name} {key[0][0]}", key[0][1]

    dots = [Line2D([], [], linestyle="", marker="o", markersize=5.5, color=color) for _, color in key]
    one_line = sum(len(text) + 5 for text, _ in key) < 90
    legend = figure.legend(
        dots, ["?"] * len(key), loc="center", bbox_to_anchor=(0.5, (CAPTION + KEY / 2) / height),
        fontsize=9 if one_line else 8, handletextpad=0.1, columnspacing=1.4, ncols=len(key) if one_line else 4,
    )  # fmt: skip
    for text, (content, _) in zip(legend.get_texts(), key, strict=True):
        text.set(text=content, color=MUTED)  # only now: a legend hides entries whose label begins with an underscore
    return colors


def _short(label: str, length: int = 24) -> str:
    """The last part of a path such as "Topic :: Games", cut to what fits in a picture."""
    label = re.split(r" (?:::|>|/) ", str(label))[-1].replace("_", " ").strip()
    return label if len(label) <= length else label[: length - 1].rstrip() + "…"


def _label(axes: Axes, chart: Chart, labels: Sequence[str], prominence: np.ndarray, max_labels: int) -> None:
    """Name the most prominent points first.

    A name stands on that side of its point where it hides the fewest points. It never hides another name, and never
    stands on another disk than its point.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    ranked = np.argsort(-prominence, kind="stable")
    pixel = axes.transData.transform(chart.position)
    reach, wide = chart.widths / 2, axes.bbox.width / len(chart.centres)
    column = np.abs(chart.position[:, :1] - np.array(chart.centres)[:, 0]).argmin(-1)
    taken: list[Bbox] = []
    for i in ranked[: 5 * max_labels]:
        if len(taken) == max_labels:
            break
        size = 10 if len(taken) < PROMINENT else 8
        halo = withStroke(linewidth=2.5, foreground=PANEL, alpha=0.85)
        text = axes.annotate(
            _short(labels[i]), chart.position[i], (0, 0), textcoords="offset points",
            fontsize=size, zorder=3, path_effects=[halo],
        )  # fmt: skip
        free: list[tuple[Any, ...]] = []
        for dx, dy, ha, va in SIDES:
            text.set(position=((reach[i] + 2) * dx, (reach[i] + 2) * dy), ha=ha, va=va)
            box = text.get_window_extent()
            inside = column[i] * wide <= box.x0 - axes.bbox.x0 and box.x1 - axes.bbox.x0 <= (column[i] + 1) * wide
            if inside and not any(box.overlaps(other) for other in taken):
                hidden = ((pixel > box.min) & (pixel < box.max)).all(-1).sum()
                free.append((hidden, len(free), box, text.get_position(), ha, va))
        if not free:
            text.remove()
            continue
        *_, box, place, ha, va = min(free)
        text.set(position=place, ha=ha, va=va)
        taken.append(box)
