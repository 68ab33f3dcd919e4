"""Learning curves: what a metric does while models learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from horosphere.plots.style import (
    BRANCHES,
    INK,
    SHADE,
    finish,
    log_axis,
    new_figure,
    overlaid,
    short_count,
    spans_orders,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE_WIDTH = 0.02  # of a line, as a share of the picture's height
CURVED, FLAT = ("-", "-.", ":"), ("--", ":", "-.")  # the first, or where it would cover a line, the next


@dataclass(frozen=True)
class Curve:
    """One entrant."""

    points: Sequence[tuple[float, float]]  # (units read in training, value)
    flat: bool = False  # dashed
    twin_of: str = ""  # whose colour it has, in another shade

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]


def draw_curves(curves: Mapping[str, Curve], x: str, y: str, digits: int = 3, path: str | Path | None = None) -> Figure:
    """Values against what was read, a hue a family, flat ones dashed. The legend says where each ended.

    A line that runs over others is narrower than they are, and broken where they are whole.
    """
    values = [value for curve in curves.values() for value in curve.values]
    log = spans_orders(values)
    scale = np.log if log else np.asarray
    near = LINE_WIDTH * np.ptp(scale(values))

    def covers(curve: Curve, other: Curve) -> bool:
        if len(curve.points) != len(other.points) or curve.flat != other.flat:
            return False
        return bool((np.abs(scale(curve.values) - scale(other.values)) <= near).all())

    families = list(dict.fromkeys(curve.twin_of or name for name, curve in curves.items()))
    from_below = sorted(curves, key=lambda name: curves[name].flat)
    lines = {}
    with style():
        figure, axes = new_figure(4.2)
        for place, name in enumerate(from_below):
            curve = curves[name]
            shade = families.index(curve.twin_of or name) + SHADE * bool(curve.twin_of)
            covered = sum(covers(curve, curves[other]) for other in from_below[:place])
            (lines[name],) = axes.plot(
                *zip(*curve.points, strict=True),
                color=BRANCHES[shade % len(BRANCHES)],
                linestyle=(FLAT if curve.flat else CURVED)[covered % 3],
                marker="o" if len(curve.points) == 1 else None,  # a line of one point is invisible
                label=f"{name}   {curve.values[-1]:.{digits}f}",
                **overlaid(place, len(curves)),
            )
        if log:
            log_axis(axes, "y")
        axes.set(xlabel=x, ylabel=y)
        axes.xaxis.set_major_formatter(lambda value, _: short_count(value))
        axes.grid()
        in_order = [lines[name] for name in curves]
        axes.legend(handles=in_order, title="at the end", alignment="left", labelcolor=INK, handlelength=5)
    return finish(figure, path)
