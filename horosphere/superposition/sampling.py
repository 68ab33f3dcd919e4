"""Sparse batches that depend only on (seed, law, density, n, batch, step), not on the grid, on threads, or on a resume.

A feature is on with probability p, exactly, by thinning a Poisson process. A sample has Poisson(Λ) events, Λ = Σ λ_i,
λ_i = -log(1 - p_i); an event falls on feature i with probability λ_i/Λ; a feature is on if it has an event. So only
active entries cost anything. Features with p = 1 are on without events.
Random numbers are Philox4x32-10 of counter (sample, draw, step, purpose) under the key (seed mod 2^32, seed div 2^32):
    draw 0           words 0 and 1: the number of events
    draw 1, 2, …     an event: words 0 and 1 its feature, word 2 its value (the first event of a feature counts)
    draw 2^31 + j    word 2: the value of the j-th feature that is always on
Two words make the 63-bit number (word 0 · 2^32 + word 1) div 2, which is compared with cumulative probabilities times
2^63. A value is (word 2 div 2^8)/2^23.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.toy import Toy

TRAINING, EVALUATION = 0, 1  # purposes, each with its own random numbers
ALWAYS = 2**31  # the first draw of features that are always on
WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@dataclass(frozen=True)
class Batches:
    """Consecutive batches of `size` samples each, as rows of active features; samples without any are left out.

    Batch k has the rows rows[k] … rows[k + 1] - 1. Row r has the entries starts[r] … starts[r + 1] - 1, in the order of
    their features.

    >>> rows, starts = np.array([0, 2]), np.array([0, 1, 3])
    >>> batches = Batches(3, 4, rows, starts, np.array([2, 0, 1]), np.array([0.5, 1.5, 1.0], dtype=np.float32))
    >>> batches.dense().tolist()
    [[0.0, 0.0, 0.5], [1.5, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    n: int
    size: int
    rows: np.ndarray  # (batches + 1,) int64
    starts: np.ndarray  # (rows + 1,) int64
    features: np.ndarray  # (entries,) int32
    values: np.ndarray  # (entries,) float32

    def dense(self, k: int = 0) -> Tensor:
        """x (size, n) of batch k; the samples without active features come last."""
        x = self.dense_rows(self.rows[k], self.rows[k + 1])
        return torch.cat([x, x.new_zeros(self.size - len(x), self.n)])

    def dense_rows(self, low: int, high: int) -> Tensor:
        """x (high - low, n) of the rows low … high - 1, whatever their batch."""
        entries = slice(self.starts[low], self.starts[high])
        row = np.repeat(np.arange(high - low), np.diff(self.starts[low : high + 1]))
        x = torch.zeros(high - low, self.n)
        x[torch.from_numpy(row), torch.from_numpy(self.features[entries]).long()] = torch.from_numpy(
            self.values[entries]
        )
        return x


def streams(runs: Sequence[Toy]) -> dict[tuple[int, str, float, int], list[int]]:
    """Places of the runs that see the same batches, by the arguments of their Sampler.

    >>> streams([Toy(n=20, m=m, law=law) for law in ("power:1", "linear") for m in (2, 4)])
    {(20, 'power:1', 1.0, 0): [0, 1], (20, 'linear', 1.0, 0): [2, 3]}
    """
    places: dict[tuple[int, str, float, int], list[int]] = {}
    for index, toy in enumerate(runs):
        places.setdefault((toy.n, toy.law, toy.density, toy.seed), []).append(index)
    return places


class Sampler:
    """Batches of one stream. Runs that differ in m, γ or their read-out see the same batches.

    Streams of other laws share the random numbers underneath.

    >>> x = Sampler(n=20, law="power:1", density=2.0, seed=0).batches(first=0, steps=1, size=5000).dense()
    >>> x.shape, round((x > 0).sum(1).float().mean().item())
    (torch.Size([5000, 20]), 2)
    """

    def __init__(self, n: int, law: str, density: float, seed: int):
        p = frequencies(law, n, density)
        self.n, self.key = n, (seed & 0xFFFFFFFF, seed >> 32)
        self.always = np.flatnonzero(p == 1)
        self.sometimes = np.flatnonzero((p > 0) & (p < 1))
        rates = -np.log1p(-p[self.sometimes])
        total = rates.sum()
        at_most = pdtr(np.arange(int(total + 12 * np.sqrt(total)) + 50), total)  # P(events <= k), until it rounds to 1
        self.count_bounds = _fixed_point(at_most[at_most < 1])
        self.feature_bounds = _fixed_point(np.cumsum(rates)[:-1] / total)

    def batches(self, first: int, steps: int, size: int, purpose: int = TRAINING) -> Batches:
        """The batches of steps first … first + steps - 1."""
        sample = np.arange(steps * size, dtype=np.uint64)
        step, sample = np.divmod(sample, np.uint64(size))
        step += np.uint64(first)
        words = philox((sample, np.zeros_like(sample), step, np.full_like(sample, purpose)), self.key)
        events = np.searchsorted(self.count_bounds, _fraction(words), "right")

        ends = np.cumsum(events)
        row = np.repeat(np.arange(steps * size), events)  # of each event, over all batches
        draw = np.arange(len(row)) - (ends - events)[row] + 1
        words = self._words(row, draw, sample, step, purpose)
        feature = np.searchsorted(self.feature_bounds, _fraction(words), "right")
        feature, word = self.sometimes[feature] if len(self.sometimes) else feature, words[2]
        if len(self.always):
            on = np.repeat(np.arange(steps * size), len(self.always))
            order = np.tile(np.arange(len(self.always)), steps * size)
            row, feature = np.concatenate([row, on]), np.concatenate([feature, self.always[order]])
            word = np.concatenate([word, self._words(on, ALWAYS + order, sample, step, purpose)[2]])

        # sorted by row and feature; of equal ones the first
        entry, kept = np.unique(row * self.n + feature, return_index=True)
        row, feature = np.divmod(entry, self.n)
        active = np.bincount(row, minlength=steps * size)
        nonempty = active > 0
        rows = np.concatenate([[0], np.cumsum(nonempty.reshape(steps, size).sum(1))])
        starts = np.concatenate([[0], np.cumsum(active[nonempty])])
        values = (word[kept] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23)
        return Batches(self.n, size, rows, starts, feature.astype(np.int32), values)

    def _words(
        self, row: np.ndarray, draw: np.ndarray, sample: np.ndarray, step: np.ndarray, purpose: int
    ) -> tuple[np.ndarray, ...]:
        return philox((sample[row], draw.astype(np.uint64), step[row], np.full(len(row), purpose, np.uint64)), self.key)


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Philox4x32-10 (Salmon et al. 2011): four random words for four words of counter and two of key.

    Words have 32 bits, held in uint64.

    >>> zero = np.zeros(1, np.uint64)
    >>> [hex(word[0]) for word in philox((zero, zero, zero, zero), key=(0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    for turn in range(10):
        k0, k1 = (
            np.uint64((part + turn * weyl) & 0xFFFFFFFF)
            for part, weyl in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)
        )
        product0, product2 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (product2 >> HALF) ^ c1 ^ k0, product2 & WORD, (product0 >> HALF) ^ c3 ^ k1, product0 & WORD
    return c0, c1, c2, c3


def _fraction(words: tuple[np.ndarray, ...]) -> np.ndarray:
    """63 random bits as int64"""
    return ((words[0] << HALF | words[1]) >> np.uint64(1)).astype(np.int64)


def _fixed_point(probability: np.ndarray) -> np.ndarray:
    """Probabilities times 2^63 as int64; the last floating-point number below 2^63 stands for one."""
    return np.minimum(probability * 2.0**63, 2.0**63 - 1024).astype(np.int64)
