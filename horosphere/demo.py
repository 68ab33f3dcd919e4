"""`make demo`: a real tree in four geometries, a small language model in three curvatures, and pages of both."""

from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.catalogue import Comparison, Entrant
from horosphere.errors import UserError
from horosphere.explorer import Explorer, open_atlas
from horosphere.extras import require
from horosphere.files import require_new_file
from horosphere.plots.report import Report
from horosphere.plots.study_report import add_study
from horosphere.runs import made_with
from horosphere.study.compare import compare, examine
from horosphere.study.executors import Here
from horosphere.study.planning import Study, plan
from horosphere.study.table import Results

RUNS = Path("runs") / "demo"
JOBS = 2
TREE = ("embedding", ["data=builtin:trove", "dim=5", "epochs=150"], 3)  # recipe, settings, seeds
STEPS = 240
SIZE = [f"steps={STEPS}", f"eval_every={STEPS // 8}", f"save_every={STEPS}", "num_hidden_layers=3"]
# each at its own best learning rate; the strongest flat model of those tried, and the best known (docs/results/helm.md)
CURVATURES = Comparison(
    "three curvatures",
    "model",
    (
        Entrant("HELM-D", "helm-d-tiny", ("lr=5e-3",)),
        Entrant("Sphere", "sphere-tiny", ("lr=2e-2",)),
        Entrant("Flat, unit rows", "sphere-tiny", ("geometry=euclidean", "lr=2e-2"), flat=True),
        Entrant("Llama", "llama-tiny", ("lr=5e-3",), flat=True),
    ),
)
LANGUAGE = (CURVATURES, SIZE, 1)
EXPLORER = "explorer.html"  # beside the report: the tree in two geometries
SIDE_BY_SIDE = ("lorentz", "euclidean")
TREE_SAID = "PyPI's package classifiers, a tree: four geometries in 5 dimensions, 3 seeds each; a minute on two cores."
TEXT_SAID = "Python's documentation: hyperboloid, sphere, and the strongest flat model; two minutes on two cores."


def demo(out: str | Path, overwrite: bool, quiet: bool) -> None:
    page = Path(out).with_name(EXPLORER)
    for path in (out, page):
        require_new_file(path, overwrite)
    require("plots")
    require("trove")
    print(TREE_SAID)
    studies = {"A tree: PyPI's package classifiers": _study("tree", *TREE, overwrite, quiet)}
    try:
        require("language")
    except UserError as error:
        print(f"The demo goes on without its language model: {error}")
    else:
        print(f"\n{TEXT_SAID}")
        studies["A text: Python's own documentation"] = _study("text", *LANGUAGE, overwrite, quiet)
    answers = [f"{title.partition(':')[0]}: {results.verdict()}" for title, (_, results) in studies.items()]
    report = Report("Does curvature pay?", " ".join(answers))
    for title, (study, results) in studies.items():
        report.section(title)
        add_study(report, results, examine(study, results), catalogue.tasks()[study.task.kind].drawer)
    report.made_with(made_with())
    report.save(out, new=not overwrite)
    print(f"report: {out}")
    results = next(iter(studies.values()))[1]
    shown = [row.folders[0] for name in SIDE_BY_SIDE for row in results.rows if row.name == name]
    Explorer([open_atlas(folder) for folder in shown], "PyPI's classifiers, curved and flat").save(
        page, overwrite, quiet
    )
    print(f"the tree's points: {page}; open it in any browser, drag the points, search, select")


def _study(name: str, recipe: str | Comparison, settings: list[str], seeds: int, *how: Any) -> tuple[Study, Results]:
    study = plan(recipe, settings, None, seeds, RUNS / name)
    results = compare(study, Here(JOBS), "cpu", *how)
    print(*results.lines(), sep="\n")
    return study, results
