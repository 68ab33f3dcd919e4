"""`make demo`: a real tree in four geometries, a small language model beside its flat twin, and a page that shows what came out."""

from pathlib import Path

from horosphere import catalogue
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.files import require_new_file
from horosphere.plots.report import Report
from horosphere.plots.study_report import add_study
from horosphere.runs import made_with
from horosphere.study.compare import compare, examine, plan
from horosphere.study.executors import Here

RUNS = Path("runs") / "demo"
JOBS = 2
TREE = ("embedding", ["data=builtin:trove", "dim=5", "epochs=150"], 3)  # recipe, settings, seeds
STEPS = 240
SIZE = [f"steps={STEPS}", f"eval_every={STEPS // 8}", f"save_every={STEPS}", "num_hidden_layers=3"]
LANGUAGE = ("helm-mice-tiny", SIZE, 1)


def demo(out: str | Path, overwrite: bool, quiet: bool) -> None:
    require_new_file(out, overwrite)
    require("plots")
    require("trove")
    report = Report("Does curvature pay?", "A tree, and a text, each in hyperbolic and in flat space")
    print(
        "PyPI's package classifiers, a tree of some 900 nodes: four geometries, 5 dimensions, 3 seeds each; about a minute on two cores."
    )
    _add(report, "A tree: PyPI's package classifiers", "tree", *TREE, overwrite, quiet)
    print(
        "\nPython's documentation: HELM-MiCE, which lives on the hyperboloid, and its flat twin; about two minutes on two cores."
    )
    try:
        require("language")
    except UserError as error:
        print(f"The demo goes on without its language model: {error}")
    else:
        _add(report, "A text: Python's own documentation", "text", *LANGUAGE, overwrite, quiet)
    report.made_with(made_with())
    report.save(out)
    print(f"report: {out}")


def _add(
    report: Report, title: str, name: str, recipe: str, settings: list[str], seeds: int, overwrite: bool, quiet: bool
) -> None:
    """A study, printed and in the page."""
    study = plan(recipe, settings, None, seeds, RUNS / name)
    results = compare(study, Here(JOBS), "cpu", overwrite, quiet)
    print(*results.lines(), sep="\n")
    report.section(title)
    report.text(results.verdict())
    add_study(report, results, examine(study, results), catalogue.tasks()[study.task.kind].drawer)
