"""Pictures with captions: one each, or a chain from general to specific ("dog => poodle => poodle on a lawn")."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlparse

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.foreign import Unreadable, csv_rows, is_text, lines_of, opened, parse_json, shown

SEPARATOR = "=>"  # between the captions of a chain
CAPTION_COLUMNS = ("captions", "caption", "text")
PICTURE_COLUMNS = ("image", "file", "file_name", "image_url", "url")
USED = {*CAPTION_COLUMNS, *PICTURE_COLUMNS}
KINDS = (".csv", ".tsv", ".jsonl")


@dataclass(frozen=True, eq=False)
class Captions:
    """N chains of L captions, and the pictures they are of."""

    chains: list[tuple[str, ...]]
    pictures: list[Path]  # M, each once
    of: np.ndarray  # (N,) the picture of each chain

    @property
    def levels(self) -> int:
        return len(self.chains[0])

    def __len__(self) -> int:
        return len(self.chains)

    @property
    def texts(self) -> list[str]:
        """All captions, chain by chain."""
        return [text for chain in self.chains for text in chain]

    def tree(self) -> CaptionTree:
        """Captions of one wording and one level are one."""
        numbers: dict[tuple[int, str], int] = {}
        chains = [[numbers.setdefault(place, len(numbers)) for place in enumerate(chain)] for chain in self.chains]
        links = {link for chain in chains for link in pairwise(reversed(chain))}
        below = {(len(numbers) + picture, chain[-1]) for picture, chain in zip(self.of.tolist(), chains, strict=True)}
        first = np.unique(np.array(chains), return_index=True)[1]
        return CaptionTree([*numbers], first, np.array(sorted(links | below)))

    def part(self, numbers: np.ndarray) -> Captions:
        """These chains, and the pictures they are of."""
        known, of = np.unique(self.of[numbers], return_inverse=True)
        return Captions([self.chains[n] for n in numbers], [self.pictures[n] for n in known], of)


@dataclass(frozen=True, eq=False)
class CaptionTree:
    """C captions and M pictures as nodes, each picture below the last caption of its chain.

    >>> chains = [("dog", "poodle"), ("dog", "puppy")]
    >>> tree = Captions(chains, [Path("a.jpg"), Path("b.jpg")], np.array([0, 1])).tree()
    >>> tree.captions, tree.edges.tolist()  # the pictures are nodes 3 and 4
    ([(0, 'dog'), (1, 'poodle'), (1, 'puppy')], [[1, 0], [2, 0], [3, 1], [4, 2]])
    """

    captions: list[tuple[int, str]]  # level, from 0 the most general, and text
    first: np.ndarray  # (C,) where each stands among the `texts`, for the first time
    edges: np.ndarray  # (E, 2) child, parent


def read_captions(path: str | Path) -> Captions:
    """A .csv, .tsv or .jsonl file, or the folder that holds it.

    A row has captions (a column called captions, caption or text) and the name of a picture (image, file, file_name, or
    the end of image_url). Pictures lie beside the file, or in images/.
    """
    file = _file(Path(path))
    places = (file.parent / "images", file.parent)
    chains: list[tuple[str, ...]] = []
    numbers: dict[Path, int] = {}
    called: dict[Path, str] = {}
    of = []
    for line, row in _rows(file):
        text, name = (_cell(row, columns, file, line) for columns in (CAPTION_COLUMNS, PICTURE_COLUMNS))
        chain = tuple(part.strip() for part in text.split(SEPARATOR))
        if not is_text(text):
            raise UserError(f"{file}, line {line}: a caption has half a character (a surrogate); mend it")
        if not all(chain):
            how = f"write general {SEPARATOR} specific"
            raise UserError(f"{file}, line {line}: a caption is empty in {shown(text)}; {how}")
        if chains and len(chain) != len(chains[0]):
            how = f"the first row has {len(chains[0])}; separate as many by {SEPARATOR} everywhere"
            raise UserError(f"{file}, line {line}: {len(chain)} captions; {how}")
        picture = _picture(name, places)
        if picture is None:
            where = f"in {places[0]} or beside the file"
            raise UserError(f"{file}, line {line}: there is no picture {one_line(name)} {where}")
        if called.setdefault(picture, name) != name:
            how = "give each picture one name"
            raise UserError(
                f"{file}, line {line}: {one_line(name)} and {one_line(called[picture])} are the same file; {how}"
            )
        chains.append(chain)
        of.append(numbers.setdefault(picture, len(numbers)))
    if not chains:
        raise UserError(f"{file}: no captions in it; a row has a caption and a picture")
    return Captions(chains, list(numbers), np.array(of))


def _picture(name: str, places: tuple[Path, ...]) -> Path | None:
    """Below one of the places, and nowhere else: by its path there, or by the last part of that or of an address."""
    try:
        path = PurePosixPath(urlparse(name).path).name if "://" in name else name
        whole, last = PurePosixPath(path), PurePosixPath(path).name
        inside = not whole.is_absolute() and ".." not in whole.parts
        ways = [*([str(whole)] if inside else []), last]
        return next((place / way for way in ways for place in places if last and (place / way).is_file()), None)
    except (OSError, ValueError):  # a name too long for a file, an address that is none
        return None


def _file(path: Path) -> Path:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in KINDS)
        if len(files) != 1:
            raise UserError(f"{path}: {len(files)} files of captions ({', '.join(KINDS)}); name one of them")
        return files[0]
    if path.suffix not in KINDS:
        raise UserError(f"{path}: captions are read from {', '.join(KINDS)}")
    if not path.is_file():
        raise UserError(f"{path}: no such file; check the path")
    return path


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, {column: cell}); the first line of a table is its head."""
    try:
        with opened(file) as stream:
            yield from _json_rows(stream) if file.suffix == ".jsonl" else _table_rows(stream, file.suffix)
    except Unreadable as error:
        raise UserError(f"{file}: a damaged file ({error}); mend it") from error


def _json_rows(stream: IO[bytes]) -> Iterator[tuple[int, dict[str, str]]]:
    for line, content in enumerate(lines_of(stream), start=1):
        try:
            row = parse_json(content)
        except Unreadable as error:
            raise Unreadable(f"line {line}: {error}") from error
        if not isinstance(row, dict):
            raise Unreadable(f"line {line} is no object")
        yield line, {key: _text(value, key, line) for key, value in row.items() if key in USED}


def _table_rows(stream: IO[bytes], kind: str) -> Iterator[tuple[int, dict[str, str]]]:
    text = lines_of(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
    rows = csv_rows(text, delimiter="," if kind == ".csv" else "\t")
    _, head = next(rows, (0, []))
    if len(set(head)) < len(head):
        raise Unreadable("two columns of one name")
    for line, cells in rows:
        if len(cells) > len(head):  # a comma in a caption, perhaps, behind which the rest would be lost
            raise Unreadable(f"line {line}: {len(cells)} cells for {len(head)} columns; put captions in quotes")
        yield line, dict(zip(head, [*cells, *[""] * (len(head) - len(cells))], strict=True))


def _text(value: object, key: str, line: int) -> str:
    """Of a .jsonl: a text, or a chain as a list of texts."""
    parts = value if isinstance(value, list) else [value]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise Unreadable(f"line {line}: {key} should be a text, or a list of texts")
    return f" {SEPARATOR} ".join(texts)


def _cell(row: dict[str, str], columns: tuple[str, ...], file: Path, line: int) -> str:
    for column in columns:
        if row.get(column):
            return row[column]
    known = one_line(", ".join(row)) if row else "nothing"
    how = f"rename or fill one of those it has ({known})"
    raise UserError(f"{file}, line {line}: none of the columns {', '.join(columns)} says anything; {how}")
