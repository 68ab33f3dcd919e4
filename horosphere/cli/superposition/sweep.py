"""`horosphere superposition sweep`: train a grid of toy models."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from horosphere.cli import common
from horosphere.errors import UserError
from horosphere.settings import Count, Few, Positive, Size

SHOWN = 24  # rows of a table on a terminal; the rest is in the file
KEPT = ("sweep.json", "what is done is in {out}, and the same command with --resume goes on")
# options that every part of a sweep is told
TOLD = ("grid", "n", "widths", "laws", "densities", "gammas", "bias", "readouts", "lr", "steps", "batch", "seeds")


def add(commands: Any) -> None:
    example = "horosphere superposition sweep --laws power:1.5 --gammas=-0.556,0.333 --seeds 3"
    sweep = common.command(commands, "sweep", run, "train a grid of toy models", example)
    grids = "a grid of the paper (a: skew x decay, b: density x decay, c: n = 10240), or small"
    sweep.add_argument("--grid", choices=("a", "b", "c", "small"), help=grids)
    sweep.add_argument("--n", metavar="N", type=common.of(Size), help="features (default 1000)")
    only = "; with --grid: only these"
    lists = {
        "widths": f"dimensions (default 10,15,25,39,63,100){only}",
        "laws": f"power:ALPHA, exponential:SCALE, linear, uniform, counts:FILE (default power:1){only}",
        "densities": f"mean number of active features (default 1){only}",
        "gammas": f"decay; below zero growth to unit norm (default -0.556,0.333){only}",
        "bias": "how b starts: normal (default), as in the paper's scripts, and/or zero",
        "readouts": "dot (default), lorentz, distance",
    }
    for name, text in lists.items():
        sweep.add_argument(f"--{name}", metavar="A,B", type=common.names, help=text)
    sweep.add_argument("--lr", metavar="X", type=common.of(Positive), help="learning rate at its peak (default 0.01)")
    sweep.add_argument(
        "--steps", metavar="N", type=common.of(Count), help="of training (default the grid's, or 20,000)"
    )
    samples = "samples a step (default the grid's, or 2048)"
    sweep.add_argument("--batch", metavar="N", type=common.of(Size), help=samples)
    sweep.add_argument("--seeds", metavar="N", type=common.of(Few), default=3, help="runs of each setting (default 3)")
    sweep.add_argument("--parts", metavar="N", type=common.of(Few), help="train in so many jobs (default: one, here)")
    sweep.add_argument("--part", metavar="K/N", help="train part K of N only: one such job")
    sweep.add_argument("--parquet", action="store_true", help="write results.parquet too")
    sweep.set_defaults(kept=KEPT)
    common.executor_options(sweep)
    common.run_options(sweep, "sweep", "folder of the results (default runs/superposition-NAME)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.superposition.asked import Asked, part_number, part_of
    from horosphere.superposition.parts import sweep_in_parts
    from horosphere.superposition.results import RESULTS, setting_rows, settings
    from horosphere.superposition.sweep import SweepOptions, sweep

    if args.part and (args.parts or args.executor != "here"):
        raise UserError("--part is one job, --parts and --executor begin them all: leave one of them out")
    require("plots")
    runs, schedule = Asked(**{name: getattr(args, name) for name in TOLD}).runs()
    if args.part:
        runs = [runs[index] for index in part_of(runs, *part_number(args.part))]
    args.out = args.out or str(Path("runs") / f"superposition-{args.grid or common.stem(runs[0].law.replace(':', ''))}")
    options = SweepOptions(
        common.choose_device(args.device),
        resume=args.resume or args.go_on,
        overwrite=args.overwrite,
        parquet=args.parquet,
        quiet=args.quiet,
    )
    if args.parts or args.executor != "here":
        where = common.choose_executor(args)
        words, parts = _words(args), args.parts or where.jobs
        rows = sweep_in_parts(runs, schedule, Path(args.out), words, parts, where, options)
    else:
        rows = sweep(runs, schedule, args.out, options)
    if args.part:
        return
    if found := settings(rows):
        common.table(*setting_rows(found[:SHOWN]))
        if len(found) > SHOWN:
            print(f"… and {len(found) - SHOWN} more settings")
        print(f"intervals: {found[0].fit.how}")
    if diverged := [row for row in rows if not math.isfinite(row["loss"])]:
        how = "lower --lr" + " (without --grid, which has its own)" * bool(args.grid)
        if all(abs(row["gamma"]) > 1 for row in diverged):
            how = "choose --gammas from -1 to 1, as the paper does"
        print(f"{len(diverged):,} of {len(rows):,} runs diverged: {how}", file=sys.stderr)
    from horosphere.plots.superposition import draw_figures

    pictures = ", ".join(path.name for path in draw_figures(rows, args.out))
    print(f"{len(rows):,} runs: {Path(args.out) / RESULTS}" + f"; pictures: {pictures}" * bool(pictures))
    print(f"next: {_next(pictures, args.out)}")


def _next(pictures: str, out: str) -> str:
    """What to do after a sweep that drew these."""
    if not pictures:
        return "sweep two widths or more: one has no slope to draw"
    if pictures == "losses.png":
        return f"see {Path(out) / pictures}; the paper's figures take --grid a, b or c"
    return f"`horosphere superposition figures {out} OTHER-SWEEP --out figures` draws several sweeps together"


def _words(args: argparse.Namespace) -> list[str]:
    """The options of a sweep, for its parts."""
    given = {name: getattr(args, name) for name in TOLD if getattr(args, name) is not None}
    return [f"--{name}={','.join(value) if isinstance(value, list) else value}" for name, value in given.items()]
