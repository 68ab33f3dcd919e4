"""Labelled points of a run: for the explorer, for tables, and for TensorBoard's embedding projector."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from horosphere.data import Graph
from horosphere.extras import require
from horosphere.geometry import Lorentz, Manifold, Poincare, Product, Sphere, lorentz_to_poincare
from horosphere.geometry.manifold import Curved

Coordinates = Literal["own", "ball"]
COMMANDS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a cell that begins so for a formula, and runs it
OWN = {
    "Lorentz": "space components on the hyperboloid",
    "Poincare": "the Poincaré ball",
    "Sphere": "stereographic on the sphere",
}


@dataclass(frozen=True)
class Vectors:
    """Points (N, d) of a manifold, with their labels.

    >>> from horosphere.geometry import Euclidean
    >>> print(Vectors(["a", "=b"], torch.tensor([[0.0, 0.5], [2.0, 0.0]]), Euclidean()).as_csv().decode())
    label,x1,x2
    a,0.0,0.5
    '=b,2.0,0.0
    <BLANKLINE>
    """

    labels: Sequence[str]
    points: Tensor
    manifold: Manifold
    graph: Graph | None = None  # how they are related, with the same labels
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # by name: a number or a text for each point
    thumbnail: Callable[[int], np.ndarray | None] | None = None  # of a point by its number: (h, w, 3) uint8
    aperture: Tensor | None = None  # (N,) half-apertures of entailment cones, in radians

    def coordinates(self, which: Coordinates) -> Tensor:
        """own: as they are stored. ball: hyperbolic parts in the Poincaré ball, scaled to radius 1.   -> (N, d)

        The ball has a sphere around it: parts on a sphere are unit vectors there, in one number more.
        """
        return self.points if which == "own" else _in_ball(self.points, self.manifold)

    def said(self, which: Coordinates) -> str:
        """What the coordinates are, in words."""
        return _said(self.manifold, which)

    def as_csv(self, which: Coordinates = "own") -> bytes:
        """A header, then a row for each label. One that a spreadsheet would run gets an apostrophe in front."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        points = self.coordinates(which)
        writer.writerow(["label", *_names(points)])
        safe = ("'" * label.startswith(COMMANDS) + label for label in self.labels)
        writer.writerows([label, *map(repr, row)] for label, row in zip(safe, points.tolist(), strict=True))
        return stream.getvalue().encode()

    def as_parquet(self, which: Coordinates = "own") -> bytes:
        """The same columns. The file's metadata say what the coordinates are."""
        require("parquet")
        import pyarrow as pa
        from pyarrow import parquet

        points = self.coordinates(which)
        columns = dict(zip(_names(points), points.cpu().numpy().T, strict=True))
        table = pa.table({"label": list(self.labels), **columns})
        stream = pa.BufferOutputStream()
        parquet.write_table(table.replace_schema_metadata({"coordinates": self.said(which)}), stream)
        content: bytes = stream.getvalue().to_pybytes()
        return content

    def as_projector(self, which: Coordinates = "ball") -> dict[str, bytes]:
        """{file: content} of TensorBoard's embedding projector. One column of labels has no header there."""
        rows = self.coordinates(which).tolist()
        tensors = "".join("\t".join(map(repr, row)) + "\n" for row in rows)
        labels = "".join(" ".join(label.split()) + "\n" for label in self.labels)  # no tabs, no ends of lines
        return {"tensors.tsv": tensors.encode(), "metadata.tsv": labels.encode()}


def _names(points: Tensor) -> list[str]:
    return [f"x{i}" for i in range(1, points.shape[1] + 1)]


def _in_ball(x: Tensor, manifold: Manifold) -> Tensor:
    if isinstance(manifold, Product):
        return torch.cat([_in_ball(own, m) for own, m in zip(manifold.split(x), manifold.factors, strict=True)], -1)
    if isinstance(manifold, Sphere):
        return manifold.vector(x)
    if isinstance(manifold, Lorentz):
        return lorentz_to_poincare(x, manifold.c) * manifold.c**0.5
    return x * manifold.c**0.5 if isinstance(manifold, Poincare) else x


def _said(manifold: Manifold, which: Coordinates) -> str:
    if isinstance(manifold, Product):
        more = [which == "ball" and isinstance(m, Sphere) for m in manifold.factors]
        parts = zip(manifold.dims, more, manifold.factors, strict=True)
        return "; then ".join(f"{d + one} of {_said(m, which)}" for d, one, m in parts)
    if manifold.flat:
        return "flat coordinates"
    in_ball = "unit vectors of the sphere" if isinstance(manifold, Sphere) else "the Poincaré ball of radius 1"
    name = in_ball if which == "ball" else OWN[type(manifold).__name__]
    return f"{name}, curvature {cast(Curved, manifold).sign * float(manifold.c):.4g}"
