"""The demo: a tree and a text, told of in one page, and what is missing is missed in a line."""

import re
import sys
from pathlib import Path

import pytest

from horosphere import demo
from tests.tasks.tiny import LANGUAGE, NODES, write_text, write_tree

pytest.importorskip("matplotlib", reason="the page has pictures")


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path, in_this_process):
    monkeypatch.chdir(tmp_path)
    tree = [f"data={write_tree(tmp_path / 'tree.tsv')}", *NODES]
    monkeypatch.setattr(demo, "TREE", ("embedding", tree, 2))
    plain = [word for word in LANGUAGE if not word.startswith("lr=")]  # each entrant has its own
    text = [f"data={write_text(tmp_path / 'cats.txt')}", *plain, "sample_every=4"]
    monkeypatch.setattr(demo, "LANGUAGE", (demo.CURVATURES, text, 1))


def test_the_report_has_the_numbers_of_the_runs(capsys):
    pytest.importorskip("transformers", reason="language models need transformers")
    demo.demo("report.html", False, True)
    out, html = capsys.readouterr().out, Path("report.html").read_text(encoding="utf-8")
    assert out.count("<- best") >= 2
    told = "the tree's points: explorer.html; open it in any browser, drag the points, search, select\n"
    assert out.endswith(f"report: report.html\n{told}")
    for name in ("lorentz", "euclidean", "HELM-D", "Sphere", "Flat, unit rows"):
        score = re.search(rf"^{name} .*? (\d\.\d{{3,4}})\b", out, re.MULTILINE)[1]
        assert score in html
    assert "one run says nothing about chance" in html
    assert "What they write" in html
    assert {path.name for path in Path().iterdir()} == {"report.html", "explorer.html", "runs", "tree.tsv", "cats.txt"}
    assert Path("runs/demo/tree/lorentz-0/points.safetensors").is_file()
    page = Path("explorer.html").read_text(encoding="utf-8")
    assert page.count('type="text/plain" id="') > 20  # the data of both geometries


def test_without_the_language_extra_the_tree_is_still_shown(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    demo.demo("report.html", False, True)
    out = capsys.readouterr().out
    assert "The demo goes on without its language model: " in out
    assert "pip install 'horosphere[language]'" in out
    assert "A text" not in Path("report.html").read_text(encoding="utf-8")


def test_nothing_is_replaced_unasked_and_data_are_missed_before_the_work(monkeypatch, in_this_process):
    Path("report.html").write_text("mine")
    with pytest.raises(demo.UserError, match=r"report\.html exists already"):
        demo.demo("report.html", False, True)
    Path("explorer.html").write_text("mine")
    with pytest.raises(demo.UserError, match=r"explorer\.html exists already"):
        demo.demo("other.html", False, True)
    Path("explorer.html").unlink()
    monkeypatch.setitem(sys.modules, "trove_classifiers", None)
    with pytest.raises(demo.UserError, match=r"horosphere\[demo\]"):
        demo.demo("other.html", False, True)
    assert not in_this_process
    assert Path("report.html").read_text() == "mine"
