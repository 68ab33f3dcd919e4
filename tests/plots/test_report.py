"""The report: one file, whole or absent, that fetches nothing and trusts no text."""

import errno
import os
import re
import sys
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from horosphere.errors import UserError
from horosphere.plots import Report, style

NASTY = '<script>alert("&")</script>'
VOID = {"meta", "img"}


class Balanced(HTMLParser):
    """Fails where a tag is closed that was not opened last."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def report():
    report = Report(NASTY, NASTY)
    report.facts({NASTY: NASTY, "nodes": 882})
    report.section(NASTY)
    report.text(f"{NASTY}\n\nsecond")
    report.table(
        ["geometry", "mAP ↑", NASTY],
        [["lorentz", "0.93 ± 0.01", NASTY], ["euclidean", "—", "x"]],
        highlight=[0],
        caption=NASTY,
    )
    report.figure(Figure(figsize=(1, 1)), NASTY, f'" onerror="{NASTY}')
    return report


def test_text_is_escaped_and_tags_match(report):
    page = Balanced()
    page.feed(report.html())
    assert page.open == []
    assert "script" not in page.seen
    assert "onerror=" not in re.sub(r'alt="[^"]*"', "", report.html())


def test_nothing_is_fetched(report):
    html = report.html()
    assert not re.search(r"https?://|//[a-z]|url\(|@import|<link|<script", re.sub(r"base64,[^\"]*", "", html))
    assert html.count("data:image/png;base64,") == 1


def test_number_columns_are_right_aligned_and_the_best_row_stands_out(report):
    html = report.html()
    assert "<th class=number>mAP ↑</th>" in html
    assert "<th>geometry</th>" in html
    assert re.findall("<tr class=best><td>(.*?)</td>", html) == ["lorentz"]


def test_columns_without_names_have_no_head():
    report = Report("one")
    report.made_with({"command": "horosphere compare tree.tsv", "versions": {"torch": "2.11"}})
    html = report.html()
    assert "<thead>" not in html
    assert "<tr><td>command</td><td>horosphere compare tree.tsv</td></tr>" in html
    assert "<tr><td>torch</td>" in html


def test_a_row_of_another_length_is_named(report):
    with pytest.raises(UserError, match="2 cells for 1 columns"):
        report.table(["one"], [["1", "2"]])


def test_saving_replaces_the_file_whole(report, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    report.save(path)
    assert path.read_text(encoding="utf-8") == report.html()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full_disk(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("horosphere.files.write_synced", full_disk)
    with pytest.raises(UserError, match=r"report\.html: cannot be written \(No space"):
        report.save(path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'horosphere\[plots\]'"), style.style():
        pass
