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
        rows += [["model", model + f"  ({its_head.note})" * bool(its_head.note)], *_rows(its_head, geometries[model])]
    table([], rows)
    if args.out:
        from horosphere.plots.superposition_heads import draw_norms, draw_overlaps

        Path(args.out).mkdir(parents=True, exist_ok=True)
        draw_overlaps(geometries, Path(args.out) / "overlaps.png")
        if args.text:
            draw_norms(geometries, Path(args.out) / "norms.png")
        print(f"pictures: {args.out}/")


def _rows(head: Any, g: Any) -> list[list[str]]:
    padded = f", {head.padded} padded rows dropped" * bool(head.padded)
    rows = [["head", f"{head.tensor}, {g.rows:,} x {g.dims}, {'tied' if head.tied else 'its own'}{padded}"]]
    overlaps = {"overlap": g.raw, "  centred": g.centred, f"  without {g.components} components": g.trimmed}
    for name, overlap in overlaps.items():
        rows.append([name, f"{overlap.mean_square:.3e}  ({overlap.times_isotropic:.2f} times 1/m)"])
    rows += [["effective dimensions", f"{g.effective_dims:.1f}"], ["norms", f"{g.norm_mean:.3f} ± {g.norm_std:.3f}"]]
    if g.by_frequency is not None:
        rows.append(["norms follow frequency", f"{g.by_frequency.correlation:.2f}  (rank correlation)"])
    return rows
