"""Pairs of sentences: a text and what it becomes in another language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.messages import PACKAGES, Pair, read_messages
from horosphere.data.order import held_out
from horosphere.data.vocabulary import BEGIN, END, PAD, Unit, Vocabulary, padded, split
from horosphere.errors import UserError, choices
from horosphere.foreign import Unreadable, printable, read_lines, read_table

SIDES = ("source", "target")
SYMBOLS, SHORTEST, LONGEST, EXAMPLES = 10, 2, 8, 5000  # of the tasks that are made up


@dataclass(frozen=True)
class PairData:
    """Pairs as numbers. Row i: source[i], its end and padding; target[i] with begin and end, and padding."""

    source: np.ndarray  # (N, S)
    target: np.ndarray  # (N, T)
    train: np.ndarray  # (n,) rows to learn from
    valid: np.ndarray  # (m,) rows to judge by
    vocabularies: dict[str, Vocabulary]  # source, target
    too_long: int  # pairs that were left out

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Tokens of the sources, their ends included.   (B,) -> (B,)"""
        return (self.source[rows] != PAD).sum(1)


@dataclass(frozen=True)
class PairOptions:
    """How pairs become numbers."""

    unit: Unit
    least: int  # times that a token must occur
    length: int  # most tokens of a sentence


def open_pairs(
    data: str, valid: str | None, how: PairOptions, known: Mapping[str, Vocabulary] | None = None
) -> PairData:
    """Pairs to learn from and pairs to judge by: `valid`, or a tenth of the data.

    Repeated sources are dropped before anything is held out. Vocabularies are `known`, or those of what is learned.
    """
    pairs, too_long = _short(unrepeated(read_pairs(data)), how)
    if valid is None:
        train, held = held_out(len(pairs))
    else:
        others, more = _short(unrepeated(read_pairs(valid)), how)
        train, held = np.arange(len(pairs)), len(pairs) + np.arange(len(others))
        pairs, too_long = pairs + others, too_long + more
    if not len(train) or not len(held):
        few = f"{valid}: {len(held)}" if valid and len(train) else f"{data}: {len(pairs)}"
        what = f"{few} pairs of at most {how.length} tokens"
        raise UserError(f"{what}; give at least 2, some to learn from and some to judge by, or raise length")
    sides = {side: [pair[place] for pair in pairs] for place, side in enumerate(SIDES)}
    found = known or {s: Vocabulary.of([t[row] for row in train], how.unit, how.least) for s, t in sides.items()}
    source = [[*found["source"].encode(text), END] for text in sides["source"]]
    target = [[BEGIN, *found["target"].encode(text), END] for text in sides["target"]]
    return PairData(
        padded(source, max(map(len, source))), padded(target, max(map(len, target))), train, held, dict(found), too_long
    )


def _short(pairs: list[Pair], how: PairOptions) -> tuple[list[Pair], int]:
    """Those that are not too long, and how many are."""
    short = [pair for pair in pairs if max(len(split(text, how.unit)) for text in pair) <= how.length]
    return short, len(pairs) - len(short)


def unrepeated(pairs: list[Pair]) -> list[Pair]:
    """Without sources that came before, whatever their case: what is held out must not have been learned.

    >>> unrepeated([("Yes", "oui"), ("yes", "si"), ("no", "non")])
    [('Yes', 'oui'), ('no', 'non')]
    """
    first: dict[str, Pair] = {}
    for pair in pairs:
        first.setdefault(" ".join(pair[0].lower().split()), pair)
    return list(first.values())


# -- sources ----------------------------------------------------------------------------------------------------------


def read_pairs(name: str) -> list[Pair]:
    """All pairs of a source.

    - "builtin:django-fr": English messages of django and their translations; also es, de, ja, zh, …
    - "builtin:django+sphinx-fr": of both; django, sphinx and wagtail have messages.
    - "builtin:copy", "builtin:reverse": made up; the target is the source, or the source from its end.
    - a .tsv file: source and target, separated by a tab.
    - two files, separated by a comma: sentence i of the first becomes sentence i of the second.

    >>> read_pairs("builtin:reverse")[0]
    ('j h h b d j b', 'b j d b h h j')
    """
    if name.startswith(BUILTIN):
        return _builtin(name)
    try:
        return _two_files(name) if "," in name and not Path(name).exists() else _table(name)
    except Unreadable as error:
        how = "give a .tsv file of two columns, or two files separated by a comma"
        raise UserError(f"{name}: {error}; {how}") from error


def _table(name: str) -> list[Pair]:
    pairs = []
    if Path(name.removesuffix(".gz")).suffix.lower() != ".tsv":
        raise Unreadable("no .tsv")
    for line, cells in read_table(name, delimiter="\t", quoting=3):  # quotation marks are part of sentences
        pair = tuple(printable(cell) for cell in cells)
        if len(pair) != 2 or not all(pair):
            raise UserError(f"{name} line {line}: a source and a target, separated by a tab, not {len(cells)} columns")
        pairs.append((pair[0], pair[1]))
    return pairs


def _two_files(name: str) -> list[Pair]:
    first, second = (part.strip() for part in name.split(",", 1))
    sources, targets = ([printable(line) for line in read_lines(part)] for part in (first, second))
    if len(sources) != len(targets):
        how = "line i of one must be the translation of line i of the other"
        raise UserError(f"{first} has {len(sources):,} lines, {second} {len(targets):,}: {how}")
    return [pair for pair in zip(sources, targets, strict=True) if all(pair)]


def _builtin(name: str) -> list[Pair]:
    made: dict[str, Callable[[list[str]], list[str]]] = {
        f"{BUILTIN}copy": list,
        f"{BUILTIN}reverse": lambda letters: letters[::-1],
    }
    if name in made:
        return [(" ".join(letters), " ".join(made[name](letters))) for letters in _letters()]
    packages, _, language = name.removeprefix(BUILTIN).partition("-")
    if language and set(packages.split("+")) <= set(PACKAGES):
        return read_messages(packages.split("+"), language)
    examples = [f"{BUILTIN}{packages}-fr" for packages in (*PACKAGES, "+".join(PACKAGES))]
    raise UserError(f"{name}: no such pairs come with a package; {choices(name, [*made, *examples])}")


def _letters() -> Iterator[list[str]]:
    """Random letters, the same ones every time."""
    random = np.random.default_rng(0)
    for length in random.integers(SHORTEST, LONGEST + 1, EXAMPLES):
        yield [chr(ord("a") + number) for number in random.integers(SYMBOLS, size=length)]
