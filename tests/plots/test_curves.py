"""Learning curves: twins told apart, axes that fit the values."""

import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.plots.curves import Curve, draw_curves
from horosphere.plots.style import BRANCHES, SHADE, render


def draw(**curves):
    return draw_curves(curves, "tokens learned from", "bits/byte").axes[0]


def test_a_twin_is_dashed_in_the_other_shade_of_its_model():
    axes = draw(
        a=Curve([(1, 3.0), (2, 2.0)]),
        b=Curve([(1, 3.0), (2, 2.5)]),
        flat=Curve([(1, 3.0), (2, 1.25)], flat=True, twin_of="a"),
    )
    a, b, flat = axes.lines
    assert (a.get_linestyle(), b.get_linestyle(), flat.get_linestyle()) == ("-", "-", "--")
    assert BRANCHES.index(flat.get_color()) == BRANCHES.index(a.get_color()) + SHADE
    assert len({line.get_color() for line in axes.lines}) == 3
    assert flat.get_xydata().tolist() == [[1, 3.0], [2, 1.25]]
    texts = [text.get_text().split() for text in axes.get_legend().get_texts()]
    assert texts == [["a", "2.000"], ["b", "2.500"], ["flat", "1.250"]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens learned from", "bits/byte")


def test_twins_differ_in_style_colour_and_width_and_the_flat_one_is_on_top():
    same = [(1, 3.0), (2, 2.0), (3, 1.0)]
    axes = draw(flat=Curve(same, flat=True, twin_of="a"), a=Curve(same))  # in a table the twin may stand first
    a, flat = sorted(axes.lines, key=lambda line: line.get_zorder())
    assert (a.get_linestyle(), flat.get_linestyle()) == ("-", "--")
    assert a.get_color() != flat.get_color()
    assert a.get_linewidth() > flat.get_linewidth()
    assert [text.get_text().split()[0] for text in axes.get_legend().get_texts()] == ["flat", "a"]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("last", [1.0, 0.01])  # on a linear and on a logarithmic axis
def test_curves_that_coincide_have_different_styles(flat, last):
    values = [(1, 3.0), (2, 2.0), (3, last)]
    nearly = [(x, 1.001 * y) for x, y in values]
    axes = draw(a=Curve(values, flat), b=Curve(nearly, flat), c=Curve(values, flat), apart=Curve([(1, 3.0)] * 3, flat))
    a, b, c, apart = (line.get_linestyle() for line in axes.lines)
    assert len({a, b, c}) == 3
    assert a == apart  # what covers nothing stays as it is


def test_more_runs_than_colours_and_a_run_of_one_evaluation():
    axes = draw(**{str(i): Curve([(1, 2.0)]) for i in range(12)})
    assert all(line.get_marker() == "o" for line in axes.lines)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ((60.0, 1.1), "log"),
        ((20.0, 1.1), "linear"),
        ((3.0, 2.0), "linear"),
        ((1.0, -1.0), "linear"),
        ((60.0, 0.0), "linear"),
    ],
)
def test_values_that_differ_by_orders_have_a_logarithmic_axis(values, scale):
    assert draw(a=Curve([(i, value) for i, value in enumerate(values)])).get_yscale() == scale


def test_it_fits_a_page():
    figure = draw_curves({"a": Curve([(1, 2.0), (2, 1.0)])}, "tokens", "loss")
    assert figure.get_figwidth() * 96 <= 900
    assert render(figure, dpi=40).startswith(b"\x89PNG")
