"""`horosphere superposition analyze`: how crowded the head of a language model is."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, table


def add(commands: Any) -> None:
    example = "horosphere superposition analyze runs/helm-d-tiny"
    analyze = command(commands, "analyze", run, "how crowded the head of a language model is", example)
    analyze.add_argument("models", nargs="+", help="folder of a model or run, or hf:NAME on Hugging Face")
    analyze.add_argument("--text", metavar="DATA", help="a text: norms by how often a token occurs in it")
    analyze.add_argument("--out", metavar="FOLDER", help="pictures (default none)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.superposition.heads import head, head_counts, head_geometry

    if args.out:
        require("plots")
    geometries, rows = {}, []
    for model in args.models:
        its_head = head(model)
        counts = head_counts(model, args.text, len(its_head.weight)) if args.text else None
        geometries[model] = head_geometry(its_head.weight, counts, dims=its_head.dims)
        rows += [*its_head.told(), *geometries[model].told()]
    table([], rows)
    if args.out:
        from horosphere.plots.superposition_heads import draw_norms, draw_overlaps

        Path(args.out).mkdir(parents=True, exist_ok=True)
        draw_overlaps(geometries, Path(args.out) / "overlaps.png")
        if args.text:
            draw_norms(geometries, Path(args.out) / "norms.png")
        print(f"pictures: {args.out}/")
