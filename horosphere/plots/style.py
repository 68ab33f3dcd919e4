"""How every picture here looks, and how it reaches the disk: one palette, one typography, nothing half-written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, PANEL, PAPER = "#1c2430", "#66717f", "#d5dbe2", "#f6f8fa", "#ffffff"
ACCENT, QUIET = "#0b7285", "#8c98a6"
# Paul Tol's muted palette: told apart by everyone. The second row repeats the hues of the first in another shade.
BRANCHES = (
    *("#332288", "#44aa99", "#cc6677", "#999933", "#aa4499"),
    *("#88ccee", "#117733", "#882255", "#ddcc77"),
)
SHADE = 5  # so many colours on is the other shade of a hue
ORDERS = 20.0  # where positive values differ by more than this factor, a linear axis hides the small ones
WIDTH = 9.2  # inches; with the page's 96 pixels each, a little under 900
FONTS = (
    "Inter",
    "Source Sans 3",
    "Helvetica Neue",
    "Open Sans",
    "Arial",
    "Liberation Sans",
    "DejaVu Sans",
)  # the last one comes with matplotlib
NO_GLYPH = r"Glyph \d+ .*missing from"  # a name may hold an emoji: a box is drawn, which says it
FORMATS = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}  # no dates: the same picture is the same file


@contextmanager
def style() -> Iterator[None]:
    """The look, inside a `with` block; matplotlib's own settings come back after it."""
    require("plots")
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    look = {
        "font.family": [next(font for font in FONTS if font in installed), "DejaVu Sans"],
        "font.size": 9,
        "text.color": INK,
        "text.parse_math": False,  # a label may hold a dollar sign
        "axes.labelcolor": MUTED,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,  # a tick says its whole value
        "axes.facecolor": PANEL,
        "grid.color": PAPER,
        "grid.linewidth": 1.2,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "figure.facecolor": PAPER,
        "legend.frameon": False,
        "svg.hashsalt": "horosphere",
    }
    with matplotlib.rc_context(look), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", NO_GLYPH, UserWarning)
        yield


def render(figure: Figure, suffix: str = ".png", dpi: int = 160) -> bytes:
    """The picture as the bytes of a .png, .svg or .pdf file."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):  # names of files need not be text, and fonts draw nothing else
        text.set_text(text.get_text().encode(errors="replace").decode())
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format=suffix[1:], dpi=dpi, metadata=FORMATS[suffix])
    return buffer.getvalue()


def save(figure: Figure, path: str | Path, new: bool = False) -> None:
    """Write the picture in the format its name ends with. new: nothing may be there yet."""
    write_whole(path, render(figure, format_of(path)), new)


def format_of(path: str | Path) -> str:
    """What a picture's name ends with; a complaint where that is no format."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UserError(f"{path}: a picture's name ends in {', '.join(FORMATS)}")
    return suffix


def new_figure(height: float) -> tuple[Figure, Axes]:
    figure, (axes,) = new_panels(height, 1)
    return figure, axes


def new_panels(height: float, count: int) -> tuple[Figure, Sequence[Axes]]:
    """Side by side, as wide as a page; call it inside `style`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
    return figure, panels


def finish(figure: Figure, path: str | Path | None) -> Figure:
    """Saved where a path is given."""
    if path is not None:
        save(figure, path)
    return figure


# -- axes and lines ---------------------------------------------------------------------------------------------------


def spans_orders(values: Iterable[float]) -> bool:
    """Whether values call for a logarithmic axis. One that is not positive has no place there.

    >>> spans_orders([1.2, 61.0]), spans_orders([2.0, 3.0]), spans_orders([0.0, 61.0])
    (True, False, False)
    """
    finite = [value for value in values if isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > ORDERS * min(finite)


def log_axis(axes: Axes, which: Literal["x", "y"], label: Callable[[float], str] | None = None) -> None:
    """A logarithmic axis with ticks at 1, 2, 5, 10, written in full. Call it when everything is drawn."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis, (low, high) = (axes.xaxis, axes.get_xlim()) if which == "x" else (axes.yaxis, axes.get_ylim())
    crowded = log10(high / low) > 3
    axis.set_major_locator(LogLocator(subs=(1,) if crowded else (1, 2, 5)))  # where none fits, it takes even steps
    axis.set_minor_locator(NullLocator())
    written = label or plain_number
    axis.set_major_formatter(lambda value, _: written(value))


def overlaid(place: int, count: int) -> dict[str, Any]:
    """Width and order of line number `place`. Later ones are narrower and above, so those that coincide all show.

    >>> [overlaid(place, 3)["linewidth"] for place in range(3)]
    [3.6, 2.8, 2.0]
    """
    above = count - 1 - place
    return {"linewidth": 2 + 0.8 * above * min(1, 5 / max(count - 1, 1)), "zorder": 2 + place / count}


def plain_number(number: float) -> str:
    """A number for an axis, without an exponent.

    >>> plain_number(50.0), plain_number(0.00002), plain_number(2e6)
    ('50', '0.00002', '2M')
    """
    if number >= 10_000:
        return short_count(number)
    return np.format_float_positional(number, precision=6, fractional=False, trim="-")


def short_count(number: float) -> str:
    """A number for an axis.

    >>> short_count(1500), short_count(2e6)
    ('1.5k', '2M')
    """
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
