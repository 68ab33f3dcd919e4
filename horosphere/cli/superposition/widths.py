"""`horosphere superposition widths`: HELM and its flat twin at several widths."""

import argparse
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.errors import UserError

PICTURE = "widths.png"


def add(commands: Any) -> None:
    example = "horosphere superposition widths 32,64,128 steps=500 --seeds 2 --jobs 2"
    widths = common.command(commands, "widths", run, "HELM and its flat twin at several widths", example)
    widths.add_argument("widths", type=common.names, help="separated by commas")
    common.settings_argument(widths, "of the recipe: data, steps, lr, …")
    widths.add_argument("--recipe", default="helm-d-tiny", help="a dense HELM recipe (default helm-d-tiny)")
    common.study_options(widths, 2, "folder of the trainings (default runs/widths)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.plots.superposition_heads import draw_width_study
    from horosphere.recipes import read_recipe
    from horosphere.superposition.asked import whole_numbers
    from horosphere.superposition.fits import interval
    from horosphere.superposition.widths import TABLE, WidthPlan, study_widths

    require("plots")
    chosen = whole_numbers("widths", args.widths)
    if not chosen:
        raise UserError("widths: nothing is named; give whole numbers separated by commas")
    settings = common.settings_of(args, catalogue.known_settings(read_recipe(args.recipe)))
    plan = WidthPlan(args.recipe, tuple(chosen), tuple(settings), args.seeds)
    out = Path(args.out or "runs/widths")
    args.out, where, device = str(out), common.choose_executor(args), common.choose_device(args.device)
    study = study_widths(plan, out, where, device, args.overwrite, args.quiet)
    draw_width_study(study, out / PICTURE)
    common.table(*study.cells())
    if (law := study.fit()) is not None:
        offsets = ", ".join(f"{model} {offset:.3f}" for (model, _), offset in law.offsets.items())
        spread = f"α over trainings, 95 %: {interval(law.bootstrap)}"
        print(f"L = {law.scale:.3g}/m^{law.exponent:.2f} + {offsets}; {spread}")
    print(f"table and picture: {out / TABLE}, {out / PICTURE}")
