"""`horosphere image camera`: the camera that saw points whose places are known."""

import argparse
from typing import Any

from horosphere.cli.common import table
from horosphere.cli.image import photograph
from horosphere.errors import UserError, one_line

COLUMNS = ("X", "Y", "Z", "x", "y")
NOTHING = 1e-9  # of the largest number of a matrix: rounding leaves about so much


def add(commands: Any) -> None:
    example = "horosphere image camera points.csv"
    summary = "the camera that saw points whose places are known: P, K, R, its centre"
    parser = photograph.verb(commands, run, summary, example)
    text = "a line a point: X,Y,Z,x,y, its place in the world and its pixel; six points or more, not in a plane"
    parser.add_argument("points", help=text)


def run(args: argparse.Namespace) -> None:
    import torch

    from horosphere.extras import require
    from horosphere.ops.camera import decompose, dlt, project, reprojection_error

    require("kornia")
    points = torch.tensor(_read(args.points), dtype=torch.float64).reshape(1, -1, len(COLUMNS))
    world, image = points[..., :3], points[..., 3:]
    try:
        camera = dlt(world, image)
    except UserError as error:
        raise UserError(f"{args.points}: {error}") from None
    intrinsics, rotation, centre = decompose(camera)
    off = float(reprojection_error(camera, world, image))
    worst = torch.linalg.vector_norm(project(camera, world) - image, dim=-1)[0]
    behind = int(((world @ camera[0, 2, :3] + camera[0, 2, 3]) <= 0).sum())
    for name, matrix in (("P", camera[0]), ("K", intrinsics[0]), ("R", rotation[0])):
        nothing = NOTHING * float(matrix.abs().max())
        cells = [[f"{value if abs(value) > nothing else 0: .6g}" for value in row] for row in matrix.tolist()]
        table([], [[name if i == 0 else "", *row] for i, row in enumerate(cells)])
    rows = [
        ["centre", ", ".join(f"{value:.6g}" for value in centre[0].tolist()) + ", in units of the world"],
        ["error", f"{off:.3g} px, root of the mean square over {points.shape[1]} points"],
        ["worst", f"point {int(worst.argmax()) + 1}, off by {float(worst.max()):.3g} px"],
    ]
    if behind:
        how = "is an axis mirrored, or y counted upwards?"
        rows.append(["unlikely", f"{behind} of {points.shape[1]} points lie behind this camera: {how}"])
    table([], rows)


def _read(file: str) -> list[list[float]]:
    """Five numbers a line; a first line of names is passed over."""
    from horosphere.foreign import Unreadable, read_table

    try:
        lines = read_table(file)
    except Unreadable as error:
        raise UserError(f"{file}: {one_line(error)}; give a file with lines {','.join(COLUMNS)}") from error
    points = []
    for place, (number, cells) in enumerate(lines):
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            if place == 0 and len(cells) == len(COLUMNS):
                continue
            what = f'"{one_line(",".join(cells), 40)}" are not five numbers'
            raise UserError(f"{file} line {number}: {what}; write {','.join(COLUMNS)}") from None
        if len(values) != len(COLUMNS):
            raise UserError(f"{file} line {number}: {len(values)} numbers instead of 5; write {','.join(COLUMNS)}")
        points.append(values)
    return points
