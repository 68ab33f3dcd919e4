"""The one place that opens pictures in files: kinds that are pictures, upright, and no larger than memory bears."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm")
# Pillow looks into a file for its kind, whatever its name: PostScript named .png would start Ghostscript
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")
MOST_PIXELS = 10**9  # of one picture: three gigabytes


def open_picture(file: str | Path) -> Image:
    """Decoded, and turned as its EXIF says: cameras write pictures as their chips lie.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     Image.new("RGB", (3, 2)).save(f"{folder}/a.png")
    ...     open_picture(f"{folder}/a.png").size
    (3, 2)
    """
    require("pillow")
    from PIL import Image, ImageOps

    with Image.open(file, formats=FORMATS) as picture:
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"{picture.width} x {picture.height} pixels are more than {MOST_PIXELS:,}")
        picture.load()
        return ImageOps.exif_transpose(picture)
