"""Pictures of laws and heads show the numbers they were given, and no interval where there is none."""

import numpy as np
import torch

from horosphere.plots.style import render
from horosphere.plots.superposition_heads import draw_overlaps, draw_width_fit
from horosphere.superposition.fits import Losses, fit_widths, read_losses
from horosphere.superposition.heads import head_geometry
from horosphere.superposition.published import published, published_file

WIDTHS = np.array([8, 16, 32, 64.0])


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def points(axes):
    return np.concatenate(
        [np.asarray(collection.get_offsets()) for collection in axes.collections if len(collection.get_offsets()) > 1]
    )


def test_the_law_of_width(tmp_path):
    fit = fit_widths(read_losses(published_file("language-losses")), bootstrap=50)
    figure = draw_width_fit(fit, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes() == render(figure)
    axes = figure.axes[0]
    assert legend(figure) == ["opt", "Qwen", "gpt2", "pythia"]
    assert axes.get_title(loc="left").startswith(
        f"α = 0.91, 95% over models {fit.bootstrap[0]:.2f} to {fit.bootstrap[1]:.2f}"
    )
    shown = points(axes)
    above = fit.table.loss - np.array(
        [fit.offsets[pair] for pair in zip(fit.table.family, fit.table.dataset, strict=True)]
    )
    np.testing.assert_allclose(np.sort(shown[:, 1]), np.sort(above[above > 0]))
    assert f"{(above <= 0).sum()} of 108 losses below the offset not shown" in axes.get_title(loc="left")


def test_few_sizes_have_no_band():
    widths = np.repeat([64, 128, 256.0], 2)
    table = Losses(
        np.full(6, "a"), np.tile(["x", "y"], 3), widths, 9 / widths + np.tile([1, 2.0], 3), widths.astype(str)
    )
    axes = draw_width_fit(fit_widths(table)).axes[0]
    assert "too few sizes for an interval" in axes.get_title(loc="left")
    assert len(axes.collections) == 1  # the points alone


def test_overlaps_stand_beside_the_published_ones():
    heads = {"wide": head_geometry(torch.randn(400, 64) + 1), "narrow": head_geometry(torch.randn(400, 16))}
    figure = draw_overlaps(heads)
    axes = figure.axes[0]
    np.testing.assert_allclose(points(axes)[:, 1], published("language-overlaps")["mean_square_overlap"])
    drawn = {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines if len(line.get_xdata()) == 1
    }
    forms = {
        (float(head.dims), overlap.mean_square)
        for head in heads.values()
        for overlap in (head.raw, head.centred, head.trimmed)
    }
    assert drawn == forms
    assert f"wide   {heads['wide'].raw.times_isotropic:.3g} times isotropic" in legend(figure)
    isotropic = axes.lines[-1]
    np.testing.assert_allclose(np.asarray(isotropic.get_xdata()) * np.asarray(isotropic.get_ydata()), 1)
