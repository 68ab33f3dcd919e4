"""Draws the pictures of docs/classics.md: `python docs/make_pictures.py` all of them, with numbers only these.

    python docs/make_pictures.py               # all: about a minute
    python docs/make_pictures.py 14.15 14.35   # Canny and HOG

It needs `pip install 'horosphere[classics,plots]'`.
An item's picture is docs/images/classics/NUMBER.png. Each is made by the function that the item names, of photographs
that come with scikit-image or of `horosphere.data.scenes`. Nothing is fetched, and the same picture comes out each
time. UNSEEN are the items without one, and why. Then `python docs/make_classics.py` writes the page.
"""

from __future__ import annotations

import io
import math
import runpy
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import kornia
import matplotlib.style
import numpy as np
import torch
import torch.nn.functional as F
from kornia import feature, filters, geometry
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from PIL import Image
from scipy import ndimage, signal
from skimage import data as photographs
from torch import Tensor, nn
from torchvision import ops as box_ops
from torchvision.transforms import v2

from horosphere.data import scenes
from horosphere.data.augment import Augmentation
from horosphere.data.dense import Instances
from horosphere.data.dense_batches import cut
from horosphere.evaluate.flow import endpoint_error
from horosphere.models.segmentation import bilinear_kernel
from horosphere.models.siamese import SiamFCConfig, look_at, search_around, signs
from horosphere.models.style import Picture, Seen, StyleConfig, StyleLoss, gram, standardised
from horosphere.models.tinyssd import TinySSD, TinySSDConfig
from horosphere.ops.boxes import anchors, assign, encode
from horosphere.ops.camera import dlt, project, reprojection_error
from horosphere.ops.features import brief, hog, noble, surf
from horosphere.ops.filters import cmyk, high_pass, laplacian_of_gaussian, prewitt
from horosphere.ops.flow import horn_schunck, lucas_kanade, pyramid, smaller_eigenvalue, track
from horosphere.ops.hough import hough_circles, hough_lines, peaks
from horosphere.ops.proposals import selective_search

HERE = Path(__file__).parent
FOLDER = HERE / "images" / "classics"
WIDTH, TALLEST, GAP, CAPTION = 480, 200, 8, 16  # pixels: of a picture; of a panel, between two, and above it
LARGEST = 32_000  # bytes of a file; one with fewer colours is taken until it fits
COLOURS = (256, 128, 96, 64, 48, 32, 24, 16)
ORANGE, BLUE, GREEN, PINK, YELLOW = "#ff7f0e", "#1f8bff", "#16a34a", "#e8298a", "#ffd43b"
STROKES = (ORANGE, BLUE, GREEN, PINK, YELLOW)

Mark = Callable[[Axes], Any]


class Panel(NamedTuple):
    """A picture with a line above it and marks on it, or a plot of this ratio of width to height."""

    caption: str
    image: Tensor | np.ndarray | None  # (…, 1 or 3, H, W) tensor, or (H, W) or (H, W, 3) array, from 0 to 1
    marks: tuple[Mark, ...] = ()
    ratio: float = 1.0  # of a plot


PICTURES: dict[str, Callable[[], list[Panel]]] = {}
UNSEEN = {
    "1.22": "an equation; 14.39 is what comes of it",
    "10.04": "a training",
    "10.11": "a part of a network",
    "10.12": "a part of a network",
    "10.13": "an order of numbers",
    "10.14": "a part of a network",
    "10.16": "a loss",
    "10.20": "a network that has to be trained first",
    "10.21": "a network that has to be trained first",
    "10.22": "a network that has to be trained first",
    "10.28": "a loss",
    "14.42": "a network that has to be trained first",
}


def draws(number: str) -> Callable[[Callable[[], list[Panel]]], Callable[[], list[Panel]]]:
    def keep(function: Callable[[], list[Panel]]) -> Callable[[], list[Panel]]:
        assert number not in PICTURES
        PICTURES[number] = function
        return function

    return keep


# -- drawing ----------------------------------------------------------------------------------------------------------


def drawn(number: str) -> bytes:
    """The file of an item's picture."""
    torch.manual_seed(0)
    with matplotlib.style.context("default"):
        return compressed(rendered(PICTURES[number]()))


def rendered(panels: list[Panel]) -> Image.Image:
    """Panels of one height, side by side."""
    images = [None if panel.image is None else _array(panel.image) for panel in panels]
    ratios = [
        panel.ratio if image is None else image.shape[1] / image.shape[0]
        for panel, image in zip(panels, images, strict=True)
    ]
    height = min(TALLEST, round((WIDTH - GAP * (len(panels) - 1)) / sum(ratios)))
    widths = [round(ratio * height) for ratio in ratios]
    across, down = sum(widths) + GAP * (len(panels) - 1), height + CAPTION
    figure = Figure(figsize=(across / 100, down / 100), dpi=100)
    left = 0
    for panel, image, width in zip(panels, images, widths, strict=True):
        axes = figure.add_axes((left / across, 1 / down, (width - 1) / across, (height - 1) / down))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(color="0.8", linewidth=0.6)
        if image is not None:
            axes.imshow(image, cmap="gray", vmin=0, vmax=1, aspect="auto")
            axes.set_xlim(-0.5, image.shape[1] - 0.5)
            axes.set_ylim(image.shape[0] - 0.5, -0.5)
        for mark in panel.marks:
            mark(axes)
        figure.text(left / across, (height + 4) / down, panel.caption, fontsize=7.5, va="bottom")
        left += width + GAP
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())


def compressed(picture: Image.Image) -> bytes:
    """A .png with as many colours as fit into LARGEST bytes."""
    for colours in COLOURS:
        file = io.BytesIO()
        few = picture.quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
        few.save(file, "PNG", optimize=True)
        if file.tell() <= LARGEST:
            break
    return file.getvalue()


def _array(image: Tensor | np.ndarray) -> np.ndarray:
    """-> (H, W) or (H, W, 3), from 0 to 1"""
    if isinstance(image, Tensor):
        image = image.detach().reshape(-1, *image.shape[-2:]).permute(1, 2, 0).numpy()
    if image.dtype == np.uint8:
        image = image / 255
    return np.clip(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image, 0, 1)


def signed(x: Tensor, most: float | None = None) -> np.ndarray:
    """Red where it is above 0, blue where it is below, white at 0.   (…, H, W) -> (H, W, 3)"""
    values = x.detach().reshape(x.shape[-2:]).numpy()
    most = most or float(np.quantile(abs(values), 0.99)) or 1.0
    return matplotlib.colormaps["RdBu_r"]((values / most).clip(-1, 1) / 2 + 0.5)[..., :3]


def heat(x: Tensor, most: float | None = None, least: float = 0.0) -> np.ndarray:
    """Dark to bright.   (…, H, W) -> (H, W, 3)"""
    values = x.detach().double().reshape(x.shape[-2:]).numpy()
    most = most or float(values.max()) or 1.0
    return matplotlib.colormaps["magma"]((values - least) / (most - least))[..., :3]


def wheel(x: Tensor, y: Tensor, most: float) -> np.ndarray:
    """Directions as colours, lengths as how strong they are.   (…, H, W) each -> (H, W, 3)"""
    x, y = (t.detach().double().reshape(t.shape[-2:]) for t in (x, y))
    hue, length = torch.atan2(y, x) / (2 * math.pi) % 1, (torch.hypot(x, y) / most).clamp(0, 1)
    return matplotlib.colors.hsv_to_rgb(torch.stack([hue, length, torch.ones_like(hue)], -1).numpy())


def tinted(values: Tensor) -> np.ndarray:
    """White at 0, deeper for larger ones up to 12, for numbers to be written on.   (H, W) -> (H, W, 3)"""
    return 1 - (values.double() / 12)[..., None].numpy() * np.array([0.05, 0.25, 0.5])


def boxed(boxes: Tensor | np.ndarray, colour: str = ORANGE, width: float = 1.3, **how: Any) -> Mark:
    """Outlines of boxes (N, 4) in pixels. Pixel i covers [i, i + 1), and its centre is drawn at i."""

    def mark(axes: Axes) -> None:
        for left, top, right, bottom in np.asarray(boxes, dtype=float) - 0.5:
            corner, size = (left, top), (right - left, bottom - top)
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=width, **how))

    return mark


def dotted(points: Tensor | np.ndarray, colour: str = ORANGE, size: float = 3, shape: str = "o", **how: Any) -> Mark:
    """Points (N, 2) as (x, y)."""
    x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
    return lambda axes: axes.plot(x, y, shape, color=colour, markersize=size, **({"markeredgewidth": 0} | how))


def circled(points: Iterable[Any], radii: Iterable[Any], colour: str = ORANGE, width: float = 1.2) -> Mark:
    def mark(axes: Axes) -> None:
        for (x, y), radius in zip(points, radii, strict=True):
            axes.add_patch(Circle((float(x), float(y)), float(radius), fill=False, edgecolor=colour, linewidth=width))

    return mark


def lined(starts: Any, ends: Any, colour: Any = ORANGE, width: float = 1.0) -> Mark:
    """Straight lines between points (N, 2) and (N, 2); one colour, or one for each."""
    lines = np.stack([np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)], 1)
    return lambda axes: axes.add_collection(LineCollection(list(lines), colors=colour, linewidths=width))


def arrows(points: Any, moves: Any, colour: str = ORANGE, width: float = 0.006) -> Mark:
    x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
    u, v = np.asarray(moves, dtype=float).reshape(-1, 2).T
    how = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": width, "headwidth": 4, "headlength": 4}
    return lambda axes: axes.quiver(x, y, u, v, color=colour, **how)


def written(x: float, y: float, text: str, colour: str = "black", size: float = 7.0, **how: Any) -> Mark:
    return lambda axes: axes.text(x, y, text, color=colour, fontsize=size, **({"ha": "center", "va": "center"} | how))


def tabled(values: Tensor, size: float = 7.0) -> Mark:
    """Each number in its cell.   (H, W)"""
    rows, columns = values.shape
    cells = [(x, y, f"{values[y, x].item():g}") for y in range(rows) for x in range(columns)]

    def mark(axes: Axes) -> None:
        for x, y, text in cells:
            written(x, y, text, size=size)(axes)
        axes.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color="0.6", linewidth=0.6)
        axes.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color="0.6", linewidth=0.6)

    return mark


# -- what is drawn from -----------------------------------------------------------------------------------------------


def colour(name: str, width: int, window: tuple[int, int, int, int] | None = None) -> Tensor:
    """A photograph of scikit-image, or a window of it (left, top, right, bottom), so wide.   -> (1, 3, H, W) float64"""
    pixels = np.asarray(getattr(photographs, name)())
    pixels = np.repeat(pixels[..., None], 3, -1) if pixels.ndim == 2 else pixels[..., :3]
    if window:
        left, top, right, bottom = window
        pixels = pixels[top:bottom, left:right]
    x = torch.tensor(pixels).permute(2, 0, 1)[None].double() / 255
    height = round(width * x.shape[2] / x.shape[3])
    return F.interpolate(x, (height, width), mode="bilinear", antialias=True, align_corners=False)


def grey(name: str, width: int, window: tuple[int, int, int, int] | None = None) -> Tensor:
    """-> (1, 1, H, W) float64"""
    return kornia.color.rgb_to_grayscale(colour(name, width, window))


def from_pixels(picture: np.ndarray) -> Tensor:
    """(H, W, 3) uint8 -> (1, 3, H, W) float64"""
    return torch.tensor(picture).permute(2, 0, 1)[None].double() / 255


def luminance(picture: np.ndarray) -> Tensor:
    return kornia.color.rgb_to_grayscale(from_pixels(picture))


def three_digits(width: int = 128) -> tuple[np.ndarray, Instances]:
    """The first scene with three digits of which two are alike."""
    drawn = (scenes.scene(number, width=width) for number in range(100))
    return next(pair for pair in drawn if len(pair[1].labels) == 3 and len(set(pair[1].labels.tolist())) == 2)


def grid(height: int, width: int, step: int) -> np.ndarray:
    """Points (N, 2), so many pixels apart."""
    y, x = np.mgrid[step // 2 : height : step, step // 2 : width : step]
    return np.stack([x.ravel(), y.ravel()], 1)


def at(field: Tensor | np.ndarray, points: np.ndarray) -> np.ndarray:
    """(1, 2, H, W) or (2, H, W) at points (N, 2) -> (N, 2)"""
    values = np.asarray(field).reshape(2, *field.shape[-2:])
    return values[:, points[:, 1], points[:, 0]].T


def blurred(x: Tensor, sigma: float) -> Tensor:
    return filters.gaussian_blur2d(x, 2 * round(4 * sigma) + 1, (sigma, sigma))


CAMERA = (80, 20, 400, 340)  # the man and his camera


# -- 1. first definitions ---------------------------------------------------------------------------------------------


@draws("1.11")
def smooth_l1() -> list[Panel]:
    d = torch.linspace(-2.5, 2.5, 501)
    loss = F.smooth_l1_loss(d, torch.zeros_like(d), beta=1.0, reduction="none")
    inside, outside = d.abs() < 1, d.abs() >= 1

    def plot(axes: Axes) -> None:
        axes.plot(d, loss, color=BLUE, label="½d², |d| - ½")
        for part in (d < -1, inside, d > 1):
            axes.plot(d[part], torch.where(outside, d.abs() - 1, d**2)[part], "--", color=ORANGE)
        axes.plot([], [], "--", color=ORANGE, label="d², |d| - 1: a jump at 1")
        axes.axvline(0, color="0.85", linewidth=0.8, zorder=0)
        axes.legend(fontsize=7, loc="upper center", frameon=False)

    return [Panel("Smooth L1, and the notes' with α = 1", None, (plot,), ratio=1.8)]


@draws("1.17")
def laplace() -> list[Panel]:
    x = grey("coins", 236)
    return [
        Panel("f", x),
        Panel("Δf: red above 0, blue below", signed(filters.laplacian(blurred(x, 1.0), 3, normalized=False) / 3)),
    ]


@draws("1.18")
def convolution() -> list[Panel]:
    kernel = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=float)
    f = np.zeros((19, 19))
    f[4, 4] = f[9, 14] = f[14, 6] = 1
    return [
        Panel("f: three points", 1 - f),
        Panel("g", 1 - np.pad(kernel, ((7, 7), (8, 8)))),
        Panel("f∗g, flipped: g itself", 1 - signal.convolve(f, kernel, mode="same")),
        Panel("a layer: g turned", 1 - signal.correlate(f, kernel, mode="same")),
    ]


# -- 10. seeing -------------------------------------------------------------------------------------------------------


@draws("10.01")
def flips() -> list[Panel]:
    x = colour("chelsea", 154)
    return [
        Panel("picture", x),
        Panel("left and right", v2.RandomHorizontalFlip(p=1)(x)),
        Panel("up and down", v2.RandomVerticalFlip(p=1)(x)),
    ]


@draws("10.02")
def random_crops() -> list[Panel]:
    x = colour("astronaut", 300)
    box = Augmentation(crop="random").box
    windows = [box(300, 300, draw) for draw in ((0.05, 0.8, 0.18, 0.6), (0.3, 0.1, 0.9, 0.1), (0.12, 0.5, 0.95, 1.0))]
    corners = np.array([(left, top, left + wide, top + high) for top, left, high, wide in windows])
    shown = [Panel("picture", x, tuple(boxed(c[None], s) for c, s in zip(corners, STROKES, strict=False)))]
    for number, ((top, left, high, wide), stroke) in enumerate(zip(windows, STROKES, strict=False)):
        seen = v2.functional.resized_crop(x, *map(round, (top, left, high, wide)), [114, 114], antialias=True)
        shown.append(Panel(f"window {number + 1}, resized", seen, (boxed([[1, 1, 113, 113]], stroke, 2),)))
    return shown


@draws("10.03")
def colour_jitter() -> list[Panel]:
    x = colour("coffee", 160)
    ranges = {"brightness": (1.4, 1.4), "contrast": (1.6, 1.6), "saturation": (0.2, 0.2), "hue": (0.4, 0.4)}
    jittered = [Panel(name, v2.ColorJitter(**{name: by})(x)) for name, by in ranges.items()]
    return [Panel("picture", x), *jittered]


@draws("10.05")
def boxes_around_a_place() -> list[Panel]:
    x = colour("chelsea", 300)
    height, width = x.shape[2:]
    sizes, ratios = (0.55, 0.4, 0.25), (1, 2, 0.5)
    every = anchors(3, 4, sizes, ratios) * torch.tensor([width, height, width, height])
    place = every.view(3, 4, 5, 4)[1, 2]
    names = [f"s = {s:g}, r = 1" for s in sizes] + [f"s = {sizes[0]:g}, r = {r:g}" for r in ratios[1:]]

    def legend(axes: Axes) -> None:
        for name, stroke in zip(names, STROKES, strict=True):
            axes.plot([], [], color=stroke, label=name)
        axes.legend(fontsize=7, loc="center", frameon=False)
        axes.set_axis_off()

    return [
        Panel(
            "A map of 3 x 4 places; the anchors of one",
            x,
            (
                dotted(every.view(-1, 5, 4)[:, 0].view(-1, 2, 2).mean(1) - 0.5, "white", 4),
                *(boxed(box[None], stroke, 1.8) for box, stroke in zip(place, STROKES, strict=True)),
            ),
        ),
        Panel("", None, (legend,), ratio=0.6),
    ]


@draws("10.06")
def intersection_over_union() -> list[Panel]:
    first = torch.tensor([[2.0, 4.0, 14.0, 14.0]])
    panels = []
    for second in ([3.0, 5.0, 15.0, 15.0], [8.0, 6.0, 20.0, 16.0], [14.0, 10.0, 22.0, 17.0]):
        other = torch.tensor([second])
        left, top = torch.maximum(first, other)[0, :2]
        right, bottom = torch.minimum(first, other)[0, 2:]
        canvas = np.ones((20, 24, 3))
        canvas[int(top) : int(bottom), int(left) : int(right)] = matplotlib.colors.to_rgb("#ffe066")
        iou = box_ops.box_iou(first, other).item()
        panels.append(Panel(f"IoU {iou:.2f}", canvas, (boxed(first, BLUE, 2), boxed(other, ORANGE, 2))))
    return panels


@draws("10.07")
def assignment() -> list[Panel]:
    picture, truth = three_digits()
    boxes = torch.tensor(truth.boxes).float()
    every = anchors(7, 7, (0.3, 0.42), (1, 2, 0.5)) * 128
    which = assign(every, boxes[None], torch.tensor([len(boxes)]), threshold=0.5)[0]
    colours = STROKES[: len(boxes)]
    truths = tuple(boxed(box[None], stroke, 2) for box, stroke in zip(boxes, colours, strict=True))
    answers = tuple(boxed(every[which == n], stroke, 1.2) for n, stroke in enumerate(colours))
    nothing = every[which < 0][::21]
    return [
        Panel("the truth", picture, truths),
        Panel("anchors that answer for it", picture, answers),
        Panel("some that are background", picture, (boxed(nothing, "white", 0.8),)),
    ]


@draws("10.08")
def offsets() -> list[Panel]:
    anchor, box = torch.tensor([[6.0, 6.0, 46.0, 46.0]]), torch.tensor([[14.0, 14.0, 82.0, 50.0]])
    x, y, w, h = encode(box, anchor)[0].tolist()
    start, end = ((z[0, :2] + z[0, 2:]) / 2 - 0.5 for z in (anchor, box))
    told = f"x {x:.2f}\ny {y:.2f}\nw {w:.2f}\nh {h:.2f}"
    return [
        Panel(
            "From the anchor (blue) to the box (orange)",
            np.ones((56, 90)),
            (boxed(anchor, BLUE, 2), boxed(box, ORANGE, 2), arrows(start, end - start, "black", 0.01)),
        ),
        Panel("offsets", np.ones((56, 36)), (written(6, 28, told, size=9, ha="left"),)),
    ]


@draws("10.09")
def suppression() -> list[Panel]:
    picture, truth = three_digits()
    random = torch.Generator().manual_seed(1)
    exact = torch.tensor(truth.boxes).float()
    boxes = exact.repeat_interleave(6, 0)
    boxes = boxes + 0.08 * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2) * torch.randn(boxes.shape, generator=random)
    labels = torch.tensor(truth.labels).repeat_interleave(6)
    scores = box_ops.box_iou(boxes, exact).amax(1)
    kept = box_ops.batched_nms(boxes, scores, labels, 0.5)
    told = [
        written(float(boxes[k, 0]), float(boxes[k, 1]) - 4, f"{scores[k]:.2f}", "white", ha="left")
        for k in kept
    ]  # fmt: skip
    return [
        Panel(f"{len(boxes)} answers", picture, (boxed(boxes, ORANGE, 0.8),)),
        Panel(f"{len(kept)} are left", picture, (boxed(boxes[kept], ORANGE, 2), *told)),
    ]


@draws("10.10")
def several_scales() -> list[Panel]:
    x = colour("coffee", 240)
    height, width = x.shape[2:]
    panels = []
    for (rows, columns), size in (((6, 9), 0.11), ((4, 6), 0.18), ((2, 3), 0.38)):
        boxes = anchors(rows, columns, [size], [1.0]) * torch.tensor([width, height, width, height])
        marks = boxed(boxes, YELLOW, 1), dotted(boxes.view(-1, 2, 2).mean(1) - 0.5, "white", 1.5)
        panels.append(Panel(f"{rows} x {columns} places, size {size}", x, marks))
    return panels


@draws("10.15")
def tinyssd() -> list[Panel]:
    x = colour("chelsea", 256, (75, 0, 375, 300))
    network = TinySSD(1, TinySSDConfig())
    sides = [32, 16, 8, 4, 1]
    panels = []
    for side, boxes in zip(sides, network.anchors.split([4 * side * side for side in sides]), strict=True):
        places = boxes.view(side, side, 4, 4) * 256
        centres = places[:, :, 0].view(-1, 2, 2).mean(1) - 0.5
        middle = places[side // 2, side // 2]
        size = max(0.7, min(3.0, 20 / side))
        panels.append(Panel(f"{side} x {side}", x, (dotted(centres, YELLOW, size), boxed(middle, PINK, 1.4))))
    return panels


@draws("10.17")
def regions() -> list[Panel]:
    picture, truth = three_digits()
    boxes, _ = selective_search(from_pixels(picture)[0])
    best = boxes[box_ops.box_iou(torch.tensor(truth.boxes).float(), boxes).argmax(1)]
    first = (len(boxes) + 1) // 2
    return [
        Panel(f"{first} first regions", picture, (boxed(boxes[:first], YELLOW, 0.5),)),
        Panel(f"{first - 1} merged ones", picture, (boxed(boxes[first:], BLUE, 0.5),)),
        Panel("those nearest to digits", picture, (boxed(best, ORANGE, 2),)),
    ]


@draws("10.18")
def rcnn() -> list[Panel]:
    steps = runpy.run_path(str(HERE / "examples" / "rcnn.py"))
    picture, truth = three_digits()
    boxes, _ = selective_search(from_pixels(picture)[0])
    boxes = boxes.unique(dim=0)
    near = box_ops.box_iou(torch.tensor(truth.boxes).float(), boxes).argmax(1)
    some = torch.cat([near, torch.arange(0, len(boxes), len(boxes) // (16 - len(near)))])[:16]
    seen = steps["crops"](torch.tensor(picture).permute(2, 0, 1), boxes[some])
    tiled = F.pad(seen.double() / 255, (1, 1, 1, 1), value=1.0).view(4, 4, 3, 34, 34).permute(2, 0, 3, 1, 4)
    return [
        Panel(f"{len(boxes)} proposals, 16 of them drawn", picture, (boxed(boxes[some], YELLOW, 1),)),
        Panel("their crops, for a network and an SVM", tiled.reshape(3, 136, 136)),
    ]


@draws("10.19")
def roi_pooling() -> list[Panel]:
    values = torch.tensor(np.random.default_rng(3).integers(0, 10, (6, 8))).double()
    box = torch.tensor([[0, 2.0, 1.0, 5.0, 4.0]], dtype=torch.float64)  # of picture 0; its end is inclusive
    pooled = box_ops.roi_pool(values[None, None], box, output_size=2)[0, 0]
    bins = np.array([[2, 1, 4, 3], [4, 1, 6, 3], [2, 3, 4, 5], [4, 3, 6, 5]])
    return [
        Panel("A map, a box, and its 2 x 2 bins", tinted(values), (tabled(values), boxed(bins, ORANGE, 2))),
        Panel("the largest of each", tinted(pooled), (tabled(pooled, 12), boxed([[0, 0, 2, 2]], ORANGE, 3))),
    ]


@draws("10.23")
def kinds_of_segmentation() -> list[Panel]:
    picture, truth = three_digits()
    classes = {label: number for number, label in enumerate(dict.fromkeys(truth.labels.tolist()))}

    def painted(colours: list[int]) -> np.ndarray:
        over = picture / 255 * 0.35 + 0.1
        for mask, number in zip(truth.masks, colours, strict=True):
            over[mask] = matplotlib.colors.to_rgb(STROKES[number])
        return over

    return [
        Panel("picture", picture),
        Panel("semantic: a colour a class", painted([classes[label] for label in truth.labels.tolist()])),
        Panel("instance: a colour an object", painted(list(range(len(truth.labels))))),
    ]


@draws("10.24")
def crops_of_masks() -> list[Panel]:
    picture, truth = three_digits(width=190)
    mask = np.einsum("nhw,n->hw", truth.masks, truth.labels).astype(np.int16)
    window, classes = cut(picture, mask, 128, (1.0, 1.0), False, np.array([0.0, 0.0, 0.75, 1.0]))
    left = int(0.75 * (190 - 128 + 1))
    frame = boxed([[left, 0, left + 128, 128]], ORANGE, 2)
    return [
        Panel("picture", picture, (frame,)),
        Panel("its classes", (mask > 0) * 1.0, (frame,)),
        Panel("one window", window),
        Panel("of both", (classes > 0) * 1.0),
    ]


@draws("10.25")
def upsampling() -> list[Panel]:
    """Of a coarse map of three classes, by the kernel that FCN's upsampling begins with."""
    stride, classes = 32, 3
    y, x = torch.meshgrid(torch.arange(4.0), torch.arange(5.0), indexing="ij")
    places = torch.tensor([[0.6, 2.2], [3.6, 0.8], [2.4, 3.2]])
    logits = torch.stack([-((x - a).square() + (y - b).square()) for a, b in places])[None]
    fine = F.conv_transpose2d(logits, bilinear_kernel(classes, 2 * stride), stride=stride, padding=stride // 2)
    paint = torch.tensor([matplotlib.colors.to_rgb(stroke) for stroke in STROKES[:classes]])
    return [
        Panel("argmax of 4 x 5 places", paint[logits[0].argmax(0)].numpy()),
        Panel("the kernel, 64 x 64", heat(bilinear_kernel(1, 2 * stride))),
        Panel("argmax after upsampling", paint[fine[0].argmax(0)].numpy()),
    ]


@draws("10.26")
def transposed_convolution() -> list[Panel]:
    layer = nn.ConvTranspose2d(1, 1, 2, stride=2, bias=False)
    kernel = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    with torch.no_grad():
        layer.weight.copy_(kernel)
        y = layer(x[None, None])[0, 0]
    return [
        Panel("x, 2 x 2", tinted(x), (tabled(x, 11), boxed([[1, 1, 2, 2]], PINK, 2.5))),
        Panel("kernel", tinted(kernel), (tabled(kernel, 11),)),
        Panel("convᵀ x, stride 2", tinted(y), (tabled(y, 11), boxed([[2, 2, 4, 4]], PINK, 2.5))),
    ]


class RandomFilters:
    """Stands for a trained network, which would have to be fetched: 7 x 7 filters at four scales, as a Trunk.

    Content is what is seen from afar.
    """

    def __init__(self) -> None:
        kernels = torch.randn(32, 3, 7, 7, generator=torch.Generator().manual_seed(0))
        kernels = kernels - kernels.mean((2, 3), keepdim=True)
        self.kernels = kernels / kernels.flatten(1).norm(dim=1).view(-1, 1, 1, 1)

    def __call__(self, x: Tensor) -> Seen:
        style = []
        for level in (x, *(F.avg_pool2d(x, 2**k) for k in (1, 2, 3))):
            answers = F.conv2d(F.pad(level, (3, 3, 3, 3), mode="reflect"), self.kernels).relu()
            style.append(torch.cat([answers, 0.5 * level], 1))
        return Seen(blurred(x.mean(1, keepdim=True), 2.0), style)


def styled(width: int, steps: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Content, style, and the picture before each step and after the last."""
    content = colour("chelsea", width, (100, 10, 380, 290)).float()
    style = colour("coffee", width, (100, 50, 450, 400)).float()
    config = StyleConfig(style_weight=1e4, variation_weight=0.1)
    loss, picture = StyleLoss(RandomFilters(), standardised(content), standardised(style), config), Picture(content)
    optimizer, shown = torch.optim.Adam(picture.parameters(), lr=0.05), []
    for _ in range(steps):
        shown.append(picture.pixels())
        optimizer.zero_grad()
        loss.total(loss.parts(picture())).backward()
        optimizer.step()
        picture.after_step()
    return content, style, [*shown, picture.pixels()]


@draws("10.27")
def style_transfer() -> list[Panel]:
    content, style, seen = styled(154, steps=150)
    return [Panel("content", content), Panel("style", style), Panel("both, by random filters", seen[-1].numpy())]


@draws("10.29")
def style_loss() -> list[Panel]:
    windows = {"grass": ("grass", (0, 0, 200, 200)), "more grass": ("grass", (280, 250, 480, 450))}
    windows["brick"] = ("brick", (0, 0, 200, 200))
    panels = []
    for caption, (name, window) in windows.items():
        x = grey(name, 100, window)
        right, down = filters.spatial_gradient(x)[:, 0].unbind(1)
        turns = (k * math.pi / 4 for k in range(4))
        layer = torch.stack([(math.cos(turn) * right + math.sin(turn) * down).abs() for turn in turns], 1)
        matrix = gram(layer / layer.square().mean().sqrt())[0]
        panels += [Panel(caption, x), Panel("Gram", heat(matrix, 0.5))]
    return panels


@draws("10.30")
def total_variation() -> list[Panel]:
    x = grey("camera", 154, CAMERA)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shown = {"smoothed": blurred(x, 2.0), "a photograph": x, "with noise": (x + 0.15 * noise).clamp(0, 1)}
    return [
        Panel(f"{name}: {kornia.losses.total_variation(seen).sum().item():,.0f}", seen) for name, seen in shown.items()
    ]


@draws("10.31")
def synthesis() -> list[Panel]:
    _, _, seen = styled(114, steps=150)
    return [Panel(f"step {step}", seen[step].numpy()) for step in (0, 10, 40, 150)]


# -- 14. colours and filters ------------------------------------------------------------------------------------------


@draws("14.01")
def bayer() -> list[Panel]:
    x = colour("astronaut", 152, (150, 0, 302, 152))
    raw = kornia.color.rgb_to_raw(x, kornia.color.CFA.BG)
    y, x_of = np.mgrid[:152, :152]
    channel = y % 2 + x_of % 2  # red in the even places, blue in the odd ones, green between
    coloured = (raw[0, 0].numpy()[..., None] * np.eye(3)[channel])[60:84, 62:86]
    back = kornia.color.raw_to_rgb(raw, kornia.color.CFA.BG)
    return [
        Panel("what a sensor measures", raw),
        Panel("near by, in its colours", (1.4 * coloured).clip(0, 1)),
        Panel("with means of neighbours", back),
    ]


@draws("14.02")
def thin_lens() -> list[Panel]:
    f, u, height = 2.0, 5.0, 1.2
    v = 1 / (1 / f - 1 / u)
    image = -height * v / u

    def plot(axes: Axes) -> None:
        axes.axhline(0, color="0.7", linewidth=0.8)
        axes.annotate("", (0, 1.9), (0, -1.9), arrowprops={"arrowstyle": "<->", "color": BLUE, "lw": 2})
        for through in (height, 0.0, image):
            axes.plot([-u, 0, v], [height, through, image], color=ORANGE, linewidth=1)
        for place, size in ((-u, height), (v, image)):
            axes.annotate("", (place, size), (place, 0), arrowprops={"arrowstyle": "->", "lw": 2})
        axes.plot([-f, f], [0, 0], "o", color=BLUE, markersize=4)
        for place, name in ((-f, "f"), (f, "f"), (-u, f"u = {u:g}"), (v, f"v = {v:.2f}")):
            below = -0.35 if place != v else 0.3
            axes.text(place, below, name, fontsize=7.5, ha="center", va="center")
        axes.set_xlim(-u - 0.8, v + 1)
        axes.set_ylim(-2, 2)
        axes.set_axis_off()

    return [Panel(f"1/{f:g} = 1/{u:g} + 1/{v:.2f}", None, (plot,), ratio=2.6)]


@draws("14.03")
def quantisation() -> list[Panel]:
    x = grey("camera", 114, CAMERA)
    return [Panel(f"{n} levels", torch.round(x * (n - 1)) / (n - 1)) for n in (256, 8, 4, 2)]


@draws("14.04")
def opacity() -> list[Panel]:
    x = colour("astronaut", 154, (100, 0, 356, 256))
    y, across = torch.meshgrid(torch.arange(154), torch.arange(154), indexing="ij")
    board = (0.75 + 0.25 * ((y // 11 + across // 11) % 2)).double().expand(1, 3, -1, -1)
    alpha = (1.7 - torch.hypot(y - 70.0, across - 77.0) / 50).clamp(0, 1).double()[None, None]
    over = kornia.color.rgba_to_rgb(torch.cat([x, alpha], 1), board)
    return [Panel("colour", x), Panel("opacity α", alpha), Panel("over a board", over)]


@draws("14.05")
def inks() -> list[Panel]:
    x = colour("astronaut", 160, (0, 0, 400, 400))
    cyan, magenta, yellow, black = cmyk(x).unbind(1)
    ones = torch.ones_like(cyan)
    plates = {
        "c": [1 - cyan, ones, ones],
        "m": [ones, 1 - magenta, ones],
        "y": [ones, ones, 1 - yellow],
        "k": [1 - black] * 3,
    }
    return [Panel("picture", x), *(Panel(name, torch.stack(planes, 1)) for name, planes in plates.items())]


@draws("14.06")
def average() -> list[Panel]:
    x = grey("camera", 236, CAMERA)[..., :180, :]
    return [Panel("picture", x), Panel("mean of 9 x 9", filters.box_blur(x, 9))]


@draws("14.07")
def gaussian() -> list[Panel]:
    x = grey("camera", 154, CAMERA)
    return [Panel("picture", x)] + [
        Panel(f"σ = {sigma:g}", filters.gaussian_blur2d(x, 2 * round(4 * sigma) + 1, (sigma, sigma)))
        for sigma in (1.5, 4.0)
    ]


@draws("14.08")
def high_passed() -> list[Panel]:
    x = blurred(grey("camera", 154, CAMERA), 0.7)
    high = high_pass(x, 5)
    return [Panel("picture", x), Panel("high-pass", signed(high)), Panel("their sum: sharper", x + high)]


@draws("14.09")
def median() -> list[Panel]:
    x = grey("camera", 154, CAMERA)
    draw = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    noisy = torch.where(draw < 0.05, 0.0, torch.where(draw > 0.95, 1.0, x))
    return [
        Panel("a tenth of it is lost", noisy),
        Panel("median of 3 x 3", filters.median_blur(noisy, 3)),
        Panel("mean of 3 x 3", filters.box_blur(noisy, 3)),
    ]


@draws("14.10")
def linear() -> list[Panel]:
    kernel = laplacian_of_gaussian(F.pad(torch.ones(1, 1, 1, 1, dtype=torch.float64), (9,) * 4), 1.5)[0, 0]
    f, g = np.zeros((29, 29)), np.zeros((29, 29))
    f[9, 9], g[19, 18] = 1, -1
    most = float(kernel.abs().max())

    def h(picture: np.ndarray) -> np.ndarray:
        return signed(torch.tensor(ndimage.convolve(picture, kernel.numpy())), 0.8 * most)

    return [
        Panel("impulse f", signed(torch.tensor(f), 1.0)),
        Panel("h(f): the kernel", h(f)),
        Panel("f + g", signed(torch.tensor(f + g), 1.0)),
        Panel("h(f + g)", h(f + g)),
    ]


@draws("14.11")
def differences() -> list[Panel]:
    x = grey("camera", 154, CAMERA)
    across, down = filters.spatial_gradient(x, "diff")[0, 0]
    return [Panel("f", x), Panel("central, along x", signed(across)), Panel("central, along y", signed(down))]


@draws("14.12")
def prewitts_slopes() -> list[Panel]:
    x = grey("coins", 154, (0, 0, 250, 230))
    across, down = prewitt(x)[0, 0]
    return [Panel("f", x), Panel("to the right", signed(across)), Panel("downwards", signed(down))]


@draws("14.13")
def sobels_slope() -> list[Panel]:
    x = grey("camera", 236, CAMERA)[..., :180, :]
    return [Panel("f", x), Panel("Sobel: the length of the slope", 1 - filters.sobel(x) * 4)]


@draws("14.14")
def gradient() -> list[Panel]:
    x = grey("coins", 200, (200, 0, 380, 180))
    slope_x, slope_y = filters.spatial_gradient(blurred(x, 1.5))[0, 0]
    y, across = torch.meshgrid(torch.arange(-20.0, 21.0), torch.arange(-20.0, 21.0), indexing="ij")
    inside = torch.hypot(y, across) <= 20.3
    return [
        Panel("f", x),
        Panel("θ as a colour", wheel(slope_x, slope_y, 0.1)),
        Panel("which colour is which θ", wheel(across * inside, y * inside, 20.0)),
    ]


@draws("14.15")
def cannys_edges() -> list[Panel]:
    x = grey("camera", 320, CAMERA)
    slope, edges = filters.canny(x, 0.15, 0.3, (13, 13), (1.5, 1.5))
    return [Panel("picture", x), Panel("slope", 1 - slope * 1.2), Panel("thin edges", 1 - edges)]


@draws("14.16")
def straight_lines() -> list[Panel]:
    picture, truth = scenes.drawn_lines(3, lines=3)
    random = np.random.default_rng(0)
    seen = luminance(picture) * torch.tensor(random.random((128, 128)) < 0.5) + torch.tensor(
        (random.random((128, 128)) < 0.02) * 1.0
    )
    edges = (seen > 0.5).double()
    votes, rho, theta = hough_lines(edges)
    found = peaks(votes, threshold=30, reach=12)[: len(truth)]
    strip = heat(votes[0].double()[int(len(rho) * 0.2) : int(len(rho) * 0.85)])
    marks = []
    for _, i, j in found.tolist():
        normal = np.array([math.cos(theta[j]), math.sin(theta[j])])
        foot, along = rho[i].item() * normal, np.array([-normal[1], normal[0]])
        marks.append(lined([foot - 300 * along], [foot + 300 * along], ORANGE, 1.6))
    return [
        Panel("edges, with noise", 1 - edges),
        Panel("votes: θ across, ρ down", strip),
        Panel("the three with most votes", 1 - 0.35 * edges, tuple(marks)),
    ]


@draws("14.17")
def circles() -> list[Panel]:
    x = grey("coins", 256)
    _, edges = filters.canny(x, 0.3, 0.6, (13, 13), (1.5, 1.5))
    slope_x, slope_y = filters.spatial_gradient(blurred(x, 1.5)).unbind(2)
    radii = list(range(9, 22))
    votes = hough_circles(edges, torch.atan2(slope_y, slope_x), radii)
    gathered = blurred(votes.double().view(len(radii), 1, *x.shape[2:]), 1.0).view_as(votes)
    found = peaks(gathered, threshold=2.4, reach=8)
    return [
        Panel("edges of a photograph", 1 - edges),
        Panel(
            f"{len(found)} circles with most votes",
            x,
            (circled(found[:, [3, 2]], [radii[k] for k in found[:, 1]], ORANGE, 1.6),),
        ),
    ]


# -- corners and descriptors ------------------------------------------------------------------------------------------


def corners(caption: str, answers: Tensor, power: int) -> list[Panel]:
    """power: of brightness in the answers, so that its root can be shown.   (1, 1, H, W)"""
    x = grey("camera", 320, CAMERA)
    found = peaks(answers[:, 0], 0.0, reach=5)[:60]
    root = answers.sign() * answers.abs() ** (1 / power)
    return [
        Panel(caption, signed(root, float(root.max()))),
        Panel("the 60 largest", x, (dotted(found[:, [2, 1]], ORANGE, 3.5),)),
    ]


@draws("14.18")
def harris() -> list[Panel]:
    answers = feature.harris_response(blurred(grey("camera", 320, CAMERA), 1.0), 0.05)
    return corners("det M - k tr² M: edges are below 0", answers, 4)


@draws("14.19")
def kanade_tomasi() -> list[Panel]:
    return corners("the smaller eigenvalue of M", feature.gftt_response(blurred(grey("camera", 320, CAMERA), 1.0)), 2)


@draws("14.20")
def nobles_corners() -> list[Panel]:
    return corners("det M/tr M", noble(blurred(grey("camera", 320, CAMERA), 1.0)), 2)


def at_scales(x: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Places (N, 2) and scales (N,) of Harris' corners."""
    find = feature.ScaleSpaceDetector(
        count,
        1.0,
        geometry.transform.ScalePyramid(3, 1.6, 15),
        feature.CornerHarris(0.05),
        geometry.ConvQuadInterp3d(10),
    )
    frames, _ = find(x.float())
    return feature.get_laf_center(frames)[0].detach().numpy(), feature.get_laf_scale(frames).detach().flatten().numpy()


@draws("14.21")
def corners_at_a_scale() -> list[Panel]:
    x = grey("camera", 236, CAMERA)
    places, scales = at_scales(x, 80)
    small, large = scales < 2.5, scales > 4
    return [
        Panel("picture", x),
        Panel("corners of σ below 2.5", x, (circled(places[small], 2 * scales[small]),)),
        Panel("and above 4", x, (circled(places[large], 2 * scales[large]),)),
    ]


@draws("14.22")
def extrema() -> list[Panel]:
    x = grey("hubble_deep_field", 240, (100, 100, 580, 420))
    sigmas = [1.2 * 2 ** (k / 3) for k in range(10)]
    stack = feature.dog_response(torch.stack([blurred(x, s) for s in sigmas], 2))
    _, least = geometry.nms3d_minmax(stack)
    found = (least & (stack < -0.035))[0, 0].nonzero()
    return [
        Panel("picture", x),
        Panel(
            f"{len(found)} bright blobs, each at its scale",
            x,
            (circled(found[:, [2, 1]], [1.6 * sigmas[k] for k in found[:, 0]], ORANGE, 1),),
        ),
    ]


@draws("14.23")
def corners_over_scales() -> list[Panel]:
    large = grey("camera", 300, CAMERA)
    small = grey("camera", 150, CAMERA)
    panels = []
    for caption, x in (("a picture", large), ("at half its size", small)):
        places, scales = at_scales(x, 14)
        canvas = torch.ones(1, 1, 300, x.shape[3], dtype=torch.float64)
        canvas[..., : x.shape[2], :] = x
        panels.append(Panel(caption, canvas, (circled(places, 2 * scales, ORANGE, 1.2),)))
    return panels


@draws("14.24")
def log() -> list[Panel]:
    x = grey("coins", 154, (0, 0, 300, 300))
    return [Panel("picture", x)] + [
        Panel(f"σ²Δ(G∗f), σ = {s:g}", signed(s**2 * laplacian_of_gaussian(x, s))) for s in (1.5, 8.0)
    ]


@draws("14.25")
def dog() -> list[Panel]:
    x, sigma, k = grey("coins", 154, (0, 0, 300, 300)), 3.0, 1.2
    difference = feature.dog_response(torch.stack([blurred(x, sigma), blurred(x, k * sigma)], 2))[:, :, 0]
    near = (k - 1) * sigma**2 * laplacian_of_gaussian(x, sigma)
    most = float(near.abs().max()) * 0.8
    return [
        Panel("picture", x),
        Panel("G(kσ) - G(σ), k = 1.2", signed(difference, most)),
        Panel("(k - 1)σ²ΔG", signed(near, most)),
    ]


def frames_at(places: Any, radius: float, angle: float = 0.0) -> Tensor:
    """kornia's frames of these places.   (N, 2) -> (1, N, 2, 3)"""
    points = torch.tensor(np.asarray(places), dtype=torch.float64)[None]
    count = points.shape[1]
    scale = torch.full((1, count, 1, 1), radius, dtype=torch.float64)
    return feature.laf_from_center_scale_ori(points, scale, torch.full((1, count, 1), angle, dtype=torch.float64))


@draws("14.26")
def simple_descriptors() -> list[Panel]:
    x = grey("camera", 240, CAMERA)
    places = np.array([[108, 62], [128, 120], [40, 190]])
    patches = feature.extract_patches_simple(x, frames_at(places, 12.0), 24)[0]  # (3, 1, 24, 24)
    slopes = filters.sobel(patches)
    squares = np.concatenate([places - 12, places + 12], 1)
    strokes = STROKES[:3]
    rows = torch.cat([F.pad(t, (1, 1, 1, 1), value=1.0).permute(1, 0, 2, 3) for t in (patches, 1 - slopes * 4)], 0)
    tiled = rows.permute(0, 2, 1, 3).reshape(52, 78)

    def histograms(axes: Axes) -> None:
        for patch, stroke in zip(patches, strokes, strict=True):
            axes.stairs(patch.histc(12, 0, 1).numpy(), np.linspace(0, 1, 13), color=stroke, linewidth=1.5)

    frame = [boxed([[26 * n, 0, 26 * n + 26, 26]], stroke, 2) for n, stroke in enumerate(strokes)]
    return [
        Panel("three places", x, tuple(boxed(s[None], c, 2) for s, c in zip(squares, strokes, strict=True))),
        Panel("patches; lengths of slopes", tiled, tuple(frame)),
        Panel("histograms", None, (histograms,), ratio=1.0),
    ]


SIFT_POINTS = 300


def sift(x: Tensor) -> tuple[Tensor, Tensor]:
    """Frames (N, 2, 3) and descriptors (N, 128)."""
    with torch.inference_mode():
        frames, _, descriptors = feature.SIFTFeatureScaleSpace(SIFT_POINTS, rootsift=False)(x.float())
    return frames[0].clone(), descriptors[0].clone()


@draws("14.27")
def sift_points() -> list[Panel]:
    x = grey("camera", 320, CAMERA)
    with torch.inference_mode():
        frames, _, _ = feature.SIFTFeatureScaleSpace(60)(x.float())
    centres, scales = feature.get_laf_center(frames)[0], feature.get_laf_scale(frames).flatten() / 2
    turns = torch.deg2rad(feature.get_laf_orientation(frames).flatten())
    ends = centres + scales[:, None] * torch.stack([turns.cos(), -turns.sin()], 1)
    return [
        Panel("picture", x),
        Panel("places, scales, orientations", x, (circled(centres, scales, ORANGE, 0.9), lined(centres, ends, YELLOW))),
    ]


@draws("14.28")
def between_pixels() -> list[Panel]:
    top_x, top_y = 3.65, 3.3
    s, y_of, x_of = torch.meshgrid(torch.arange(5.0), torch.arange(7.0), torch.arange(8.0), indexing="ij")
    right, down = x_of - top_x, y_of - top_y
    values = 3 - 2 * (s - 2.2).square() - 1.5 * right.square() - down.square() + 0.4 * right * down
    places, _ = geometry.ConvQuadInterp3d(5)(values[None, None])
    scale, y, x = (values == values.max()).nonzero()[0].tolist()
    _, column, row = places[0, 0, :, scale, y, x].tolist()
    marks = (
        boxed([[x, y, x + 1, y + 1]], BLUE, 2),
        dotted([[column, row]], PINK, 7),
        dotted([[top_x, top_y]], "black", 9, "+", markeredgewidth=1.2),
    )

    def legend(axes: Axes) -> None:
        axes.plot([], [], "s", color=BLUE, fillstyle="none", label="largest pixel")
        axes.plot([], [], "o", color=PINK, label="x - H⁻¹g")
        axes.plot([], [], "+", color="black", label="the truth")
        axes.legend(fontsize=7.5, loc="center", frameon=False)
        axes.set_axis_off()

    shade = matplotlib.colormaps["YlGn"](((values[scale] + 6) / 12).clamp(0, 1).numpy())[..., :3]
    return [Panel("One scale of three", shade, marks), Panel("", None, (legend,), ratio=0.7)]


@draws("14.29")
def orientation() -> list[Panel]:
    x = grey("camera", 300, CAMERA).float()
    turn = geometry.get_rotation_matrix2d(
        torch.tensor([[150.0, 150.0]]), torch.tensor([40.0]), torch.tensor([[1.0, 1.0]])
    )
    turned = geometry.warp_affine(x, turn, (300, 300), padding_mode="reflection")
    places = torch.tensor([[135.0, 75.0], [170.0, 130.0], [120.0, 210.0], [210.0, 170.0]])
    led = places @ turn[0, :, :2].T + turn[0, :, 2]
    orient = feature.LAFOrienter(32, num_angular_bins=36)
    panels = []
    for caption, picture, points in (("picture", x, places), ("turned by 40°: so are they", turned, led)):
        frames = orient(frames_at(points.numpy(), 24.0).float(), picture)
        angles = torch.deg2rad(feature.get_laf_orientation(frames).flatten().detach())
        ends = 36 * torch.stack([angles.cos(), -angles.sin()], 1)
        panels.append(
            Panel(caption, picture, (circled(points, [24.0] * 4, YELLOW, 1.2), arrows(points, ends, ORANGE, 0.011)))
        )
    return panels


@draws("14.30")
def sift_descriptor() -> list[Panel]:
    x = grey("camera", 240, CAMERA).float()
    frame = frames_at([[112, 62]], 30.0).float()
    patch = feature.extract_patches_simple(x, frame, 41)[0]
    numbers = feature.SIFTDescriptor(41, rootsift=False)(patch)
    cells = feature.convert_sift_descriptor_layout(numbers, "kornia", "opencv").view(4, 4, 8)
    starts, ends = [], []
    for row in range(4):
        for column in range(4):
            for number, length in enumerate((cells[row, column] / cells.max() * 5).tolist()):
                angle = number * math.pi / 4
                middle = (column * 10 + 5, row * 10 + 5)
                starts.append(middle)
                ends.append((middle[0] + length * math.cos(angle), middle[1] - length * math.sin(angle)))
    lines = np.arange(5) * 10.25 - 0.5

    def cell_borders(axes: Axes) -> None:
        axes.hlines(lines, -0.5, 40.5, color="white", linewidth=0.7)
        axes.vlines(lines, -0.5, 40.5, color="white", linewidth=0.7)

    return [
        Panel("a place", x, (boxed([[82, 32, 142, 92]], ORANGE, 2),)),
        Panel("its patch, 4 x 4 cells", patch, (cell_borders,)),
        Panel("8 directions a cell", np.ones((41, 41)), (lined(starts, ends, BLUE, 1.6),)),
    ]


def turned_pair() -> tuple[Tensor, Tensor]:
    """A photograph, and the same turned and made smaller."""
    x = grey("camera", 236, CAMERA).float()
    turn = geometry.get_rotation_matrix2d(
        torch.tensor([[118.0, 118.0]]), torch.tensor([25.0]), torch.tensor([[0.8, 0.8]])
    )
    return x, geometry.warp_affine(x, turn, (236, 236), padding_mode="reflection")


def side_by_side(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both pictures in one, and where the second begins."""
    gap = torch.ones(1, 1, first.shape[2], 8)
    return torch.cat([first, gap, second], 3), torch.tensor([first.shape[3] + 8.0, 0.0])


def matched() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both pictures, and points (N, 2) of each that match."""
    first, second = turned_pair()
    (frames, descriptors), (other_frames, others) = sift(first), sift(second)
    _, pairs = feature.match_snn(descriptors, others, 0.85)
    points, partners = (feature.get_laf_center(t[None])[0] for t in (frames, other_frames))
    return first, second, points[pairs[:, 0]], partners[pairs[:, 1]]


@draws("14.31")
def matching() -> list[Panel]:
    first, second, points, partners = matched()
    both, beside = side_by_side(first, second)
    marks = lined(points[::3], (partners + beside)[::3], ORANGE, 0.7)
    return [Panel(f"{len(points)} pairs of SIFT points; a third of them is drawn", both, (marks,))]


@draws("14.32")
def ransac() -> list[Panel]:
    first, second, points, partners = matched()
    map, agree = geometry.RANSAC("affine", inl_th=2.0, seed=0)(points, partners)
    both, beside = side_by_side(first, second)
    frame = torch.tensor([[0.0, 0.0], [235.0, 0.0], [235.0, 235.0], [0.0, 235.0], [0.0, 0.0]])
    led = frame @ map[:2, :2].T + map[:2, 2] + beside
    wrong = ~agree
    return [
        Panel(
            f"{int(agree.sum())} pairs agree with one affine map (green), {int(wrong.sum())} do not (pink)",
            both,
            (
                lined(points[agree][::3], (partners + beside)[agree][::3], GREEN, 0.6),
                lined(points[wrong], (partners + beside)[wrong], PINK, 0.9),
                lined(led[:-1], led[1:], YELLOW, 1.5),
            ),
        )
    ]


@draws("14.33")
def haar_sums() -> list[Panel]:
    x = torch.arange(40.0).expand(40, 40)
    patches = {"flat": torch.full_like(x, 0.5), "stripes": (x // 2) % 2, "ramp": x / 40}

    sums = {
        name: surf(patch.double()[None, None], torch.full((1, 1, 2), 20.0)).view(16, 4).sum(0)
        for name, patch in patches.items()
    }

    def bars(axes: Axes) -> None:
        for number, (name, values) in enumerate(sums.items()):
            axes.bar(5 * number + np.arange(4), values.numpy(), color=STROKES[:4])
            axes.text(5 * number + 1.5, -0.35, name, fontsize=7, ha="center", va="top")
        for name, stroke in zip(("Σdx", "Σdy", "Σ|dx|", "Σ|dy|"), STROKES, strict=False):
            axes.bar([0], [0], color=stroke, label=name)
        axes.axhline(0, color="0.5", linewidth=0.6)
        axes.set_ylim(-1.2, 5.2)
        axes.legend(fontsize=6, ncols=4, loc="upper center", frameon=False, columnspacing=0.8, handlelength=1)

    shown = [Panel(name, patch[8:32, 8:32].double()) for name, patch in patches.items()]
    return [*shown, Panel("sums over all cells", None, (bars,), ratio=2.0)]


@draws("14.34")
def bits() -> list[Panel]:
    x = grey("camera", 240, CAMERA)
    random = torch.Generator().manual_seed(0)
    pairs = (5 * torch.randn(256, 2, 2, generator=random)).round().clamp(-14, 14).long()
    here, there = torch.tensor([[[128, 120]]]), torch.tensor([[[108, 62]]])
    noise = 0.05 * torch.randn(x.shape, generator=random, dtype=torch.float64)
    code = brief(x, here, pairs)[0, 0]
    again, other = brief(0.8 * x + 0.1 + noise, here, pairs)[0, 0], brief(x, there, pairs)[0, 0]
    patch = x[..., 120 - 15 : 120 + 16, 128 - 15 : 128 + 16]
    some = pairs[:40] + 15
    strokes = [ORANGE if bit else BLUE for bit in code[:40].tolist()]
    shown = [
        Panel("pairs, coloured by bit", patch, (lined(some[:, 0], some[:, 1], strokes, 1),)),
        Panel("256 bits", code.view(16, 16).double()),
    ]
    for name, bits_ in (("in noise", again), ("elsewhere", other)):
        shown.append(Panel(f"{name}: {int((code != bits_).sum())} differ", bits_.view(16, 16).double()))
    return shown


@draws("14.35")
def oriented_gradients() -> list[Panel]:
    x = grey("astronaut", 240, (110, 0, 350, 240))
    cell = 8
    cells = hog(x, cell, block=1)[0].view(240 // cell, 240 // cell, 9)
    lengths = cells * F.adaptive_avg_pool2d(filters.sobel(x), 240 // cell)[0, 0][..., None].sqrt()
    starts, ends = [], []
    reach = 0.9 * cell / lengths.max().item()
    for (row, column, number), length in np.ndenumerate(lengths.numpy()):
        if length > 0.08:
            angle = (number + 0.5) * math.pi / 9
            across = np.array([-math.sin(angle), math.cos(angle)]) * length * reach  # an edge lies across its slope
            middle = np.array([column + 0.5, row + 0.5]) * cell - 0.5
            starts.append(middle - across)
            ends.append(middle + across)
    return [
        Panel("picture", x),
        Panel("edges of each cell", np.zeros((240, 240)), (lined(starts, ends, "white", 0.8),)),
    ]


# -- motion and cameras -----------------------------------------------------------------------------------------------


@draws("14.36")
def one_equation() -> list[Panel]:
    pair = scenes.moved(4, kind="shift", reach=1.5)
    a, b = (blurred(luminance(picture), 1.5)[0, 0] for picture in (pair.first, pair.second))
    (ax, ay), (bx, by) = (torch.gradient(t, dim=(1, 0)) for t in (a, b))
    slope_x, slope_y, change = (ax + bx) / 2, (ay + by) / 2, b - a
    answer = smaller_eigenvalue(a[None, None], 15)[0]
    top, left = divmod(int(answer[10:-10, 10:-10].argmax()), 108)
    rows, columns = slice(top + 3, top + 18, 3), slice(left + 3, left + 18, 3)
    places = [t[rows, columns].flatten() for t in (slope_x, slope_y, change)]
    u, v = pair.flow[:, 0, 0]

    def plot(axes: Axes) -> None:
        steps = np.linspace(-3, 3, 2)
        for i_x, i_y, i_t in zip(*(t.tolist() for t in places), strict=True):
            if math.hypot(i_x, i_y) > 0.01:
                normal = np.array([i_x, i_y]) / math.hypot(i_x, i_y)
                foot = -i_t / math.hypot(i_x, i_y) * normal
                axes.plot(foot[0] - steps * normal[1], foot[1] + steps * normal[0], color=BLUE, linewidth=0.7)
        axes.plot([u], [v], "o", color=ORANGE, markersize=7, label="the motion")
        axes.set_xlim(u - 1.2, u + 1.2)
        axes.set_ylim(v + 1.2, v - 1.2)
        axes.text(u + 1.1, v + 1.1, "u →", fontsize=7, ha="right")
        axes.text(u - 1.15, v + 1.0, "v ↓", fontsize=7)
        axes.legend(fontsize=7, loc="upper right")

    window = boxed([[left + 3, top + 3, left + 18, top + 18]], ORANGE, 2)
    return [
        Panel("a window", luminance(pair.first), (window,)),
        Panel("what changed, I_t", signed(change), (window,)),
        Panel("a line for each pixel of it", None, (plot,), ratio=1.0),
    ]


@draws("14.37")
def flow_by_windows() -> list[Panel]:
    pair = scenes.moved(8, kind="rotation", height=150, width=150, reach=12.0)
    first, second = luminance(pair.first), luminance(pair.second)
    flow = lucas_kanade(first, second)
    points = grid(150, 150, 14)
    off = np.linalg.norm(at(flow, points) - at(pair.flow, points), axis=1)
    holds, pale = smaller_eigenvalue(first), 0.6 + 0.4 * from_pixels(pair.first)
    return [
        Panel(f"found; half within {np.median(off):.2f} px", pale, (arrows(points, at(flow, points), "black"),)),
        Panel("the truth", pale, (arrows(points, at(pair.flow, points), BLUE),)),
        Panel("where it holds (bright)", heat(holds.sqrt())),
    ]


@draws("14.38")
def halves() -> list[Panel]:
    x = grey("camera", 236, CAMERA)
    levels = pyramid(x, 4)
    canvas = torch.ones(1, 1, 236, sum(level.shape[3] for level in levels) + 24, dtype=torch.float64)
    left = 0
    for level in levels:
        height, width = level.shape[2:]
        canvas[..., 236 - height :, left : left + width] = level
        left += width + 8
    return [Panel("From coarse to fine: a motion is twice as long on the next level", canvas)]


@draws("14.39")
def smooth_flow() -> list[Panel]:
    left, right, disparity = photographs.stereo_motorcycle()
    first, second = (
        F.interpolate(luminance(np.asarray(p)), (125, 185), mode="bilinear", antialias=True, align_corners=False)
        for p in (left, right)
    )
    to_the_left = torch.tensor(disparity[:500:4, :740:4]).double() / 4
    truth = torch.stack([-to_the_left, torch.zeros_like(to_the_left)])[None]
    flow = horn_schunck(first, second)
    return [
        Panel("left of two pictures", first),
        Panel("true shift to the left", heat(to_the_left.nan_to_num(0, 0, 0), 15.0)),
        Panel(f"found: {float(endpoint_error(flow, truth)):.2f} px off", heat(-flow[:, 0].clamp(max=0), 15.0)),
    ]


@draws("14.40")
def klt() -> list[Panel]:
    frames, boxes = scenes.moving_patch(1, frames=14, height=140, width=140, side=44)
    pictures = [luminance(frame) for frame in frames]
    left, top, right, bottom = boxes[0].round().astype(int)
    inside = feature.gftt_response(pictures[0])[:, 0, top + 7 : bottom - 7, left + 7 : right - 7]
    found = peaks(inside, 0.02 * float(inside.max()), reach=4)[:12]
    paths = [(found[:, [2, 1]] + torch.tensor([left + 7, top + 7])).double()[None]]
    for before, after in pairwise(pictures):
        paths.append(track(before, after, paths[-1], window=11)[0])
    lines = [lined(a[0], b[0], YELLOW, 1.3) for a, b in pairwise(paths)]
    return [
        Panel("first frame, corners", frames[0], (dotted(paths[0][0], ORANGE, 4),)),
        Panel("last of 14, and their ways", frames[-1], (*lines, dotted(paths[-1][0], ORANGE, 4))),
        Panel("the truth", frames[-1], (boxed(boxes[[0]], YELLOW, 1), boxed(boxes[[-1]], ORANGE, 2))),
    ]


@draws("14.41")
def siamese() -> list[Panel]:
    config = SiamFCConfig()
    frames, boxes = scenes.moving_patch(9, frames=6, side=32)
    look = look_at(frames[0], boxes[0], config)
    before, now = ((box[:2] + box[2:]) / 2 for box in boxes[[0, -1]])
    shift = torch.tensor((now - before) * config.template / 32)[None].float()
    wanted = signs(shift, config, radius=4.0)[0]
    middle = config.search / 2 + shift[0].numpy()
    where = np.concatenate([middle - config.template / 2, middle + config.template / 2])[None]
    return [
        Panel("template", look.template),
        Panel("search, five frames later", search_around(frames[-1], before, look, config), (boxed(where, ORANGE, 2),)),
        Panel("to be answered: 1, else -1", wanted.double()),
    ]


@draws("14.43")
def camera() -> list[Panel]:
    steps = np.linspace(0, 1, 5)
    faces = [(a, b, 0.0) for a in steps for b in steps] + [(a, 0.0, b) for a in steps for b in steps]
    faces += [(0.0, a, b) for a in steps for b in steps]
    world = torch.tensor(np.unique(np.array(faces), axis=0))[None]
    eye = torch.tensor([2.4, 1.9, 1.7], dtype=torch.float64)
    ahead = F.normalize(torch.tensor([0.35, 0.35, 0.35], dtype=torch.float64) - eye, dim=0)
    right = F.normalize(torch.linalg.cross(ahead, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)), dim=0)
    turn = torch.stack([right, torch.linalg.cross(ahead, right), ahead])
    inner = torch.tensor([[300.0, 0, 119], [0, 300, 95], [0, 0, 1]], dtype=torch.float64)
    exact = (inner @ torch.cat([turn, -(turn @ eye)[:, None]], 1))[None]
    noise = 1.0 * torch.randn(1, world.shape[1], 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    image = project(exact, world) + noise
    found = dlt(world, image)
    again = project(found, world)[0]
    edges = [
        (a, b)
        for a in range(len(again))
        for b in range(a)
        if (world[0, a] - world[0, b]).norm() < 0.26
    ]  # fmt: skip
    mesh = lined(again[[a for a, _ in edges]], again[[b for _, b in edges]], "0.75", 0.7)
    told = f"found again: {reprojection_error(found, world, image).item():.2f} px off"
    blank = np.ones((200, 240))
    return [
        Panel(f"{len(again)} points of a cube, measured", blank, (dotted(image[0], BLUE, 3.5),)),
        Panel(told, blank, (mesh, dotted(image[0], BLUE, 2), circled(again, [2.2] * len(again), ORANGE, 1))),
    ]


def main(numbers: list[str]) -> None:
    unknown = set(numbers) - PICTURES.keys()
    if unknown:
        sys.exit(f"{', '.join(sorted(unknown))}: no picture; there are {', '.join(PICTURES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number in numbers or PICTURES:
        file = FOLDER / f"{number}.png"
        file.write_bytes(drawn(number))
        print(f"written: {file.relative_to(HERE.parent)}, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
