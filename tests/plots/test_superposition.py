"""Each figure is drawn from runs that fill it, and only from those."""

from io import BytesIO

import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.plots.superposition import FIGURES, draw_figures, draw_readouts
from tests.superposition.rows import made

GAMMAS = tuple(-1 + 2 * k / 9 for k in range(0, 10, 3))
FILLS = {
    "figure-1": made(laws=("power:1.2", "linear"), gammas=(-1.0, 0.1), widths=(8, 16, 32), n=10240),
    "figure-3": made(gammas=(-1.0, -5 / 9, 1 / 3)),
    "figure-5": made(laws=("power:1.25", "power:1.5", "power:2"), gammas=(1 / 3,)),
    "figure-6": made(laws=("power:0", "power:1", "power:2"), gammas=(-5 / 9,)),
    "figure-7": made(densities=(1.0, 2.0, 4.0)),
    "phases": made(laws=("power:0", "power:0.5", "power:1", "power:2"), gammas=GAMMAS, seeds=1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_from_runs_that_fill_it(name):
    figure = FIGURES[name](FILLS[name])
    assert figure is not None
    drawn = [axes for axes in figure.axes if axes.lines or axes.collections]
    assert drawn
    figure.savefig(BytesIO())  # places the ticks
    labels = [
        label.get_text()
        for axes in drawn
        for label in [*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both")]
    ]
    assert not any("$" in label for label in labels)  # numbers, not the source of formulas


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_from_too_few_runs(name):
    assert FIGURES[name](made(gammas=(0.0,), laws=("exponential:50",))) is None


def test_published_points_stand_beside_ours():
    axes = FIGURES["figure-6"](FILLS["figure-6"]).axes[0]
    hollow = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert len(hollow) == 1
    assert len(hollow[0].get_xdata()) == 17  # the published series of γ = -0.556


def test_figure_7_has_the_published_points_of_its_densities():
    against_density, against_width = FIGURES["figure-7"](
        made(densities=(1.0, 1.811, 3.0), gammas=(-5 / 9,), widths=(10, 63, 100))
    ).axes
    assert sum(line.get_fillstyle() == "none" for line in against_density.lines) == 1  # γ = -0.556
    assert sum(line.get_fillstyle() == "none" for line in against_width.lines) == 2  # 3.0 was not published


def test_figure_1_has_a_panel_for_each_regime_that_was_run():
    strong = [row for row in FILLS["figure-1"] if row["gamma"] < 0]
    assert [axes.get_title("left") for axes in FIGURES["figure-1"](strong).axes] == ["strong: γ = -1"]
    assert FIGURES["figure-1"]([{**row, "gamma": -0.5} for row in strong]) is None


def test_figures_of_each_bias_have_files_of_their_own(tmp_path):
    written = draw_figures(FILLS["figure-6"] + [{**row, "bias": "zero"} for row in FILLS["figure-6"]], tmp_path)
    assert [path.name for path in written] == ["figure-6.png", "figure-6-zero-bias.png"]
    assert all(path.stat().st_size > 5000 for path in written)


def test_readouts_side_by_side(tmp_path):
    rows = FILLS["figure-3"]
    assert draw_readouts(rows) is None
    both = rows + [{**row, "readout": "lorentz", "loss": row["loss"] / 2} for row in rows]
    panels = draw_readouts(both).axes
    assert len(panels) == 2  # the smallest and the largest γ
    assert [text.get_text().split()[0] for text in panels[0].get_legend().get_texts()] == ["dot", "lorentz"]
    assert {path.name for path in draw_figures(both, tmp_path)} == {
        "figure-3.png",
        "figure-3-lorentz.png",
        "readouts.png",
    }
