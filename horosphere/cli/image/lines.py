"""`horosphere image lines`: the straight lines of a photograph."""

import argparse
import math
from dataclasses import dataclass
from typing import Any

from horosphere.cli.image import photograph
from horosphere.errors import UserError
from horosphere.settings import Few, Positive, Size


@dataclass(frozen=True)
class Lines:
    count: Few = 10  # lines, at most
    low: Positive | None = None  # Sobel's raw slope, 8 x brightness a pixel, where edges go on; none: half of high
    high: Positive | None = None  # and where they begin; none: what the steepest tenth of the pixels exceed
    sigma: Positive = 1.5  # pixels of the blur before
    longest: Size = 1024  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image lines photo.jpg --out lines.png"
    summary = "straight lines: Canny's edges, Hough's votes"
    photograph.photo_and_settings(parser := photograph.verb(commands, run, summary, example, f"{__name__}:Lines"))
    photograph.picture_out(parser, "lines")


def run(args: argparse.Namespace) -> None:
    from horosphere.ops.edges import canny
    from horosphere.ops.hough import strongest_lines
    from horosphere.plots.photographs import draw_lines

    how = photograph.asked(args, Lines)
    photograph.choose_out(args, args.photo)
    seen = photograph.look(args.photo, how.longest)
    edges, _ = canny(seen.grey, how.low, how.high, how.sigma)
    lines = strongest_lines(edges, how.count).numpy()
    if not len(lines):
        raise UserError(f"{args.photo}: no line in it; give lower high= and low=, or another photograph")
    cells = [
        [str(number), f"{rho:.0f}", f"{math.degrees(theta):.0f}", f"{votes:.0f}"]
        for number, (rho, theta, votes) in enumerate(lines, 1)
    ]
    heads = ["line", "ρ in px", "θ in °", "edge pixels"]
    rows = [*seen.rows, ["a line is", "x cos θ + y sin θ = ρ: x to the right, y down, 0 in the upper left pixel"]]
    photograph.show(args, rows, draw_lines(seen.pixels, lines), found=(heads, cells))
