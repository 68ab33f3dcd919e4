"""Pictures of laws and heads show the numbers they were given, and no interval where there is none."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from horosphere.errors import UserError
from horosphere.plots.style import BRANCHES, INK, MUTED, QUIET, SHADE, new_figure, render, style
from horosphere.plots.superposition_heads import (
    MARKERS,
    draw_norms,
    draw_overlaps,
    draw_width_fit,
    draw_width_study,
    draw_widths,
)
from horosphere.superposition.fits import SURE, Losses, WidthFit, fit_widths, read_losses
from horosphere.superposition.heads import head_geometry
from horosphere.superposition.published import published, published_file
from horosphere.superposition.widths import WidthRow, WidthStudy
from tests.plots.reading import colour, dots, error_bars, key, named_lines, nameless_lines


def table():
    """Two families, two datasets, four widths; the smallest loss of one lies below its offset."""
    family = np.repeat(["opt", "gpt2"], 8)
    dataset = np.tile(np.repeat(["c4", "pile"], 4), 2)
    width = np.tile([64.0, 128, 256, 512], 4)
    offset = np.select([(family == "opt") & (dataset == "c4"), family == "opt", dataset == "c4"], [1.0, 2.0, 3.0], 4.0)
    loss = offset + 20 * width**-0.5
    loss[-1] = 3.9
    return Losses(family, dataset, width, loss, width.astype(str))


OFFSETS = {("opt", "c4"): 1.0, ("opt", "pile"): 2.0, ("gpt2", "c4"): 3.0, ("gpt2", "pile"): 4.0}
DRAWS = np.array([[0.5 + k / 100, 20.0 + k, 1.0 + k / 1000, 2.0, 3.0, 4.0] for k in range(9)])


def a_fit(draws=DRAWS):
    nothing = {"mse": 0.0, "profile": (0.0, 1.0), "left_out": {}, "errors": np.empty(0)}
    return WidthFit(
        exponent=0.5, scale=20.0, offsets=OFFSETS, bootstrap=(0.45, 0.62), draws=draws, table=table(), **nothing
    )


def test_points_stand_above_the_offset_of_their_own_family_and_dataset():
    (axes,) = draw_width_fit(a_fit()).axes
    _, opt, gpt2 = dots(axes)
    widths = np.tile([64.0, 128, 256, 512], 2)
    for (shown, faces), count, place in ((opt, 8, 0), (gpt2, 7, 1)):
        np.testing.assert_allclose(shown, np.stack([widths, 20 * widths**-0.5], 1)[:count])
        assert set(faces) == {BRANCHES[place]}
    assert [(text, colour(handle)) for text, handle in key(axes).items()] == [
        ("opt", BRANCHES[0]),
        ("gpt2", BRANCHES[1]),
    ]
    assert axes.get_title("left") == (
        "α = 0.50, 95% over models 0.45 to 0.62; 1 of 16 losses below the offset not shown"
    )
    assert axes.get_ylabel() == "loss above the offset of its family and dataset"
    assert (axes.get_xlabel(), axes.get_xscale(), axes.get_yscale()) == ("width m", "log", "log")


def test_the_law_falls_through_the_band_of_its_draws():
    (axes,) = draw_width_fit(a_fit()).axes
    (law,) = axes.lines
    m = np.asarray(law.get_xdata())
    assert (m[0], m[-1]) == pytest.approx((64 / 1.15, 512 * 1.15))
    np.testing.assert_allclose(law.get_ydata(), 20 * m**-0.5)
    assert colour(law) == INK
    (outline,) = (path.vertices for path in axes.collections[0].get_paths())
    exponent, scale, shift = DRAWS[:, :1], DRAWS[:, 1:2], (DRAWS[:, 2:3] - 1) / 4  # the mean over four offsets
    low, high = np.quantile(scale * m**-exponent + shift, [(1 - SURE) / 2, (1 + SURE) / 2], axis=0)
    for place in (0, 100, 199):
        at = outline[np.isclose(outline[:, 0], m[place]), 1]
        assert (at.min(), at.max()) == pytest.approx((low[place], high[place]))


def test_the_law_of_published_models(tmp_path):
    fit = fit_widths(read_losses(published_file("language-losses")), bootstrap=50)
    figure = draw_width_fit(fit, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes() == render(figure)
    axes = figure.axes[0]
    assert list(key(axes)) == ["opt", "Qwen", "gpt2", "pythia"]
    assert axes.get_title("left").startswith(
        f"α = 0.91, 95% over models {fit.bootstrap[0]:.2f} to {fit.bootstrap[1]:.2f}"
    )
    above = fit.table.loss - np.array(
        [fit.offsets[pair] for pair in zip(fit.table.family, fit.table.dataset, strict=True)]
    )
    assert f"{(above <= 0).sum()} of 108 losses below the offset not shown" in axes.get_title("left")
    for (shown, _), family in zip(dots(axes)[1:], key(axes), strict=True):
        own = (fit.table.family == family) & (above > 0)
        np.testing.assert_allclose(shown, np.stack([fit.table.width[own], above[own]], 1))


def test_few_sizes_have_no_band():
    axes = draw_width_fit(a_fit(draws=np.empty((0, 6)))).axes[0]
    assert "α = 0.50, too few sizes for an interval" in axes.get_title("left")
    assert len(axes.collections) == 2  # the points alone


def test_overlaps_stand_beside_the_published_ones():
    torch.manual_seed(0)
    heads = {"wide": head_geometry(torch.randn(400, 64) + 1), "narrow": head_geometry(torch.randn(300, 16))}
    (axes,) = draw_overlaps(heads).axes
    others = published("language-overlaps")
    shown, faces = dots(axes)[0]
    np.testing.assert_allclose(shown, np.stack([others["m"], others["mean_square_overlap"]], 1))
    assert set(faces) == {QUIET}
    for place, (name, head) in enumerate(heads.items()):
        own = [line for line in axes.lines if colour(line) == BRANCHES[place]]
        joined, *marks = own
        values = [head.raw.mean_square, head.centred.mean_square, head.trimmed.mean_square]
        np.testing.assert_allclose(joined.get_xydata(), np.stack([[head.dims] * 3, values], 1))
        assert [mark.get_fillstyle() for mark in marks] == ["full", "left", "none"]
        np.testing.assert_allclose([mark.get_xydata()[0] for mark in marks], joined.get_xydata())
        assert marks[0].get_label() == f"{name}   {head.raw.times_isotropic:.3g} times isotropic"
        assert [mark.get_label().startswith("_") for mark in marks] == [False, True, True]
    assert axes.get_title("left").startswith("full: as they are; half: centred; hollow: also without")
    isotropic = named_lines(axes)["isotropic, 1/m"]
    np.testing.assert_allclose(isotropic.get_ydata(), 1 / np.asarray(isotropic.get_xdata()))
    assert list(isotropic.get_xdata()) == pytest.approx([16 / 1.15, others["m"].max() * 1.15])
    assert colour(isotropic) == MUTED
    assert axes.get_ylabel() == "mean square overlap of unit rows"
    assert [text.split("   ")[0] for text in key(axes)] == ["published heads", "wide", "narrow", "isotropic, 1/m"]


def test_norms_by_frequency():
    torch.manual_seed(0)
    counts = np.arange(1, 61) ** 2
    heads = {
        name: head_geometry(scale * torch.randn(60, 8) * (1 + torch.arange(60) / 60)[:, None], counts)
        for name, scale in (("one", 1.0), ("other", 3.0))
    }
    (axes,) = draw_norms(heads).axes
    for place, ((label, bars), (name, head)) in enumerate(zip(error_bars(axes).items(), heads.items(), strict=True)):
        bins = head.by_frequency.bins
        assert label == f"{name}   rank correlation {head.by_frequency.correlation:.2f}"
        np.testing.assert_allclose(bars.x, [np.sqrt(max(b.lowest, 1) * b.highest) for b in bins])
        mean, std = np.array([(b.mean, b.std) for b in bins]).T
        np.testing.assert_allclose([bars.y, bars.low, bars.high], [mean, mean - std, mean + std])
        assert (bars.colour, bars.marker) == (BRANCHES[place], MARKERS[place])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("how often the token occurs", "norm of its row")
    with pytest.raises(UserError, match="bare: norms by frequency need counts"):
        draw_norms({"bare": head_geometry(torch.randn(9, 4))})


def test_a_study_of_widths_shows_loss_and_crowding_of_every_model():
    rows = [
        WidthRow(model, geometry, width, seed, 10**6, loss + seed / 10, 1.5, 0.1, crowded * (1 + seed), 9.0)
        for model, geometry, loss, crowded in (("HELM", "lorentz", 3.0, 2.0), ("Llama", "euclidean", 4.0, 5.0))
        for width in (64, 32, 128)
        for seed in (0, 1)
        for loss in [loss - width / 100]
    ]
    study = WidthStudy(rows)
    figure = draw_width_study(study)
    names = {"loss": "nats per token, held-out text", "times_isotropic": "overlap of the head · m"}
    for axes, (name, label) in zip(figure.axes, names.items(), strict=True):
        assert axes.get_ylabel() == label
        assert (axes.get_xlabel(), axes.get_xscale(), axes.get_yscale()) == ("width m", "log", "log")
        bars = error_bars(axes)
        assert list(bars) == list(key(axes)) == ["HELM", "Llama"]
        for place, (model, own) in enumerate(bars.items()):
            mean, spread = np.array([study.mean(model, width, name) for width in (32, 64, 128)]).T
            np.testing.assert_allclose([own.x, own.y], [[32, 64, 128], mean])
            np.testing.assert_allclose([own.low, own.high], [mean - spread, mean + spread])
            assert own.colour == BRANCHES[SHADE * place]
            assert (own.marker, own.linestyle) == ((MARKERS[place], ("-", "--")[place]))
        assert axes.get_xticks().tolist() == [32, 64, 128]


@pytest.mark.parametrize(
    ("widths", "at"),
    [([8, 1024], [2.0**k for k in range(3, 11)]), ([10, 100], [16, 32, 64]), ([60, 70], [64]), ([48, 52], [48, 52])],
)
def test_widths_are_marked_at_powers_of_two(widths, at):
    with style():
        _, axes = new_figure(2.0)
        axes.plot(widths, [1.0, 2.0], color=INK)
        draw_widths(axes, np.array(widths, float))
    expected = at if len(at) > 1 else widths
    assert axes.get_xticks().tolist() == expected
    assert not nameless_lines(axes)[1:]


@pytest.mark.parametrize("dims", [2, 16, 300])
@pytest.mark.parametrize(("scale", "shift"), [(1e-4, 0), (1, 5), (1e4, 0)])
def test_ticks_are_numbers_and_not_the_source_of_formulas(dims, scale, shift):
    torch.manual_seed(0)
    rows = scale * (torch.randn(60, dims) + shift)
    for counts in (1 + torch.arange(60), 7 + torch.arange(60) % 2, (1 + torch.arange(60)) ** 3):
        heads = {"a head": head_geometry(rows, counts)}
        for figure in (draw_overlaps(heads), draw_norms(heads)):
            render(figure, dpi=20)  # places the ticks
            texts = [text.get_text() for text in figure.findobj(Text)]
            assert any(texts)
            assert not any("$" in text or "\\" in text for text in texts)
