"""`horosphere superposition widths`: HELM and its flat twin at several widths."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import (
    choose_device,
    command,
    device_option,
    executor_options,
    known_settings,
    names,
    output,
    positive,
    settings_argument,
    table,
    take_settings,
)
from horosphere.cli.superposition.fit import interval
from horosphere.errors import UserError

PICTURE = "widths.png"


def add(commands: Any) -> None:
    example = "horosphere superposition widths 32,64,128 steps=500 --seeds 2 --jobs 2"
    widths = command(commands, "widths", run, "HELM and its flat twin at several widths", example)
    widths.add_argument("widths", type=names, help="separated by commas")
    settings_argument(widths, "of the recipe: data, steps, lr, …")
    widths.add_argument("--recipe", default="helm-d-tiny", help="a dense HELM recipe (default helm-d-tiny)")
    widths.add_argument("--seeds", metavar="N", type=positive, default=2, help="trainings of each (default 2)")
    executor_options(widths, 1)
    device_option(widths)
    widths.set_defaults(kept=(".", "what is done is in {out}, and the same command goes on"))
    output(widths, "runs/widths", "folder of the trainings (default runs/widths)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.plots.superposition_heads import draw_width_study
    from horosphere.study.executors import executor
    from horosphere.superposition.asked import whole_numbers
    from horosphere.superposition.widths import TABLE, WidthPlan, study_widths

    require("plots")
    chosen = whole_numbers("widths", args.widths)
    if not chosen:
        raise UserError("widths: nothing is named; give whole numbers separated by commas")
    settings, _ = take_settings(args, known_settings("language", args.recipe))
    plan = WidthPlan(args.recipe, tuple(chosen), tuple(settings), args.seeds)
    where = executor(args.executor, args.jobs)
    study = study_widths(plan, Path(args.out), where, choose_device(args.device), args.overwrite, args.quiet)
    draw_width_study(study, Path(args.out) / PICTURE)
    table(*study.cells())
    if (law := study.fit()) is not None:
        offsets = ", ".join(f"{model} {offset:.3f}" for (model, _), offset in law.offsets.items())
        print(
            f"L = {law.scale:.3g}/m^{law.exponent:.2f} + {offsets}; α over trainings, 95 %: {interval(law.bootstrap)}"
        )
    print(f"table and picture: {Path(args.out) / TABLE}, {Path(args.out) / PICTURE}")
