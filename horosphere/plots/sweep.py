"""Quality against size, an entrant a line: where they cross, and whether more dimensions make curvature needless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from horosphere.plots.style import BRANCHES, INK, SHADE, finish, log_axis, new_figure, spans_orders, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_sweep(
    scores: Mapping[str, Mapping[int, Sequence[float]]],
    x: str,
    y: str,
    flat: Mapping[str, str],
    path: str | Path | None = None,
) -> Figure:
    """scores[entrant][size]: one number a seed, NaN of a training that failed. Means, and one standard deviation.

    flat: {entrant: whose twin it is, or ""} of those in flat space, which are dashed.
    """
    families = list(dict.fromkeys(flat.get(name) or name for name in scores))
    with style():
        from matplotlib.ticker import NullLocator

        figure, axes = new_figure(4.2)
        for name, of in scores.items():
            sizes = np.array(list(of))
            seeds = [np.array([value for value in values if np.isfinite(value)]) for values in of.values()]
            means = np.array([values.mean() if len(values) else np.nan for values in seeds])
            spread = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for values in seeds])
            color = BRANCHES[(families.index(flat.get(name) or name) + SHADE * bool(flat.get(name))) % len(BRANCHES)]
            line = "--" if name in flat else "-"
            axes.errorbar(sizes, means, spread, color=color, linestyle=line, marker="o", markersize=4, label=name)
        axes.set_xscale("log", base=2)
        every = sorted({size for of in scores.values() for size in of})
        axes.set_xticks(every, [f"{size:,}" for size in every])
        axes.xaxis.set_minor_locator(NullLocator())
        if spans_orders(np.array([v for of in scores.values() for values in of.values() for v in values])):
            log_axis(axes, "y")
        axes.set(xlabel=x, ylabel=y)
        axes.grid()
        axes.legend(labelcolor=INK, handlelength=4)
    return finish(figure, path)
