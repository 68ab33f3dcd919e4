"""Embeddings in the Poincaré disk, with edges along geodesics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry.manifold import Curved, Manifold
from horosphere.measure.branches import branch_of
from horosphere.plots.style import BRANCHES, LINE, MUTED, PANEL, QUIET, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGIBLE = 0.6  # disk radius of the median point where the geometry sets no scale of its own
FILLED = 0.9  # largest radius of the median point: beyond it, all would lie at the rim
PLANAR = 0.9  # share of squared length in two axes from which a projection on them shows what there is
LINKED = 2_000  # directions that are clustered at once: their distances are a matrix
VECTOR_LIMIT = 5_000  # more points or edges than this are one image inside a vector file
PROMINENT = 8  # this many labels are set larger
SIDES = (
    (1, 0, "left", "center"),
    (-1, 0, "right", "center"),
    (0, 1, "center", "bottom"),
    (0, -1, "center", "top"),
)  # of a point, for its label
WIDTH, TITLE, KEY, CAPTION = 7.0, 0.45, 0.55, 0.5  # inches: the disk with its margin; what stands above and below it
INK_SHARE, LARGEST = (
    0.04,
    12,
)  # points cover this share of the disk, and none is wider than this many typographic points


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
    from the origin. Beyond two dimensions it is its projection on the two principal axes if these hold nearly all;
    else directions are put in a row, like beside like, which goes once around the disk.
    """
    with torch.no_grad():
        tangent = manifold.lower(points.double()).cpu().numpy()
    if lost := int((~np.isfinite(tangent).all(-1)).sum()):
        raise UserError(f"{lost} of {len(tangent)} points are not finite: train again with a smaller learning rate")
    distance, dim = np.linalg.norm(tangent, axis=-1), tangent.shape[-1]

    plane, angle = (tangent, "angle exact") if dim <= 2 else _plane(tangent)
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[-1])))  # one dimension, or one point
    length = np.linalg.norm(plane, axis=-1, keepdims=True)
    direction = np.divide(
        plane, length, out=np.tile([1.0, 0.0], (len(plane), 1)), where=length > 0
    )  # a point seen end-on keeps its radius

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


def _plane(tangent: np.ndarray) -> tuple[np.ndarray, str]:
    """Directions in two dimensions, and what they are.   (N, d) -> (N, 2), note"""
    count, dim = tangent.shape
    _, lengths, axes = np.linalg.svd(tangent, full_matrices=False)
    power = lengths**2
    share = power[:2].sum() / power.sum() if power.any() else 1.0
    if share >= PLANAR:
        projected = f"angle projected from {dim} dimensions ({100 * share:.0f} % of squared length)"
        return tangent @ axes[:2].T, projected
    length = np.linalg.norm(tangent, axis=-1, keepdims=True)
    directions = np.divide(tangent, length, out=np.zeros_like(tangent), where=length > 0)
    order = in_a_row(directions)
    row = directions[order]
    gap = np.arccos(np.clip((row * np.roll(row, -1, 0)).sum(-1), -1, 1))
    gap += gap.mean()  # half as wide as they are, half even: those that are all but the same stay apart
    angle = np.empty(count)
    angle[order] = 2 * np.pi * (np.cumsum(gap) - gap) / gap.sum()
    return np.stack([np.cos(angle), np.sin(angle)], -1), f"angle: {dim} dimensions in a row, like beside like"


def in_a_row(directions: np.ndarray) -> np.ndarray:
    """An order in which directions that are alike lie beside each other.   (N, d) -> (N,)

    The leaves of an average-linkage clustering by angle. More than LINKED are cut in two first, again and again, along
    their principal axis.

    >>> in_a_row(np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]]))  # the second lies apart
    array([1, 0, 2], dtype=int32)
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(directions) < 3:
        return np.arange(len(directions))
    if len(directions) <= LINKED:
        cosines = directions @ directions.T
        return leaves_list(linkage(np.arccos(np.clip(cosines[np.triu_indices(len(directions), 1)], -1, 1)), "average"))
    centred = directions - directions.mean(0)
    along = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
    halves = np.array_split(along, 2)
    return np.concatenate([half[in_a_row(directions[half])] for half in halves])


def draw_disk(
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
    """Draw (N, d) points and (E, 2) edges in the disk; save it where a path ending in .png, .svg or .pdf is given.

    depth: of a hierarchy. The colour shows `values` (numbers, or names), else the branches of a hierarchy with labels,
    else `depth`. Labels of the largest branches come first, so those of the top. Points shrink towards the rim, as
    lengths do. Edges follow the geodesics of the disk; where the geometry has no curvature of its own, they are
    straight.
    """
    position, note = layout(points, manifold)
    count = len(position)
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
        from matplotlib.figure import Figure
        from matplotlib.patches import Circle

        keyed = depth is not None or values is not None
        below = CAPTION + KEY * keyed
        height = below + WIDTH + TITLE * bool(title)
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes(
            (0, below / height, 1, WIDTH / height), xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal"
        )
        axes.axis("off")
        axes.add_patch(Circle((0, 0), 1, facecolor=PANEL, edgecolor=LINE, linewidth=1.2, zorder=0))
        if title:
            figure.text(
                0.5,
                1 - 0.2 / height,
                title,
                ha="center",
                va="top",
                fontsize=min(15, 680 / len(title)),
                fontweight="bold",
            )  # a long one still fits
        counted = f"{count:,} points" + (f", {len(pairs):,} edges" if len(pairs) else "")
        apart = " · " if len(note) < 40 else "\n"
        figure.text(
            0.5,
            0.12 / height,
            f"{counted}{apart}{note}",
            ha="center",
            va="bottom",
            fontsize=9,
            linespacing=1.5,
            color=MUTED,
        )

        colors, sizes = np.tile(BRANCHES[0], count), _sizes(position)
        if keyed:
            colors = _colors(figure, *((depth, "depth") if values is None else (values, "value")))
        if len(pairs):
            _edges(axes, position, pairs, colors, _curvature(manifold) > 0)
        order = np.argsort(sizes)  # the large, central ones on top
        (x, y), many = position[order].T, count > VECTOR_LIMIT
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
            prominence = (1 - (position**2).sum(-1)) * np.log2(2 + np.bincount(pairs.ravel(), minlength=count))
            _label(axes, position, labels, prominence if below_each is None else below_each, max_labels)
    if path is not None:
        save(figure, path)
    return figure


def _array(given: Any) -> np.ndarray:
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def _curvature(manifold: Manifold) -> float:
    """c, or 0 where there is no single one (flat space, products)."""
    hyperbolic = isinstance(manifold, Curved) and manifold.sign < 0
    return float(torch.as_tensor(manifold.c).detach()) if hyperbolic else 0.0


def _sizes(position: np.ndarray) -> np.ndarray:
    """Marker areas: widths shrink towards the rim as lengths do, by 1 - r², but stay visible."""
    shrink = 1 - (position**2).sum(-1)
    widest = min(LARGEST, 72 * WIDTH * np.sqrt(INK_SHARE / max(np.square(shrink).sum(), 1e-9)))
    return np.maximum(widest * shrink, np.clip(12 / len(position) ** 0.25, 1, 4)) ** 2


def _edges(axes: Axes, position: np.ndarray, pairs: np.ndarray, colors: np.ndarray, curved: bool) -> None:
    """All edges as one collection, each in the colour of its outer end; fainter and thinner the more there are."""
    from matplotlib.collections import LineCollection

    many = len(pairs) > VECTOR_LIMIT
    a, b = position[pairs[:, 0]], position[pairs[:, 1]]
    lines = geodesic_arc(a, b, 24 if many else 64) if curved else np.stack([a, b], 1)
    outer = np.where((a**2).sum(-1) > (b**2).sum(-1), pairs[:, 0], pairs[:, 1])
    alpha, width = np.clip(np.array([10, 20]) / np.sqrt(len(pairs)), [0.04, 0.3], [0.55, 1.0])
    axes.add_collection(
        LineCollection(list(lines), colors=colors[outer], alpha=alpha, linewidths=width, rasterized=many, zorder=1)
    )


def _colors(figure: Figure, values: Any, name: str) -> np.ndarray:
    """One colour per point, and their key below the disk.

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


def _label(axes: Axes, position: np.ndarray, labels: Sequence[str], prominence: np.ndarray, max_labels: int) -> None:
    """Name the most prominent points first.

    A name stands on that side of its point where it hides the fewest points, and never hides another name.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    ranked = np.argsort(-prominence, kind="stable")
    pixel = axes.transData.transform(position)
    reach = np.sqrt(_sizes(position)) / 2  # in typographic points
    taken: list[Bbox] = []
    for i in ranked[: 5 * max_labels]:
        if len(taken) == max_labels:
            break
        size = 10 if len(taken) < PROMINENT else 8
        halo = withStroke(linewidth=2.5, foreground=PANEL, alpha=0.85)
        text = axes.annotate(
            _short(labels[i]), position[i], (0, 0), textcoords="offset points",
            fontsize=size, zorder=3, path_effects=[halo],
        )  # fmt: skip
        free: list[tuple[Any, ...]] = []
        for dx, dy, ha, va in SIDES:
            text.set(position=((reach[i] + 2) * dx, (reach[i] + 2) * dy), ha=ha, va=va)
            box = text.get_window_extent()
            inside = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            if inside and not any(box.overlaps(other) for other in taken):
                hidden = ((pixel > box.min) & (pixel < box.max)).all(-1).sum()
                free.append((hidden, len(free), box, text.get_position(), ha, va))
        if not free:
            text.remove()
            continue
        *_, box, place, ha, va = min(free)
        text.set(position=place, ha=ha, va=va)
        taken.append(box)
