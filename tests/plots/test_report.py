"""The report: one file, whole or absent, that fetches nothing, trusts no text, and keeps everything in its place."""

import errno
import os
import re
import struct
import sys
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

import horosphere
from horosphere.errors import UserError
from horosphere.plots import Report, style
from horosphere.plots.report import save_page
from tests.plots.reading import read_page

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


def test_everything_is_read_back_in_its_place(report):
    page = read_page(report.html())
    assert (page.title, page.heading) == (NASTY, NASTY)
    kinds = ["p", "dt", "dd", "dt", "dd", "h2", "p", "p", "table", "img", "footer"]
    assert [kind for kind, _ in page.parts] == kinds
    assert page.of("p") == [NASTY, NASTY, "second"]
    assert dict(zip(page.of("dt"), page.of("dd"), strict=True)) == {NASTY: NASTY, "nodes": "882"}
    (table,), (image,) = page.of("table"), page.of("img")
    assert table.head == ["geometry", "mAP ↑", NASTY]
    assert table.rows == [["lorentz", "0.93 ± 0.01", NASTY], ["euclidean", "—", "x"]]
    assert (table.best, table.numbers, table.caption) == ([0], [False, True, False], NASTY)
    assert (image.alt, image.caption) == (f'" onerror="{NASTY}', NASTY)
    assert page.of("footer") == [f"Horosphere {horosphere.__version__}"]


def test_the_rows_that_are_asked_for_stand_out():
    report = Report("one")
    report.table(["a", "b"], [["x", "1"], ["y", "2"], ["z", "3"]], highlight=[1, 2])
    (table,) = read_page(report.html()).of("table")
    assert (table.best, table.numbers) == ([1, 2], [False, True])


def test_nothing_is_fetched(report):
    html = report.html()
    assert not re.search(r"https?://|//[a-z]|url\(|@import|<link|<script", re.sub(r"base64,[^\"]*", "", html))
    assert html.count("data:image/png;base64,") == 1


def test_number_columns_are_right_aligned_in_head_and_body(report):
    html = report.html()
    assert "<th class=number>mAP ↑</th>" in html
    assert "<th>geometry</th>" in html
    assert re.findall("<td class=number>(.*?)</td>", html) == ["0.93 ± 0.01", "—"]


def test_a_figure_is_as_large_as_it_says_and_twice_as_sharp():
    report = Report("one")
    report.figure(Figure(figsize=(2, 0.5)), "wide")
    (image,) = read_page(report.html()).of("img")
    assert (image.size, image.alt) == ((192, 48), "wide")  # without an alt the caption serves
    assert struct.unpack(">II", image.content[16:24]) == (384, 96)


def test_what_it_was_made_with_comes_flat_and_without_a_head():
    report = Report("one")
    report.made_with(
        {"command": "horosphere compare tree.tsv", "versions": {"torch": "2.11", "numpy": 2}, "date": "today"}
    )
    page = read_page(report.html())
    (table,) = page.of("table")
    assert page.of("h2") == ["Made with"]
    assert table.head == []
    made = [["command", "horosphere compare tree.tsv"], ["date", "today"], ["torch", "2.11"], ["numpy", "2"]]
    assert table.rows == made


def test_a_row_of_another_length_is_named(report):
    with pytest.raises(UserError, match="2 cells for 1 columns"):
        report.table(["one"], [["1", "2"]])


def test_a_page_or_a_folder_of_it_and_its_pictures(tmp_path, album):
    report, figures = Report("one"), {name: Figure(figsize=(1, 1)) for name in ("first", "second")}
    assert save_page(report, figures, tmp_path / "a.HTML") == [tmp_path / "a.HTML"]
    written = save_page(report, figures, tmp_path / "folder")
    assert [path.relative_to(tmp_path / "folder").as_posix() for path in written] == [
        "report.html",
        "first.png",
        "second.png",
    ]
    assert written[0].read_text(encoding="utf-8") == report.html()
    assert [album[path.read_bytes()] for path in written[1:]] == list(figures.values())


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
