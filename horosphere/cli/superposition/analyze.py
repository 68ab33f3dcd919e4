"""`horosphere superposition analyze`: how crowded the head of a language model is."""

import argparse
import os
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, place, table
from horosphere.errors import UserError


def add(commands: Any) -> None:
    example = "horosphere superposition analyze runs/helm-d-tiny"
    analyze = command(commands, "analyze", run, "how crowded the head of a language model is", example)
    analyze.add_argument("models", nargs="+", help="folder of a model or run, or hf:NAME on Hugging Face")
    analyze.add_argument("--text", metavar="DATA", help="a text: norms by how often a token occurs in it")
    place(analyze, None, "folder of pictures (default none)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.files import require_new_file
    from horosphere.superposition.heads import head, head_counts, head_geometry

    names = ("overlaps.png", "norms.png")[: 1 + bool(args.text)] if args.out else ()
    pictures = [Path(args.out) / name for name in names]
    if args.out:
        require("plots")
        if os.path.lexists(args.out) and not Path(args.out).is_dir():  # a link to nowhere too
            raise UserError(f"{args.out} is a file: --out takes the name of a folder here")
    for picture in pictures:
        if picture.parent.is_dir():
            require_new_file(picture, args.overwrite)
    geometries, rows = {}, []
    for model in args.models:
        its_head = head(model)
        counts = head_counts(model, args.text, len(its_head.weight)) if args.text else None
        geometries[model] = head_geometry(its_head.weight, counts, dims=its_head.dims)
        rows += [*its_head.told(), *geometries[model].told()]
    table([], rows)
    if args.out:
        from horosphere.plots.style import save
        from horosphere.plots.superposition_heads import draw_norms, draw_overlaps

        Path(args.out).mkdir(parents=True, exist_ok=True)
        for picture, draw in zip(pictures, (draw_overlaps, draw_norms), strict=False):
            save(draw(geometries), picture, new=not args.overwrite)
        print(f"pictures: {args.out}/")
