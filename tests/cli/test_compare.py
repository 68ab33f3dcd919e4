"""Comparisons of geometries from the command line, and the demonstration: a table, a report, and nothing replaced unasked."""

import re
import sys
from pathlib import Path

import pytest
from tests.graph_commands import RING, SHORT, everything
from tests.train.graphs import binary_tree

from horosphere import demo
from horosphere.train.config import EmbedConfig

pytestmark = pytest.mark.usefixtures("_beside_a_tree")


def self_contained(path):
    page = re.sub(
        r'"data:[^"]*"', '"data:"', Path(path).read_text(encoding="utf-8")
    )  # a picture's letters may spell anything
    return not re.search(r"""src=(?!"data:)|href|url\(|@import|<script|<link""", page)


def test_compare_prints_a_table_and_writes_a_report(run):
    code, out, err = run(
        "compare", "tree.tsv", *SHORT, "--geometries", "lorentz, euclidean,lorentz,", "--seeds", 2, "--out", "r.html"
    )
    assert (code, err) == (0, "")
    head, best, other, verdict, written = out.splitlines()
    assert head.split() == ["geometry", "dim", "mean", "rank", "↓", "mAP", "↑", "time"]
    assert best.endswith("   <- best")
    assert {best.split()[0], other.split()[0]} == {"lorentz", "euclidean"}
    assert len(head) == len(other) == len(best) - len("   <- best")
    assert verdict.startswith("2 seeds. ")
    assert written == "report: r.html"
    assert verdict in Path("r.html").read_text(encoding="utf-8")
    assert self_contained("r.html")
    assert set(everything()) == {"tree.tsv", "r.html"}


def test_compare_refuses_to_replace_before_it_trains(refused):
    Path("report.html").write_text("mine")
    assert "report.html exists already" in refused("compare", "tree.tsv")


def test_too_small_to_compare(refused):
    Path("two.tsv").write_text("a\tb\n")
    assert "Give at least 4" in refused("compare", "two.tsv")


def test_compare_overwrites_when_told(run):
    Path("report.html").write_text("old")
    code, _, _ = run("compare", "tree.tsv", *SHORT, "--geometries", "lorentz", "--seeds", 1, "--overwrite")
    assert code == 0
    assert "Does curvature pay on tree?" in Path("report.html").read_text(encoding="utf-8")


def test_compare_an_undirected_graph(run):
    Path("ring.csv").write_text(RING)
    code, out, _ = run("compare", "ring.csv", "--graph", *SHORT, "--geometries", "euclidean,product", "--seeds", 1)
    assert code == 0
    assert "one run says nothing about chance. Pass --seeds 3." in out


@pytest.fixture
def tiny_demo(monkeypatch):
    monkeypatch.setattr(demo, "trove_classifiers", lambda: binary_tree(3))
    monkeypatch.setattr(demo, "EmbedConfig", lambda **_: EmbedConfig(dim=2, epochs=2))
    monkeypatch.setattr(demo, "add_language_models", lambda *_: None)  # tests/test_demo.py has that part


def test_demo_leaves_a_report(run, tiny_demo):
    code, out, err = run("demo", "--out", "first.html")
    assert (code, err) == (0, "")
    assert "a tree of 15 nodes" in out
    assert "<- best" in out
    assert "3 seeds. " in out
    assert out.endswith("report: first.html\n")
    assert self_contained("first.html")
    assert set(everything()) == {"tree.tsv", "first.html"}


def test_demo_refuses_to_replace_before_it_trains(refused):
    Path("report.html").write_text("mine")
    assert "report.html exists already" in refused("demo")


def test_demo_without_its_data_says_what_to_install(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "trove_classifiers", None)
    assert "pip install 'horosphere[demo]'" in refused("demo")
