"""`horosphere image track`: a box followed through the frames in a folder."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from horosphere.cli.common import settings_argument
from horosphere.cli.image import photograph
from horosphere.errors import UserError, one_line

if TYPE_CHECKING:
    import numpy as np

    from horosphere.ops.following import Followed

SHOWN = 10  # frames in the table; --save has all
LEAST = 4  # pixels a side of a box
LONGEST = 24  # letters of a frame's name


@dataclass(frozen=True)
class Track:
    box: tuple[float, float, float, float]  # left, top, right, bottom in the first frame, in pixels
    method: Literal["klt", "siamfc"] = "klt"  # points that are followed, or a network: siamfc takes --model RUN


def add(commands: Any) -> None:
    example = "horosphere image track frames/ box=40,60,72,92 method=klt --out track.png"
    summary = "a box followed through the frames in a folder"
    parser = photograph.verb(commands, run, summary, example, f"{__name__}:Track")
    parser.add_argument("frames", help="a folder of pictures, ordered by name")
    settings_argument(parser, "as below")
    parser.add_argument("--model", metavar="RUN", help="of method=siamfc: a folder made by `horosphere train siamfc`")
    parser.add_argument("--save", metavar="CSV", help="the box in every frame: frame, left, top, right, bottom")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    photograph.picture_out(parser, "track")


def run(args: argparse.Namespace) -> None:
    import numpy as np

    from horosphere.data.tracks import frame_files, read_frame, require_inside
    from horosphere.plots.photographs import draw_path
    from horosphere.progress import progress

    how: Track = photograph.asked(args, Track)
    if (how.method == "siamfc") != bool(args.model):
        raise UserError("--model RUN and method=siamfc belong together: give both, or neither")
    photograph.choose_out(args, args.frames.rstrip("/"), args.save)
    files, box = frame_files(args.frames), np.array(how.box)
    height, width = read_frame(files[0]).shape[:2]
    told = f"box={','.join(f'{side:g}' for side in box)}"
    require_inside(box, height, width, told)
    if min(box[2:] - box[:2]) < LEAST:
        raise UserError(f"{told}: too small to follow; give {LEAST} pixels a side")
    with progress("frames", len(files), args.quiet) as update:
        steps = list(_steps(args.model, _read(files, (height, width), update), box))
    boxes, lost, last = np.stack([step.box.numpy() for step in steps]), steps[-1].lost, files[len(steps) - 1]
    right, down = (boxes[-1] - boxes[0])[:2]
    rows = [["frames", f"{len(files)} of {width} x {height} pixels, {how.method}"]]
    rows.append(["motion", f"{right:+.1f} px to the right, {down:+.1f} px down, from the first to the last"])
    if lost:
        rows.append(["lost", f"in {last.name}: {_why(steps[-1])}; the box is where it was seen last"])
    saved = {}
    if args.save:
        found = zip(files, boxes[: len(boxes) - lost], strict=False)
        lines = [[_quoted(file.name), *(f"{side:.3f}" for side in b)] for file, b in found]
        saved = {args.save: photograph.csv("frame,left,top,right,bottom", lines)}
        rows.append(["boxes", f"{args.save}, {len(lines)} frames, in px"])
    shown = np.unique(np.linspace(0, len(boxes) - 1, min(len(boxes), SHOWN)).round().astype(int))
    cells = [_cells(files[i].name, steps[i]) for i in shown]
    heads = ["frame", "left", "top", "right", "bottom", "points back"]
    photograph.show(args, rows, draw_path(read_frame(last), boxes, lost), saved, (heads, cells))


def _steps(model: str | None, frames: "Iterator[np.ndarray]", box: "np.ndarray") -> "Iterator[Followed]":
    import torch

    from horosphere.ops.following import Followed, follow_box

    if model is None:
        yield from follow_box((photograph.Seen(frame, []).grey for frame in frames), torch.from_numpy(box))
        return
    from horosphere.runs import Run

    tracker = Run.open(model, "tracks").load()
    yield from (Followed(torch.from_numpy(found)) for found in tracker.track(frames, box))


def _read(files: list[Path], shape: tuple[int, int], update: Any) -> "Iterator[np.ndarray]":
    from horosphere.data.tracks import read_frame

    for number, file in enumerate(files, 1):
        yield read_frame(file, shape)
        update(number, "")


def _quoted(name: str) -> str:
    """As CSV has it."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n') else name


def _cells(name: str, step: "Followed") -> list[str]:
    came = f"{step.came_back} of {step.began}" if step.began else "–"
    return [one_line(name, LONGEST), *(f"{side:.1f}" for side in step.box.tolist()), came]


def _why(step: "Followed") -> str:
    if step.began == 0:
        return "the box has left the picture"
    return f"{step.came_back} of {step.began} points came back"
