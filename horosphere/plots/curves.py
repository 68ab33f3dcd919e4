"""Learning curves: what a metric does while models learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.plots.style import BRANCHES, INK, finish, new_figure, short_count, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDERS = 30.0  # where values differ by such a factor, small ones need a logarithmic axis to be seen


@dataclass(frozen=True)
class Curve:
    """One entrant."""

    points: Sequence[tuple[float, float]]  # (units read in training, value)
    flat: bool = False  # dashed
    twin_of: str = ""  # whose colour it has


def draw_curves(curves: Mapping[str, Curve], x: str, y: str, digits: int = 3, path: str | Path | None = None) -> Figure:
    """Values against what was read, a colour a family, flat ones dashed. The legend says where each ended."""
    with style():
        figure, axes = new_figure(4.2)
        families = list(dict.fromkeys(curve.twin_of or name for name, curve in curves.items()))
        for name, curve in curves.items():
            color = BRANCHES[families.index(curve.twin_of or name) % len(BRANCHES)]
            xs, ys = zip(*curve.points, strict=True)
            dashes = "--" if curve.flat else "-"
            marker = "o" if len(xs) == 1 else None  # a line of one point is invisible
            label = f"{name}   {ys[-1]:.{digits}f}"
            axes.plot(xs, ys, color=color, linestyle=dashes, linewidth=2, marker=marker, label=label)
        values = [value for curve in curves.values() for _, value in curve.points]
        if min(values) > 0 and max(values) > ORDERS * min(values):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set(xlabel=x, ylabel=y)
        axes.xaxis.set_major_formatter(lambda value, _: short_count(value))
        axes.grid()
        axes.legend(title="at the end", alignment="left", labelcolor=INK)
    return finish(figure, path)
