"""`horosphere superposition figures`: redraw the paper's figures."""

import argparse
from typing import Any

from horosphere.cli.common import command, place, table
from horosphere.errors import UserError


def add(commands: Any) -> None:
    example = "horosphere superposition figures runs/superposition-a"
    figures = command(commands, "figures", run, "redraw the paper's figures from sweeps", example)
    figures.add_argument("results", nargs="+", help="folders or results.csv of sweeps")
    place(figures, "figures", "folder of the pictures (default figures)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.plots.superposition import FIGURES, draw_figures
    from horosphere.superposition.results import read_results

    require("plots")
    rows = read_results(args.results)
    written = draw_figures(rows, args.out, new=not args.overwrite)
    if not written:
        how = "sweep two widths or more, or --grid a, b or c"
        raise UserError(f"these {len(rows)} runs fill none of {', '.join(FIGURES)}, losses: {how}")
    table([], [["picture", str(path)] for path in written])
