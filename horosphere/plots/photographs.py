"""Pictures over photographs, pixel for pixel as large as these: what was found, in one colour with a dark rim.

Every function gives pixels, (H, W, 3) uint8; `save_photograph` writes them. Photographs are (H, W, 3) uint8 too.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.files import require_new_file, write_whole
from horosphere.foreign import open_picture
from horosphere.plots.style import BRANCHES, INK, MUTED, PAPER, render, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from horosphere.ops.darkroom import Gives

FOUND, REFUSED, RIM = "#ffb000", "#dc267f", "#101418"  # amber and magenta: told apart by everyone
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
INKS = {"cyan": (0, 1, 1), "magenta": (1, 0, 1), "yellow": (1, 1, 0), "black": (0, 0, 0)}
DPI = 100  # of the canvas: a figure's sides are inches
GAP, LEGEND = 8, 120  # pixels between two pictures, and of the strip with a legend
STRAY = 0.005  # of the values are beyond white and black: a few sparks would leave the rest grey
UNKNOWN = 0.6  # the grey of pixels without a flow
ROW, LONGEST = 18, 14  # pixels of a line of a legend, letters of a name
MOST_LINES = 120  # that are drawn between two pictures, of each kind: more hide each other


# -- files ------------------------------------------------------------------------------------------------------------


def require_picture_place(path: str | Path, overwrite: bool) -> None:
    """Complain before the work about a name that is no picture's, or is taken.

    >>> require_picture_place("soft.gif", overwrite=False)
    Traceback (most recent call last):
    horosphere.errors.UserError: soft.gif: a picture's name ends in .png, .jpg, .jpeg, .webp
    """
    require("pillow")
    if Path(path).suffix.lower() not in FORMATS:
        raise UserError(f"{path}: a picture's name ends in {', '.join(FORMATS)}")
    require_new_file(path, overwrite)


def save_photograph(pixels: np.ndarray, path: str | Path, new: bool = False) -> None:
    """Whole, or not at all, in the format its name ends with.   (H, W, 3) or (H, W) uint8. new: nothing is there yet"""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, FORMATS[Path(path).suffix.lower()], quality=92)
    write_whole(path, file.getvalue(), new)


# -- values of filters ------------------------------------------------------------------------------------------------


def developed(values: Tensor, gives: Gives) -> np.ndarray:
    """The values of a filter as a picture.   (C, H, W) -> (H, W, 3) or (H, W) uint8

    Signed values and bends lie around grey, `brightest` of either sign black or white. Slopes go from black to white.
    The four inks are shown as what is printed of each: cyan and magenta above, yellow and black below.

    >>> import torch
    >>> developed(torch.tensor([[[-2.0, 0.0, 1.0]]]), "signed")
    array([[  0, 128, 191]], dtype=uint8)
    """
    x = values.detach().cpu().numpy().astype(np.float64)
    if gives == "inks":
        plates = [1 - ink[..., None] * (1 - np.array(colour)) for ink, colour in zip(x, INKS.values(), strict=True)]
        return _bytes(np.vstack([np.hstack(plates[:2]), np.hstack(plates[2:])]))
    if gives in ("signed", "bends"):
        x = 0.5 + x / (2 * brightest(values))
    elif gives == "slopes":
        x = x / brightest(values)
    return _bytes(x[0] if len(x) == 1 else np.moveaxis(x, 0, -1))


def brightest(values: Tensor) -> float:
    """The value that is shown white: all but the largest `STRAY` of them, without signs, are below it.

    >>> import torch
    >>> brightest(torch.tensor([-2.0, 0.0, 1.0]))
    2.0
    """
    lengths = np.sort(abs(values.detach().cpu().numpy()), axis=None)
    return float(lengths[math.ceil((1 - STRAY) * len(lengths)) - 1]) or float(lengths[-1]) or 1.0


def _bytes(light: np.ndarray) -> np.ndarray:
    return (255 * light).round().clip(0, 255).astype(np.uint8)


# -- over one photograph ----------------------------------------------------------------------------------------------


def draw_lines(photograph: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Lines x cos θ + y sin θ = ρ.   (N, 2 or more) as (ρ, θ, …)"""
    figure, axes = _over(photograph)
    for rho, theta in lines[:, :2]:
        foot, along = rho * np.array([math.cos(theta), math.sin(theta)]), (-math.sin(theta), math.cos(theta))
        axes.axline(foot, foot + along, **_stroke(photograph))
    return _pixels(figure)


def draw_circles(photograph: np.ndarray, circles: np.ndarray) -> np.ndarray:
    """Circles and their centres.   (N, 3 or more) as (x, y, radius, …)"""
    from matplotlib.patches import Circle

    figure, axes = _over(photograph)
    for x, y, radius in circles[:, :3]:
        axes.add_patch(Circle((x, y), radius, fill=False, **_stroke(photograph)))
    _dots(axes, circles[:, :2], photograph)
    return _pixels(figure)


def draw_points(
    photograph: np.ndarray, points: np.ndarray, scales: np.ndarray | None = None, turns: np.ndarray | None = None
) -> np.ndarray:
    """Points; with scales and turns as circles with a hand.   (N, 2) as (x, y), (N,) in pixels, (N,) in radians"""
    from matplotlib.patches import Circle

    figure, axes = _over(photograph)
    if scales is None or turns is None:
        _dots(axes, points, photograph)
        return _pixels(figure)
    thin = _stroke(photograph, 0.6)
    for (x, y), scale, turn in zip(points, scales, turns, strict=True):
        axes.add_patch(Circle((x, y), scale, fill=False, **thin))
        axes.plot([x, x + scale * math.cos(turn)], [y, y + scale * math.sin(turn)], **thin)
    return _pixels(figure)


def draw_boxes(photograph: np.ndarray, boxes: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """Boxes left, top, right, bottom, where pixel i covers [i, i + 1), and their names, if they have some.   (N, 4)"""
    figure, axes = _over(photograph)
    for box in boxes:
        _box(axes, box, **_stroke(photograph, 0.7))
    label: dict[str, Any] = {"color": RIM, "fontsize": 7 * _size(photograph), "parse_math": False, "clip_on": True}
    label["bbox"] = {"facecolor": FOUND, "edgecolor": "none", "pad": 1.5}
    for (left, top, _, bottom), name in zip(boxes, names, strict=False):
        above = top > 14 * _size(photograph)  # there is room for a name
        y, side = (top, "bottom") if above else (bottom, "top")
        axes.text(left - 0.5, y - 0.5, one_line(name, LONGEST), va=side, **label)
    return _pixels(figure)


def draw_classes(photograph: np.ndarray, classes: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """A colour for every class, half over the photograph, and a legend of those that are there.   (H, W)"""
    from matplotlib.patches import Rectangle

    height, width = photograph.shape[:2]
    there = np.unique(classes)
    there = there[np.argsort([-(classes == number).sum() for number in there])]
    colours = {number: BRANCHES[place % len(BRANCHES)] for place, number in enumerate(there)}
    figure = _canvas(width + LEGEND, height)
    axes = _part(figure, 0, 0, width, height)
    veil = np.zeros((*classes.shape, 3))
    for number, colour in colours.items():
        veil[classes == number] = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    axes.imshow((photograph / 255 + veil) / 2, **PLAIN)
    legend = _part(figure, width, 0, LEGEND, height)
    legend.set(xlim=(0, LEGEND), ylim=(height, 0))
    for row, number in enumerate(there[: max(1, height // ROW)]):
        legend.add_patch(Rectangle((8, ROW * row + 5), 10, 10, facecolor=colours[number]))
        told = one_line(names[number], LONGEST)
        legend.text(24, ROW * row + 10, told, color=INK, fontsize=8, va="center", parse_math=False)
    return _pixels(figure)


def draw_path(frame: np.ndarray, boxes: np.ndarray, lost: bool = False) -> np.ndarray:
    """The last box, the way of its centre, and the first box, dashed. A box that was lost is magenta.   (T, 4)"""
    figure, axes = _over(frame)
    _box(axes, boxes[0], **_stroke(frame, 0.8), linestyle=(0, (3, 2)))
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2 - 0.5
    axes.plot(*centres.T, **_stroke(frame, 0.8))
    _dots(axes, centres[-1:], frame)
    _box(axes, boxes[-1], **_stroke(frame, 1.2, REFUSED if lost else FOUND))
    return _pixels(figure)


# -- two pictures -----------------------------------------------------------------------------------------------------


def draw_matches(
    left: np.ndarray, right: np.ndarray, here: np.ndarray, there: np.ndarray, agree: np.ndarray
) -> np.ndarray:
    """Both pictures side by side; lines join what matches: amber where pairs agree, magenta where they do not.

    here and there (M, 2) as (x, y), agree (M,)
    """
    height, start = max(len(left), len(right)), left.shape[1] + GAP
    both = np.full((height, start + right.shape[1], 3), 255, dtype=np.uint8)
    both[: len(left), : left.shape[1]], both[: len(right), start:] = left, right
    figure, axes = _over(both)
    for which, colour, width in ((~agree, REFUSED, 0.4), (agree, FOUND, 0.5)):
        chosen = np.flatnonzero(which)
        chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), MOST_LINES)).round().astype(int)]
        for (x, y), (u, v) in zip(here[chosen], there[chosen], strict=True):
            axes.plot([x, u + start], [y, v], **_stroke(both, width, colour))
        for places in (here[chosen], there[chosen] + (start, 0)):
            _dots(axes, places, both, 0.5, colour)
    return _pixels(figure)


def flow_colours(flow: np.ndarray, longest: float) -> np.ndarray:
    """Hue says where to, saturation how far; white stays.   (2, H, W), a length in pixels -> (H, W, 3) from 0 to 1

    Convention: red to the right, then yellow, green: clockwise on screen. NaN is grey.

    >>> flow_colours(np.array([[[2.0, 0.0]], [[0.0, 0.0]]]), longest=2.0)
    array([[[1., 0., 0.],
            [1., 1., 1.]]])
    """
    from matplotlib.colors import hsv_to_rgb

    known = np.isfinite(flow).all(0)
    u, v = np.where(known, flow, 0)
    hue = np.arctan2(v, u) / (2 * math.pi) % 1
    colours: np.ndarray = hsv_to_rgb(np.stack([hue, (np.hypot(u, v) / longest).clip(0, 1), np.ones_like(u)], -1))
    return np.where(known[..., None], colours, UNKNOWN)


def draw_flow(flow: np.ndarray, truth: np.ndarray | None = None) -> np.ndarray:
    """A flow in colours, the truth beside it where there is one, and a wheel that says what they mean.   (2, H, W)"""
    shown = {"flow": flow} if truth is None else {"flow": flow, "truth": truth}
    lengths = np.concatenate([np.hypot(*field).ravel() for field in shown.values()])
    longest = float(np.percentile(lengths[np.isfinite(lengths)], 99)) or 1.0  # a few stray pixels would fade the rest
    height, width = flow.shape[1:]
    tall = max(height, LEGEND + 40)
    figure = _canvas(len(shown) * (width + GAP) + LEGEND, tall)
    with style():
        for place, field in enumerate(shown.values()):
            _part(figure, place * (width + GAP), 0, width, height).imshow(flow_colours(field, longest), **PLAIN)
        wheel = _part(figure, len(shown) * (width + GAP), 0, LEGEND, LEGEND)
        y, x = np.mgrid[-1.15:1.15:230j, -1.15:1.15:230j]
        disc = np.where(np.hypot(x, y) <= 1, 1.0, 0.0)[..., None]
        wheel.imshow(disc * flow_colours(np.stack([x, y]), 1.0) + (1 - disc), **PLAIN)
        where = len(shown) * (width + GAP) + LEGEND / 2
        names = "left: flow\nright: truth" if truth is not None else ""
        for text, top, colour in ((f"rim: {longest:.3g} px", LEGEND + 4, INK), (names, LEGEND + 22, MUTED)):
            figure.text(where / _width(figure), 1 - top / tall, text, ha="center", va="top", fontsize=8, color=colour)
    return _pixels(figure)


# -- a canvas of exact pixels -----------------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {"interpolation": "nearest", "aspect": "auto", "vmin": 0, "vmax": 1}


def _canvas(width: float, height: float) -> Figure:
    require("plots")
    from matplotlib.figure import Figure

    hair = 1e-3  # sides are cut off to whole pixels, and a quotient may lie below one
    return Figure(figsize=((width + hair) / DPI, (height + hair) / DPI), dpi=DPI, facecolor=PAPER)


def _width(figure: Figure) -> float:
    return float(figure.get_figwidth() * DPI)


def _part(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes that cover these pixels."""
    wide, tall = figure.get_size_inches() * DPI
    axes = figure.add_axes((left / wide, 1 - (top + height) / tall, width / wide, height / tall))
    axes.set_axis_off()
    return axes


def _over(photograph: np.ndarray) -> tuple[Figure, Axes]:
    """A photograph to draw on, in its pixels: centres of pixels at whole numbers."""
    height, width = photograph.shape[:2]
    figure = _canvas(width, height)
    axes = _part(figure, 0, 0, width, height)
    axes.imshow(photograph, **PLAIN)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), autoscale_on=False)
    return figure, axes


def _pixels(figure: Figure) -> np.ndarray:
    return np.asarray(open_picture(render(figure, dpi=DPI)).convert("RGB"))


def _size(photograph: np.ndarray) -> float:
    """How much larger than on a small picture things are drawn."""
    return max(1.0, max(photograph.shape[:2]) / 400)


def _stroke(photograph: np.ndarray, times: float = 1.0, colour: str = FOUND) -> dict[str, Any]:
    """A line that is seen on light and on dark, wider on larger pictures."""
    from matplotlib.patheffects import Normal, Stroke

    points = times * _size(photograph) * 72 / DPI * 2
    rim = Stroke(linewidth=points + 1.2, foreground=RIM, alpha=0.6)
    # a place may lie between pixels: matplotlib would move it to the nearest
    return {"color": colour, "linewidth": points, "path_effects": [rim, Normal()], "snap": False}


def _dots(axes: Axes, points: np.ndarray, photograph: np.ndarray, times: float = 1.0, colour: str = FOUND) -> None:
    """Circles of their own: markers of matplotlib lie on whole pixels."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle

    radius = 2.2 * times * _size(photograph)
    dots = [Circle((x, y), radius) for x, y in points.reshape(-1, 2)]
    axes.add_collection(PatchCollection(dots, facecolor=colour, edgecolor=RIM, linewidth=0.5, zorder=3))


def _box(axes: Axes, box: np.ndarray, **how: Any) -> None:
    left, top, right, bottom = (float(side) - 0.5 for side in box)
    axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], solid_joinstyle="miter", **how)
