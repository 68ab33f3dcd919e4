"""One look for all pictures: what `plots/style.py` promises, checked for every figure that a test of this folder draws.

Small enough to be let alone, large enough to be seen, in the colours of the house.
"""

import numpy as np
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.text import Text

from horosphere.plots import style

PALETTE = {style.INK, style.MUTED, style.LINE, style.PANEL, style.PAPER, style.ACCENT, style.QUIET, *style.BRANCHES}
NO_GRID = {"mean radius 2|z| of texts"}  # few points, and bars of their own

UNSAID = {"mean of a tenth"}  # of a picture without a key


def check(figure):
    """Complain about whatever would not look like the house's pictures."""
    for text in figure.findobj(Text):
        if text.get_text():
            assert 7.5 <= text.get_fontsize() <= 15, f"{text.get_fontsize()} points: {text.get_text()!r}"
    for axes in figure.axes:
        _check_lines(axes)
        _check_dots(axes)
        if axes.get_xlabel() and axes.get_ylabel():
            _check_chart(figure, axes)


def _check_lines(axes):
    drawn = [line for line in axes.lines if line.get_linestyle() != "None"]
    widths = sorted(line.get_linewidth() for line in drawn)
    for line in axes.lines:
        assert to_hex(line.get_color()) in PALETTE
        assert line.get_alpha() is None or 0.5 <= line.get_alpha() <= 1
        if line.get_marker() not in ("None", "", None):
            assert 4 <= line.get_markersize() <= 8
    for line in drawn:
        width = line.get_linewidth()
        # a wider line shows beside narrower ones that lie on it
        covered = any(0 < width - other <= 0.801 for other in widths) and widths.count(width) == 1
        assert 0.5 <= width <= 2 or covered, f"a line {width} points wide: {line.get_label()}"


def _check_dots(axes):
    widest = max((line.get_linewidth() for line in axes.lines), default=0)
    for collection in axes.collections:
        edges = np.ravel(collection.get_linewidths())
        if isinstance(collection, LineCollection):  # bars of errors are as wide as their line; edges of graphs
            assert ((edges >= 0.3) & (edges <= max(2.5, widest))).all()
        if isinstance(collection, PathCollection):
            across = np.sqrt(collection.get_sizes())
            assert ((across >= 1) & (across <= 12)).all(), f"dots {across} points wide"
            assert ((edges >= 0) & (edges <= 1.4)).all()


def _check_chart(figure, axes):
    """A picture with values along both sides."""
    assert 3 <= figure.get_figheight() <= 5  # a screen shows a chart and its caption
    assert figure.get_figwidth() == style.WIDTH
    filled = any(isinstance(collection, QuadMesh) for collection in axes.collections)
    grids = [axis.get_gridlines()[0].get_visible() for axis in (axes.xaxis, axes.yaxis)]
    assert all(grids) != (filled or axes.get_xlabel() in NO_GRID)
    assert not axes.get_title("center")
    assert not axes.get_title("right")
    legends = [one.get_legend() for one in figure.axes if one.get_legend()] + figure.legends
    said = {text.get_text() for legend in legends for text in legend.get_texts()}
    assert {*axes.get_legend_handles_labels()[1]} - UNSAID <= said
    assert all(legend.get_frame_on() is False for legend in legends)
    assert not any(spine.get_visible() for spine in axes.spines.values())
    for axis in (axes.xaxis, axes.yaxis):
        assert {tick.tick1line.get_markersize() for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())} <= {0}
