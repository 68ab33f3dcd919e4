"""Comparisons of geometries from the command line: a table, a report, kept runs, and nothing replaced unasked."""

import re
from pathlib import Path

import pytest

from horosphere.runs import Run
from tests.cli.graph_commands import RING, SHORT, everything

pytestmark = pytest.mark.usefixtures("_beside_a_tree")


def test_compare_prints_a_table_writes_a_report_and_keeps_its_points(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT, "--geometries", "lorentz, euclidean,lorentz,", "--seeds", 2, "--out", "out")
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    head, best, other, verdict, written = out.splitlines()
    assert head.split() == ["geometry", "parameters", "mAP", "↑", "mean", "rank", "↓", "ms/step", "time"]
    assert best.endswith("   <- best")
    assert {best.split()[0], other.split()[0]} == {"lorentz", "euclidean"}
    assert verdict.startswith("2 seeds, paired (± is a 95 % interval). ")
    assert written == "report: out/report.html"
    assert verdict in Path("out/report.html").read_text(encoding="utf-8")
    assert sorted(in_this_process) == ["euclidean-0", "euclidean-1", "lorentz-0", "lorentz-1"]
    assert Run.open("out/lorentz-1").load().points.shape == (31, 3)
    pages = Path("out/report.html").read_text(encoding="utf-8")
    assert "horosphere" in pages[pages.index("Made with") :]


def test_compare_an_undirected_graph(run, in_this_process):
    Path("ring.csv").write_text(RING)
    code, out, _ = run("compare", "ring.csv", "--graph", *SHORT, "--geometries", "euclidean,product", "--seeds", 1)
    assert code == 0
    assert "one run says nothing about chance. Pass --seeds 3." in out
    page = Path("runs/compare-ring/report.html").read_text(encoding="utf-8")
    assert "one run says nothing about chance" in page
    for geometry in ("euclidean", "product"):
        shown = re.search(rf"^{geometry} .*?([\d.]+)", out, re.MULTILINE)
        assert shown
        assert shown[1] in page[page.index(geometry) :]


def test_a_comparison_goes_on_where_it_was(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT, "--geometries", "lorentz", "--out", "out")
    assert run(*words, "--seeds", 1)[0] == 0
    before = everything()
    assert run(*words, "--seeds", 2)[0] == 0
    points = str(Path("out/lorentz-0/points.safetensors"))
    assert everything()[points] == before[points]


def test_too_small_to_compare(refused):
    Path("two.tsv").write_text("a\tb\n")
    assert "Give at least 4" in refused("compare", "two.tsv")


def test_jobs_are_processes_and_one_that_diverges_is_counted_and_named(run):
    words = ("compare", "tree.tsv", *SHORT, "--lr", "1e9", "--warmup", 0, "--seeds", 1, "--quiet")
    code, out, err = run(*words, "--geometries", "lorentz,euclidean")
    assert (code, err) == (0, "")
    assert "lorentz, seed 0: diverged: the gradient of table.weight in step" in out
    assert re.search(r"^lorentz +1 of 1 ", out, re.MULTILINE)
    page = Path("runs/compare-tree/report.html").read_text(encoding="utf-8")
    assert "diverged: the gradient of table.weight in step" in page


def test_a_training_that_diverges_ends_with_a_code_of_its_own(run):
    code, _, err = run("embed", "tree.tsv", *SHORT, "--lr", "1e9", "--warmup", 0, "--quiet")
    assert code == 3
    assert err.startswith("horosphere: the gradient of table.weight in step")
    assert err.count("\n") == 1


def test_each_entrant_may_tune_its_own_rate(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT, "--tune", "lr=0.1,0.3,0.9", "--seeds", 1, "--geometries", "lorentz,product")
    code, out, err = run(*words, "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split()[:3] == ["geometry", "lr", "parameters"]
    assert "What was tuned" in Path("runs/compare-tree-tuned/report.html").read_text(encoding="utf-8")


def test_a_tuned_study_takes_no_other_ones_place_and_says_so_before_it_trains(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT, "--seeds", 1, "--geometries", "lorentz,euclidean", "--quiet")
    assert run(*words, "--out", "one")[0] == 0
    in_this_process.clear()
    code, out, err = run(*words, "--out", "one", "--tune", "lr=0.1,0.3")
    assert (code, out, in_this_process) == (2, "", [])
    assert "one/study.json is of another study" in err


def test_sizes_that_cannot_be_studied_are_told_before_the_first_is(run, in_this_process):
    words = ("compare", "tree.tsv", "--seeds", 1, "--geometries", "lorentz,euclidean", "--quiet", "--out", "sizes")
    assert run(*words, "--epochs", 2, "--dims", "3")[0] == 0
    in_this_process.clear()
    code, out, err = run(*words, "--epochs", 3, "--dims", "2,3")
    assert (code, out, in_this_process) == (2, "", [])
    assert "sizes/dim-3/study.json is of another study" in err


def test_dimensions_side_by_side(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT[:2], "--dims", "2,4", "--seeds", 2, "--geometries", "lorentz,euclidean")
    code, out, err = run(*words, "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["geometry", "dim", "2", "dim", "4"]
    assert Path("runs/compare-tree-dims/sizes.json").is_file()
    assert Path("runs/compare-tree-dims/dim-4/lorentz-1/points.safetensors").is_file()


def test_sizes_are_called_by_their_name(refused):
    assert "sizes of these models are called dims; write --dims" in refused("compare", "tree.tsv", "--widths", "2,4")
    assert "as in 2,5,10" in refused("compare", "tree.tsv", "--dims", "two")
    assert "--dims and dim=5: both say" in refused("compare", "tree.tsv", "--dims", "2,3", "--dim", 5)


def test_distances_are_compared_in_products(run, in_this_process):
    Path("far.edges").write_text("a b 2\nb c 0.5\nc d 1\na d 3\nd e 1\n")
    words = ("--graph", "--objective", "distortion", "--dim", "3", "steps=10", "--seeds", 1, "--quiet")
    code, out, err = run("compare", "far.edges", *words, "--geometries", "lorentz,sphere,euclidean,lorentz:2+sphere:1")
    assert (code, err) == (0, "")
    head = out.splitlines()[0]
    assert head.index("average distortion ↓") < head.index("mAP ↑")
    assert len(in_this_process) == 4
