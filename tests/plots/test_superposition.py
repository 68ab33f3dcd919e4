"""Each figure is drawn from runs that fill it, and only from those; what it shows are their numbers."""

from io import BytesIO

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.plots import superposition
from horosphere.plots.style import BRANCHES, INK, MUTED
from horosphere.plots.superposition import FIGURES, PUBLISHED_DENSITIES, draw_figures, draw_readouts
from horosphere.plots.superposition_heads import MARKERS
from horosphere.superposition.published import published
from horosphere.superposition.results import settings
from horosphere.superposition.theory import strong_exponent, weak_exponent
from tests.plots.reading import colour, error_bars, hollow, key, named_lines
from tests.superposition.rows import WIDTHS, made

GAMMAS = tuple(-1 + 2 * k / 9 for k in range(0, 10, 2))
LAWS = ("power:0", "power:0.5", "power:1", "power:2")


def exponents(laws, gammas, seeds=3, **more):
    """Runs whose α_m differ between all settings, 0.5 + law/10 + γ's place/50, and between seeds, more to one side."""
    return [
        {**row, "loss": row["loss"] * row["m"] ** -((0.0, 0.02, 0.1)[row["seed"]])}
        for i, law in enumerate(laws)
        for j, gamma in enumerate(gammas)
        for row in made(laws=(law,), gammas=(gamma,), alpha_m=0.5 + i / 10 + j / 50, seeds=seeds, **more)
    ]


FILLS = {
    "figure-1": exponents(("power:1.2", "linear"), (-1.0, 0.1), widths=(8, 16, 32), n=10240),
    "figure-3": [
        {**row, "phi_half": round(0.5 - row["gamma"] / 3 + row["m"] / 1000 + row["seed"] / 100, 4)}
        for row in made(gammas=(1 / 3, -1.0, -5 / 9))
    ],
    "figure-5": exponents(("power:1.5", "power:1.25", "power:2"), (1 / 9, 1 / 3)),
    "figure-6": exponents(("power:2", "power:0", "power:1"), (-5 / 9, -7 / 9)),
    "figure-7": made(densities=(4.0, 1.0, 2.0)),
    "phases": [
        {**row, "phi_half": (row["gamma"] + 1) / 10 + 0.1 * LAWS.index(row["law"]) + row["m"] / 1000}
        for row in exponents(LAWS, GAMMAS, seeds=1)
    ],
}


def found(name, **wanted):
    return settings(FILLS[name], **wanted)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_from_runs_that_fill_it(name):
    figure = FIGURES[name](FILLS[name])
    figure.savefig(BytesIO(), dpi=40)  # places the ticks
    labels = [
        label.get_text()
        for axes in figure.axes
        for label in [*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both")]
    ]
    assert any(labels)
    assert not any("$" in label for label in labels)  # numbers, not the source of formulas


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_from_too_few_runs(name):
    assert FIGURES[name](made(gammas=(0.0,), laws=("exponential:50",))) is None


# -- what they show ---------------------------------------------------------------------------------------------------


def assert_power_law(axes, setting, label, place):
    """Dots at the geometric means of the seeds, and the fitted law through them, in one colour."""
    own = named_lines(axes)[f"{label}   α_m = {setting.fit.exponent:.2f}"]
    middle = np.exp(np.log(setting.losses).mean(0))
    np.testing.assert_allclose(own.get_xydata(), np.stack([setting.widths, middle], 1))
    assert (own.get_marker(), own.get_linestyle(), own.get_fillstyle()) == (MARKERS[place], "None", "full")
    law = axes.lines[list(axes.lines).index(own) + 1]
    np.testing.assert_allclose(law.get_xdata(), setting.widths)
    np.testing.assert_allclose(law.get_ydata(), middle, rtol=1e-6)  # the runs follow a law exactly
    assert (np.diff(law.get_ydata()) < 0).all()
    assert (law.get_marker(), law.get_linestyle()) == ("None", "-")
    assert colour(own) == colour(law) == BRANCHES[place]


def assert_published(axes, series, place):
    """These points, hollow, in the colour and with the mark of ours."""
    (points,) = (line for line in hollow(axes) if colour(line) == BRANCHES[place])
    np.testing.assert_allclose(points.get_xydata(), series)
    assert points.get_marker() == MARKERS[place]


def test_loss_against_width():
    figure = FIGURES["figure-1"](FILLS["figure-1"])
    known = published("fig1")
    for axes, (title, gamma, series) in zip(
        figure.axes,
        [("weak: γ = 0.1", 0.1, "1b weak gamma=0.1"), ("strong: γ = -1", -1.0, "1d strong gamma=-1")],
        strict=True,
    ):
        assert axes.get_title("left") == title
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("width m", "loss")
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        for place, (law, name) in enumerate((("power:1.2", "power(1.2)"), ("linear", "linear"))):
            (setting,) = found("figure-1", law=law, gamma=gamma)
            assert_power_law(axes, setting, law, place)
            assert_published(axes, known[f"{series} {name}"], place)
        assert [text.split()[0] for text in key(axes)] == ["power:1.2", "linear"]
    assert axes.get_xticks().tolist() == [2.0**k for k in range(3, 11)]


def test_figure_1_has_a_panel_for_each_regime_that_was_run():
    strong = [row for row in FILLS["figure-1"] if row["gamma"] < 0]
    assert [axes.get_title("left") for axes in FIGURES["figure-1"](strong).axes] == ["strong: γ = -1"]
    assert FIGURES["figure-1"]([{**row, "gamma": -0.5} for row in strong]) is None


def test_represented_features_against_decay():
    (axes,) = FIGURES["figure-3"](FILLS["figure-3"]).axes
    assert list(key(axes)) == [f"m = {m}" for m in WIDTHS]
    gammas = [-1.0, -5 / 9, 1 / 3]
    for place, m in enumerate(WIDTHS):
        line = named_lines(axes)[f"m = {m}"]
        mean = [0.5 - gamma / 3 + m / 1000 + 0.005 for gamma in gammas]
        np.testing.assert_allclose(line.get_xydata(), np.stack([gammas, mean], 1), atol=1e-4)
        assert colour(line) == BRANCHES[place]
        assert_published(axes, published("fig3a")[str(m)], place)
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert axes.get_ylim() == (-0.03, 1.03)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("γ: growth to unit norm | decay", "features with |W_i| > ½")


def test_more_widths_than_colours():
    """A sweep may have any number of them."""
    many = tuple(range(10, 22))
    (axes,) = FIGURES["figure-3"](made(gammas=(1 / 3, -1.0, -5 / 9), widths=many)).axes
    assert list(key(axes)) == [f"m = {m}" for m in many]


def assert_exponents(axes, name, gammas, laws, series):
    bars = error_bars(axes)
    assert list(bars) == [f"γ = {gamma:.2f}" for gamma in gammas]
    for place, gamma in enumerate(gammas):
        chosen = sorted(found(name, gamma=gamma), key=lambda setting: setting.alpha)
        assert [setting.alpha for setting in chosen] == sorted(laws)
        own = bars[f"γ = {gamma:.2f}"]
        expected = [[getattr(s.fit, part) for s in chosen] for part in ("exponent", "low", "high")]
        np.testing.assert_allclose([own.x, own.y], [sorted(laws), expected[0]])
        np.testing.assert_allclose([own.low, own.high], expected[1:], atol=1e-9)
        assert (own.high - own.y > own.y - own.low + 1e-3).all()  # else their ends could be swapped
        assert (own.colour, own.marker) == (BRANCHES[place], MARKERS[place])
        assert_published(axes, published(series)[f"{gamma:.3f}"], place)


def test_exponents_of_weak_superposition_beside_their_theory():
    (axes,) = FIGURES["figure-5"](FILLS["figure-5"]).axes
    assert_exponents(axes, "figure-5", (1 / 9, 1 / 3), (1.25, 1.5, 2.0), "fig5b")
    lines = named_lines(axes)
    theory, asymptote = lines["weak theory, n = 1000"], lines["α - 1"]
    alphas = theory.get_xdata()
    assert (alphas[0], alphas[-1]) == (1.05, 2)
    for at in (0, -1):
        assert theory.get_ydata()[at] == pytest.approx(weak_exponent(f"power:{alphas[at]:g}", 1000, 1.0, list(WIDTHS)))
    np.testing.assert_allclose(asymptote.get_ydata(), np.asarray(asymptote.get_xdata()) - 1)
    assert (colour(theory), colour(asymptote), asymptote.get_linestyle()) == (INK, MUTED, ":")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("α of the frequencies i^-α", "α_m")
    assert axes.get_title("left") == "weak superposition; hollow: published"


def test_exponents_of_strong_superposition_beside_their_theory():
    (axes,) = FIGURES["figure-6"](FILLS["figure-6"]).axes
    assert_exponents(axes, "figure-6", (-7 / 9, -5 / 9), (0.0, 1.0, 2.0), "fig6e")
    theory = named_lines(axes)["theory: 1, then 2(α - 1)"]
    assert (theory.get_xdata()[0], theory.get_xdata()[-1]) == (0, 2)
    np.testing.assert_allclose(theory.get_ydata(), [strong_exponent(a) for a in theory.get_xdata()])
    assert theory.get_ydata()[0] == 1
    assert theory.get_ydata()[-1] == 2
    assert axes.get_title("left") == "strong superposition; hollow: published"
    weak = [{**row, "gamma": 0.5} for row in FILLS["figure-6"]]
    assert FIGURES["figure-6"](weak) is None


def test_loss_against_density_and_width():
    against_density, against_width = FIGURES["figure-7"](FILLS["figure-7"]).axes
    lines = named_lines(against_density)
    assert list(lines) == ["γ = -0.56", "γ = 0.33"]
    for place, line in enumerate(lines.values()):
        np.testing.assert_allclose(line.get_xydata(), [(E, 1.05 * E / 63) for E in (1.0, 2.0, 4.0)])
        assert colour(line) == BRANCHES[place]
        assert_published(against_density, published("fig7a")[("-0.556", "0.333")[place]], place)
    assert (against_density.get_xscale(), against_density.get_yscale()) == ("linear", "log")
    assert (against_density.get_xlabel(), against_density.get_ylabel()) == ("mean number of active features", "loss")
    for place, density in enumerate((1.0, 2.0, 4.0)):
        (setting,) = found("figure-7", density=density, gamma=-5 / 9)
        assert_power_law(against_width, setting, f"E = {density:g}", place)
    assert (against_width.get_xscale(), against_width.get_xlabel()) == ("log", "width m")
    assert [axes.get_title("left") for axes in (against_density, against_width)] == [
        "m = 63; hollow: published",
        "γ = -0.56; hollow: published",
    ]


def test_figure_7_has_the_published_points_of_its_densities():
    against_density, against_width = FIGURES["figure-7"](
        made(densities=(1.0, 1.811, 3.0), gammas=(-5 / 9,), widths=(10, 63, 100))
    ).axes
    assert len(hollow(against_density)) == 1  # γ = -0.556
    assert len(hollow(against_width)) == 2  # 3.0 was not published
    series = dict(zip(PUBLISHED_DENSITIES, published("fig7b").values(), strict=True))
    for place, density in enumerate((1, 1.811)):
        assert_published(against_width, series[density], place)


def test_figure_7_shows_what_there_is():
    """Its left side is for m = 63, its right side for γ = -5/9. A sweep may have one of them only."""
    (against_width,) = FIGURES["figure-7"](made(densities=(1.0, 2.0, 4.0), widths=(10, 20, 40))).axes
    assert against_width.get_title("left") == "γ = -0.56; hollow: published"
    assert len(key(against_width)) == 3
    many = (0.9, -0.3, 0.1, -0.8, 0.4)  # a series a γ, in their order, whatever that of the rows
    named = list(key(FIGURES["figure-7"](made(densities=(1.0, 2.0, 4.0), gammas=many)).axes[0]))
    assert named == [f"γ = {gamma:.2f}" for gamma in sorted(many)]
    (against_density,) = FIGURES["figure-7"](made(densities=(1.0, 2.0, 4.0), gammas=(0.0,))).axes
    assert against_density.get_title("left") == "m = 63; hollow: published"
    assert list(key(against_density)) == ["γ = 0.00"]
    assert FIGURES["figure-7"](made(densities=(1.0, 2.0, 4.0), gammas=(0.0,), widths=(10, 20))) is None


def test_the_phase_diagram_has_a_column_for_each_skew_and_a_row_for_each_decay():
    figure = FIGURES["phases"](FILLS["phases"])
    exponent, represented = figure.axes[:2]
    at = {(s.alpha, s.gamma): s for s in found("phases")}
    alphas, gammas = [0.0, 0.5, 1.0, 2.0], sorted({gamma for _, gamma in at})
    np.testing.assert_allclose(gammas, GAMMAS, atol=1e-6)
    for axes, title, limits, value in (
        (exponent, "α_m", (0, 2), lambda s: s.fit.exponent),
        (represented, "features with |W_i| > ½, widest model", (0, 1), lambda s: s.represented[:, -1].mean()),
    ):
        (mesh,) = axes.collections
        shown = np.asarray(mesh.get_array())
        assert shown.shape == (5, 4)
        for row, gamma in enumerate(gammas):
            for column, alpha in enumerate(alphas):
                assert shown[row, column] == pytest.approx(value(at[alpha, gamma]))
        corners = mesh.get_coordinates()
        middles = (corners[1:, 1:] + corners[:-1, :-1]) / 2
        np.testing.assert_allclose(middles[0, 1:3, 0], [0.5, 1.125])  # cells end half way to their neighbours
        np.testing.assert_allclose(middles[:, 0, 1], gammas, atol=1e-5)
        assert mesh.get_clim() == limits
        assert axes.get_title("left") == title
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("α of the frequencies i^-α", "γ")


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """{name: figure} of what would be written."""
    figures = {}
    monkeypatch.setattr(superposition, "save", lambda figure, path, new: figures.update({path.name: figure}))
    return figures


def test_figures_of_each_bias_have_files_of_their_own(tmp_path, written):
    other = [{**row, "bias": "zero", "loss": row["loss"] ** 2} for row in FILLS["figure-6"]]
    paths = draw_figures(FILLS["figure-6"] + other, tmp_path / "new")
    assert [path.name for path in paths] == list(written) == ["figure-6.png", "figure-6-zero-bias.png"]
    assert {path.parent for path in paths} == {tmp_path / "new"}
    ours, squared = (error_bars(figure.axes[0])["γ = -0.56"].y for figure in written.values())
    np.testing.assert_allclose(squared, 2 * ours)


def test_a_file_holds_the_figure_of_its_name(tmp_path, written):
    draw_figures(FILLS["phases"] + FILLS["figure-1"], tmp_path)
    assert list(written) == ["figure-1.png", "figure-3.png", "figure-6.png", "phases.png"]
    assert [figure.axes[0].get_title("left") for figure in written.values()] == [
        "weak: γ = 0.1",
        "hollow: published",
        "strong superposition; hollow: published",
        "α_m",
    ]
    (path,) = draw_figures(FILLS["figure-6"], tmp_path / "b")
    assert path.name == "figure-6.png"


def test_a_figure_reaches_the_disk(tmp_path):
    (path,) = draw_figures(FILLS["figure-6"], tmp_path / "b")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw_figures(made(widths=(8,), gammas=(0.0,), laws=("exponential:50",)), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_runs_that_fill_no_figure_have_their_losses_drawn(tmp_path, written):
    """As --grid small does: two laws, two values of γ."""
    rows = exponents(("power:0.5", "power:1.5"), (-5 / 9, 1 / 3))
    draw_figures(rows, tmp_path)
    assert list(written) == ["losses.png"]
    panels = written["losses.png"].axes
    assert [axes.get_title("left") for axes in panels] == ["power:0.5, n = 1000", "power:1.5, n = 1000"]
    for axes, law in zip(panels, ("power:0.5", "power:1.5"), strict=True):
        for place, gamma in enumerate((-5 / 9, 1 / 3)):
            (setting,) = settings(rows, law=law, gamma=gamma)
            assert_power_law(axes, setting, f"γ = {gamma:.2f}", place)


def test_readouts_side_by_side(tmp_path, written):
    rows = FILLS["figure-3"]
    assert draw_readouts(rows) is None
    both = rows + [{**row, "readout": "lorentz", "loss": row["loss"] / 2} for row in rows]
    panels = draw_readouts(both).axes
    assert [axes.get_title("left") for axes in panels] == ["power:1, γ = -1.00", "power:1, γ = 0.33"]  # the ends
    for axes, gamma in zip(panels, (-1.0, 1 / 3), strict=True):
        for setting in settings(both, gamma=gamma):
            place = superposition.READOUTS.index(setting.readout)
            assert_power_law(axes, setting, setting.readout, place)
        assert [text.split()[0] for text in key(axes)] == ["dot", "lorentz"]
    draw_figures(both, tmp_path)
    assert set(written) == {"figure-3.png", "figure-3-lorentz.png", "readouts.png"}
    assert written["readouts.png"].axes[0].get_title("left") == "power:1, γ = -1.00"
