"""What the page shows of one embedding: its charts, columns, edges and neighbours, as JSON and bare arrays."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError, one_line
from horosphere.evaluate.neighbours import nearest
from horosphere.explorer.charts import Chart, charts_of
from horosphere.extras import require
from horosphere.geometry import Manifold, Product
from horosphere.geometry.manifold import Curved
from horosphere.measure.branches import branch_of
from horosphere.train.vectors import Vectors

MOST = 2**21  # points of one page: 300 MB there
NEIGHBOURS = 20  # that the page lists
CATEGORIES = 64  # different texts of a column that is coloured by; with more it is a text to read
COLOURS = 8  # that the page tells apart
ANCHORS = 16  # points to which all true distances are known, so that a picture can be judged
PLANES = 2**24  # numbers of coordinates that are handed out for planes through two nodes: 64 MB
RADIUS = "radius"  # the page has its histogram
DISTORTION = "distortion of the picture"  # a column that the page adds
FARTHEST = 1e18  # from the origin: squares of what the page draws stay within single precision
QUALITY = 85  # of small pictures, in JPEG


class Atlas:
    """Labelled points, as the page asks for them. Arrays are made when they are asked for, and kept.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> atlas = Atlas("pair", Vectors(["a", "b"], L.lift(torch.tensor([[0.0, 1.0], [2.0, 0.0]])), L))
    >>> atlas.meta()["geometry"], [column["name"] for column in atlas.meta()["columns"]]
    ('lorentz, curvature -1, 2 dimensions', ['radius'])
    >>> atlas.neighbours(0)["numbers"]
    [1]
    """

    def __init__(self, name: str, vectors: Vectors):
        self.name, self.vectors = name, _checked(vectors, name)
        self.points = vectors.points.detach().double().cpu()
        self.manifold = vectors.manifold.cpu()
        self.charts = charts_of(self.points, self.manifold, vectors.graph)
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._made: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self.points)

    def meta(self) -> dict[str, Any]:
        """What the page reads first: `AtlasMeta` of web/src/source.ts."""
        charts = [
            {"name": chart.name, "kind": chart.kind, "array": f"chart-{i}", "unit": chart.unit, "note": chart.note}
            for i, chart in enumerate(self.charts)
        ]
        graph = self.vectors.graph
        return {
            "name": self.name,
            "count": len(self),
            "geometry": described(self.manifold, self.points.shape[1]),
            "directed": graph is not None and graph.directed,
            "charts": charts,
            "columns": [column.meta(f"column-{i}") for i, column in enumerate(self.columns)],
            "edges": None if graph is None or not len(graph.edges) else "edges",
            "logs": {"array": "logs", "dim": self.points.shape[1]} if self._has_planes else None,
            "anchors": {"numbers": self._anchors.tolist(), "array": "anchors"} if len(self) > 2 else None,
            "nearest": None,
            "neighbours": len(self) > 1,
            "thumbnails": self.vectors.thumbnail is not None,
            "aperture": None if self.vectors.aperture is None else "aperture",
            "colour": self._colour,
        }

    def array(self, name: str) -> bytes | None:
        """The bytes of an array that `meta` names; None where there is none."""
        make = self._arrays.get(name)
        if make is None:
            return None
        with self._lock:
            lock = self._locks.setdefault(name, Lock())
        with lock:  # two requests for a trained map train it once, and no other array waits for it
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    @property
    def names(self) -> list[str]:
        """Of all arrays."""
        return list(self._arrays)

    def neighbours(self, node: int, k: int = NEIGHBOURS) -> dict[str, list[Any]]:
        """The k nearest other points in the geometry of all dimensions, exactly as `dist` has them."""
        numbers, distances = self.nearest(torch.tensor([node]), k)
        return {"numbers": numbers[0].tolist(), "distances": distances[0].tolist()}

    def nearest(self, nodes: Tensor, k: int = NEIGHBOURS) -> tuple[Tensor, Tensor]:
        """Numbers and distances of the k nearest others of each.   (B,) -> (B, k), (B, k)"""
        with torch.no_grad():
            distances, numbers = nearest(self.points[nodes], self.points, self.manifold, k, but=nodes)
        return numbers, distances

    def thumbnail(self, node: int) -> bytes | None:
        """A small picture of a point as JPEG; None where there is none."""
        if self.vectors.thumbnail is None:
            return None
        with self._lock:  # readers of pictures are not made for two at once
            pixels = self.vectors.thumbnail(node)
        return None if pixels is None else jpeg(pixels)

    # -- arrays -----------------------------------------------------------------------------------------------------

    @cached_property
    def _arrays(self) -> dict[str, Callable[[], bytes]]:
        arrays: dict[str, Callable[[], bytes]] = {"labels": lambda: as_json(list(self.vectors.labels))}
        arrays |= {f"chart-{i}": self._chart(chart) for i, chart in enumerate(self.charts)}
        arrays |= {f"column-{i}": column.content for i, column in enumerate(self.columns)}
        graph, aperture = self.vectors.graph, self.vectors.aperture
        if graph is not None and len(graph.edges):
            arrays["edges"] = lambda: graph.edges.astype("<u4").tobytes()
        if self._has_planes:
            arrays["logs"] = lambda: self.manifold.lower(self.points).numpy().astype("<f4").tobytes()
        if len(self) > 2:
            arrays["anchors"] = self._distances_to_anchors
        if aperture is not None:
            arrays["aperture"] = lambda: aperture.detach().cpu().numpy().astype("<f4").tobytes()
        return arrays

    @staticmethod
    def _chart(chart: Chart) -> Callable[[], bytes]:
        return lambda: chart.coordinates.tobytes()

    @property
    def _has_planes(self) -> bool:
        """A product has no plane through two nodes; flat points on a sphere are shown on that."""
        if isinstance(self.manifold, Product) or (self.manifold.flat and self.charts[0].kind == "sphere"):
            return False
        return 2 < self.points.shape[1] <= PLANES // max(1, len(self))

    @cached_property
    def _anchors(self) -> np.ndarray:
        return np.sort(np.random.default_rng(0).choice(len(self), min(ANCHORS, len(self)), replace=False))

    def _distances_to_anchors(self) -> bytes:
        """(N, K) fp32"""
        with torch.no_grad():
            anchors = self.points[torch.from_numpy(self._anchors)]
            columns = [self.manifold.dist(self.points, anchor).float() for anchor in anchors]
        return torch.stack(columns, -1).numpy().astype("<f4", copy=False).tobytes()

    # -- columns ----------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> list[Column]:
        """Radius, what the graph says, then what came with the points."""
        with torch.no_grad():
            columns = [Column(RADIUS, self.manifold.dist0(self.points).tolist())]
        graph = self.vectors.graph
        if graph is not None and len(graph.edges):
            ends = np.bincount(graph.edges.ravel(), minlength=len(graph))
            own: dict[str, Sequence[Any]] = {"links": ends.tolist()}
            if graph.directed:
                depth = graph.depth()
                own = {"branch": branch_of(graph.edges, depth, graph.labels)[0], "depth": depth.tolist(), **own}
            columns += [Column(name, values, most=MOST) for name, values in own.items()]
        taken = {*(column.name for column in columns), DISTORTION}
        for name, values in self.vectors.columns.items():
            columns.append(Column(f"{name} (given)" if name in taken else name, values))
        return columns

    @property
    def _colour(self) -> str | None:
        """The first that parts most points into few kinds, else depth, else the radius."""
        for column in self.columns:
            common = Counter(column.values).most_common(COLOURS) if column.kind == "category" else []
            if len(common) > 1 and 2 * sum(count for _, count in common) > len(self):
                return column.name
        names = [column.name for column in self.columns]
        return "depth" if "depth" in names else RADIUS


class Column:
    """A value for each point: a number, one of few categories, or a text to read.

    >>> Column("kind", ["dog", "cat", None]).names
    ['cat', 'dog', '']
    >>> Column("age", [3, None]).kind
    'number'
    """

    def __init__(self, name: str, values: Sequence[Any], most: int = CATEGORIES):
        self.name, self.names = name, list[str]()
        self.values: list[Any] = [None if is_missing(value) else value for value in values]
        if all(value is None or _is_number(value) for value in self.values):
            self.kind = "number"
            return
        texts = ["" if value is None else str(value) for value in self.values]
        self.values, counts = list[Any](texts), Counter(texts)
        if len(counts) > most:
            self.kind = "text"
            return
        self.kind = "category"
        self.names = sorted(counts, key=lambda text: (text == "", text))  # "": of no category

    def meta(self, array: str) -> dict[str, Any]:
        names = {"names": self.names} if self.kind == "category" else {}
        return {"name": self.name, "kind": self.kind, "array": array, **names}

    def content(self) -> bytes:
        if self.kind == "text":
            return as_json(self.values)
        if self.kind == "category":
            code = {name: i for i, name in enumerate(self.names)}
            return np.array([code[value] for value in self.values], "<f4").tobytes()
        return np.array([math.nan if value is None else value for value in self.values], "<f4").tobytes()


def is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


# -- small things -----------------------------------------------------------------------------------------------------


def described(manifold: Manifold, dim: int) -> str:
    """A geometry in words."""
    many = f"{dim} dimension{'s' * (dim > 1)}"
    if isinstance(manifold, Product):
        parts = (described(m, d) for d, m in zip(manifold.dims, manifold.factors, strict=True))
        return f"product of {'; and '.join(parts)}"
    name = type(manifold).__name__.lower()
    if not isinstance(manifold, Curved):
        return f"{name}, {many}"
    return f"{name}, curvature {manifold.sign * float(manifold.c):.3g}, {many}"


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()  # ASCII: half characters of a token are no UTF-8


def jpeg(pixels: np.ndarray) -> bytes:
    """(h, w, 3) uint8"""
    require("pillow")
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def _checked(vectors: Vectors, name: str) -> Vectors:
    """Points that can be shown: finite, in their space, not too many, with as many of all that belongs to them."""
    points, count = vectors.points, len(vectors.labels)
    if points.ndim != 2 or not points.numel():
        shape = " x ".join(map(str, points.shape))
        raise UserError(f"{name}: points of the shape {shape or 'of one number'}; give a row of coordinates for each")
    if len(points) > MOST:
        raise UserError(f"{name}: {len(points):,} points; a page holds {MOST:,}. Give a part of them.")
    sizes: Mapping[str, int] = {
        "labels": count,
        "half-apertures": len(points) if vectors.aperture is None else len(vectors.aperture),
        "nodes of its graph": len(points) if vectors.graph is None else len(vectors.graph),
        **{f"values of the column {one_line(column)}": len(own) for column, own in vectors.columns.items()},
    }
    for what, size in sizes.items():
        if size != len(points):
            raise UserError(f"{name}: {size:,} {what} for {len(points):,} points; give one for each")
    lost = (~torch.isfinite(points)).any(-1)
    if lost.any():
        where = f"row {int(lost.nonzero()[0]) + 1} first"
        raise UserError(f"{name}: {int(lost.sum()):,} of {len(points):,} points are not finite, {where}; remove them")
    radius = vectors.manifold.dist0(points.detach().double())
    if radius.isfinite().all() and radius.max() > FARTHEST:
        raise UserError(
            f"{name}: points lie {radius.max():.3g} from the origin; a page draws up to {FARTHEST:g}. Scale them."
        )
    if not torch.isfinite(radius).all():
        raise UserError(f"{name}: some points lie outside their space, or at its rim; is this their geometry?")
    return vectors
