"""Tables of numbers and the column to be answered: .csv and .tsv files, and scikit-learn's own."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import require
from horosphere.files import write_whole
from horosphere.foreign import Unreadable, csv_rows, printable, read_json, read_table

DELIMITER = {".csv": ",", ".tsv": "\t"}
SKLEARN = ("iris", "wine", "breast_cancer", "diabetes", "digits")
LAST, NONE = "last", "none"  # targets: the last column; no column
HELD_OUT = 5  # every fifth row is held out
LARGEST = 1e100  # of a number: its square must be one, too
SMALLEST = 1e-100  # of a spread, likewise
UNANSWERED = {"", "?", "na", "n/a", "nan", "null"}
MISSING = {*UNANSWERED, "-", "none"}  # in place of a number; either may be the name of a class


@dataclass(frozen=True, eq=False)
class Table:
    """N rows of F numbers, and beside each the text of its answer.

    >>> table = Table("here", np.zeros((3, 2)), ["a", "b"], ["cat", "dog", "cat"], "animal")
    >>> table.labels, table.classes
    (array([0, 1, 0]), ['cat', 'dog'])
    """

    source: str
    x: np.ndarray  # (N, F) float64
    columns: list[str]  # names of the F
    answers: list[str] | None = None  # N of them
    target: str = ""  # the name of their column
    lines: list[int] | None = None  # of the file that the rows stand in

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def classes(self) -> list[str]:
        """The different answers, numbers among themselves in their order.

        >>> Table("here", np.zeros((3, 1)), ["a"], ["10", "9", "10"]).classes
        ['9', '10']
        """
        names = sorted(set(self.answers or ()))
        numbers = [_number(name) for name in names]
        are_numbers = all(map(math.isfinite, numbers))
        if are_numbers:
            names = [name for _, name in sorted(zip(numbers, names, strict=True))]
        if len(names) < 2:
            found = f'only "{one_line(names[0])}"' if names else "no answers"
            raise UserError(f"{self.source}: the column {self.target} has {found}; to tell classes apart, give two")
        measured = are_numbers and len(names) > 20  # of a class, every fifth row is held out: give it five
        if 2 < len(names) > len(self) / (5 if measured else 2):
            what = f"{len(names)} classes in {len(self)} rows"
            how = "learn a number with model=linear-regression, or name another column with target=…"
            raise UserError(f"{self.source}: the column {self.target} has {what}; {how}")
        return names

    @property
    def labels(self) -> np.ndarray:
        """The number of each row's class.   -> (N,) int64"""
        number = {name: i for i, name in enumerate(self.classes)}
        return np.array([number[answer] for answer in self.answers or ()], dtype=np.int64)

    @property
    def numbers(self) -> np.ndarray:
        """The answers as numbers.   -> (N,) float64

        >>> Table("here", np.zeros((2, 1)), ["a"], ["1.5", "2"]).numbers
        array([1.5, 2. ])
        """
        values = np.array([_number(answer) for answer in self.answers or ()])
        if not (fine := np.isfinite(values)).all():
            row = int(fine.argmin())
            line = self.lines[row] if self.lines else row + 1
            raise UserError(_no_number(self.source, line, self.target, (self.answers or [])[row]))
        return values

    def held_out(self, labels: np.ndarray | None = None) -> np.ndarray:
        """Which rows are judged by: every fifth, or with labels every fifth of each class.   -> (N,) bool

        >>> Table("here", np.zeros((6, 1)), ["a"]).held_out()
        array([False, False, False, False,  True, False])
        """
        labels = np.zeros(len(self), dtype=np.int64) if labels is None else labels
        order = np.argsort(labels, kind="stable")
        place = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
        held = np.empty(len(order), dtype=bool)
        held[order] = place % HELD_OUT == HELD_OUT - 1
        return held


def open_table(source: str, target: str = LAST) -> Table:
    """The table of a .csv or .tsv file (.gz too), or scikit-learn's of this name: "builtin:wine".

    target: the column of the answers, by its name in the header; "last": the last one; "none": there is none.
    A file has a header where its first line holds no number but perhaps in its last column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("height,weight,kind\\n1.5,2,cat\\n0.5,1,mouse\\n")
    ...     table = open_table(f"{folder}/a.csv")
    >>> table.columns, table.x.tolist(), table.answers
    (['height', 'weight'], [[1.5, 2.0], [0.5, 1.0]], ['cat', 'mouse'])
    """
    if source.startswith(BUILTIN):
        return _of_sklearn(source, target)
    kind = Path(source.removesuffix(".gz")).suffix.lower()
    if kind not in DELIMITER:
        names = ", ".join(f"{BUILTIN}{name}" for name in SKLEARN)
        raise UserError(f"{source}: no table; give a .csv or .tsv file, or one of {names}")
    try:
        rows = read_table(source, delimiter=DELIMITER[kind])
    except Unreadable as error:
        raise UserError(f"{source}: {error}; give a .csv or .tsv file in UTF-8") from error
    return _of_rows(source, [(line, [cell.strip() for cell in row]) for line, row in rows], target)


def _of_rows(source: str, rows: list[tuple[int, list[str]]], target: str) -> Table:
    names, rows = _header(source, rows, target)
    if not rows:
        raise UserError(f"{source}: it has no rows of numbers; give it some")
    for line, row in rows:
        if len(row) != len(names):
            raise UserError(f"{source} line {line}: {len(row)} columns, and {len(names)} above; make them as many")
    lines, cells = [line for line, _ in rows], [row for _, row in rows]
    place = _place(source, names, target)
    if place is None:
        return Table(source, _numbers(source, lines, names, cells), names, lines=lines)
    answers, head = [printable(row.pop(place)) for row in cells], names.pop(place)
    if not names:
        raise UserError(f"{source}: it has one column only; give it numbers and a column of answers")
    for line, answer in zip(lines, answers, strict=True):
        if answer.lower() in UNANSWERED:
            raise UserError(f"{source} line {line}: no answer in the column {head}; fill it in, or remove the line")
    return Table(source, _numbers(source, lines, names, cells), names, answers, head, lines)


def _header(
    source: str, rows: list[tuple[int, list[str]]], target: str
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, "column 1" where the file has none; and the rows below."""
    first = rows[0][1] if rows else []
    named = bool(first) and not any(_is_number(cell) or cell.lower() in MISSING for cell in first[:-1] or first)
    if target not in (LAST, NONE) and target in first:
        named = True
    if not named:
        return [f"column {i + 1}" for i in range(len(first))], rows
    names = [one_line(printable(cell), 60) for cell in first]
    if again := [name for i, name in enumerate(names) if name in names[:i]]:
        raise UserError(f'{source} line {rows[0][0]}: two columns are named "{again[0]}"; rename one')
    return names, rows[1:]


def _place(source: str, names: list[str], target: str) -> int | None:
    """Where the answers stand."""
    if target in names:
        return names.index(target)
    if target == NONE:
        return None
    if target != LAST:
        raise UserError(f"target={target}: {source} has no such column; {choices(target, names)}")
    return len(names) - 1


def _numbers(source: str, lines: list[int], names: list[str], cells: list[list[str]]) -> np.ndarray:
    try:
        x = np.array(cells, dtype=np.float64)
    except ValueError:
        x = np.array([[_number(cell) for cell in row] for row in cells])
    fine = np.abs(x) <= LARGEST
    if not fine.all():
        row, column = (int(place) for place in np.argwhere(~fine)[0])
        raise UserError(_no_number(source, lines[row], names[column], cells[row][column]))
    return x


def _no_number(source: str, line: int, column: str, cell: str) -> str:
    where = f"{source} line {line}, column {one_line(column, 60)}"
    if cell.lower() in MISSING:
        return f"{where}: a number is missing; fill it in, or remove the line"
    if _is_number(cell):
        return f"{where}: {one_line(cell, 40)} is too large; correct it, or remove the line"
    return f'{where}: "{one_line(cell, 40)}" is no number; correct it, or remove the column'


def _number(cell: str) -> float:
    """NaN for what is none."""
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if abs(value) <= LARGEST else math.nan


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False


def _of_sklearn(source: str, target: str) -> Table:
    name = source.removeprefix(BUILTIN)
    if name not in SKLEARN:
        raise UserError(f"{source}: no such table comes with a package; {choices(name, SKLEARN)}")
    if target not in (LAST, NONE):
        raise UserError(f"target={target}: the answers of {source} are its last column; leave target out")
    require("sklearn")
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    kinds = getattr(bunch, "target_names", None)
    answers = [str(y) if kinds is None else str(kinds[y]) for y in bunch.target]
    table = Table(source, np.asarray(bunch.data, dtype=np.float64), [str(column) for column in bunch.feature_names])
    return table if target == NONE else replace(table, answers=answers, target="target")


# -- scales -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x - shift)/scale, column by column, fitted on the rows that are learned from.   (N, F) -> (N, F)

    >>> x = np.array([[1.0, 7.0], [3.0, 7.0]])  # the second column never changes: it becomes 0, or the lowest value
    >>> Scaling.standard(x)(x).tolist(), Scaling.ranged(x, -1, 1)(x).tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[-1.0, -1.0], [1.0, -1.0]])
    """

    shift: np.ndarray  # (F,)
    scale: np.ndarray  # (F,) positive

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return (x - self.shift) / self.scale

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Back to what it was.

        >>> scaling = Scaling(np.array([2.0]), np.array([4.0]))
        >>> scaling.inverse(scaling(np.array([[10.0]])))
        array([[10.]])
        """
        return z * self.scale + self.shift

    @staticmethod
    def standard(x: np.ndarray) -> Scaling:
        """(x - μ)/σ: mean 0 and standard deviation 1."""
        spread = x.std(0)
        still = (x.max(0) == x.min(0)) | (spread < SMALLEST)  # σ of equal numbers may be a rounding error
        return Scaling(np.where(still, x.max(0), x.mean(0)), np.where(still, 1.0, spread))

    @staticmethod
    def ranged(x: np.ndarray, low: float = 0.0, high: float = 1.0) -> Scaling:
        """low + (high - low)(x - min)/(max - min)"""
        least, span = x.min(0), x.max(0) - x.min(0)
        scale = np.where(span < SMALLEST, 1.0, span) / (high - low)
        return Scaling(least - low * scale, scale)

    def shrunk(self, by: float) -> Scaling:
        """What comes out is divided by this.

        >>> Scaling(np.zeros(1), np.ones(1)).shrunk(4.0)(np.array([[8.0]]))
        array([[2.]])
        """
        return Scaling(self.shift, self.scale * by)

    @staticmethod
    def of_unit_length(x: np.ndarray) -> Scaling:
        """Standard, divided by √F: rows of F numbers are about 1 from the origin, however many columns there are.

        A curved space has room near its radius of curvature. Rows of 64 standard columns would lie 8 out.

        >>> rows = np.random.default_rng(0).normal(size=(1000, 64))
        >>> float(np.linalg.norm(Scaling.of_unit_length(rows)(rows), axis=1).mean().round(1))
        1.0
        """
        return Scaling.standard(x).shrunk(math.sqrt(x.shape[1]))

    def lists(self) -> list[list[float]]:
        """Shift and scale, for a file.

        >>> Scaling(np.zeros(1), np.ones(1)).lists()
        [[0.0], [1.0]]
        """
        return [self.shift.tolist(), self.scale.tolist()]

    @staticmethod
    def of_lists(lists: list[list[float]]) -> Scaling:
        """What `lists` gave."""
        shift, scale = (np.array(part, dtype=np.float64) for part in lists)
        return Scaling(shift, scale)

    def of(self, columns: int) -> bool:
        """Whether it fits so many columns: after a file was read.

        >>> Scaling(np.zeros(2), np.ones(2)).of(2), Scaling(np.zeros(2), np.zeros(2)).of(2)
        (True, False)
        """
        shapes = self.shift.shape == self.scale.shape == (columns,)
        return shapes and bool(np.isfinite(self.shift).all() and (self.scale > 0).all() and (self.scale < np.inf).all())


# -- what a trained model keeps of its table --------------------------------------------------------------------------

SCHEMA = "table.json"


def asked_rows(lines: list[str], columns: list[str]) -> tuple[list[str], np.ndarray]:
    """Rows of these columns, from lines whose cells commas or tabs separate: the lines, and their numbers (N, F).

    A first line that names all columns says in which order they come, and may name others.

    >>> asked_rows(["b,a,c", "1,2,3"], ["a", "b"])[1]
    array([[2., 1.]])
    """
    kind = "\t" if "\t" in lines[0] else ","
    try:
        rows = (row for line in lines for _, row in csv_rows([line], delimiter=kind))  # no quotes across rows
        cells = [[cell.strip() for cell in row] for row in rows]
    except Unreadable as error:
        raise UserError(f"the rows: {error}; give each row as an input of its own, with commas or tabs") from error
    names, width = columns, len(columns)
    if set(columns) <= set(cells[0]):
        names, lines, cells = cells[0], lines[1:], cells[1:]
        if again := [name for name in columns if names.count(name) > 1]:
            raise UserError(f'the rows: two columns are named "{one_line(again[0], 60)}"; rename one')
        width = len(names)
        if not lines:
            raise UserError("the rows: a header and no row; give some")
    for number, (line, row) in enumerate(zip(lines, cells, strict=True), 1):
        if len(row) != width:
            asked = f"{width} as the header has" if names is not columns else one_line(", ".join(columns))
            raise UserError(f'row {number}, "{one_line(line, 40)}": {len(row)} columns; give {asked}')
    places = [names.index(name) for name in columns]
    chosen = [[row[place] for place in places] for row in cells]
    return lines, _numbers("the rows,", list(range(1, len(chosen) + 1)), columns, chosen)


@dataclass(frozen=True, eq=False)
class Schema:
    """Names and scales of a table: what turns new rows into what a model has learned, and its answers into words."""

    columns: list[str]
    target: str
    classes: list[str]  # none where the answer is a number, or nothing
    scaling: Scaling
    answers: Scaling  # of the one column of answers that are numbers
    rows: int  # that were learned from

    def write(self, folder: Path) -> None:
        about = {"columns": self.columns, "target": self.target, "classes": self.classes, "rows": self.rows}
        scales = {"scaling": self.scaling.lists(), "answers": self.answers.lists()}
        write_whole(folder / SCHEMA, json.dumps({**about, **scales}).encode())

    @staticmethod
    def read(folder: Path) -> Schema:
        try:
            held = read_json(folder / SCHEMA)
            for name, kind in (("target", str), ("rows", int), ("columns", list), ("classes", list)):
                if not isinstance(held.get(name), kind):
                    raise Unreadable(f"it has no {name}")
            names = [*held["columns"], *held["classes"]]
            if not all(isinstance(name, str) for name in names):
                raise Unreadable("it has names that are no text")
            scaling, answers = (Scaling.of_lists(held[name]) for name in ("scaling", "answers"))
            if not scaling.of(len(held["columns"])) or not answers.of(1) or held["rows"] < 1:
                raise Unreadable("its scales are none")
            return Schema(held["columns"], held["target"], held["classes"], scaling, answers, held["rows"])
        except (Unreadable, ValueError, TypeError, LookupError) as error:
            raise UserError(f"{folder / SCHEMA}: a damaged file ({one_line(error)}); train the model again") from error
