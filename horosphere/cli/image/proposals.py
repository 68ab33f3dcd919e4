"""`horosphere image proposals`: boxes that may hold an object, and the tree of regions that they come from."""

import argparse
from dataclasses import dataclass
from typing import Any

from horosphere.cli.image import photograph
from horosphere.settings import Amount, Few, Positive, Size


@dataclass(frozen=True)
class Proposals:
    scale: Positive = 200.0  # of the first regions: larger, fewer
    sigma: Amount = 0.8  # pixels of the blur before
    smallest: Size = 50  # pixels of a region
    drawn: Few = 40  # boxes in the picture, those of the largest regions
    longest: Size = 512  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image proposals photo.jpg --tree regions.tsv --out proposals.png"
    summary = "boxes that may hold an object, by selective search"
    photograph.photo_and_settings(parser := photograph.verb(commands, run, summary, example, f"{__name__}:Proposals"))
    parser.add_argument("--tree", metavar="TSV", help="the tree of regions, for `horosphere embed`")
    parser.add_argument("--save", metavar="CSV", help="the boxes: left, top, right, bottom in pixels")
    photograph.picture_out(parser, "proposals")


def run(args: argparse.Namespace) -> None:
    import numpy as np

    from horosphere.ops.proposals import selective_search, tree_lines
    from horosphere.plots.photographs import draw_boxes

    how = photograph.asked(args, Proposals)
    photograph.choose_out(args, args.photo, args.tree, args.save)
    seen = photograph.look(args.photo, how.longest)
    found, tree = selective_search(seen.light[0], how.scale, how.sigma, how.smallest)
    # the largest regions are the last; one box may belong to several
    boxes = np.array(list(dict.fromkeys(map(tuple, found.flip(0).tolist()))))
    rows = [*seen.rows, ["regions", f"{(len(tree) + 1) // 2} first ones, {len(tree)} nodes of the tree"]]
    rows.append(["boxes", f"{len(boxes)} different ones; the picture shows {min(how.drawn, len(boxes))}"])
    saved = {}
    if args.tree:
        saved[args.tree] = "".join(f"{line}\n" for line in tree_lines(tree)).encode()
        rows += [["tree", args.tree], ["next", f"horosphere embed {args.tree}"]]
    if args.save:
        saved[args.save] = photograph.csv("left,top,right,bottom", ([f"{side:g}" for side in box] for box in boxes))
        rows.append(["table", args.save])
    photograph.show(args, rows, draw_boxes(seen.pixels, boxes[: how.drawn]), saved)
