"""Single pictures of any size: files, and the photographs that come with scikit-image."""

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.images import read_whole_picture
from horosphere.errors import UserError, choices
from horosphere.extras import package_folder

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
    picture = read_whole_picture(_file_of(source) if source.startswith(BUILTIN) else source)
    if longest is not None and longest < max(picture.size):
        from PIL import Image

        share = longest / max(picture.size)
        width, height = (max(1, round(share * side)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    return np.array(picture)


def _file_of(source: str) -> str:
    known = {f"{BUILTIN}{name}": file for name, file in PHOTOGRAPHS.items()}
    if source not in known:
        raise UserError(f"{source}: no such photograph comes with scikit-image; {choices(source, known)}")
    return str(package_folder("skimage") / "data" / known[source])
