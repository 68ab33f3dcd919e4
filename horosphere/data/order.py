"""In which order rows are learned from: a pure function of seed and place, so that a run can be resumed exactly."""

from functools import lru_cache
from typing import Literal

import numpy as np

Part = Literal["all", "tuning", "rest"]  # of what is held out: all of it, or one of two halves


def shuffled(count: int, first: int, last: int, seed: int) -> np.ndarray:
    """Numbers first … last - 1 of an endless stream that goes through 0 … count - 1 in a new order each time.

    -> (last - first,)

    >>> shuffled(3, 0, 6, seed=0).tolist()
    [2, 0, 1, 2, 0, 1]
    """
    parts = [np.empty(0, dtype=np.int64)]
    while first < last:
        epoch, place = divmod(first, count)
        parts.append(_order(count, epoch, seed)[place : place + last - first])
        first += len(parts[-1])
    return np.concatenate(parts)


@lru_cache(2)  # a batch lies in two epochs at most, unless it is larger than one
def _order(count: int, epoch: int, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)


SORTED = 4  # steps whose rows are sorted together; of 16 batches are so much alike that the copy task is not exact


def alike(lengths: np.ndarray, step: int, batch: int, seed: int) -> np.ndarray:
    """Rows of a step, all about as long: little of a batch is padding.   (N,) -> (batch,)

    The stream of `shuffled`, sorted within every 4 steps and cut into their batches, which come in a random order.

    >>> lengths = np.arange(64) % 8
    >>> lengths[alike(lengths, step=3, batch=4, seed=0)].tolist()
    [4, 5, 7, 7]
    """
    pool, place = divmod(step, SORTED)
    rows = shuffled(len(lengths), pool * SORTED * batch, (pool + 1) * SORTED * batch, seed)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    which = np.random.default_rng((seed, pool)).permutation(SORTED)[place]
    return rows[which * batch : (which + 1) * batch]


HELD = 10  # one row in so many is held out, where nobody says which


def held_out(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows to learn from, and of those to judge by: the same ones for every seed.   -> (n,), (m,)

    >>> learned, held = held_out(20)
    >>> len(learned), sorted(held.tolist())
    (18, [4, 19])
    """
    order = np.random.default_rng(0).permutation(count)
    held = max(1, count // HELD) if count > 1 else 0
    return np.sort(order[held:]), np.sort(order[:held])


def evenly(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, from the first to the last of them: files are often sorted.   (N,) -> (n,)

    >>> evenly(np.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


def half(rows: np.ndarray, part: Part) -> np.ndarray:
    """One half of the rows, drawn once and for all: "tuning", or "rest", the others.   (N,) -> (N//2,) or the others

    >>> half(np.arange(5), "tuning").tolist(), half(np.arange(5), "rest").tolist()
    ([2, 4], [0, 1, 3])
    """
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[np.random.default_rng(0).permutation(len(rows))[: len(rows) // 2]] = True
    return rows[chosen if part == "tuning" else ~chosen]
