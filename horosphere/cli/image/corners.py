"""`horosphere image corners`: points of a photograph that can be found again."""

import argparse
from dataclasses import dataclass
from typing import Any, Literal

from horosphere.cli.image import photograph
from horosphere.errors import UserError
from horosphere.settings import Few, Size

NAMED = 3  # corners whose places are printed


@dataclass(frozen=True)
class Corners:
    method: Literal["harris", "gftt", "noble", "sift"] = "harris"  # gftt: Kanade and Tomasi's; sift: Lowe's blobs
    count: Few = 200  # points, at most
    apart: Few = 5  # pixels between two of them, at least; sift has its own rule
    longest: Size = 1024  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image corners photo.jpg method=noble --out corners.png"
    summary = "points that can be found again: corners, or SIFT's with scale and turn"
    photograph.photo_and_settings(parser := photograph.verb(commands, run, summary, example, f"{__name__}:Corners"))
    photograph.picture_out(parser, "corners")


def run(args: argparse.Namespace) -> None:
    from horosphere.ops.keypoints import corners, sift
    from horosphere.plots.photographs import draw_points

    how = photograph.asked(args, Corners)
    photograph.choose_out(args, args.photo)
    seen = photograph.look(args.photo, how.longest)
    if how.method == "sift":
        points, scales, turns = (part.numpy() for part in sift(seen.grey, how.count)[:3])
    else:
        points, scales, turns = corners(seen.grey, how.method, how.count, how.apart).numpy(), None, None
    if not len(points):
        raise UserError(f"{args.photo}: no corner in it; is it of one colour?")
    places = ", ".join(f"({x:.0f}, {y:.0f})" for x, y in points[:NAMED])
    rows = [["points", f"{len(points)} by {how.method}"], ["strongest", f"{places} as (x, y) in px"]]
    if scales is not None:
        rows.append(["radii", f"{scales.min():.1f} to {scales.max():.1f} px"])
    photograph.show(args, [*seen.rows, *rows], draw_points(seen.pixels, points, scales, turns))
