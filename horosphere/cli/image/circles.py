"""`horosphere image circles`: the circles of a photograph."""

import argparse
from dataclasses import dataclass
from typing import Any

from horosphere.cli.image import photograph
from horosphere.errors import UserError
from horosphere.settings import Few, Positive, Size

CELLS = 64 << 20  # places x radii that are voted for, at most: about 2 GB


@dataclass(frozen=True)
class Circles:
    radii: tuple[Size, Size] = (10, 40)  # pixels, the least and the most
    count: Few = 30  # circles, at most
    low: Positive | None = None  # Sobel's raw slope, 8 x brightness a pixel, where edges go on; none: half of high
    high: Positive | None = None  # and where they begin; none: what the steepest tenth of the pixels exceed
    sigma: Positive = 1.0  # pixels of the blur before
    longest: Size = 640  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image circles builtin:coins radii=15,35 --out circles.png"
    summary = "circles: Canny's edges, Hough's votes along their slopes"
    photograph.photo_and_settings(parser := photograph.verb(commands, run, summary, example, f"{__name__}:Circles"))
    photograph.picture_out(parser, "circles")


def run(args: argparse.Namespace) -> None:
    from horosphere.ops.edges import canny
    from horosphere.ops.hough import strongest_circles
    from horosphere.plots.photographs import draw_circles

    how = photograph.asked(args, Circles)
    least, most = how.radii
    if least > most:
        raise UserError(f"radii={least},{most}: the least comes first; write radii={most},{least}")
    photograph.choose_out(args, args.photo)
    seen = photograph.look(args.photo, how.longest)
    light = seen.grey
    if least > max(light.shape[-2:]):
        raise UserError(f"radii={least},{most}: no such circle fits into {light.shape[-1]} x {light.shape[-2]} pixels")
    radii = range(least, min(most, max(light.shape[-2:])) + 1)
    if len(radii) * light.numel() > CELLS:
        what = f"{len(radii)} radii in {light.shape[-1]} x {light.shape[-2]} pixels are too many"
        raise UserError(f"radii={least},{most}: {what}; narrow the radii, or lower longest=")
    edges, direction = canny(light, how.low, how.high, how.sigma)
    circles = strongest_circles(edges, direction, radii, how.count).numpy()
    if not len(circles):
        what = "no circle of these radii"
        raise UserError(f"{args.photo}: {what}; try others than radii={least},{most}, or give lower high= and low=")
    cells = [
        [str(number), f"{x:.0f}", f"{y:.0f}", f"{radius:.0f}", f"{share:.2f}"]
        for number, (x, y, radius, share) in enumerate(circles, 1)
    ]
    heads = ["circle", "x in px", "y in px", "radius in px", "votes a px of it"]
    photograph.show(args, seen.rows, draw_circles(seen.pixels, circles), found=(heads, cells))
