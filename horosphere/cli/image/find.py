"""`horosphere image find`: the objects, or the class of each pixel, that a trained run finds in a photograph."""

import argparse
from typing import TYPE_CHECKING, Any

from horosphere.cli.image import photograph
from horosphere.errors import UserError
from horosphere.settings import Size

if TYPE_CHECKING:
    import numpy as np

LONGEST: Size = 2048  # pixels of the longer side


def add(commands: Any) -> None:
    example = "horosphere image find photo.jpg --model runs/tinyssd --out found.png"
    summary = "objects, or the class of each pixel, by a run that was trained to find them"
    parser = photograph.verb(commands, run, summary, example)
    parser.add_argument("photo", help=photograph.PHOTO)
    what = "a folder made by `horosphere train` with a detector or a segmenter: tinyssd, faster-rcnn, fcn, …"
    parser.add_argument("--model", metavar="RUN", required=True, help=what)
    photograph.picture_out(parser, "found")


def run(args: argparse.Namespace) -> None:
    from horosphere.runs import Run

    photograph.choose_out(args, args.photo)
    run = Run.open(args.model)
    kinds = {"objects": _objects, "pixels": _pixels}
    if run.about.task not in kinds:
        how = "give one of tinyssd, faster-rcnn, fcn, …"
        raise UserError(f"{args.model}: a run of the task {run.about.task}, which finds nothing in places; {how}")
    seen = photograph.look(args.photo, LONGEST)
    found, pixels = kinds[run.about.task](run.load(), seen.pixels)
    photograph.show(args, seen.rows, pixels, found=found)


def _objects(trained: Any, pixels: "np.ndarray") -> tuple[tuple[list[str], photograph.Rows], "np.ndarray"]:
    import numpy as np

    from horosphere.plots.photographs import draw_boxes

    told = trained.likely(pixels)
    boxes, names = np.array([each.box for each in told]).reshape(-1, 4), [each.name for each in told]
    rows = [[each.name, *(f"{side:.0f}" for side in each.box), f"{each.score:.4f}"] for each in told]
    heads = ["object", "left", "top", "right", "bottom", "score"]
    return (heads, rows or [["nothing", *[""] * 5]]), draw_boxes(pixels, boxes, names)


def _pixels(trained: Any, pixels: "np.ndarray") -> tuple[tuple[list[str], photograph.Rows], "np.ndarray"]:
    from horosphere.plots.photographs import draw_classes

    classes = trained.classify(pixels).numpy()
    shares = sorted(((float((classes == i).mean()), name) for i, name in enumerate(trained.classes)), reverse=True)
    rows = [[name, f"{share:.1%}"] for share, name in shares if share > 0]
    return (["class", "of the pixels"], rows), draw_classes(pixels, classes, trained.classes)
