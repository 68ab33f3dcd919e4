"""`horosphere compare`: the same in several geometries, as one study, or as one of each size."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.cli.embed import FORMATS, RECIPE, recipe_of
from horosphere.described import describe
from horosphere.errors import UserError, choices
from horosphere.recipes import read_recipe, recipe_names
from horosphere.settings import Size, convert

GRAPH = ("dim=5", "rank_nodes=10000")  # more ranked nodes change the third digit and take minutes on a CPU


def add(commands: Any) -> None:
    example = "horosphere compare tree.tsv --dim 5 --tune lr=0.1,0.3,1, or horosphere compare helm-tiny data=books/"
    summary = "the same data in several geometries: does curvature pay?"
    compare = common.command(commands, "compare", run, summary, example)
    compare.add_argument("what", help=f"a graph: {FORMATS}; {', '.join(_wholes())}: HELM and its twins; or any recipe")
    settings = (
        "of all trainings; `horosphere list RECIPE` shows them. Of a graph: --dim (5), --graph, --on, --geometries"
    )
    common.settings_argument(compare, settings)
    tune = "values of a setting: each entrant chooses its own best on half of what is held out; may be given again"
    compare.add_argument("--tune", metavar="KEY=A,B,…", action="append", default=[], help=tune)
    sizes = compare.add_mutually_exclusive_group()
    sizes.add_argument("--dims", metavar="A,B,…", type=_sizes, help="a study of a graph in each number of dimensions")
    sizes.add_argument("--widths", metavar="A,B,…", type=_sizes, help="a study of each width of a network")
    folder = "folder of the runs and of report.html (default runs/compare-WHAT, with -tuned, -dims or -widths)"
    common.study_options(compare, 3, folder)


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
    if args.dims and (twice := [setting for setting in said if setting.startswith("dim=")]):
        raise UserError(f"--dims and {twice[0]}: both say how many dimensions; leave one of them out")
    settings = [*given, *(setting for setting in said if setting.partition("=")[0] not in options)]

    from horosphere.extras import require
    from horosphere.settings import build
    from horosphere.study.planning import plan

    require("plots")
    sizes = _asked_sizes(args, called := catalogue.resolve(task.build).sizes)
    kind = "-tuned" * bool(args.tune) + f"-{called}" * bool(sizes)  # studies of one thing beside one another
    args.out = str(args.out or Path("runs") / f"compare-{common.stem(args.what)}{kind}")
    chosen = build(catalogue.resolve(task.options), mine, "compare")
    out = Path(args.out)

    def planned(at: Path, size: int | None = None) -> Any:
        what = name if given else args.what
        return plan(what, settings, chosen, args.seeds, at, common.stem(args.what), tune=args.tune, size=size)

    if not sizes:
        return _one(args, planned(out), task.drawer)
    _several(args, {size: planned(out / f"{called.removesuffix('s')}-{size}", size) for size in sizes})


def _one(args: argparse.Namespace, study: Any, drawer: str) -> None:
    from horosphere.plots.study_report import study_report
    from horosphere.study.compare import compare, examine

    results = compare(study, *_how(args))
    print(*results.lines(), sep="\n")
    _save(args, study_report(results, examine(study, results), drawer))


def _several(args: argparse.Namespace, studies: Mapping[int, Any]) -> None:
    from horosphere.plots.study_report import sweep_report
    from horosphere.study.sweep import sweep

    found = sweep(studies, *_how(args))
    print(*found.lines(), sep="\n")
    found.save(Path(args.out))
    _save(args, sweep_report(common.stem(args.what), found))


def _how(args: argparse.Namespace) -> tuple[Any, ...]:
    return common.choose_executor(args), common.choose_device(args.device), args.overwrite, args.quiet


def _save(args: argparse.Namespace, report: Any) -> None:
    path = Path(args.out) / "report.html"
    report.save(path)
    print(f"report: {path}")


def _sizes(text: str) -> list[int]:
    try:
        return sorted({convert(part, Size, "size") for part in text.split(",")})
    except UserError as error:
        raise argparse.ArgumentTypeError(f"{error}, as in 2,5,10") from None


def _asked_sizes(args: argparse.Namespace, called: str) -> list[int]:
    for name in ("dims", "widths"):
        if getattr(args, name) and name != called:
            raise UserError(f"--{name}: sizes of these models are called {called}; write --{called}")
    return args.dims or args.widths or []


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
