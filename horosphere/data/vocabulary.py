"""Words or characters as numbers: which there are, how often, and what stands for all others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.files import digest, write_whole
from horosphere.foreign import Unreadable, is_text, read_json

Unit = Literal["words", "characters"]
# the first tokens of every vocabulary, in this order
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
PAD, UNKNOWN, BEGIN, END = range(4)
FILE = "vocabulary.json"

# Chinese and Japanese put no spaces between words: each of their letters is one
_LETTER = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"[{_LETTER}]|[^\W{_LETTER}]+(?:['’](?=\w))?|[^\w\s]")
# where joined words have no space
_TOGETHER = re.compile(rf"(?<=[{_LETTER}]) | (?=[{_LETTER}])|(?<=[(\[]) |(?<=\w['’]) | (?=[.,;:!?)\]…。、，！？])")


def split(text: str, unit: Unit = "words") -> list[str]:
    """The tokens of a text, in lower case. Marks are words; so are letters of Chinese and Japanese, and l' of l'eau.

    >>> split("The dog's hat, 猫帽."), split("Hat", "characters")
    (['the', "dog'", 's', 'hat', ',', '猫', '帽', '.'], ['h', 'a', 't'])
    """
    return _WORDS.findall(text.lower()) if unit == "words" else list(text.lower())


def joined(tokens: Iterable[str], unit: Unit = "words") -> str:
    """Tokens as a text for people. Between words there are spaces, where people write some.

    >>> joined(["the", "hat", ",", "猫", "帽", "."]), joined("hat", "characters")
    ('the hat,猫帽.', 'hat')
    """
    return _TOGETHER.sub("", " ".join(tokens)) if unit == "words" else "".join(tokens)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by number, the most frequent first, after the `SPECIALS`.

    >>> known = Vocabulary.of(["the cat", "the dog", "a cat"], least=2)
    >>> known.tokens, known.counts  # what is rarer counts as unknown
    (('<pad>', '<unk>', '<bos>', '<eos>', 'cat', 'the'), (0, 2, 0, 0, 2, 2))
    >>> known.encode("the red cat"), known.decode([5, 1, 4])
    ([5, 1, 4], 'the <unk> cat')
    """

    tokens: tuple[str, ...]
    counts: tuple[int, ...]  # how often each was seen
    unit: Unit = "words"

    @staticmethod
    def of(texts: Iterable[str], unit: Unit = "words", least: int = 1, most: int | None = None) -> Vocabulary:
        """The tokens that texts have at least `least` times, of these the `most` frequent."""
        counts = Counter(token for text in texts for token in split(text, unit))
        kept = [(token, count) for token, count in counts.items() if count >= least]
        if not kept:
            why = f"no token occurs {least} times" if counts else "there is no text"
            raise UserError(f"an empty vocabulary: {why}; lower least={least}, or give more text")
        kept = sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:most]  # by name where counts are equal
        unknown = counts.total() - sum(count for _, count in kept)
        numbers = (0, unknown, 0, 0, *(count for _, count in kept))
        return Vocabulary((*SPECIALS, *(token for token, _ in kept)), numbers, unit)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """token -> number"""
        return {token: number for number, token in enumerate(self.tokens)}

    def encode(self, text: str) -> list[int]:
        """Numbers of the tokens of a text, without begin and end."""
        return [self.numbers.get(token, UNKNOWN) for token in split(text, self.unit)]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text up to its end, without padding and begin."""
        kept: list[str] = []
        for number in numbers:
            if number == END:
                break
            if number not in (PAD, BEGIN):
                kept.append(self.tokens[number])
        return joined(kept, self.unit)

    def digest(self) -> str:
        return digest(self.unit, *self.tokens)


def padded(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Rows of numbers, each filled up with PAD or cut to the width.   -> (N, width) int64

    >>> padded([[7, 8], [9, 9, 9, 9]], 3)
    array([[7, 8, 0],
           [9, 9, 9]])
    """
    filled = np.full((len(rows), width), PAD, dtype=np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row[:width]
    return filled


# -- beside a trained model -------------------------------------------------------------------------------------------


def write_vocabularies(folder: Path, named: Mapping[str, Vocabulary]) -> None:
    content = {name: {"unit": v.unit, "tokens": v.tokens, "counts": v.counts} for name, v in named.items()}
    write_whole(folder / FILE, json.dumps(content, ensure_ascii=False, indent=0).encode())


def read_vocabularies(folder: Path, names: Iterable[str]) -> dict[str, Vocabulary]:
    """Those of these names, as `write_vocabularies` wrote them."""
    try:
        content = read_json(folder / FILE)
        return {name: _vocabulary(content.get(name), name) for name in names}
    except Unreadable as error:
        raise UserError(f"{folder / FILE}: a damaged file ({one_line(error)}); train the model again") from error


def _vocabulary(content: Any, name: str) -> Vocabulary:
    parts = content if isinstance(content, dict) else {}
    tokens, counts, unit = (parts.get(part) for part in ("tokens", "counts", "unit"))
    if not isinstance(tokens, list) or not all(isinstance(token, str) and is_text(token) for token in tokens):
        raise Unreadable(f"{name} has no list of tokens")
    if not isinstance(counts, list) or len(counts) != len(tokens) or not all(type(count) is int for count in counts):
        raise Unreadable(f"{name} has no count for each token")
    if (
        unit not in ("words", "characters")
        or tuple(tokens[: len(SPECIALS)]) != SPECIALS
        or len(set(tokens)) < len(tokens)
    ):
        raise Unreadable(f"{name} is no vocabulary of words or characters")
    return Vocabulary(tuple(tokens), tuple(counts), unit)
