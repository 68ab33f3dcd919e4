"""The page of a study: the answer first, then the table, curves, pictures, samples, and what it was made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horosphere.catalogue import resolve
from horosphere.plots.comparison import draw_comparison
from horosphere.plots.curves import Curve, draw_curves
from horosphere.plots.report import Report
from horosphere.plots.sweep import draw_sweep

if TYPE_CHECKING:
    from horosphere.study.sweep import Sweep
    from horosphere.study.table import Results


def study_report(results: Results, seen: Any = None, drawer: str = "") -> Report:
    """seen: what instruments saw in the runs, which the function `drawer` ("module:name") adds to the page."""
    flat = {row.entrant.flat for row in results.rows if not row.entrant.baseline}
    question = "does curvature pay" if len(flat) == 2 else f"which {results.column} does best"
    report = Report(f"{results.title}: {question} on {results.subject}?", results.verdict())
    add_study(report, results, seen, drawer)
    report.made_with(results.made_with)
    return report


def add_study(report: Report, results: Results, seen: Any = None, drawer: str = "") -> None:
    """The sections of a study; a page may have several."""
    heads, cells = results.cells()
    over = f"Mean ± standard deviation over {results.seeds} seeds" if results.seeds > 1 else "One seed"
    notes = "".join(f" {note.removesuffix('.')}." for note in results.notes())
    report.table(heads, cells, highlight=results.best(), caption=f"{over}; time is of one training.{notes}")
    _tuned(report, results)
    learned = [row for row in results.rows if not row.entrant.baseline]
    if all(len(row.curve) > 2 for row in learned):  # the first point and the last make no curve
        curves = {
            row.name: Curve(row.curve, row.entrant.flat, row.entrant.twin_of * row.entrant.flat) for row in learned
        }
        caption = "Means over seeds." if results.seeds > 1 else ""
        dashed = " Dashed: flat space." if any(curve.flat for curve in curves.values()) else ""
        figure = draw_curves(curves, f"{results.unit} learned from", results.curve_of)
        report.figure(
            figure, f"{results.curve_of.capitalize()} while learning. {caption}{dashed}".strip(), "learning curves"
        )
    judged = {metric.title: [row.scores[metric.name] for row in results.rows] for metric in results.judged}
    better = {metric.title: metric.better for metric in results.judged}
    if results.seeds > 1:
        figure = draw_comparison([row.name for row in results.rows], judged, better)
        report.figure(figure, "In colour: the best mean.", f"metrics by {results.column}")
    if seen is not None and drawer:
        resolve(drawer)(report, results, seen)
    _samples(report, results)


def _tuned(report: Report, results: Results) -> None:
    """What each entrant tried, and what it chose."""
    tuned = {row.name: row.tuned for row in results.rows if row.tuned}
    if not tuned:
        return
    metric = results.judged[0]
    points = list(dict.fromkeys(point for of in tuned.values() for point in of.scores))
    rows = []
    for name, of in tuned.items():
        cells = [metric.cell([of.scores[point]]) if point in of.scores else "" for point in points]
        rows.append([name, *cells, " ".join(of.chosen)])
    how = "One seed, which no training above has, judged by the half of what is held out that they are not judged by."
    report.table([results.column, *points, "chosen"], rows, caption=f"What was tuned, by {metric.title}. {how}")


def _samples(report: Report, results: Results) -> None:
    samples = [[row.name, " ".join(row.sample.split())] for row in results.rows if row.sample]
    if samples:
        report.section("What they write")
        report.table([results.column, "sample"], samples)


def sweep_report(title: str, sweep: Sweep) -> Report:
    """The page of a sweep over sizes: quality against size first, then the study of each size."""
    report = Report(f"{title}: quality against {sweep.what}", sweep.verdict())
    results = next(iter(sweep.results.values()))
    flat = {row.name: row.entrant.twin_of for row in results.rows if row.entrant.flat and not row.entrant.baseline}
    figure = draw_sweep(sweep.scores(), sweep.what, sweep.metric.head, flat)
    over = f"Mean and standard deviation over {results.seeds} seeds. " if results.seeds > 1 else ""
    report.figure(figure, f"{over}Dashed: flat space.", "quality against size")
    report.table(*sweep.cells(), caption=sweep.metric.head)
    for size, of in sweep.results.items():
        report.section(f"{sweep.unit} {size}")
        report.text(of.verdict())
        add_study(report, of)
    report.made_with(results.made_with)
    return report
