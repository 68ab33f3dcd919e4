"""Geometries side by side: mean and spread, and every seed as a dot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from horosphere.errors import UserError
from horosphere.plots.style import ACCENT, INK, MUTED, QUIET, finish, log_axis, spans_orders, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARROWS = {"high": "↑", "low": "↓"}


def draw_comparison(
    names: Sequence[str],
    metrics: Mapping[str, Sequence[Sequence[float]]],
    better: Mapping[str, Literal["high", "low"]],
    path: str | Path | None = None,
) -> Figure:
    """One panel per metric, one row per name; the best mean is in colour, as are those that tie with it.

    Values that differ by orders of magnitude have a logarithmic axis.
    metrics[metric][row] holds one number per seed, NaN for a failed one.
    """
    for metric, rows in metrics.items():
        if len(rows) != len(names):
            raise UserError(f"{metric}: {len(rows)} rows for {len(names)} names: give one each")
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(max(3.1 * len(metrics), 4.5) + 0.6, 0.48 * len(names) + 1.0), layout="constrained")
        figure.get_layout_engine().set(wspace=0.07)  # type: ignore[union-attr, call-arg]
        panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for axes, (metric, rows) in zip(panels, metrics.items(), strict=True):
            seeds = [np.array([x for x in row if np.isfinite(x)]) for row in rows]
            means = np.array([x.mean() if len(x) else np.nan for x in seeds])
            better_of = np.fmax if better[metric] == "high" else np.fmin  # which pass over NaN
            best = better_of.reduce(means)
            for y, (x, mean) in enumerate(zip(seeds, means, strict=True)):
                color = ACCENT if mean == best else QUIET
                spread = x.std(ddof=1) if len(x) > 1 else 0
                axes.errorbar(mean, y, xerr=spread, color=color, fmt="o", markersize=8, elinewidth=2.5)
                axes.scatter(x, np.full(len(x), y + 0.28), s=14, color=color, alpha=0.55, linewidths=0)
            axes.set_title(f"{metric} {ARROWS[better[metric]]}", loc="left", fontsize=11, fontweight="bold", color=INK)
            axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.5))
            axes.tick_params(length=0)
            axes.tick_params(axis="y", labelsize=10, labelcolor=INK)
            axes.grid(axis="x")
            axes.spines[:].set_visible(False)
            axes.margins(x=0.08)
            if spans_orders(np.concatenate(seeds)):
                log_axis(axes, "x")
        fewest, most = min(counts := [len(row) for rows in metrics.values() for row in rows]), max(counts)
        seeds_each = f"{most}" if fewest == most else f"{fewest}–{most}"
        figure.supxlabel(
            f"{seeds_each} seeds as small dots, mean ± standard deviation above them", fontsize=9, color=MUTED
        )
    return finish(figure, path)
