"""Which nodes to look at when there are too many to look at all."""

from __future__ import annotations

import numpy as np


def sample(pool: np.ndarray, size: int, seed: int) -> np.ndarray:
    """At most `size` distinct members of the pool, sorted.   (N,) -> (min(size, N),)

    >>> len(sample(np.arange(100), 7, seed=0)), sample(np.arange(3), 7, seed=0)
    (7, array([0, 1, 2]))
    """
    return np.sort(np.random.default_rng(seed).choice(pool, min(size, len(pool)), replace=False))
