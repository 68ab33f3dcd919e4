"""The page of a study: the answer, the table with its best row, curves and seeds of the right entrants, samples."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.catalogue import Entrant
from horosphere.evaluate.metric import Metric
from horosphere.plots.study_report import study_report
from horosphere.plots.style import ACCENT, BRANCHES, QUIET, SHADE
from horosphere.study.table import Results, Row
from tests.plots.reading import colour, error_bars, key, read_page, ticks

METRICS = (Metric("rank", "mean rank", 1, "low", "judged"), Metric("map", "mAP", 2, "high", "judged"))
CURVED, TWIN, BASELINE = Entrant("helm"), Entrant("llama", flat=True, twin_of="helm"), Entrant("before", baseline=True)


def row(entrant, rank, precision, curve, sample=""):
    return Row(
        entrant,
        parameters=1200,
        scores={"rank": [rank, rank + 1], "map": [precision, precision - 0.1]},
        seconds=[2.0, 4.0],
        step_ms=3.0,
        curve_of="loss",
        curve=curve,
        folders=[],
        sample=sample,
    )


ROWS = [
    row(CURVED, 2.0, 0.9, [(0, 3.0), (10, 2.0), (20, 1.0)], "a <b>\n  cat"),
    row(TWIN, 4.0, 0.7, [(0, 3.0), (10, 2.5), (20, 1.5)]),
    row(BASELINE, 9.0, 0.1, []),
]
RESULTS = Results("HELM", "model", "cats", "tokens", "loss", METRICS, ROWS, 2, {"command": "study <it>"})


def drawer(report, results, seen):
    """What a task adds to the page."""
    report.section(f"seen: {seen} in {results.title}")


@pytest.fixture
def read(album):
    def made(results, *more):
        return read_page(study_report(results, *more).html())

    return made


def test_the_answer_comes_first(read):
    page = read(RESULTS)
    assert page.heading == "HELM: does curvature pay on cats?"
    assert page.of("p")[0] == RESULTS.verdict()
    only_curved = dataclasses.replace(RESULTS, rows=[ROWS[0], row(Entrant("other"), 5.0, 0.5, [])])
    assert read(only_curved).heading == "HELM: which model does best on cats?"


def test_the_table_and_its_best_row(read):
    table = read(RESULTS).of("table")[0]
    heads, cells = RESULTS.cells()
    assert (table.head, table.rows, table.best) == (heads, cells, [0])
    assert table.rows[1][:4] == ["llama", "1,200", "4.5 ± 0.7", "0.65 ± 0.07"]
    assert table.caption == "Mean ± standard deviation over 2 seeds; time is of one training."
    one = dataclasses.replace(RESULTS, seeds=1)
    assert read(one).of("table")[0].caption.startswith("One seed;")


def test_curves_of_those_that_learned(read, album):
    image = read(RESULTS).of("img")[0]
    assert (image.alt, image.caption) == (
        "learning curves",
        "Loss while learning. Means over seeds. Dashed: flat space.",
    )
    (axes,) = album[image.content].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens learned from", "loss")
    told = {text.split()[0]: handle for text, handle in key(axes).items()}
    assert list(told) == ["helm", "llama"]  # what was before has not learned
    assert [colour(handle) for handle in told.values()] == [BRANCHES[0], BRANCHES[SHADE]]
    for line, own in zip(axes.lines, ROWS, strict=False):
        assert line.get_xydata().tolist() == [list(point) for point in own.curve]
    short = dataclasses.replace(RESULTS, rows=[row(CURVED, 2.0, 0.9, [(0, 3.0), (20, 1.0)]), *ROWS[1:]])
    assert [img.alt for img in read(short).of("img")] == ["metrics by model"]


def test_seeds_of_every_row_by_metric(read, album):
    image = read(RESULTS).of("img")[1]
    assert (image.alt, image.caption) == ("metrics by model", "In colour: the best mean.")
    rank, precision = album[image.content].axes
    assert [axes.get_title("left") for axes in (rank, precision)] == ["mean rank ↓", "mAP ↑"]
    assert ticks(rank.yaxis) == {0: "helm", 1: "llama", 2: "before"}
    for axes, name in ((rank, "rank"), (precision, "map")):
        bars = error_bars(axes, along=0)
        np.testing.assert_allclose([bar.x[0] for bar in bars], [np.mean(r.scores[name]) for r in ROWS])
        assert [bar.colour for bar in bars] == [ACCENT, QUIET, QUIET]
    one = dataclasses.replace(RESULTS, seeds=1)
    assert [img.alt for img in read(one).of("img")] == ["learning curves"]


def test_what_instruments_saw_what_was_written_and_what_it_was_made_with(read):
    page = read(RESULTS, "eyes", "tests.plots.test_study_report:drawer")
    assert page.of("h2") == ["seen: eyes in HELM", "What they write", "Made with"]
    _, samples, made = page.of("table")
    assert (samples.head, samples.rows) == (["model", "sample"], [["helm", "a <b> cat"]])
    assert made.rows == [["command", "study <it>"]]
    silent = dataclasses.replace(RESULTS, rows=[dataclasses.replace(ROWS[0], sample=""), *ROWS[1:]])
    assert read(silent).of("h2") == ["Made with"]
