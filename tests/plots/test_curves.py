"""Learning curves: every point where it belongs, twins told apart, a key that names the right line, axes that fit."""

import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.plots.curves import CURVED, FLAT, Curve, draw_curves
from horosphere.plots.style import BRANCHES, SHADE, render
from tests.plots.reading import colour, key


def draw(digits=3, **curves):
    return draw_curves(curves, "tokens learned from", "bits/byte", digits).axes[0]


def drawn(axes):
    """{name: line}, by the key: what stands beside a name is the line with that colour, style and width."""
    lines = {}
    for text, handle in key(axes).items():
        look = (colour(handle), handle.get_linestyle(), handle.get_linewidth())
        (line,) = (l for l in axes.lines if (colour(l), l.get_linestyle(), l.get_linewidth()) == look)
        lines[text.split()[0]] = line
    return lines


CURVES = {
    "a": Curve([(10, 3.0), (20, 2.0), (30, 1.5)]),
    "b": Curve([(10, 2.9), (20, 2.5)]),
    "flat": Curve([(10, 2.8), (30, 1.25)], flat=True, twin_of="b"),
    "other": Curve([(10, 2.7), (30, 1.75)], flat=True),
}


def test_every_curve_has_its_points_and_its_name():
    axes = draw(**CURVES)
    lines = drawn(axes)
    assert list(lines) == list(CURVES)
    for name, curve in CURVES.items():
        assert lines[name].get_xydata().tolist() == [list(point) for point in curve.points]
    assert [text.split() for text in key(axes)] == [
        ["a", "1.500"],
        ["b", "2.500"],
        ["flat", "1.250"],
        ["other", "1.750"],
    ]
    assert axes.get_legend().get_title().get_text() == "at the end"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens learned from", "bits/byte")
    assert [text.split()[1] for text in key(draw(digits=1, **CURVES))] == ["1.5", "2.5", "1.2", "1.8"]


def test_a_hue_a_family_and_a_twin_is_dashed_in_the_other_shade_of_its_model():
    lines = drawn(draw(**CURVES))
    assert [colour(line) for line in lines.values()] == [BRANCHES[i] for i in (0, 1, 1 + SHADE, 2)]
    assert (
        [line.get_linestyle() for line in lines.values()]
        == [CURVED[0], CURVED[0], FLAT[0], FLAT[0]]
        == ["-", "-", "--", "--"]
    )
    assert [line.get_marker() for line in lines.values()] == ["None"] * 4


def test_twins_differ_in_style_colour_and_width_and_the_flat_one_is_on_top():
    same = [(1, 3.0), (2, 2.0), (3, 1.0)]
    axes = draw(flat=Curve(same, flat=True, twin_of="a"), a=Curve(same))  # in a table the twin may stand first
    lines = drawn(axes)
    assert list(lines) == ["flat", "a"]
    assert (lines["a"].get_linestyle(), lines["flat"].get_linestyle()) == ("-", "--")
    assert (colour(lines["a"]), colour(lines["flat"])) == (BRANCHES[0], BRANCHES[SHADE])
    assert lines["a"].get_linewidth() > lines["flat"].get_linewidth()
    assert lines["a"].get_zorder() < lines["flat"].get_zorder()


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("last", [1.0, 0.01])  # on a linear and on a logarithmic axis
def test_curves_that_coincide_have_different_styles(flat, last):
    values = [(1, 3.0), (2, 2.0), (3, last)]
    nearly = [(x, 1.001 * y) for x, y in values]
    axes = draw(a=Curve(values, flat), b=Curve(nearly, flat), c=Curve(values, flat), apart=Curve([(1, 3.0)] * 3, flat))
    a, b, c, apart = (line.get_linestyle() for line in axes.lines)
    assert [a, b, c] == list(FLAT if flat else CURVED)
    assert a == apart  # what covers nothing stays as it is


def test_curves_a_line_apart_are_not_taken_for_one():
    far = [(1, 3.0), (2, 2.0), (3, 1.0)]
    near = [(x, y + 0.1) for x, y in far]  # a twentieth of the picture
    assert [line.get_linestyle() for line in draw(a=Curve(far), b=Curve(near)).lines] == ["-", "-"]


def test_more_runs_than_colours_and_a_run_of_one_evaluation():
    axes = draw(**{str(i): Curve([(1, 2.0 + i)]) for i in range(12)})
    assert all(line.get_marker() == "o" for line in axes.lines)
    assert [colour(line) for line in axes.lines] == [BRANCHES[i % len(BRANCHES)] for i in range(12)]
    assert [line.get_ydata()[0] for line in axes.lines] == [2.0 + i for i in range(12)]


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
    axes = draw(a=Curve([(i, value) for i, value in enumerate(values)]))
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", scale)


def test_what_was_read_is_counted_in_thousands_and_millions():
    axes = draw(a=Curve([(0, 3.0), (2e6, 2.0)]))
    written = axes.xaxis.get_major_formatter()
    assert [written(value, 0) for value in (0, 1500, 2e6)] == ["0", "1.5k", "2M"]


def test_it_fits_a_page(tmp_path):
    figure = draw_curves({"a": Curve([(1, 2.0), (2, 1.0)])}, "tokens", "loss", path=tmp_path / "a.png")
    assert figure.get_figwidth() * 96 <= 900
    assert (tmp_path / "a.png").read_bytes() == render(figure)
