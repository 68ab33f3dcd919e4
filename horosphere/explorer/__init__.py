"""See any embedding in its own geometry, in a browser: `horosphere.explore` and `horosphere explore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere import catalogue
from horosphere.data import Graph
from horosphere.errors import UserError, one_line
from horosphere.explorer.atlas import Atlas
from horosphere.explorer.page import exported_page
from horosphere.explorer.points import in_space, read_points
from horosphere.explorer.server import Server
from horosphere.files import require_new_file, write_whole
from horosphere.geometry import Euclidean, Manifold
from horosphere.progress import progress
from horosphere.runs import Run
from horosphere.train.vectors import Vectors

INLINE = 720  # pixels that a page is high in a notebook
AT_ONCE = 2  # embeddings side by side


class Explorer:
    """One embedding, or two side by side. A notebook shows it; `save` writes it as a file, `serve` shows it at once."""

    def __init__(self, atlases: Sequence[Atlas], title: str = ""):
        if not 1 <= len(atlases) <= AT_ONCE:
            raise UserError(f"{len(atlases)} embeddings: a page shows one, or {AT_ONCE} side by side; leave some out")
        self.atlases = list(atlases)
        self.title = title or " and ".join(atlas.name for atlas in atlases)

    def __repr__(self) -> str:
        return f"Explorer({self.title}: {', '.join(f'{len(atlas):,} points' for atlas in self.atlases)})"

    def page(self, quiet: bool = False) -> str:
        """One HTML file that holds all its data and asks nobody."""
        with progress("neighbours", sum(map(len, self.atlases)), quiet) as update:
            return exported_page(self.title, self.atlases, update)

    def save(self, path: str | Path, overwrite: bool = False, quiet: bool = False) -> Path:
        """Write the page. It needs no network and no program but a browser."""
        if Path(path).exists() and not overwrite:
            raise UserError(f"{path} exists already: give another name, or overwrite=True")
        require_new_file(path, overwrite)
        write_whole(path, self.page(quiet).encode(), new=not overwrite)
        return Path(path)

    def serve(self, host: str = "127.0.0.1", port: int = 0, token: str = "") -> Server:
        """A server of the page: `with explorer.serve() as server: print(server.address); server.serve_forever()`."""
        return Server(self.atlases, self.title, host, port, token)

    def _repr_html_(self) -> str:
        frame = f'style="width:100%;height:{INLINE}px;border:0" title="{escape(self.title)}"'
        return f'<iframe {frame} srcdoc="{escape(self.page(quiet=True))}"></iframe>'


def explore(
    points: Any,
    manifold: Manifold | str | None = None,
    labels: Sequence[str] | None = None,
    edges: Any = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    directed: bool = True,
    thumbnails: Sequence[np.ndarray | None] | None = None,
    name: str = "points",
) -> Explorer:
    """Points (N, d) of a manifold in the browser; or a run or a file, by its path, an `Embedded`, or `Vectors`.

    manifold: flat where none is given; a name such as "poincare" has c = 1. edges: pairs of rows or of labels,
    (child, parent) where they are `directed`. columns: by name a number or a text for each point. thumbnails: for each
    point (h, w, 3) uint8, or None.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> explore(L.random(5, 8), L, labels=["a", "b", "c", "d", "e"], edges=[(1, 0), (2, 0)])
    Explorer(points: 5 points)
    """
    if isinstance(points, (str, Path)):
        return Explorer([open_atlas(points)])
    if isinstance(points, Vectors):
        return Explorer([Atlas(name, points)])
    if hasattr(points, "points") and hasattr(points, "manifold"):  # an embedding of a graph
        return Explorer([Atlas(name, Vectors(points.labels, points.points, points.manifold, points.graph))])
    try:
        if isinstance(points, np.ma.MaskedArray) and np.ma.is_masked(points):
            raise ValueError("some values are masked")
        x = points if isinstance(points, Tensor) else torch.from_numpy(np.array(points))
        if x.is_complex() or x.layout != torch.strided or x.device.type == "meta":
            raise ValueError("no plain numbers")
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"explore(points): {one_line(error)}; give a matrix of numbers, a row for each point") from None
    count = len(x) if x.ndim else 0
    texts = (
        [str(label) for label in range(count)]
        if labels is None
        else [str(label) for label in _listed("labels", labels)]
    )
    graph = None
    if edges is not None:
        if len(texts) != count:
            raise UserError(f"{len(texts):,} labels for {count:,} points; give one for each")
        graph = Graph(texts, _pairs(edges, texts), directed)
    pictures = None if thumbnails is None else _pictures(thumbnails, count)
    if isinstance(manifold, str):
        x, manifold = in_space(name, x, manifold)
    elif not isinstance(manifold, Manifold | None):
        raise UserError(
            f"explore(…, manifold={one_line(manifold, 40)}): give a manifold, as Lorentz(c=1.0), or its name"
        )
    named = (
        {} if columns is None else {str(key): _listed(f"columns[{key!r}]", own) for key, own in dict(columns).items()}
    )
    vectors = Vectors(texts, x, manifold or Euclidean(), graph, named, pictures)
    return Explorer([Atlas(name, vectors)])


def open_atlas(folder: str | Path) -> Atlas:
    """The points of a run, or those of a file in flat space."""
    if Path(folder).is_file():
        return Atlas(Path(folder).name, read_points(folder))
    run = Run.open(folder)
    task = catalogue.resolve(catalogue.task(run.about.task).build)
    return Atlas(one_line(Path(folder).resolve().name), task.vectors(run))


def _pictures(pictures: Sequence[np.ndarray | None], count: int) -> Callable[[int], np.ndarray | None]:
    if len(pictures) != count:
        raise UserError(f"{len(pictures):,} thumbnails for {count:,} points; give one for each, or None")
    for point, pixels in enumerate(pictures):
        if pixels is not None and (np.ndim(pixels) != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8):
            raise UserError(f"thumbnail {point}: give pixels (h, w, 3) as uint8, or None where there is no picture")
    return lambda point: pictures[point]


def _listed(what: str, values: Any) -> list[Any]:
    """Values one after another, whatever holds them."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UserError(f"explore({what}=…): {one_line(values, 40)} is no list; give one value for each point")
    return list(values)


def _pairs(edges: Any, labels: list[str]) -> np.ndarray:
    """Edges as rows, whether they are given so or by label."""
    rows = [tuple(_listed("edges", edge)) for edge in _listed("edges", edges)]
    if any(len(row) != 2 for row in rows):
        raise UserError("explore(edges=…): give pairs, as (child, parent); a matrix should have the shape (E, 2)")
    pairs = np.array(
        [end.item() if isinstance(end, Tensor | np.generic) else end for row in rows for end in row], dtype=object
    )
    pairs = pairs.reshape(-1, 2)
    if not any(isinstance(end, str) for end in pairs.flat):
        if wrong := [
            end for end in pairs.flat if not isinstance(end, int) or isinstance(end, bool) or abs(end) > 2**31
        ]:
            raise UserError(f"explore(edges=…): {one_line(wrong[0], 40)} is neither a row nor a label")
        return pairs.astype(np.int64)
    number = {label: row for row, label in enumerate(labels)}
    if unknown := [end for end in pairs.flat if end not in number]:
        raise UserError(f'explore(edges=…): no point is called "{one_line(unknown[0], 60)}"; edges name labels or rows')
    return np.array([[number[end] for end in pair] for pair in pairs])
