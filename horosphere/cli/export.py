"""`horosphere export`: labels and points of a run, for other programs."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, place, table

FORMATS = ("csv", "parquet", "projector")
PLACES = {"csv": "points.csv", "parquet": "points.parquet", "projector": "projector"}


def add(commands: Any) -> None:
    summary = "write the points of an embedding, or word vectors, as a table or for TensorBoard's projector"
    export = command(commands, "export", run, summary, "horosphere export runs/tree-lorentz-10 --to csv")
    export.add_argument("folder", metavar="RUN", help="a run that learned points")
    export.add_argument("--to", choices=FORMATS, required=True, help="projector: a folder of tensors.tsv, metadata.tsv")
    own, ball = (
        "own: as they are stored (default of csv, parquet)",
        "ball: the Poincaré ball of radius 1 (of projector)",
    )
    export.add_argument("--coordinates", choices=("own", "ball"), help=f"{own}; {ball}, unit vectors of a sphere")
    place(export, None, f"file, or folder of projector (default RUN/{', RUN/'.join(PLACES.values())})")


def run(args: argparse.Namespace) -> None:
    from horosphere import catalogue
    from horosphere.files import new_folder, require_new_file, require_new_folder, write_whole
    from horosphere.runs import Run

    run, out = Run.open(args.folder), Path(args.out or Path(args.folder) / PLACES[args.to])
    mark = "tensors.tsv"
    if args.to == "projector":
        require_new_folder(out, args.overwrite, mark)
    else:
        require_new_file(out, args.overwrite)
    vectors = catalogue.resolve(catalogue.task(run.about.task).build).vectors(run)
    which = args.coordinates or ("ball" if args.to == "projector" else "own")
    if args.to == "projector":
        with new_folder(out, args.overwrite, mark) as folder:
            for name, content in vectors.as_projector(which).items():
                write_whole(folder / name, content)
    else:
        content = vectors.as_csv(which) if args.to == "csv" else vectors.as_parquet(which)
        write_whole(out, content, new=not args.overwrite)
    size = f"{len(vectors.labels):,}, {vectors.points.shape[1]} dimensions"
    table([], [["points", size], ["coordinates", vectors.said(which)], ["written", str(out)]])
