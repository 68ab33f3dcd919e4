"""Pictures of superposition in language models: the law of their width, and what overlaps in their heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from horosphere.errors import UserError
from horosphere.plots.style import (
    BRANCHES,
    INK,
    MUTED,
    QUIET,
    SHADE,
    finish,
    log_axis,
    new_figure,
    new_panels,
    overlaid,
    short_count,
    style,
)
from horosphere.superposition.fits import SURE, WidthFit
from horosphere.superposition.heads import HeadGeometry
from horosphere.superposition.published import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from horosphere.superposition.widths import WidthStudy

MARKERS = "osD^vP*X<>"


def draw_width_fit(fit: WidthFit, path: str | Path | None = None) -> Figure:
    """Loss above its offset against width, a colour a family, with the law and the band of its bootstrap."""
    table = fit.table
    groups, group = table.groups()
    with style():
        figure, axes = new_figure(4.6)
        m = np.geomspace(table.width.min() / 1.15, table.width.max() * 1.15, 200)
        if len(fit.draws):
            # offsets move with α: of each draw, only its shape around the offsets of the fit is shown
            shift = np.nanmean(fit.draws[:, 2:] - np.array([fit.offsets[pair] for pair in groups]), axis=1)
            curves = fit.draws[:, 1, None] * m ** -fit.draws[:, :1] + shift[:, None]
            low, high = np.quantile(curves, [(1 - SURE) / 2, (1 + SURE) / 2], axis=0)
            floor = fit.scale * table.width.max() ** -fit.exponent / 20  # a logarithm has no room for less than nothing
            axes.fill_between(m, np.maximum(low, floor), np.maximum(high, floor), color=QUIET, alpha=0.25, linewidth=0)
        axes.plot(m, fit.scale * m**-fit.exponent, color=INK, linewidth=1.6)
        above = table.loss - np.array([fit.offsets[pair] for pair in groups])[group]
        for i, family in enumerate(dict.fromkeys(table.family.tolist())):
            own = (table.family == family) & (above > 0)
            axes.scatter(
                table.width[own],
                above[own],
                s=24,
                color=BRANCHES[i % len(BRANCHES)],
                marker=MARKERS[i % len(MARKERS)],
                label=family,
                alpha=0.8,
            )
        draw_widths(axes, table.width)
        hidden = int((above <= 0).sum())
        below = f"; {hidden} of {len(above)} losses below the offset not shown" if hidden else ""
        axes.set(ylabel="loss above the offset of its family and dataset")
        between = (
            f"{SURE:.0%} over models {fit.bootstrap[0]:.2f} to {fit.bootstrap[1]:.2f}"
            if len(fit.draws)
            else "too few sizes for an interval"
        )
        axes.set_title(f"α = {fit.exponent:.2f}, {between}{below}", loc="left", fontsize=10.5, fontweight="bold")
        axes.legend(labelcolor=INK)
    return finish(figure, path)


def draw_overlaps(heads: Mapping[str, HeadGeometry], path: str | Path | None = None) -> Figure:
    """Mean square overlap of heads against their dimensions.

    Dots are full for heads as they are, half without the mean, hollow also without the top components. In grey:
    published heads. Below all: 1/m, vectors that point anywhere.
    """
    with style():
        figure, axes = new_figure(4.6)
        others = published("language-overlaps")
        axes.scatter(
            others["m"],
            others["mean_square_overlap"],
            s=18,
            color=QUIET,
            alpha=0.6,
            linewidths=0,
            label="published heads",
        )
        for i, (name, head) in enumerate(heads.items()):
            color = BRANCHES[i % len(BRANCHES)]
            forms = ((head.raw, "full"), (head.centred, "left"), (head.trimmed, "none"))
            axes.plot([head.dims] * 3, [overlap.mean_square for overlap, _ in forms], color=color, linewidth=1)
            for overlap, fill in forms:
                label = f"{name}   {overlap.times_isotropic:.3g} times isotropic" if fill == "full" else None
                axes.plot(head.dims, overlap.mean_square, "o", color=color, fillstyle=fill, markersize=8, label=label)
        widths = np.concatenate([others["m"], [head.dims for head in heads.values()]])
        m = np.array([widths.min() / 1.15, widths.max() * 1.15])
        axes.plot(m, 1 / m, color=MUTED, linestyle=":", linewidth=1.4, label="isotropic, 1/m")
        draw_widths(axes, widths)
        axes.set(ylabel="mean square overlap of unit rows")
        axes.set_title(
            "full: as they are; half: centred; hollow: also without the largest principal components",
            loc="left",
            fontsize=9,
            color=MUTED,
        )
        axes.legend(labelcolor=INK)
    return finish(figure, path)


def draw_norms(heads: Mapping[str, HeadGeometry], path: str | Path | None = None) -> Figure:
    """Norms of a head's rows by how often their token occurs: mean ± standard deviation of each tenth of the tokens."""
    with style():
        figure, axes = new_figure(4.2)
        for i, (name, head) in enumerate(heads.items()):
            if head.by_frequency is None:
                raise UserError(f"{name}: norms by frequency need counts of its tokens")
            bins = head.by_frequency.bins
            middle = [np.sqrt(max(b.lowest, 1) * b.highest) for b in bins]
            label = f"{name}   rank correlation {head.by_frequency.correlation:.2f}"
            axes.errorbar(
                middle,
                [b.mean for b in bins],
                [b.std for b in bins],
                fmt=MARKERS[i % 10] + "-",
                color=BRANCHES[i % 9],
                label=label,
            )
        log_axis(axes, "x", short_count)
        axes.set(xlabel="how often the token occurs", ylabel="norm of its row")
        axes.grid()
        axes.legend(labelcolor=INK)
    return finish(figure, path)


def draw_width_study(study: WidthStudy, path: str | Path | None = None) -> Figure:
    """Loss against width, and how crowded the head is in units of random rows; a colour a geometry.

    Mean ± standard deviation over seeds.
    """
    with style():
        figure, panels = new_panels(4.2, 2)
        for axes, (name, label) in zip(
            panels,
            (("loss", "nats per token, held-out text"), ("times_isotropic", "overlap of the head · m")),
            strict=True,
        ):
            for i, model in enumerate(study.models):
                mean, spread = np.array([study.mean(model, width, name) for width in study.widths]).T
                axes.errorbar(
                    study.widths,
                    mean,
                    spread,
                    fmt=MARKERS[i] + ("-", "--")[i % 2],
                    color=BRANCHES[SHADE * i % len(BRANCHES)],
                    markersize=6,
                    label=model,
                    **overlaid(i, len(study.models)),
                )
            draw_widths(axes, np.array(study.widths, float))
            axes.set(ylabel=label)
            axes.legend(labelcolor=INK, handlelength=5)
    return finish(figure, path)


def draw_widths(axes: Axes, widths: np.ndarray) -> None:
    """Logarithmic axes with plain numbers; widths at powers of two."""
    powers = 2.0 ** np.arange(np.floor(np.log2(widths.min())), np.ceil(np.log2(widths.max())) + 1)
    inside = powers[(powers >= widths.min() / 1.2) & (powers <= widths.max() * 1.2)]
    log_axis(axes, "x")
    axes.set_xticks(inside if len(inside) > 1 else np.unique(widths))
    axes.set(xlabel="width m")
    log_axis(axes, "y")
    axes.grid()
