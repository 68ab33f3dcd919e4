"""`horosphere compare`: the same in several geometries, as one study."""

import argparse
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.cli.embed import FORMATS, RECIPE, recipe_of
from horosphere.described import describe
from horosphere.errors import UserError, choices
from horosphere.recipes import read_recipe, recipe_names

GRAPH = ("dim=5", "rank_nodes=10000")  # more ranked nodes change the third digit and take minutes on a CPU


def add(commands: Any) -> None:
    example = "horosphere compare tree.tsv --dim 5 --seeds 3, or horosphere compare helm-tiny data=books/ steps=1000"
    summary = "the same data in several geometries: does curvature pay?"
    compare = common.command(commands, "compare", run, summary, example)
    compare.add_argument("what", help=f"a graph: {FORMATS}; {', '.join(_wholes())}: HELM and its twins; or any recipe")
    settings = (
        "of all trainings; `horosphere list RECIPE` shows them. Of a graph: --dim (5), --graph, --on, --geometries"
    )
    common.settings_argument(compare, settings)
    common.study_options(compare, 3, "folder of the runs and of report.html (default runs/compare-WHAT)")


def run(args: argparse.Namespace) -> None:
    if {"--resume", "--continue"}.intersection(args.more):
        raise UserError("--resume: a study that was stopped goes on with the same command; leave it out")
    name, given = _recipe(args.what)
    recipe = read_recipe(name, [*given, *args.settings])
    task = catalogue.task(recipe.get("task"))
    options = describe(task.options)
    said = common.settings_of(args, {**options, **catalogue.known_settings(recipe)})
    name = recipe_of(said) if name == RECIPE else name
    mine = {key: value for key, _, value in (setting.partition("=") for setting in said) if key in options}
    if given:
        common.refuse_data(args.what, said)
    settings = [*given, *(setting for setting in said if setting.partition("=")[0] not in options)]

    from horosphere.extras import require
    from horosphere.plots.study_report import study_report
    from horosphere.settings import build
    from horosphere.study.compare import compare, examine, plan

    require("plots")
    out = Path(args.out or Path("runs") / f"compare-{common.stem(args.what)}")
    args.out, where = str(out), common.choose_executor(args)
    chosen = build(catalogue.resolve(task.options), mine, "compare")
    study = plan(name if given else args.what, settings, chosen, args.seeds, out, common.stem(args.what))
    results = compare(study, where, common.choose_device(args.device), args.overwrite, args.quiet)
    print(*results.lines(), sep="\n")
    study_report(results, examine(study, results), task.drawer).save(out / "report.html")
    print(f"report: {out / 'report.html'}")


def _wholes() -> list[str]:
    """Comparisons of several recipes."""
    return [name for name, comparison in catalogue.comparisons().items() if comparison.entrants[0].recipe]


def _recipe(what: str) -> tuple[str, list[str]]:
    """A recipe of the study, and what is given to it: the file of a graph is data of `embedding`."""
    if what in recipe_names() or what.endswith((".yaml", ".yml")):
        return what, []
    if what in _wholes():
        return catalogue.comparisons()[what].entrants[0].recipe, []
    if not Path(what).exists() and not Path(what).suffix and not what.startswith("builtin:"):
        raise UserError(f"{what}: no file, recipe or comparison; {choices(what, [*_wholes(), *recipe_names()])}")
    return RECIPE, [f"data={what}", *GRAPH]
