"""The comparison: every seed is drawn, the best mean stands out."""

import pytest
from matplotlib.colors import to_rgba

from horosphere.errors import UserError
from horosphere.plots import draw_comparison
from horosphere.plots.style import ACCENT, QUIET

NAMES = ["lorentz", "poincare", "euclidean"]


@pytest.mark.parametrize(("better", "best"), [("high", 2), ("low", 0)])
def test_the_best_mean_is_in_colour(better, best):
    figure = draw_comparison(NAMES, {"score": [[1.0, 2.0], [2.0, 3.0, float("nan")], [4.0]]}, {"score": better})
    dots = figure.axes[0].collections
    seeds = [d for d in dots if hasattr(d, "get_sizes") and len(d.get_sizes())]
    assert [len(d.get_offsets()) for d in seeds] == [2, 2, 1]
    assert [tuple(d.get_facecolor()[0][:3]) == to_rgba(ACCENT)[:3] for d in seeds] == [i == best for i in range(3)]


def test_means_that_tie_are_all_in_colour():
    figure = draw_comparison(NAMES, {"score": [[1.0], [1.0], [0.5]]}, {"score": "high"})
    means = [line.get_color() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert means == [ACCENT, ACCENT, QUIET]


def test_only_values_that_differ_by_orders_have_a_logarithmic_axis():
    figure = draw_comparison(
        NAMES,
        {"rank": [[1.2], [1.3], [61.0]], "mAP": [[0.95], [0.94], [0.2]], "error": [[0.0], [0.1], [61.0]]},
        {"rank": "low", "mAP": "high", "error": "low"},
    )
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "linear", "linear"]
    texts = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert {"2", "5", "10", "20", "50"} <= set(texts)


def test_a_spread_that_reaches_below_zero_leaves_room_for_the_seeds():
    figure = draw_comparison(["a", "b"], {"rank": [[1.0, 5.0], [90.0, 100.0]]}, {"rank": "low"})
    low, high = figure.axes[0].get_xlim()
    assert 0.05 < low < 1 < 100 < high < 1000


def test_a_geometry_whose_seeds_all_failed_keeps_its_row(tmp_path):
    failed = [float("nan")] * 2
    draw_comparison(
        NAMES,
        {"score": [failed] * 3, "rank": [[1.0, 2.0], failed, []]},
        {"score": "high", "rank": "low"},
        tmp_path / "a.svg",
    )
    assert (tmp_path / "a.svg").exists()


def test_a_missing_row_is_named():
    with pytest.raises(UserError, match="score: 1 rows for 3 names"):
        draw_comparison(NAMES, {"score": [[1.0]]}, {"score": "high"})
