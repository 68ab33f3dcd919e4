"""Rows for BERT: two spans of text, of which the second follows the first or not, with tokens hidden to be guessed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horosphere.data.tokens import TokenFile
from horosphere.errors import UserError

SHARE = 0.15  # of the tokens of a row are asked for ...
HIDDEN, REPLACED = 0.8, 0.1  # ... of which so many are hidden, and so many another token; the others stay as they are
SHORTEST = 8  # tokens of a span; what is left over at the end of a document may be shorter, and goes
NOT_ASKED = -100  # what stands for "nothing is asked here", as torch has it


class Special(NamedTuple):
    """Numbers of the tokens that are no text: those after the tokenizer's own."""

    begin: int  # [CLS]
    end: int  # [SEP], of each span
    hidden: int  # [MASK]
    padding: int

    @staticmethod
    def after(known: int) -> "Special":
        """For a tokenizer of so many tokens.

        >>> Special.after(100)
        Special(begin=100, end=101, hidden=102, padding=103)
        """
        return Special(*range(known, known + 4))


@dataclass(frozen=True, eq=False)
class Spans:
    """Consecutive tokens, each span within one document."""

    stream: np.ndarray
    starts: np.ndarray  # (N,)
    sizes: np.ndarray  # (N,)

    def __len__(self) -> int:
        return len(self.starts)


def spans_of(tokens: TokenFile, size: int, what: str) -> Spans:
    """All documents, cut into spans of `size` tokens. `what` is what a complaint calls them.

    >>> text = TokenFile(np.array([0] + 20 * [5] + [0] + 12 * [6]), bos=0, vocab_size=7, text_bytes=32, documents=2)
    >>> spans = spans_of(text, 10, "text")
    >>> spans.starts.tolist(), spans.sizes.tolist()
    ([1, 11, 22], [10, 10, 10])
    """
    begins = np.flatnonzero(tokens.tokens == tokens.bos) + 1
    ends = np.append(begins[1:] - 1, len(tokens))
    starts = np.concatenate([np.arange(begin, end, size) for begin, end in zip(begins, ends, strict=True)])
    sizes = np.minimum(size, np.repeat(ends, -(-(ends - begins) // size)) - starts)
    long = sizes >= min(SHORTEST, size)
    if long.sum() < 2:
        raise UserError(f"{what}: {long.sum()} spans of {size} tokens, and a row takes two; give more text")
    return Spans(tokens.tokens, starts[long], sizes[long])


class Rows(NamedTuple):
    """[CLS] A [SEP] B [SEP] and padding."""

    tokens: np.ndarray  # (B, T)
    segments: np.ndarray  # (B, T): 0 up to the first [SEP], then 1
    lengths: np.ndarray  # (B,) without padding
    apart: np.ndarray  # (B,): 0 where B follows A, else 1


def joined(spans: Spans, rows: np.ndarray, special: Special, length: int, random: np.random.Generator) -> Rows:
    """A span cut in two at a random place. In half of the rows the second part is the beginning of another span.

    (B,) -> Rows of `length`
    """
    cuts = 1 + (random.random(len(rows)) * (spans.sizes[rows] - 1)).astype(np.int64)
    apart = random.integers(2, size=len(rows))
    others = (rows + 1 + random.integers(len(spans) - 1, size=len(rows))) % len(spans)  # any but its own
    tokens = np.full((len(rows), length), special.padding, np.int64)
    segments, lengths = np.zeros_like(tokens), np.zeros(len(rows), np.int64)
    for i, (row, other, cut) in enumerate(zip(rows, others, cuts, strict=True)):
        start, size = spans.starts[row], spans.sizes[row]
        first, second = spans.stream[start : start + cut], spans.stream[start + cut : start + size]
        if apart[i]:
            start, most = spans.starts[other], min(size - cut, spans.sizes[other])
            second = spans.stream[start : start + most]
        lengths[i] = len(first) + len(second) + 3
        tokens[i, : lengths[i]] = [special.begin, *first, special.end, *second, special.end]
        segments[i, len(first) + 2 : lengths[i]] = 1
    return Rows(tokens, segments, lengths, apart)


class Hidden(NamedTuple):
    tokens: np.ndarray  # (B, T) as the model sees them
    places: np.ndarray  # (B, M) where something is asked
    targets: np.ndarray  # (B, M) what was there; NOT_ASKED where a row has fewer places than M


def asked_at_most(text: int) -> int:
    """How many of so many tokens of text are asked for.

    >>> asked_at_most(61), asked_at_most(3)
    (9, 1)
    """
    return max(1, round(SHARE * text))


def hide(tokens: np.ndarray, special: Special, most: int, random: np.random.Generator) -> Hidden:
    """Choose 15 % of the tokens of text in each row, `most` of them: 80 % hidden, 10 % another token, 10 % left as is.

    (B, T) -> Hidden

    >>> rows = np.full((1, 40), 7)
    >>> hidden = hide(rows, Special.after(10), most=6, random=np.random.default_rng(1))
    >>> hidden.targets.tolist(), int((hidden.tokens == 12).sum())
    ([[7, 7, 7, 7, 7, 7]], 4)
    """
    text = tokens < special.begin
    keys = np.where(text, random.random(tokens.shape), 2.0)
    places = keys.argsort(1)[:, :most]
    counts = np.maximum(1, np.rint(SHARE * text.sum(1))).astype(np.int64)
    asked = np.arange(most) < counts[:, None]
    rows = np.arange(len(tokens))[:, None]
    true, how = tokens[rows, places], random.random(places.shape)
    seen = np.where(how < HIDDEN, special.hidden, true)
    seen = np.where(how >= 1 - REPLACED, random.integers(special.begin, size=places.shape), seen)
    changed = tokens.copy()
    changed[rows, places] = np.where(asked, seen, true)
    return Hidden(changed, places, np.where(asked, true, NOT_ASKED))
