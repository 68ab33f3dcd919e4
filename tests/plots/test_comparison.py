"""The comparison: every seed is drawn, the best mean stands out."""

import pytest
from matplotlib.colors import to_rgba

from horosphere.errors import UserError
from horosphere.plots import draw_comparison
from horosphere.plots.style import ACCENT

NAMES = ["lorentz", "poincare", "euclidean"]


@pytest.mark.parametrize(("better", "best"), [("high", 2), ("low", 0)])
def test_the_best_mean_is_in_colour(better, best):
    figure = draw_comparison(NAMES, {"score": [[1.0, 2.0], [2.0, 3.0, float("nan")], [4.0]]}, {"score": better})
    dots = figure.axes[0].collections
    seeds = [d for d in dots if hasattr(d, "get_sizes") and len(d.get_sizes())]
    assert [len(d.get_offsets()) for d in seeds] == [2, 2, 1]
    assert [tuple(d.get_facecolor()[0][:3]) == to_rgba(ACCENT)[:3] for d in seeds] == [i == best for i in range(3)]


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
