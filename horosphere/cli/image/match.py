"""`horosphere image match`: what two photographs share, and the affine map between them."""

import argparse
from dataclasses import dataclass
from typing import Annotated, Any

from horosphere.cli.common import settings_argument
from horosphere.cli.image import photograph
from horosphere.errors import UserError
from horosphere.settings import Positive, Range, Size

SURE = 12  # pairs that agree: fewer may do so by chance


@dataclass(frozen=True)
class Match:
    features: Annotated[int, Range(least=10, most=10_000)] = 1000  # SIFT's points of each photograph, at most
    ratio: Annotated[float, Range(above=0, most=1)] = 0.8  # nearest to second nearest descriptor, at most
    within: Positive = 3.0  # pixels from the map that a pair may be off
    longest: Size = 1024  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image match left.jpg right.jpg --out match.png"
    summary = "two photographs: SIFT, the ratio test, RANSAC, the affine map"
    parser = photograph.verb(commands, run, summary, example, f"{__name__}:Match")
    parser.add_argument("photo", metavar="left", help=photograph.PHOTO)
    parser.add_argument("right", help="another of the same thing")
    settings_argument(parser, "as below")
    photograph.picture_out(parser, "match")


def run(args: argparse.Namespace) -> None:
    from horosphere.ops.keypoints import FEWEST, affine_between, match, sift
    from horosphere.plots.photographs import draw_matches

    how = photograph.asked(args, Match)
    photograph.choose_out(args, args.photo)
    left, right = (photograph.look(source, how.longest) for source in (args.photo, args.right))
    first, second = (sift(seen.grey, how.features) for seen in (left, right))
    here, there = match(first, second, how.ratio)
    if len(here) < FEWEST:
        what = f"{len(here)} points match, and an affine map needs {FEWEST}"
        how_else = "give photographs of one thing, or raise ratio= or features="
        raise UserError(f"{args.photo}, {args.right}: {what}; {how_else}")
    map, agree = affine_between(here, there, how.within)
    off = (here @ map[:, :2].T + map[:, 2] - there)[agree].square().sum(1).mean().sqrt()
    (a, b, x), (c, d, y) = map.tolist()
    counts = f"{len(first.points)} and {len(second.points)} points, {len(here)} match, {int(agree.sum())} agree"
    rows = [
        *([f"{side} {name}", text] for side, seen in (("left", left), ("right", right)) for name, text in seen.rows),
        ["SIFT", counts],
        ["map", f"x' = {a:+.4f} x {b:+.4f} y {x:+.2f} px"],
        ["", f"y' = {c:+.4f} x {d:+.4f} y {y:+.2f} px"],
        ["residual", f"{float(off):.2f} px, root of the mean square of the pairs that agree"],
    ]
    if int(agree.sum()) < SURE:
        what = f"fewer than {SURE} pairs agree, which may be chance: do both show one thing?"
        rows.append(["unsure", what])
    photograph.show(args, rows, draw_matches(left.pixels, right.pixels, here.numpy(), there.numpy(), agree.numpy()))
