"""The comparison: every seed is drawn beside its mean and spread, in the row of its name; the best mean stands out."""

import numpy as np
import pytest

from horosphere.errors import UserError
from horosphere.plots import draw_comparison
from horosphere.plots.style import ACCENT, QUIET
from tests.plots.reading import dots, error_bars, ticks

NAMES = ["lorentz", "poincare", "euclidean"]
NAN = float("nan")


def seeds(axes):
    """What is drawn of single seeds, a row a name: (values, heights, colour)"""
    scattered = [(offsets, colours) for offsets, colours in dots(axes)[1::2]]  # beside the bar of each row
    return [(offsets[:, 0].tolist(), offsets[:, 1].tolist(), colours) for offsets, colours in scattered]


@pytest.mark.parametrize(("better", "best"), [("high", 2), ("low", 0)])
def test_a_row_holds_the_mean_the_spread_and_the_seeds_of_its_name(better, best):
    values = [[1.0, 2.0, 2.4], [2.0, NAN, 3.0], [4.0]]
    axes = draw_comparison(NAMES, {"score": values}, {"score": better}).axes[0]
    finite = [[value for value in row if value == value] for row in values]
    bars = error_bars(axes, along=0)
    assert [(*bar.x, *bar.y) for bar in bars] == [(pytest.approx(np.mean(row)), i) for i, row in enumerate(finite)]
    spreads = [np.std(row, ddof=1) if len(row) > 1 else 0 for row in finite]
    assert [float(bar.high[0] - bar.x[0]) for bar in bars] == pytest.approx(spreads)
    assert [float(bar.x[0] - bar.low[0]) for bar in bars] == pytest.approx(spreads)
    colours = [ACCENT if i == best else QUIET for i in range(3)]
    assert [bar.colour for bar in bars] == colours
    for row, (shown, heights, faces) in enumerate(seeds(axes)):
        assert shown == finite[row]
        assert all(row < height < row + 0.5 for height in heights)  # below the mean: heights count downwards
        assert set(faces) == {colours[row]}
    assert ticks(axes.yaxis) == dict(enumerate(NAMES))
    bottom, top = axes.get_ylim()
    assert bottom > 2.4 > -0.4 > top  # the first name on top


def test_a_panel_for_each_metric_in_order():
    metrics = {"rank": [[3.0], [2.0]], "mAP": [[0.25], [0.75]]}
    figure = draw_comparison(["a", "b"], metrics, {"rank": "low", "mAP": "high"})
    assert [axes.get_title("left") for axes in figure.axes] == ["rank ↓", "mAP ↑"]
    for axes, rows in zip(figure.axes, metrics.values(), strict=True):
        assert [bar.x.tolist() for bar in error_bars(axes, along=0)] == rows
        assert [bar.colour for bar in error_bars(axes, along=0)] == [QUIET, ACCENT]
    left, right = (axes.get_position() for axes in figure.axes)
    assert left.x1 < right.x0
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize(("rows", "says"), [([[1.0, 2.0]] * 2, "2 seeds"), ([[1.0], [1.0, 2.0, 3.0]], "1–3 seeds")])
def test_it_says_how_many_seeds_there_are(rows, says):
    figure = draw_comparison(["a", "b"], {"score": rows}, {"score": "high"})
    assert figure.get_supxlabel().startswith(f"{says} as small dots")


def test_means_that_tie_are_all_in_colour():
    figure = draw_comparison(NAMES, {"score": [[1.0], [1.0], [0.5]]}, {"score": "high"})
    assert [bar.colour for bar in error_bars(figure.axes[0], along=0)] == [ACCENT, ACCENT, QUIET]


def test_only_values_that_differ_by_orders_have_a_logarithmic_axis():
    figure = draw_comparison(
        NAMES,
        {"rank": [[1.2], [1.3], [61.0]], "mAP": [[0.95], [0.94], [0.2]], "error": [[0.0], [0.1], [61.0]]},
        {"rank": "low", "mAP": "high", "error": "low"},
    )
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "linear", "linear"]
    assert [axes.get_yscale() for axes in figure.axes] == ["linear"] * 3
    texts = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert {"2", "5", "10", "20", "50"} <= set(texts)


def test_a_spread_that_reaches_below_zero_leaves_room_for_the_seeds():
    figure = draw_comparison(["a", "b"], {"rank": [[1.0, 5.0], [90.0, 100.0]]}, {"rank": "low"})
    low, high = figure.axes[0].get_xlim()
    assert 0.05 < low < 1 < 100 < high < 1000


def test_a_geometry_whose_seeds_all_failed_keeps_its_row(tmp_path):
    failed = [NAN] * 2
    figure = draw_comparison(
        NAMES,
        {"score": [failed] * 3, "rank": [[1.0, 2.0], failed, []]},
        {"score": "high", "rank": "low"},
        tmp_path / "a.svg",
    )
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("lorentz")
    assert [len(shown) for shown, _, _ in seeds(figure.axes[1])] == [2, 0, 0]
    assert figure.axes[1].lines[0].get_xdata().tolist() == [1.5]
    assert ticks(figure.axes[0].yaxis) == dict(enumerate(NAMES))


def test_a_missing_row_is_named():
    with pytest.raises(UserError, match="score: 1 rows for 3 names"):
        draw_comparison(NAMES, {"score": [[1.0]]}, {"score": "high"})
