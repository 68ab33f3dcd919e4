"""What a vision model sees in a picture: clusters over it, the tree of its parts, where the nodes of that tree lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.geometry import Lorentz
from horosphere.measure.vision import (
    EVEN,
    ClusterMap,
    branches,
    by_stage,
    mean_point,
    node_names,
    require_one_image,
    spread_of,
)
from horosphere.models.himapper import Hierarchy
from horosphere.plots.disk import draw_disk
from horosphere.plots.style import (
    BRANCHES,
    INK,
    MUTED,
    PAPER,
    QUIET,
    WIDTH,
    finish,
    log_axis,
    new_panels,
    overlaid,
    spans_orders,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP, LABEL, HEADING = (
    0.09,
    0.2,
    0.42,
)  # inches: between panels; above a panel for its label; above a row for what it shows
HEADS = 4  # of a row
DECIDED, POWERS = (
    0.6,
    (1, 2, 4, 8),
)  # shares are raised to a power until the largest of a place is so large, in the mean
TINT = 0.62  # share of a cluster's colour in a pixel; the rest is the picture, in grey
HEAT, FULL = "YlOrRd", 6
SHARP = 200  # pixels an inch of a thumbnail
FAR = 2.4  # curvature radii from the centre of the disk to the median node: nodes far beyond would all lie on its rim
COLUMNS, LARGEST, DROP, INDENT = (
    16,
    1.5,
    0.3,
    0.08,
)  # of a tree: parents of leaves side by side; inches of a thumbnail, between levels; of a column


# -- clusters over training -------------------------------------------------------------------------------------------

Learning = tuple[Sequence[tuple[float, float]], Sequence[Mapping[str, float]]]  # (step, loss); HCFormer's readings


def draw_learning(runs: Mapping[str, Learning], path: str | Path | None = None) -> Figure:
    """Loss, α of patches and over how many centres they spread, against steps: a line a run.

    α is the mean over the stages. Centres are those of the stages that begin with the most.

    >>> readings = [{"step": 10, "patch_scale_1": 1.0, "patch_centres_1": 16.0, "patch_centres_2": 4.0}]
    >>> [axes.get_title("left") for axes in draw_learning({"a": ([(10, 3.0)], readings)}).axes]
    ['loss in training', 'α of patches', 'centres of a patch, stage 1']
    """
    of_run = {name: [_read(line) for line in readings] for name, (_, readings) in runs.items()}
    counts = [centres for lines in of_run.values() for _, _, centres in lines]
    most = {stage: max(of[stage] for of in counts) for stage in counts[0]}
    shown = [stage for stage in most if most[stage] > max(most.values()) / 2]
    with style():
        figure, panels = new_panels(3.4, 2 + len(shown))
        for place, (name, (losses, _)) in enumerate(runs.items()):
            steps, scales, centres = zip(*of_run[name], strict=True)
            look = {"color": BRANCHES[place % len(BRANCHES)], **overlaid(place, len(runs))}
            panels[0].plot(*zip(*losses, strict=True), label=name, **look)
            panels[1].plot(steps, scales, marker="o", markersize=4, **look)
            for axes, stage in zip(panels[2:], shown, strict=True):
                axes.plot(steps, [of[stage] for of in centres], marker="o", markersize=4, **look)
        if spans_orders(scale for lines in of_run.values() for _, scale, _ in lines):
            log_axis(panels[1], "y")
        titles = ["loss in training", "α of patches", *(f"centres of a patch, stage {stage}" for stage in shown)]
        for axes, title in zip(panels, titles, strict=True):
            axes.set_title(title, loc="left", fontsize=9, color=INK)
            axes.set_xlabel("steps")
            axes.grid()
        for axes in panels[2:]:
            axes.set_ylim(bottom=0)
        figure.legend(loc="outside lower center", ncols=min(5, len(runs)), labelcolor=INK)
    return finish(figure, path)


def _read(line: Mapping[str, float]) -> tuple[float, float, dict[int, float]]:
    """The step, the mean α of patches, and how many centres a patch spreads over in each stage."""
    of = by_stage({name: value for name, value in line.items() if name != "step"})
    return line["step"], float(np.mean(list(of["patch_scale"].values()))), of["patch_centres"]


# -- clusters ---------------------------------------------------------------------------------------------------------


def palette(count: int) -> np.ndarray:
    """Colours for so many centres, easily told apart.   -> (count, 3)

    First those of branches, then always the one farthest from all so far: in Oklab, where equal distances look alike.
    No greys: they are for places that belong to no centre more than to others. Nothing glaring either.
    """
    from matplotlib.colors import to_rgb

    steps = np.linspace(0, 1, 12)
    candidates = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3)
    lab = _oklab(candidates)
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    vivid = (chroma > 0.08) & (chroma < 0.2) & (lab[:, 0] > 0.4) & (lab[:, 0] < 0.9)
    candidates, lab = candidates[vivid], lab[vivid]
    chosen = [np.array(to_rgb(color)) for color in BRANCHES[:count]]
    nearest = np.min([np.linalg.norm(lab - _oklab(color), axis=1) for color in chosen], axis=0)
    while len(chosen) < count:
        chosen.append(candidates[nearest.argmax()])
        nearest = np.minimum(nearest, np.linalg.norm(lab - lab[nearest.argmax()], axis=1))
    return np.array(chosen)


def _oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson's Oklab of sRGB.   (..., 3) -> (..., 3)"""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    mixed = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear @ cones.T) @ mixed.T


def sharpen(shares: np.ndarray) -> tuple[np.ndarray, int]:
    """Shares to a power, over their sum; and the power.   (heads, centres, H, W) -> the same

    The power is the first of POWERS with which most places look decided, else the last. Soft shares of many centres all
    blend to the same grey. A power keeps their order, and makes the largest stand out. Heads with even shares stay as
    they are: a power of them would show noise.
    """
    even = spread_of(shares) > EVEN * shares.shape[1]
    if even.all():
        return shares, 1
    soft = shares[~even]
    for power in POWERS:
        sharp = (soft / soft.max(1, keepdims=True)) ** power  # by the largest: the power of small numbers would be 0
        sharp /= sharp.sum(1, keepdims=True)
        if sharp.max(1).mean() >= DECIDED:
            break
    out = shares.copy()
    out[~even] = sharp
    return out, power


def blend(shares: np.ndarray, cell: tuple[float, float], picture: np.ndarray, scale: float) -> np.ndarray:
    """Colours of centres, mixed by their shares in each place, over the picture in grey.

    (centres, rows, columns), (H, W, 3) -> (H, W, 3)
    cell: height and width of a place, in pixels that the network saw. scale: pixels of the picture for each of those.
    """
    colors = np.tensordot(shares, palette(len(shares)), (0, 0))
    rows, columns = (
        ((np.arange(n) + 0.5) / (scale * c)).astype(int) for n, c in zip(picture.shape, cell, strict=False)
    )
    return TINT * colors[rows][:, columns] + (1 - TINT) * _pale(picture)


def draw_clusters(
    levels: Sequence[ClusterMap], picture: np.ndarray, side: int, path: str | Path | None = None
) -> Figure:
    """The levels of a stage, all heads, beside the picture with the centres where they sit.   picture (H, W, 3) uint8

    side: how many pixels high the network saw the picture, which may be drawn finer.
    """
    picture, scale = _floats(picture), len(picture) / side
    rows = [-(-len(level.shares) // HEADS) for level in levels]
    size = (WIDTH - (HEADS + 2) * GAP) / (HEADS + 1)
    tall = size * picture.shape[0] / picture.shape[1]
    height = sum(HEADING + count * (LABEL + tall + GAP) for count in rows)
    with style():
        canvas = _canvas(height)
        top = 0.0
        for level, count in zip(levels, rows, strict=True):
            what, into = _what(level)
            canvas.heading(GAP, top, f"Stage {level.stage}: {what} into {into}")
            (sharp, power), spread = sharpen(level.shares), level.spread
            canvas.remark(WIDTH - GAP, top, _remark(level, power))
            top += HEADING
            key = canvas.panel(GAP, top + LABEL, size, tall, "centres, where they sit")
            _show(key, picture, level, scale)
            _draw_seats(key, level, scale, size)
            for head, shares in enumerate(sharp):
                row, column = divmod(head, HEADS)
                place = (column + 1) * (size + GAP) + GAP, top + row * (LABEL + tall + GAP) + LABEL
                axes = canvas.panel(
                    *place, size, tall, f"head {head + 1}: {spread[head]:.1f} of {level.centres} centres"
                )
                _show(axes, blend(shares, level.cell, picture, scale), level, scale)
            top += count * (LABEL + tall + GAP)
    return finish(canvas.figure, path)


def draw_coarse_to_fine(
    levels: Sequence[ClusterMap], picture: np.ndarray, side: int, path: str | Path | None = None
) -> Figure:
    """The picture, then every level of every stage with the shares of its heads averaged.   picture (H, W, 3) uint8"""
    picture, scale = _floats(picture), len(picture) / side
    size = (WIDTH - (HEADS + 1) * GAP) / HEADS
    tall = size * picture.shape[0] / picture.shape[1]
    with style():
        canvas = _canvas(-(-(len(levels) + 1) // HEADS) * (2 * LABEL + tall + GAP))
        for number, level in enumerate([None, *levels]):
            row, column = divmod(number, HEADS)
            place = GAP + column * (size + GAP), row * (2 * LABEL + tall + GAP) + 2 * LABEL
            if level is None:
                axes = canvas.panel(*place, size, tall, "the picture", bold=True)
                axes.imshow(picture)
                continue
            what, into = _what(level)
            shares, power = sharpen(level.shares.mean(0, keepdims=True))
            label = _remark(level, power) if level.even else f"into {into}"
            if power == 1 and not level.even and spread_of(shares)[0] > EVEN * level.centres:
                label = "even in the mean of its heads"
            axes = canvas.panel(*place, size, tall, label, above=f"Stage {level.stage}: {what}")
            _show(axes, blend(shares[0], level.cell, picture, scale), level, scale)
    return finish(canvas.figure, path)


def _remark(level: ClusterMap, power: int) -> str:
    """What the heads of a level are drawn with."""
    if level.even:
        return "even: nothing is clustered"
    return f"shares to the power {power}, even ones as they are" if power > 1 else "shares as they are"


def _what(level: ClusterMap) -> tuple[str, str]:
    """What is clustered, and into what."""
    rows, columns = level.shares.shape[2:]
    into = f"{level.centres} {'hyperbolic ' * (level.geometry == 'lorentz')}clusters"
    if level.level == "windows":
        return f"{rows} x {columns} windows", into
    return f"{rows} x {columns} patches", into + " a window" * (len(level.seats) > level.centres)


def _show(axes: Axes, image: np.ndarray, level: ClusterMap, scale: float) -> None:
    """With a fine line between windows."""
    axes.imshow(image)
    height, width = image.shape[:2]
    for edges, end, line in ((level.edges[0], height, axes.axhline), (level.edges[1], width, axes.axvline)):
        for at in edges:
            if 0 < scale * at < end:
                line(scale * at - 0.5, color=PAPER, linewidth=0.5, alpha=0.7)


def _draw_seats(axes: Axes, level: ClusterMap, scale: float, size: float) -> None:
    across = np.sqrt(len(level.seats))
    wide = min(11.0, 0.62 * 72 * size / across)  # typographic points
    y, x = scale * level.seats.T - 0.5
    axes.scatter(
        x,
        y,
        wide**2,
        palette(level.centres)[level.seat_centre],
        edgecolors=PAPER,
        linewidths=min(1.0, wide / 8),
        zorder=3,
    )


# -- the tree ---------------------------------------------------------------------------------------------------------


def draw_tree(hierarchy: Hierarchy, picture: np.ndarray, path: str | Path | None = None) -> Figure:
    """The picture, and below it every node as what it looks at, level by level.   picture (H, W, 3) uint8

    The hierarchy is of one image. Leaves stand one above the other beside the line of their parent. A frame has the
    colour of its branch, as on the disk.
    """
    require_one_image(hierarchy)
    picture, names = _floats(picture), node_names(hierarchy.parents)
    parents, levels, branch = hierarchy.parents.tolist(), hierarchy.levels.tolist(), branches(hierarchy.parents)
    depth, ratio = max(levels) + 1, picture.shape[0] / picture.shape[1]
    by_level = [[node for node, l in enumerate(levels) if l == level] for level in range(depth)]
    tops, stems = len(by_level[-1]), len(by_level[1])  # stems: parents of leaves, a column each
    a_band = min(tops, max(1, COLUMNS * tops // stems))  # trees side by side
    bands = [range(i, min(i + a_band, tops)) for i in range(0, tops, a_band)]

    column = (WIDTH - 2 * GAP) * tops / (a_band * stems)
    sizes = {
        level: min(LARGEST / (1 + 0.18 * (depth - 1 - level)), 0.9 * column * 2 ** (level - 1))
        for level in range(1, depth)
    }
    sizes[0] = min(0.8 * column, sizes[1])
    row = {level: LABEL + size * ratio for level, size in sizes.items()}
    band_height = sum(row[level] + DROP for level in range(2, depth)) + row[1] + 2 * row[0] + DROP
    root = LARGEST * 1.15
    first = LABEL + root * ratio + DROP

    with style():
        canvas = _canvas(first + band_height * len(bands) - DROP + GAP)
        axes = canvas.panel((WIDTH - root) / 2, LABEL, root, root * ratio, "the picture", bold=True, center=True)
        axes.imshow(picture)
        canvas.scale((WIDTH + root) / 2 + 0.5, LABEL + root * ratio / 2)
        where: dict[int, tuple[float, float, float]] = {}  # middle, top, bottom in inches

        def thumbnail(node: int, middle: float, top: float) -> None:
            size, color = sizes[levels[node]], BRANCHES[branch[node] % len(BRANCHES)]
            axes = canvas.panel(
                middle - size / 2, top + LABEL, size, size * ratio, names[node], bold=parents[node] < 0, center=True
            )
            axes.imshow(heat(hierarchy.attention[0, node], _resized(picture, round(SHARP * size))))
            axes.spines[:].set(visible=True, color=color, linewidth=1.4 if levels[node] else 1.0)
            where[node] = middle, top, top + LABEL + size * ratio

        for number, band in enumerate(bands):
            top = first + number * band_height
            for level in range(depth - 1, 0, -1):
                for place, node in enumerate(node for node in by_level[level] if branch[node] in band):
                    thumbnail(node, GAP + (place + 0.5) * column * 2 ** (level - 1), top)
                top += row[level] + DROP * (level > 1)
            for leaf in (node for node in by_level[0] if branch[node] in band):
                thumbnail(leaf, where[parents[leaf]][0] + INDENT * column, top + (leaf % 2) * row[0])

        for node, (middle, upper, lower) in where.items():
            color = BRANCHES[branch[node] % len(BRANCHES)]
            if parents[node] < 0:
                if len(bands) == 1:
                    canvas.curve((WIDTH / 2, LABEL + root * ratio), (middle, upper), QUIET)
            elif levels[node]:
                canvas.curve((where[parents[node]][0], where[parents[node]][2]), (middle, upper), color)
            else:
                above, _, bottom = where[parents[node]]
                left, half = middle - sizes[0] / 2, (upper + LABEL + lower) / 2
                stem = max(left - INDENT * column, above - sizes[1] / 2)
                canvas.line([(stem, bottom), (stem, half), (left, half)], color)
    return finish(canvas.figure, path)


def heat(attention: Tensor, picture: np.ndarray) -> np.ndarray:
    """Attention in warm colours over the picture in grey.   (h, w), (H, W, 3) -> (H, W, 3)

    Full where it is largest, if that is FULL times its mean or more: a node that looks everywhere alike is pale.
    """
    fine = F.interpolate(attention[None, None].double().cpu(), picture.shape[:2], mode="bilinear", align_corners=False)[
        0, 0
    ].numpy()
    # the root: a node looks hard at a few places, and others would not be seen
    return _warm(np.sqrt(fine / max(fine.max(), FULL * fine.mean(), 1e-12)), picture)


def _warm(share: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """(H, W) from 0 to 1, (H, W, 3) -> (H, W, 3)"""
    from matplotlib import colormaps

    cover = 0.8 * share[..., None]
    return cover * colormaps[HEAT](0.25 + 0.75 * share)[..., :3] + (1 - cover) * _pale(picture)


def draw_nodes(hierarchy: Hierarchy, path: str | Path | None = None) -> Figure:
    """The nodes of the tree on the disk, seen from their mean: the loss knows distances of nodes, but no origin."""
    require_one_image(hierarchy)
    points, m = hierarchy.points[0].double(), hierarchy.manifold
    title = "The tree, seen from the mean of its nodes"
    with torch.no_grad():
        seen = m.translate(points, -mean_point(points, m))
        if isinstance(m, Lorentz):
            tangent, c = m.log0(seen), float(torch.as_tensor(m.c))
            flatter = min(c, float(FAR / m.dist0(seen).median()) ** 2)
            m = Lorentz(c=flatter)
            seen = m.exp0(tangent)
            title += f"\n(own curvature -{c:.2g}, drawn with -{flatter:.2g})" * (flatter < c)
    names, parents = node_names(hierarchy.parents), hierarchy.parents.cpu().numpy()
    child = np.flatnonzero(parents >= 0)
    branch = [f"branch {names[top]}" for top in np.flatnonzero(parents < 0)[branches(hierarchy.parents)]]
    inner = [
        name if level else "" for name, level in zip(names, hierarchy.levels.tolist(), strict=True)
    ]  # leaves lie beside each other
    edges = np.stack([parents[child], child], 1)
    return draw_disk(seen, m, edges, inner, values=branch, title=title, max_labels=len(names), path=path)


# -- parts ------------------------------------------------------------------------------------------------------------


def _floats(picture: np.ndarray) -> np.ndarray:
    return np.asarray(picture, np.float64) / 255


def _pale(picture: np.ndarray, darkest: float = 0.3) -> np.ndarray:
    """In grey, from `darkest` to white: what lies over it stays visible in shadows.   (H, W, 3) -> (H, W, 1)"""
    grey = (picture @ (0.299, 0.587, 0.114))[..., None]
    return darkest + (1 - darkest) * grey


def _resized(picture: np.ndarray, wide: int) -> np.ndarray:
    """At most so many pixels wide.   (H, W, 3) -> (H', W', 3)"""
    if wide >= picture.shape[1]:
        return picture
    size = max(1, round(picture.shape[0] * wide / picture.shape[1])), wide
    return (
        F.interpolate(torch.from_numpy(picture).permute(2, 0, 1)[None], size, mode="area")[0].permute(1, 2, 0).numpy()
    )


class _canvas:
    """A figure as wide as the page on which places are inches from the top left."""

    def __init__(self, height: float):
        from matplotlib.figure import Figure

        self.height = height
        self.figure = Figure(figsize=(WIDTH, height))
        self.under = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0), zorder=-1)
        self.under.axis("off")

    def panel(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        label: str,
        above: str = "",
        bold: bool = False,
        center: bool = False,
    ) -> Axes:
        place = left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height
        axes = self.figure.add_axes(place, xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        x, ha = (left + width / 2, "center") if center else (left, "left")
        weight = "bold" if bold else "normal"
        self.under.text(
            x,
            top - 0.05,
            label,
            ha=ha,
            va="bottom",
            fontsize=8.5 if bold else 8,
            color=INK if bold else MUTED,
            fontweight=weight,
        )
        if above:
            self.under.text(x, top - 0.05 - 0.16, above, ha=ha, va="bottom", fontsize=8.5, color=INK, fontweight="bold")
        return axes

    def scale(self, left: float, middle: float) -> None:
        """What the colours of `heat` mean."""
        bar = np.linspace(0, 1, 64)[None]
        axes = self.panel(left, middle - 0.05, 1.3, 0.12, "where a node looks")
        axes.imshow(_warm(bar, np.full((*bar.shape, 3), 0.6)), aspect="auto")
        for x, ha, text in ((left, "left", "not at all"), (left + 1.3, "right", "much")):
            self.under.text(x, middle + 0.1, text, ha=ha, va="top", fontsize=8, color=MUTED)

    def heading(self, left: float, top: float, text: str) -> None:
        self.under.text(left, top + HEADING - 0.06, text, va="bottom", fontsize=10.5, fontweight="bold")

    def remark(self, right: float, top: float, text: str) -> None:
        self.under.text(right, top + HEADING - 0.06, text, ha="right", va="bottom", fontsize=8, color=MUTED)

    def line(self, points: Sequence[tuple[float, float]], color: Any) -> None:
        self.under.plot(
            *zip(*points, strict=True),
            color=color,
            linewidth=1.1,
            solid_capstyle="round",
            solid_joinstyle="round",
            alpha=0.8,
        )

    def curve(self, start: tuple[float, float], end: tuple[float, float], color: Any) -> None:
        """From above to below, upright at both ends."""
        t = np.linspace(0, 1, 32)
        self.under.plot(
            start[0] + (end[0] - start[0]) * (3 * t**2 - 2 * t**3),
            start[1] + (end[1] - start[1]) * t,
            color=color,
            linewidth=1.3,
            alpha=0.8,
        )
