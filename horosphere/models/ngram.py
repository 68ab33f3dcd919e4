"""Interpolated n-grams: what counting alone predicts, and so what a language model must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from horosphere.errors import UserError

WEIGHTS = (1.0, 5.0, 5.0)  # ε of the unigram, the bigram, the trigram
NAMES = ("unigram", "bigram", "trigram")


@dataclass(frozen=True, eq=False)
class _Counts:
    """How often each of the sequences that occur does, by their numbers in order."""

    codes: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of(codes: np.ndarray) -> _Counts:
        return _Counts(*np.unique(codes, return_counts=True))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        if not len(self.codes):
            return np.zeros(len(codes), np.int64)
        place = np.searchsorted(self.codes, codes).clip(max=len(self.codes) - 1)
        return np.where(self.codes[place] == codes, self.counts[place], 0)


class NGram:
    """P(x'' | x, x') = (n(x, x', x'') + ε P(x'' | x')) / (n(x, x') + ε), and so on down to the uniform 1/V.

    tokens (N,) of a vocabulary of size V; n(x, x') counts what something follows, so that each sums to 1 over x''.

    >>> model = NGram(np.array([0, 1, 0, 1, 0, 2]), size=3)
    >>> [p.round(3).tolist() for p in model.probabilities(np.array([0, 1]))]
    [[0.476, 0.333], [0.458], []]
    """

    def __init__(self, tokens: np.ndarray, size: int, weights: Sequence[float] = WEIGHTS):
        if not len(tokens) or not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
            raise UserError(f"{len(tokens)} tokens of a vocabulary of {size}: give some, numbered from 0 to {size - 1}")
        if len(weights) * np.log2(size) > 62:
            raise UserError(f"sequences of {len(weights)} tokens of {size:,}: too many to number; give a smaller order")
        self.size, self.weights, order = size, tuple(weights), len(weights)
        known = [_sequences(tokens, n, size) for n in range(1, order + 1)]
        self.whole = [_Counts.of(codes) for codes in known]
        # what a sequence may be followed by: all of them but the last
        self.begun = [_Counts.of(codes[:-1]) for codes in known[:-1]]
        self.total = len(tokens)

    def probabilities(self, tokens: np.ndarray) -> list[np.ndarray]:
        """Of the n-th token on, given the n - 1 before it, for n = 1, 2, …   (T,) -> (T,), (T-1,), (T-2,), …"""
        parts: list[np.ndarray] = []
        below = np.full(len(tokens), 1 / self.size)
        for n, weight in enumerate(self.weights, 1):
            codes = _sequences(tokens, n, self.size)
            before = self.total if n == 1 else self.begun[n - 2](codes // self.size)
            below = (self.whole[n - 1](codes) + weight * below[len(below) - len(codes) :]) / (before + weight)
            parts.append(below)
        return parts

    def perplexities(self, tokens: np.ndarray) -> dict[str, float]:
        """exp of the mean of -log P, of each order.

        >>> round(NGram(np.arange(8) % 2, size=2).perplexities(np.arange(6) % 2)["unigram"], 3)
        2.0
        """
        parts = zip(NAMES, self.probabilities(tokens), strict=False)
        return {name: float(np.exp(-np.log(part).mean())) for name, part in parts if len(part)}


def _sequences(tokens: np.ndarray, n: int, size: int) -> np.ndarray:
    """A number for each n tokens in a row.   (N,) -> (N - n + 1,) int64"""
    codes = tokens[: max(0, len(tokens) - n + 1)].astype(np.int64)
    for place in range(1, n):
        codes = codes * size + tokens[place : place + len(codes)]
    return codes
