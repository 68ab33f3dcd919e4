"""Tokens on disk, and the windows of them that a language model sees.

A document in the stream is [bos] + its tokens, so that the model predicts the end of a document as the next bos.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from horosphere.cache import made_once
from horosphere.data.order import Part
from horosphere.data.text import cut, documents, fingerprint
from horosphere.data.tokenizer import (
    CHARACTERS,
    FILES,
    character_tokenizer,
    load_tokenizer,
    token_numbers,
    train_tokenizer,
)
from horosphere.errors import UserError, one_line
from horosphere.files import new_folder
from horosphere.foreign import Unreadable, map_numbers, read_bytes, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENS, ABOUT = "tokens.bin", "tokens.json"
COUNTS = ("tokens", "bos", "vocab_size", "text_bytes", "documents")  # what the second file says
PIECE = 1 << 16  # characters of a piece; longer documents are encoded in pieces, in parallel and in little memory
BATCH = 1 << 20  # characters handed to the threads together
HELD_OUT = 50  # one document of so many is for validation
SAMPLE = 50_000_000  # characters, at most, that train a tokenizer ...
SAMPLED = 1_000_000_000  # ... spread evenly over the first so many of the corpus
KNOWN_BY = 1 << 20  # tokens of a stream that its digest is made of
DECODED = 1 << 20  # tokens that are turned back into text at once
DIGESTS = "digests/files.json"  # in the cache: of the files of sources
LAYOUT = 2  # version of the cache; raise it with every change of what is written there

Progress = Callable[[int, str], None]  # (megabytes of text so far, note)


# -- tokens on disk ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class TokenFile:
    """A stream of tokens (N,), memory-mapped: uint16, or uint32 for vocabularies beyond 65536.

    >>> TokenFile(np.array([0, 5, 6, 0, 7]), bos=0, vocab_size=8, text_bytes=9, documents=2)
    TokenFile(5 tokens, 2 documents, vocabulary of 8)
    """

    tokens: np.ndarray
    bos: int
    vocab_size: int
    text_bytes: int  # of the text in UTF-8
    documents: int

    def __len__(self) -> int:
        return len(self.tokens)

    def sampled(self) -> bytes:
        """Tokens of all parts of it, for a digest: all of a short text, at most `KNOWN_BY` of a long one."""
        return self.tokens[:: -(-len(self) // KNOWN_BY)].tobytes()

    def __repr__(self) -> str:
        return f"TokenFile({len(self)} tokens, {self.documents} documents, vocabulary of {self.vocab_size})"

    @staticmethod
    def open(folder: str | Path) -> TokenFile:
        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise UserError(f"{folder}: no folder of tokens (it has no {ABOUT}). Make one with tokenise.")
        try:
            about = read_json(folder / ABOUT)
            if about.keys() != set(COUNTS) or not all(type(n) is int and n >= 0 for n in about.values()):
                raise Unreadable(f"{ABOUT} should have numbers of {', '.join(COUNTS)}")
            dtype = _dtype(about["vocab_size"])
            if about["bos"] >= about["vocab_size"]:
                raise Unreadable(f"bos is {about['bos']}, and there are {about['vocab_size']} tokens")
            size, expected = (folder / TOKENS).stat().st_size, about.pop("tokens") * dtype.itemsize
            if not size == expected > 0:
                raise Unreadable(f"{TOKENS} has {size} bytes instead of {expected}")
            return TokenFile(map_numbers(folder / TOKENS, dtype), **about)
        except (OSError, Unreadable) as error:
            how = "Delete the folder and make it again."
            raise UserError(f"{folder}: damaged tokens ({one_line(error)}). {how}") from error


def tokenise(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, folder: str | Path, progress: Progress | None = None
) -> TokenFile:
    """Write texts as tokens into a new folder, there whole or not at all. Memory does not grow with the texts.

    A document of more than PIECE characters is encoded in pieces cut at ends of lines. With a tokenizer of
    train_tokenizer that changes no token, unless a line is as long as a piece. A foreign tokenizer may miss a merge,
    or add its first space, at a cut.

    >>> tokenizer = train_tokenizer(["the cat and the dog"], vocab_size=257)  # a token for each byte, and bos
    >>> with TemporaryDirectory() as folder:
    ...     tokenise(["the cat", "a dog"], tokenizer, f"{folder}/tokens")
    TokenFile(14 tokens, 2 documents, vocabulary of 257)
    """
    with new_folder(folder) as aside:
        writer = _Writer(aside, tokenizer, progress)
        for text in texts:
            writer.add(text)
        writer.finish(str(folder))
    return TokenFile.open(folder)


class _Writer:
    """Appends documents to the token file in a folder, a batch of pieces at a time."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast, progress: Progress | None = None):
        bos = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        if bos is None:
            raise UserError(
                "the tokenizer has neither bos nor eos, one of which must begin each document. "
                "Set one, and save the tokenizer again."
            )
        folder.mkdir(exist_ok=True)
        self.folder, self.progress = folder, progress
        self.encoder = deepcopy(tokenizer.backend_tokenizer)  # a foreign one may truncate or pad
        self.encoder.no_truncation()
        self.encoder.no_padding()
        self.bos, self.vocab_size = bos, token_numbers(tokenizer)
        self.tokens = self.text_bytes = self.documents = 0
        self.pieces: list[tuple[bool, str]] = []  # that wait to be encoded: whether a document begins with it, its text
        self.waiting = 0  # characters in them

    def add(self, text: str) -> None:
        self.documents += 1
        self.text_bytes += len(text.encode())
        for number, piece in enumerate(_pieces(text)):
            self.pieces.append((number == 0, piece))
            self.waiting += len(piece)
            if self.waiting >= BATCH:
                self._flush()

    def finish(self, what: str) -> None:
        self._flush()
        if not self.documents:
            raise UserError(f"{what}: no text for it. Give more.")
        about = {name: getattr(self, name) for name in COUNTS}
        (self.folder / ABOUT).write_text(json.dumps(about, indent=2), encoding="utf-8")

    def _flush(self) -> None:
        encodings = self.encoder.encode_batch_fast([piece for _, piece in self.pieces], add_special_tokens=False)
        ids = [
            token
            for (begins, _), encoding in zip(self.pieces, encodings, strict=True)
            for token in [self.bos] * begins + encoding.ids
        ]
        with (self.folder / TOKENS).open("ab") as file:
            np.array(ids, _dtype(self.vocab_size)).tofile(file)
        self.tokens += len(ids)
        self.pieces, self.waiting = [], 0
        if self.progress:
            self.progress(self.text_bytes // 10**6, f"{self.tokens / 1e6:.1f} M tokens")


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE:
        end = cut(text, start + PIECE // 2, start + PIECE)
        yield text[start:end]
        start = end
    yield text[start:]


def _dtype(vocab_size: int) -> np.dtype:
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


# -- windows ----------------------------------------------------------------------------------------------------------


class Windows:
    """Windows of length + 1 tokens in random order, a global batch of `rows` a step: a pure function of (seed, step).

    Windows overlap by one token, so that their inputs cover the stream once an epoch. Each epoch has its own order and
    offset, and leaves out fewer than two windows' worth of tokens at its ends.

    >>> tokens = TokenFile(np.arange(100), bos=0, vocab_size=100, text_bytes=100, documents=1)
    >>> windows = Windows(tokens, length=8, rows=4, seed=0)
    >>> windows.batch(step=3).shape, windows.epochs_at(step=11)
    (torch.Size([4, 9]), 4.0)
    """

    def __init__(self, tokens: TokenFile, length: int, rows: int, seed: int):
        if len(tokens) <= length:
            raise UserError(
                f"{len(tokens)} tokens are too few for one window of {length}, which takes {length + 1}. "
                "Use shorter windows, or more text."
            )
        self.tokens, self.length, self.rows, self.seed = tokens, length, rows, seed
        self.count = max(1, len(tokens) // length - 1)  # windows an epoch: as many as fit at every offset
        self._epoch, self._starts = -1, np.empty(0, np.int64)

    def batch(self, step: int, rows: range | None = None) -> Tensor:
        """Rows of the global batch of a step, all of them by default.   -> (len(rows), length + 1) int64"""
        starts = [self._start(step * self.rows + row) for row in (range(self.rows) if rows is None else rows)]
        return _windows(self.tokens, starts, self.length)

    def epochs_at(self, step: int) -> float:
        """Passes over the tokens that the steps before this one make."""
        return step * self.rows / self.count

    def _start(self, number: int) -> int:
        epoch, place = divmod(number, self.count)
        if epoch != self._epoch:
            random = np.random.default_rng((self.seed, epoch))
            spare = len(self.tokens) - 1 - self.count * self.length
            self._starts = random.integers(min(self.length, spare + 1)) + self.length * random.permutation(self.count)
            self._epoch = epoch
        return int(self._starts[place])


class SequentialWindows:
    """As `Windows`, but a row of the batch goes on in each step where it ended in the step before.

    The text is cut into as many parts as there are rows, of the same size, and each row walks through its own. So the
    inputs of row i at step t + 1 begin with the last target of step t. Each epoch has an offset of its own, and leaves
    out fewer tokens than two batches have.

    >>> tokens = TokenFile(np.arange(100), bos=0, vocab_size=100, text_bytes=100, documents=1)
    >>> windows = SequentialWindows(tokens, length=8, rows=2, seed=0)
    >>> [windows.batch(step)[:, [0, -1]].tolist() for step in (0, 1)], windows.begins_at(0), windows.begins_at(1)
    ([[[6, 14], [52, 60]], [[14, 22], [60, 68]]], True, False)
    """

    def __init__(self, tokens: TokenFile, length: int, rows: int, seed: int):
        if len(tokens) <= length * rows:
            raise UserError(
                f"{len(tokens)} tokens are too few for {rows} rows of {length} side by side, which take "
                f"{length * rows + 1}. Use shorter windows, a smaller batch, or more text."
            )
        self.tokens, self.length, self.rows, self.seed = tokens, length, rows, seed
        self.count = max(1, (len(tokens) - length) // (rows * length))  # steps an epoch: as many as fit at every offset

    def batch(self, step: int, rows: range | None = None) -> Tensor:
        """Rows of the batch of a step, all of them by default.   -> (len(rows), length + 1) int64"""
        epoch, place = divmod(step, self.count)
        spare = len(self.tokens) - 1 - self.count * self.rows * self.length
        offset = int(np.random.default_rng((self.seed, epoch)).integers(min(self.length, spare + 1)))
        part = (len(self.tokens) - 1 - offset) // self.rows
        chosen = range(self.rows) if rows is None else rows
        return _windows(self.tokens, [offset + row * part + place * self.length for row in chosen], self.length)

    def begins_at(self, step: int) -> bool:
        """Whether rows begin anew in this step."""
        return step % self.count == 0


def windows_in_order(tokens: TokenFile, length: int, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows (B <= rows, length + 1) in the order of the stream, and which of their targets count (B, length).

    Every token but the first is predicted exactly once. The last window is padded with bos.

    >>> tokens = TokenFile(np.arange(6), bos=0, vocab_size=6, text_bytes=6, documents=1)
    >>> [(batch.tolist(), counts.sum().item()) for batch, counts in windows_in_order(tokens, length=4, rows=2)]
    [([[0, 1, 2, 3, 4], [4, 5, 0, 0, 0]], 5)]
    """
    starts = range(0, len(tokens) - 1, length)
    for first in range(0, len(starts), rows):
        batch = starts[first : first + rows]
        targets = torch.tensor(batch)[:, None] + torch.arange(1, length + 1)
        yield _windows(tokens, batch, length), targets < len(tokens)


def _windows(tokens: TokenFile, starts: Iterable[int], length: int) -> Tensor:
    windows = [tokens.tokens[start : start + length + 1] for start in starts]
    batch = np.full((len(windows), length + 1), tokens.bos, dtype=np.int64)
    for row, window in zip(batch, windows, strict=True):
        row[: len(window)] = window
    return torch.from_numpy(batch)


def document_positions(tokens: Tensor, bos: int) -> Tensor:
    """Position of each token in its document, 0 at each bos and at the start of a row.   (..., T) -> (..., T) int64

    t - max{s <= t: token s is bos}

    >>> document_positions(torch.tensor([5, 6, 0, 7, 8]), bos=0)
    tensor([0, 1, 0, 1, 2])
    """
    places = torch.arange(tokens.shape[-1], device=tokens.device).expand(tokens.shape)
    return places - torch.where(tokens == bos, places, 0).cummax(-1).values


def packed_positions(tokens: Tensor, bos: int) -> Tensor | None:
    """`document_positions`, or None where every row is of one document: then plain causal attention does.

    (B, T) -> (B, T)

    >>> packed_positions(torch.tensor([[0, 5, 6]]), bos=0), packed_positions(torch.tensor([[5, 0, 6]]), bos=0)
    (None, tensor([[0, 0, 1]]))
    """
    return document_positions(tokens, bos) if (tokens[:, 1:] == bos).any() else None


def some_windows(tokens: TokenFile, length: int, rows: int, limit: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """As `windows_in_order`; of more than `limit` windows, that many drawn from all of the stream."""
    if limit is None or limit * length >= len(tokens) - 1 - length:
        yield from windows_in_order(tokens, length, rows)
        return
    drawn = Windows(tokens, length, limit, seed=0)
    for first in range(0, limit, rows):
        batch = drawn.batch(0, range(first, min(first + rows, limit)))
        yield batch, torch.ones(len(batch), length, dtype=torch.bool)


def share_of_windows(windows: Iterable[tuple[Tensor, Tensor]], rank: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One process's part of each batch, of `size`. All take as many; what one reads last may count for nothing."""
    for tokens, counted in windows:
        if len(tokens) > rank:
            yield tokens[rank::size], counted[rank::size]
        else:
            yield tokens[:1], torch.zeros_like(counted[:1])


# -- a corpus ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens to train on, tokens held out, and the tokenizer that made them."""

    train: TokenFile
    valid: TokenFile
    tokenizer: PreTrainedTokenizerFast

    def parted(self, part: Part) -> Corpus:
        """With the first half of what is held out, "tuning", or the rest; cut between documents where that is near."""
        tokens, valid = np.asarray(self.valid.tokens), self.valid
        starts, middle = np.flatnonzero(tokens == valid.bos), len(tokens) // 2
        nearest = int(starts[np.abs(starts - middle).argmin()]) if len(starts) else 0
        at = nearest if len(tokens) / 4 <= nearest <= 3 * len(tokens) / 4 else middle
        first = sum(len(self._text(tokens[i : min(i + DECODED, at)]).encode()) for i in range(0, at, DECODED))
        before = int((starts < at).sum())
        if part == "tuning":
            return replace(self, valid=replace(valid, tokens=tokens[:at], text_bytes=first, documents=before))
        rest = {"text_bytes": valid.text_bytes - first, "documents": valid.documents - before}
        return replace(self, valid=replace(valid, tokens=tokens[at:], **rest))

    def _text(self, tokens: np.ndarray) -> str:
        """Some bytes of a letter that a cut parts count as others."""
        return str(self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True))


def prepare(
    source: str,
    tokenizer: str | None,
    vocab_size: int,
    valid: str | None,
    cache: Path,
    progress: Progress | None = None,
    field: str = "text",
) -> Corpus:
    """The tokens of a source, made at the first call and found in the cache at the next.

    tokenizer: a folder; None to train one of vocab_size on the training text; "characters" for one of its characters.
    valid: a source of its own, or None to hold out every 50th document. Where there are fewer than 50, the end of the
    last one is held out, a 50th of the text. Of processes that want the same corpus one prepares it, the others wait.

    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "text.txt").write_text("the cat and the dog\\n" * 100)
    ...     corpus = prepare(f"{folder}/text.txt", None, 260, None, cache=Path(folder, "cache"))
    ...     corpus.train.text_bytes, corpus.valid.text_bytes
    (1960, 39)
    """
    given = None if tokenizer == CHARACTERS else tokenizer
    chosen = load_tokenizer(given) if given else None
    files = [read_bytes(Path(given, name)) for name in FILES] if given else []
    asked = [hashlib.sha256(content).hexdigest() for content in files] or (tokenizer or vocab_size)

    def known_by() -> str:
        memo = Path(cache) / DIGESTS
        identity = [LAYOUT, fingerprint(source, memo), asked, valid and fingerprint(valid, memo), field]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    before = known_by()

    def make(folder: Path) -> None:
        folder.mkdir()
        used = chosen
        if used is None:
            texts = (text for part, text in _parts(source, valid, field) if part == "train")
            if tokenizer == CHARACTERS:
                used = character_tokenizer(texts, progress)
            else:
                used = train_tokenizer(_sample(texts), vocab_size, progress)
            used.save_pretrained(folder / "tokenizer")
        writers = {"train": _Writer(folder / "train", used, progress), "valid": _Writer(folder / "valid", used)}
        for part, text in _parts(source, valid, field):
            writers[part].add(text)
        for part, writer in writers.items():
            writer.finish(f"{source}, {part}")
        if known_by() != before:
            raise UserError(f"{source} changed while it was read; start again")

    entry = made_once(Path(cache) / before, make)
    return Corpus(
        TokenFile.open(entry / "train"), TokenFile.open(entry / "valid"), chosen or load_tokenizer(entry / "tokenizer")
    )


def text_tokens(source: str, tokenizer: PreTrainedTokenizerFast, field: str = "text") -> TokenFile:
    """Any text (see `data.text.documents`), as tokens in memory."""
    with TemporaryDirectory(prefix="horosphere.") as aside:
        tokens = tokenise(documents(source, field), tokenizer, Path(aside, "tokens"))
        return replace(tokens, tokens=np.array(tokens.tokens))


def megabytes(source: str) -> int:
    """Of the files of a source; 0 where it is none."""
    path = Path(source)
    return sum(f.stat().st_size for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()) // 10**6


def _parts(source: str, valid: str | None, field: str) -> Iterator[tuple[str, str]]:
    """("train" or "valid", document)"""
    if valid is None:
        yield from _hold_out(documents(source, field))
    else:
        yield from (("train", text) for text in documents(source, field))
        yield from (("valid", text) for text in documents(valid, field))


def _hold_out(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Every 50th text, counted from 1, is for validation; where there are fewer, the end of the last one is.

    That end is a 50th of all characters.
    """
    last, number, size = "", 0, 0
    for text in texts:
        if number:  # one behind: the last text waits until it is known to be the last
            yield "train" if number % HELD_OUT else "valid", last
        last, number, size = text, number + 1, size + len(text)
    if number >= HELD_OUT:
        yield "train" if number % HELD_OUT else "valid", last
        return
    end = max(1, size // HELD_OUT)
    latest = max(0, len(last) - end)
    at = cut(last, max(0, latest - end // 8), latest)
    yield from ((part, text) for part, text in (("train", last[:at]), ("valid", last[at:])) if text)


def _sample(texts: Iterable[str]) -> Iterator[str]:
    """Pieces spread evenly over the first SAMPLED characters, SAMPLE characters at most.

    Whenever there are too many, every second piece goes.
    """
    kept: list[str] = []
    size, seen, stride = 0, 0, 1
    for number, piece in enumerate(piece for text in texts for piece in _pieces(text)):
        if number % stride == 0:
            kept.append(piece)
            size += len(piece)
        if size > SAMPLE:
            kept, stride = kept[::2], 2 * stride
            size = sum(map(len, kept))
        seen += len(piece)
        if seen >= SAMPLED:
            break
    yield from kept
