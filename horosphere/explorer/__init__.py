"""See any embedding in its own geometry, in a browser: `horosphere.explore` and `horosphere explore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from horosphere import catalogue
from horosphere.data import Graph
from horosphere.errors import UserError, one_line
from horosphere.explorer import given
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
    own = {"manifold": manifold, "labels": labels, "edges": edges, "columns": columns, "thumbnails": thumbnails}
    if (atlas := _known(points, name, own)) is not None:
        return Explorer([atlas])
    x = given.numbers(points)
    count = len(x) if x.ndim else 0
    texts = [str(label) for label in (range(count) if labels is None else given.listed("labels", labels))]
    if edges is not None and len(texts) != count:
        raise UserError(f"{len(texts):,} labels for {count:,} points; give one for each")
    graph = None if edges is None else Graph(texts, given.pairs(edges, texts), directed)
    if isinstance(manifold, str):
        x, manifold = in_space(name, x, manifold)
    elif not isinstance(manifold, Manifold | None):
        how = "give a manifold, as Lorentz(c=1.0), or its name"
        raise UserError(f"explore(…, manifold={one_line(manifold, 40)}): {how}")
    named = {} if columns is None else dict(columns)
    values = {str(key): given.listed(f"columns[{key!r}]", column) for key, column in named.items()}
    pictures = None if thumbnails is None else given.pictures(thumbnails, count)
    return Explorer([Atlas(name, Vectors(texts, x, manifold or Euclidean(), graph, values, pictures))])


def _known(points: Any, name: str, own: dict[str, Any]) -> Atlas | None:
    """What brings its labels and its space with it; None: bare points."""
    path = isinstance(points, (str, Path))
    embedded = hasattr(points, "points") and hasattr(points, "manifold")  # an embedding of a graph, or `Vectors`
    if not path and not embedded:
        return None
    file = path and Path(points).is_file()
    if said := [key for key, value in own.items() if value is not None and not (file and key == "manifold")]:
        raise UserError(f"explore(…, {said[0]}=…): what is given has its own; leave {said[0]} out")
    if file:
        return Atlas(Path(points).name, read_points(points, own["manifold"] or "euclidean"))
    if path:
        return open_atlas(points)
    if isinstance(points, Vectors):
        return Atlas(name, points)
    return Atlas(name, Vectors(points.labels, points.points, points.manifold, points.graph))


def open_atlas(folder: str | Path) -> Atlas:
    """The points of a run."""
    run = Run.open(folder)
    task = catalogue.resolve(catalogue.task(run.about.task).build)
    return Atlas(one_line(Path(folder).resolve().name), task.vectors(run))
