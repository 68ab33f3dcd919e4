"""`horosphere compare`: the same in several geometries, as one study."""

import argparse
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli.common import (
    choose_device,
    command,
    device_option,
    executor_options,
    known_settings,
    output,
    positive,
    settings_argument,
    stem,
    take_settings,
)
from horosphere.cli.embed import FORMATS, RECIPE
from horosphere.errors import UserError, choices
from horosphere.recipes import read_recipe, recipe_names
from horosphere.settings import build, describe

GRAPH = ("dim=5", "rank_nodes=10000")  # more ranked nodes change the third digit and take minutes on a CPU
JOBS = 2


def add(commands: Any) -> None:
    example = "horosphere compare tree.tsv --dim 5 --seeds 3, or horosphere compare helm-tiny data=books/ steps=1000"
    compare = command(commands, "compare", run, "the same data in several geometries: does curvature pay?", example)
    compare.set_defaults(kept=(".", "what is done is in {out}, and the same command goes on"))
    whole = ", ".join(name for name in catalogue.comparisons() if name.startswith("helm"))
    compare.add_argument("what", help=f"a graph: {FORMATS}; {whole}: HELM and its flat twins; or any recipe")
    settings_argument(compare, "of all trainings; `horosphere list RECIPE` shows them")
    compare.add_argument("--seeds", metavar="N", type=positive, default=3, help="trainings of each entrant (default 3)")
    executor_options(compare, JOBS)
    device_option(compare)
    output(compare, None, "folder of the runs and of report.html (default runs/compare-WHAT)")


def run(args: argparse.Namespace) -> None:
    name, given = _recipe(args.what)
    recipe = read_recipe(name, [*given, *args.settings])
    task = catalogue.task(recipe.get("task"))
    options = {s.name: s for s in describe(task.options)} if task.options else {}
    known = known_settings(task.name, str(recipe.get("backbone", recipe.get("model"))))
    settings, values = take_settings(args, known, options)

    from horosphere.extras import require
    from horosphere.plots.study_report import study_report
    from horosphere.study.compare import compare, examine, plan
    from horosphere.study.executors import executor

    require("plots")
    args.out = args.out or str(Path("runs") / f"compare-{stem(args.what)}")
    chosen = build(catalogue.resolve(task.options), values, "compare") if task.options else None
    where = executor(args.executor, args.jobs or (JOBS if args.executor == "here" else None))
    study = plan(
        args.what if not given else name, [*given, *settings], chosen, args.seeds, Path(args.out), stem(args.what)
    )
    results = compare(study, where, choose_device(args.device), args.overwrite, args.quiet)
    print(*results.lines(), sep="\n")
    page = study.out / "report.html"
    study_report(results, examine(study, results), task.drawer).save(page)
    print(f"report: {page}")


def _recipe(what: str) -> tuple[str, list[str]]:
    """The recipe that says what kind of study it is, and what is given to it: the file of a graph is data of `embedding`."""
    comparisons = catalogue.comparisons()
    if what in recipe_names() or what.endswith((".yaml", ".yml")):
        return what, []
    if what in comparisons and comparisons[what].entrants[0].recipe:
        return comparisons[what].entrants[0].recipe, []
    if not Path(what).exists() and not Path(what).suffix and not what.startswith("builtin:"):
        wholes = [name for name, comparison in comparisons.items() if comparison.entrants[0].recipe]
        raise UserError(f"{what}: no file, recipe or comparison; {choices(what, [*wholes, *recipe_names()])}")
    return RECIPE, [f"data={what}", *GRAPH]
