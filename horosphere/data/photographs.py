"""Single pictures of any size: files, and the photographs that come with scikit-image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.images import read_whole_picture
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder
from horosphere.foreign import Unreadable, read_npz

if TYPE_CHECKING:
    from PIL.Image import Image

# name: the file in scikit-image's wheel. Others of its pictures are downloads, drawings, or of one colour only.
PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "camera": "camera.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "hubble": "hubble_deep_field.jpg",
    "motorcycle": "motorcycle_left.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
}


def read_photograph(source: str, longest: int | None = None) -> np.ndarray:
    """A picture in a file, or "builtin:NAME": a photograph of scikit-image's.   -> (H, W, 3) uint8

    longest: pixels of the longer side. A larger picture is shrunk to it, a smaller one stays as it is.

    >>> read_photograph("builtin:coffee", longest=60).shape
    (40, 60, 3)
    """
    picture = open_photograph(source)
    return np.array(picture if longest is None else shrunk(picture, longest))


def open_photograph(source: str) -> Image:
    """The same at its own size, as Pillow has it, in RGB.

    >>> open_photograph("builtin:coffee").size
    (600, 400)
    """
    return read_whole_picture(_file_of(source) if source.startswith(BUILTIN) else source)


def shrunk(picture: Image, longest: int) -> Image:
    """At most so many pixels long; a smaller picture stays as it is.

    >>> shrunk(open_photograph("builtin:coffee"), longest=60).size
    (60, 40)
    """
    if longest >= max(picture.size):
        return picture
    from PIL.Image import Resampling

    share = longest / max(picture.size)
    width, height = (max(1, round(share * side)) for side in picture.size)
    return picture.resize((width, height), Resampling.BICUBIC)


def stereo_pair() -> tuple[Image, Image, np.ndarray]:
    """Scikit-image's motorcycle seen by two eyes, and the flow from the left to the right.   -> flow (2, H, W)

    The flow is (-disparity, 0) in pixels, and NaN where the disparity is not known (7 % of them).

    >>> left, right, flow = stereo_pair()
    >>> left.size, flow.shape, round(float(np.isfinite(flow[0]).mean()), 3), round(float(np.nanmin(flow[0])), 1)
    ((741, 500), (2, 500, 741), 0.927, -59.9)
    """
    folder = package_folder("skimage") / "data"
    left, right = (read_whole_picture(folder / f"motorcycle_{side}.png") for side in ("left", "right"))
    try:
        (disparity,) = read_npz(folder / "motorcycle_disp.npz").values()
    except (Unreadable, ValueError) as error:
        what = f"no readable disparities ({one_line(error)}); install scikit-image again"
        raise UserError(f"{folder}: {what}") from error
    across = np.where(np.isfinite(disparity), -disparity, np.nan).astype(np.float32)
    return left, right, np.stack([across, np.where(np.isnan(across), np.nan, 0).astype(np.float32)])


def shrunk_flow(flow: np.ndarray, height: int, width: int) -> np.ndarray:
    """A flow for pictures that were shrunk: the nearest pixel's, in the new pixels.   (2, H, W) -> (2, height, width)

    >>> shrunk_flow(np.full((2, 4, 8), 6.0), 2, 4)[:, 0, 0]
    array([3., 3.])
    """
    rows, columns = (
        ((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip((height, width), flow.shape[1:], strict=True)
    )
    shares = np.array([width / flow.shape[2], height / flow.shape[1]], dtype=flow.dtype)
    return flow[:, rows[:, None], columns] * shares[:, None, None]


def _file_of(source: str) -> str:
    known = {f"{BUILTIN}{name}": file for name, file in PHOTOGRAPHS.items()}
    if source not in known:
        raise UserError(f"{source}: no such photograph comes with scikit-image; {choices(source, known)}")
    return str(package_folder("skimage") / "data" / known[source])
