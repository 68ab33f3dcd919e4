"""Anybody's points from a file: .npz, .npy, .csv, .tsv, .parquet, .safetensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere.data import Graph
from horosphere.data.read import read_graph
from horosphere.errors import UserError, choices, one_line
from horosphere.explorer.charts import of_one_length
from horosphere.extras import require
from horosphere.foreign import Unreadable, opened, read_npy, read_npz, read_table, read_tensors
from horosphere.geometry import Manifold, Poincare, Sphere, geometry
from horosphere.train.vectors import Vectors

FORMATS = (".npz", ".npy", ".csv", ".tsv", ".parquet", ".safetensors")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
F64 = torch.float64
COORDINATE = re.compile(r"x[0-9]+")  # as `horosphere export` calls them
POINTS, EDGES = "points", "edges"
LABELS = ("labels", "label", "name", "title", "id")  # columns that name points, the surest first
FIRST = 6  # names that a message lists
CELLS = 2**25  # of a Parquet file, which may be small and hold millions
Columns = dict[str, list[Any]]


def read_points(
    path: str | Path,
    space: str = "euclidean",
    c: float | None = None,
    labels: str | Path | None = None,
    edges: str | Path | None = None,
    coordinates: Sequence[str] = (),
) -> Vectors:
    """Points of a file, with what else it holds: a label, and columns to colour by.

    space, c: the name of their geometry, and its curvature -c (of a sphere +c).
    An archive of arrays holds `points` (N, d), or one matrix of numbers; every list of N is a column, `labels` are
    labels, `edges` (E, 2) are pairs of rows. A table has a column for each coordinate, x1, x2, …, or those that
    `coordinates` names; the others are columns. The label is the column label, name, title or id, else the first whose
    texts all differ.
    labels: a file with a label a line, or a table whose first column is the label and whose others are columns.
    edges: a graph between the labels, in a format that `horosphere embed` reads.
    """
    path = Path(path)
    try:
        points, columns, pairs = _read(path, coordinates)
    except Unreadable as error:
        raise UserError(f"{path}: {error}; {_remedy(str(error))}") from None
    count = len(points)
    called = _names(columns)
    if labels is not None:
        called, more = read_labels(labels, count, path)
        columns |= more
    texts = [str(i) for i in range(1, count + 1)] if called is None else [str(label) for label in called]
    graph = None if pairs is None else Graph(texts, pairs, directed=False)
    if edges is not None:
        graph = _graph(Path(edges), texts)
    return Vectors(texts, *in_space(path, points, space, c), graph, columns)


def in_space(path: Path | str, points: Tensor, name: str, c: float | None = None) -> tuple[Tensor, Manifold]:
    """Points as the geometry of this name stores them. Those of a sphere are given as vectors of one length.

    >>> in_space("points", torch.tensor([[0.0, 0.0, 2.0], [0.0, 2.0, 0.0]]), "sphere", 1.0)[0]
    tensor([[0., 0.],
            [0., 1.]])
    """
    if points.ndim != 2:
        return points, geometry(name, 1, 1.0)  # which says so
    if c is not None and name == "euclidean":
        raise UserError("flat space has no --curvature: leave it out, or name a --geometry")
    c = 1.0 if c is None else c
    if name == "sphere":
        lengths = points.double().norm(dim=1)
        if points.shape[1] < 2 or not len(points) or not of_one_length(lengths.numpy()):
            how = "give vectors from the middle of the sphere, all equally long (its radius is that of --curvature)"
            raise UserError(f"{path}: points of a sphere differ in length; {how}")
        sphere = Sphere(c)
        return sphere.of_vector(points / lengths.to(points)[:, None]), sphere
    manifold = geometry(name, points.shape[1], c)
    if isinstance(manifold, Poincare) and (outside := (points.norm(dim=1) >= c**-0.5).nonzero()).numel():
        row = int(outside[0]) + 1
        raise UserError(
            f"{path}: point {row} lies outside the Poincaré ball of radius {c**-0.5:.4g} (c = {c:g}); "
            "give --geometry lorentz for space components on the hyperboloid, or another --curvature"
        )
    return points, manifold


def _remedy(said: str) -> str:
    if "Python objects" in said:
        return "save texts as such: labels.astype(str)"
    if "UTF-8" in said or "utf-8" in said:
        return "save it as UTF-8"
    return f"give a file of points in one of {', '.join(FORMATS)}"


def _names(columns: Columns) -> list[Any] | None:
    """The column that names the points, which then is no column any more."""
    by_name = {name.lower(): name for name in columns}
    for name in LABELS:
        if name in by_name:
            return columns.pop(by_name[name])
    for name, values in columns.items():
        if values and all(isinstance(value, str) for value in values) and len(set(values)) == len(values):
            return columns.pop(name)
    return None


def _read(path: Path, coordinates: Sequence[str]) -> tuple[Tensor, Columns, np.ndarray | None]:
    match path.suffix:
        case ".npz":
            return _from_arrays(path, read_npz(path))
        case ".safetensors":
            whole = {name: own.double() if own.is_floating_point() else own for name, own in read_tensors(path).items()}
            return _from_arrays(path, {name: own.numpy() for name, own in whole.items()})
        case ".npy":
            return _from_arrays(path, {POINTS: read_npy(path)})
        case ".csv" | ".tsv":
            header, rows = _table(path)
            columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
            return *_from_columns(path, columns, coordinates), None
        case ".parquet":
            return *_from_columns(path, _parquet(path), coordinates), None
    raise UserError(f"{path}: neither a run nor a file of points; give one of {', '.join(FORMATS)}")


def _from_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[Tensor, Columns, np.ndarray | None]:
    matrices = [name for name, own in arrays.items() if own.ndim == 2 and own.dtype.kind == "f"]
    if POINTS not in arrays and len(matrices) != 1:
        held = ", ".join(one_line(name) for name in arrays) or "nothing"
        raise UserError(f"{path}: it holds {held}; call the matrix of coordinates {POINTS}")
    name = POINTS if POINTS in arrays else matrices[0]
    points = arrays[name]
    if points.ndim != 2 or points.dtype.kind not in "fiu":
        shape = " x ".join(map(str, points.shape))
        raise UserError(f"{path}: {one_line(name)} is {shape} of {points.dtype}; give a row of numbers for each point")
    pairs = arrays.get(EDGES)
    if pairs is not None and (pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu"):
        raise UserError(f"{path}: {EDGES} should be pairs of rows, whole numbers of the shape (E, 2)")
    others = {name: own for name, own in arrays.items() if own.ndim == 1}
    if wrong := [name for name, own in others.items() if len(own) != len(points)]:
        many = f"{len(others[wrong[0]]):,} values for {len(points):,} points"
        raise UserError(f"{path}: {one_line(wrong[0])} has {many}; give one for each")
    columns = {name: own.tolist() for name, own in others.items()}
    return torch.from_numpy(points.astype(np.float64)), columns, pairs


def _from_columns(path: Path, columns: Columns, coordinates: Sequence[str]) -> tuple[Tensor, Columns]:
    names = list(coordinates) or [name for name in columns if COORDINATE.fullmatch(name)]
    if not names:
        there = ", ".join(one_line(name, 40) for name in [*columns][:FIRST]) + ", …" * (len(columns) > FIRST)
        how = "name those of the coordinates with --coordinates; a list of edges is for `horosphere embed`"
        raise UserError(f"{path}: no columns x1, x2, … (but {there}); {how}")
    if missing := [name for name in names if name not in columns]:
        raise UserError(f'{path}: no column "{one_line(missing[0])}"; {choices(missing[0], list(columns))}')
    cells = ((name, enumerate(columns[name], start=2)) for name in names)
    points = torch.tensor([[_number(path, name, line, value) for line, value in own] for name, own in cells], dtype=F64)
    return points.T.contiguous(), {name: _values(own) for name, own in columns.items() if name not in names}


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    rows = read_table(path, delimiter=DELIMITERS.get(path.suffix, ","))
    if not rows:
        raise UserError(f"{path}: the table is empty")
    (_, header), *others = rows
    if twice := [name for name, times in Counter(header).items() if times > 1]:
        raise UserError(f'{path}: two columns are called "{one_line(twice[0])}"; rename one')
    for line, row in others:
        if len(row) != len(header):
            how = "; is it separated by semicolons? Save it with commas" if ";" in "".join(header) else ""
            raise UserError(f"{path} line {line}: {len(row)} cells below {len(header)} columns{how}")
    return header, [row for _, row in others]


def _parquet(path: Path) -> Columns:
    require("parquet")
    from pyarrow import parquet

    with opened(path):
        pass  # a regular file
    try:
        file = parquet.ParquetFile(path)
        cells = file.metadata.num_rows * file.metadata.num_columns
        if cells > CELLS:
            raise Unreadable(f"{cells:,} cells, and at most {CELLS:,} are read")
        columns: Columns = file.read().to_pydict()
    except Unreadable:
        raise
    except Exception as error:  # pyarrow, and what it calls for times, raise whatever they run into
        raise Unreadable(one_line(error)) from error
    return columns


def _number(path: Path, name: str, line: int, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        where = f'{path} line {line}, column "{one_line(name)}"'
        said = "an empty cell" if value in ("", None) else f'"{one_line(value, 40)}"'
        raise UserError(f"{where}: {said} is no number") from None


def _values(texts: list[Any]) -> list[Any]:
    """Numbers where all that is there are numbers; an empty cell is a missing value."""
    known = [None if text == "" else text for text in texts]
    try:
        return [None if value is None else float(value) if isinstance(value, str) else value for value in known]
    except ValueError:
        return known


def read_labels(path: str | Path, count: int, of: Path) -> tuple[list[str], Columns]:
    """A label a line; or a table with a header, whose first column is the label."""
    path = Path(path)
    try:
        rows = read_table(path, delimiter=DELIMITERS.get(path.suffix, "\t"))
    except Unreadable as error:
        raise UserError(f"{path}: {error}; give a text file with a label a line") from None
    wide = bool(rows) and len(rows[0][1]) > 1
    if len(rows) == count and not wide:
        return [row[0] if row else "" for _, row in rows], {}
    if len(rows) != count + 1:
        headed = f" below a header of {len(rows[0][1])} columns" if wide else ""
        many = len(rows) - wide
        raise UserError(f"{path}: {many:,} labels{headed} for the {count:,} points of {of}; give one for each")
    header, cells = _table(path)
    columns = {name: _values([row[i] for row in cells]) for i, name in enumerate(header) if i}
    return [row[0] for row in cells], columns


def _graph(path: Path, labels: list[str]) -> Graph:
    """A hierarchy where the file holds one, else a graph; its nodes are labels of points."""
    try:
        graph = read_graph(path, unique=True)
    except UserError as error:
        if "cycle" not in str(error):
            raise
        graph = read_graph(path, directed=False, unique=True)
    number = {label: i for i, label in enumerate(labels)}
    if len(number) < len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        how = "edges by label do not say which is meant: give each its own"
        raise UserError(f'{path}: two points are called "{one_line(twice, 60)}", so {how}')
    if unknown := [label for label in graph.labels if label not in number]:
        near = get_close_matches(unknown[0], labels, 1)
        called = (
            f'did you mean "{one_line(near[0], 60)}"?' if near else f'the first is called "{one_line(labels[0], 60)}"'
        )
        raise UserError(f'{path}: no point is called "{one_line(unknown[0], 60)}"; {called} (--labels names points)')
    rows = np.array([number[label] for label in graph.labels])
    return Graph(labels, rows[graph.edges], graph.directed)
