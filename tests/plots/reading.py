"""What a picture shows, read back from it: lines, dots, bars, keys, names; and what stands where on a page."""

import re
from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser

import numpy as np
from matplotlib.colors import to_hex


def named_lines(axes):
    """{label: line} of all lines that have one."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def nameless_lines(axes):
    return [line for line in axes.lines if line.get_label().startswith("_")]


def hollow(axes):
    """Lines of published points."""
    return [line for line in axes.lines if line.get_fillstyle() == "none"]


def key(axes):
    """{text: handle} of the legend, in its order: what a reader sees beside each name."""
    legend = axes.get_legend()
    return dict(zip((text.get_text() for text in legend.get_texts()), legend.legend_handles, strict=True))


def colour(artist):
    """The one colour of a line, of dots or of a box, as #rrggbb."""
    if hasattr(artist, "get_color"):
        return to_hex(artist.get_color())
    (only,) = (
        {to_hex(c) for c in artist.get_facecolor()} if hasattr(artist, "get_offsets") else {to_hex(artist.get_fc())}
    )
    return only


@dataclass
class Bars:
    """Points with error bars."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray  # ends of the bars, along their own axis
    high: np.ndarray
    colour: str
    marker: str
    linestyle: str


def error_bars(axes, along=1):
    """{label: Bars}, or a list where nothing has a label. along: 1 for bars upwards, 0 for bars to the side."""
    found = []
    for container in axes.containers:
        line, _, (ends,) = container.lines
        segments = np.array([s if len(s) == 2 else np.full((2, 2), np.nan) for s in ends.get_segments()])
        colours = {to_hex(line.get_color()), *(to_hex(c) for c in ends.get_color())}
        assert len(colours) == 1  # a bar has the colour of its point
        style = line.get_marker(), line.get_linestyle()
        bars = Bars(*line.get_xydata().T, segments[:, 0, along], segments[:, 1, along], colours.pop(), *style)
        np.testing.assert_allclose(segments[:, 0, 1 - along], line.get_xydata()[:, 1 - along])  # and stands on it
        found.append((container.get_label(), bars))
    return dict(found) if all(not label.startswith("_") for label, _ in found) else [bars for _, bars in found]


def ticks(axis):
    """{place: text} as drawn; the figure must have been laid out or have fixed ticks."""
    return dict(zip(axis.get_ticklocs().tolist(), (t.get_text() for t in axis.get_ticklabels()), strict=True))


def dots(axes):
    """Scatter collections in order: [(offsets (N, 2), colours N x #rrggbb)]"""
    read = []
    for collection in axes.collections:
        offsets = np.asarray(collection.get_offsets())
        faces = [to_hex(c) for c in collection.get_facecolor()]
        read.append((offsets, faces * len(offsets) if len(faces) == 1 else faces))
    return read


def order_of(offsets, position):
    """Which dot stands at each of these places.   (N, 2), (M, 2) -> M numbers"""
    offsets = np.asarray(offsets)
    order = [int(np.argmin(np.linalg.norm(offsets - place, axis=-1))) for place in position]
    np.testing.assert_allclose(offsets[order], position, atol=1e-12)
    return order


# -- pages ------------------------------------------------------------------------------------------------------------


@dataclass
class Page:
    """A report as a reader finds it, in order: ("h2", text), ("p", text), ("table", Table), ("img", Img)."""

    title: str = ""
    heading: str = ""
    parts: list = field(default_factory=list)

    def of(self, kind):
        return [content for name, content in self.parts if name == kind]


@dataclass
class Table:
    head: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    best: list = field(default_factory=list)  # numbers of the rows that stand out
    numbers: list = field(default_factory=list)  # of columns that are right-aligned, by the first row
    caption: str = ""


@dataclass
class Img:
    content: bytes
    alt: str
    size: tuple = ()
    caption: str = ""


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.page, self.text, self.in_head, self.last = Page(), "", False, None

    def handle_starttag(self, tag, attrs):
        attrs, self.text = dict(attrs), ""
        if tag == "table":
            self.last = Table()
            self.page.parts.append(("table", self.last))
        elif tag == "thead":
            self.in_head = True
        elif tag == "tr" and not self.in_head:
            if attrs.get("class") == "best":
                self.last.best.append(len(self.last.rows))
            self.last.rows.append([])
        elif tag == "td" and len(self.last.rows) == 1:
            self.last.numbers.append(attrs.get("class") == "number")
        elif tag == "img":
            content = b64decode(re.fullmatch("data:image/png;base64,(.*)", attrs["src"])[1])
            self.last = Img(content, attrs["alt"], (int(attrs["width"]), int(attrs["height"])))
            self.page.parts.append(("img", self.last))

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        if tag == "thead":
            self.in_head = False
        elif tag == "th":
            self.last.head.append(self.text)
        elif tag == "td":
            self.last.rows[-1].append(self.text)
        elif tag == "figcaption":
            self.last.caption = self.text
        elif tag in ("title", "h1"):
            setattr(self.page, {"title": "title", "h1": "heading"}[tag], self.text)
        elif tag in ("h2", "p", "dt", "dd", "footer"):
            self.page.parts.append((tag, self.text))
        self.text = ""


def read_page(html):
    reader = _Reader()
    reader.feed(html)
    return reader.page


class Album:
    """Stands in for `render`: a page then holds numbers of figures, and the figures are here."""

    def __init__(self):
        self.figures = []

    def __call__(self, figure, *_, **__):
        self.figures.append(figure)
        return str(len(self.figures) - 1).encode()

    def __getitem__(self, content):
        return self.figures[int(content)]
