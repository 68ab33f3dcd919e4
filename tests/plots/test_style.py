"""Axes and lines that pictures share: plain numbers, logarithms where values ask for them, lines that all show."""

import re
from itertools import pairwise

import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.plots.style import log_axis, new_figure, overlaid, render, save, spans_orders, style

PLAIN = re.compile(r"\d+(\.\d+)?[kMB]?")


def ticks(low, high, which="y"):
    """Values and texts of the ticks inside a logarithmic axis."""
    with style():
        figure, axes = new_figure(4.0)
        axes.plot([low, high], [low, high])
        log_axis(axes, which)
        figure.draw_without_rendering()
        axis, (first, last) = (axes.yaxis, axes.get_ylim()) if which == "y" else (axes.xaxis, axes.get_xlim())
        drawn = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        return {tick.get_loc(): tick.label1.get_text() for tick in drawn if first <= tick.get_loc() <= last}


@pytest.mark.parametrize("which", ["x", "y"])
@pytest.mark.parametrize(
    ("low", "high"), [(1.2, 61.0), (2.1, 4.5), (0.93, 0.97), (1e-5, 1e-3), (1.0, 2e5), (3e-7, 4e6), (1.0, 1.0)]
)
def test_ticks_are_plain_numbers(low, high, which):
    texts = ticks(low, high, which)
    assert len(texts) > 1
    assert all(PLAIN.fullmatch(text) for text in texts.values())
    letters = {"k": 1e3, "M": 1e6, "B": 1e9}
    for value, text in texts.items():  # what a tick says is where it stands
        assert float(text.rstrip("kMB")) * letters.get(text[-1], 1) == pytest.approx(value, rel=1e-5)


def test_ticks_are_at_round_numbers():
    assert list(ticks(1.2, 61.0).values()) == ["1", "2", "5", "10", "20", "50"]


def test_a_name_that_is_no_text_is_drawn():
    with style():
        figure, axes = new_figure(2)
        axes.set_title("t\udcff.tsv: größer")
    assert render(figure).startswith(b"\x89PNG")
    assert axes.get_title() == "t?.tsv: größer"


def test_many_decades_do_not_crowd():
    assert len(ticks(1e-6, 1e6, "x")) < 15


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ((1.0, 20.1), True),
        ((1.0, 20.0), False),
        ((0.0, 60.0), False),
        ((-60.0, -1.0), False),
        ((1.0, 60.0, float("nan")), True),
        ((1.0, float("inf")), False),
        ((), False),
    ],
)
def test_orders(values, asked):
    assert spans_orders(values) is asked


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_no_line_hides_another(count):
    lines = [overlaid(place, count) for place in range(count)]
    for below, above in pairwise(lines):
        assert below["linewidth"] > above["linewidth"]
        assert below["zorder"] < above["zorder"]
    assert 2 == lines[-1]["linewidth"] <= lines[0]["linewidth"] <= 6


@pytest.mark.parametrize("name", ["a.png", "B.PNG", "c.Svg"])
def test_a_name_may_end_in_capitals(name, tmp_path):
    save(new_figure(1.0)[0], tmp_path / name)
    assert (tmp_path / name).read_bytes()[:5] == (b"<?xml" if name.lower().endswith("svg") else b"\x89PNG\r")
