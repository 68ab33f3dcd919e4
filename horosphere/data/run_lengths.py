"""COCO's run lengths: the pixels of a picture, column by column, in runs outside and inside of an object by turns.

COCO's own library decodes them in C and believes every number. Here they are checked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

LONGEST = 7  # letters of a number: 35 bits


def mask_of_runs(given: Mapping[str, Any], shape: tuple[int, int]) -> np.ndarray:
    """{"size": [H, W], "counts": runs, as a list or as text} -> (H, W) bool, for a picture of this shape.

    >>> mask_of_runs({"size": [2, 3], "counts": [1, 2, 3]}, (2, 3)).astype(int).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    size, counts = given["size"], given["counts"]
    if not isinstance(size, (list, tuple)) or tuple(size) != shape:
        raise ValueError(f"run lengths of another size than {shape[1]} x {shape[0]} pixels")
    if not isinstance(counts, (list, str)):
        raise TypeError("run lengths are a list of numbers, or text")
    runs = runs_of_text(counts) if isinstance(counts, str) else numbers_of(counts, "run lengths")
    whole = runs.astype(np.int64) if runs.size and abs(runs).max() <= shape[0] * shape[1] else None
    if whole is None or (whole != runs).any() or whole.min() < 0 or whole.sum() != shape[0] * shape[1]:
        raise ValueError(f"run lengths that do not add up to {shape[0] * shape[1]:,} pixels")
    inside = np.arange(len(whole)) % 2 == 1
    return np.repeat(inside, whole).reshape(shape, order="F")


def numbers_of(given: Any, what: str) -> np.ndarray:
    """A flat list of finite numbers.   -> (N,)"""
    numbers = np.array(given) if isinstance(given, list) else np.array(None)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
        raise ValueError(f"{what} are a list of numbers")
    return numbers


def runs_of_text(text: str) -> np.ndarray:
    """-> (N,) int64

    A letter has five bits of a number, the lowest first, and a sixth that says that more follow. The highest bit is the
    sign. From the fourth on, a number is the difference to the one before the last.

    >>> runs_of_text("61X100").tolist()
    [6, 1, 40, 1, 40]
    """
    code = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64) - ord("0")
    more = (code & 32) > 0
    if not code.size or not text.isascii() or code.min() < 0 or code.max() > 63 or more[-1]:
        raise ValueError("text that holds no run lengths")
    first = np.flatnonzero(np.r_[True, ~more[:-1]])
    place = np.arange(len(code)) - np.repeat(first, np.diff(np.r_[first, len(code)]))
    if place.max() >= LONGEST:
        raise ValueError(f"a run length of more than {LONGEST} letters")
    runs = np.add.reduceat((code & 31) << (5 * place), first)
    negative = (code[~more] & 16) > 0
    runs -= np.where(negative, 1 << (5 * (place[~more] + 1)), 0)
    runs[1::2], runs[2::2] = np.cumsum(runs[1::2]), np.cumsum(runs[2::2])
    return runs
