"""Products of pairs of rows on the CPU, compiled: no row is copied, and each gradient is added where it belongs.

Each thread has a part of the pairs, or of the coordinates where pairs add to the same rows. So no two write to one
place, and the result does not depend on their number.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import torch

LINE = 16  # numbers of a line of the cache: threads that share one wait for each other

# Sums may be reordered and contracted, so that they become vectors. NaN and infinity keep their meaning.
compiled: Any = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


@compiled
def products(x, u, row, column, out, first, last):
    """out[p] = x[row[p]]·u[column[p]] for p from first to last"""
    for p in range(first, last):
        a, b, total = x[row[p]], u[column[p]], x.dtype.type(0)
        for k in range(x.shape[1]):
            total += a[k] * b[k]
        out[p] = total


@compiled
def spread(x, u, row, column, g, dx, du, first, last):
    """What `products` had from x and u: dx[row[p]] += g[p] u[column[p]], du[column[p]] += g[p] x[row[p]]

    For coordinates from first to last. In two loops: in one the compiler must guard four rows against each other.
    """
    for p in range(len(row)):
        a, b, da, db, share = x[row[p]], u[column[p]], dx[row[p]], du[column[p]], g[p]
        for k in range(first, last):
            da[k] += share * b[k]
        for k in range(first, last):
            db[k] += share * a[k]


def in_threads(kernel: Callable[..., None], arrays: tuple[Any, ...], size: int) -> None:
    """Runs kernel(*arrays, first, last) for parts of 0 … size, one for each thread that torch has."""
    threads = torch.get_num_threads()
    edges = [min(size, -(-size * part // threads // LINE) * LINE) for part in range(threads)] + [size]
    parts = [(first, last) for first, last in pairwise(edges) if first < last]
    waiting = [pool(threads).submit(kernel, *arrays, *part) for part in parts[1:]]
    for part in parts[:1]:  # this thread's own
        kernel(*arrays, *part)
    for each in waiting:
        each.result()


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pairs")
