"""Directions well apart: points on the unit sphere with a large smallest angle."""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

HALVINGS = 60  # of an interval of angles: then its ends are one float64
TINY = 1e-15
ROUND = 1e-9  # radians by which a last point may be nearer than asked for: an angle of 2π/n fits n times


@lru_cache(maxsize=4096)
def widest_angle(count: int, dim: int) -> float:
    """The angle that so many directions of `spherical_code` keep from each other.

    >>> widest_angle(6, dim=2) == math.pi / 3
    True
    >>> round(math.degrees(widest_angle(4, dim=3)), 2)  # a tetrahedron
    109.47
    """
    if dim == 2 or count <= 2:
        return 2 * math.pi / max(count, 2)
    enough, too_wide = math.pi, math.pi
    while not _holds(count, enough, dim):
        enough, too_wide = enough / 2, enough
    for _ in range(HALVINGS):
        middle = (enough + too_wide) / 2
        enough, too_wide = (middle, too_wide) if _holds(count, middle, dim) else (enough, middle)
    return enough


@lru_cache(maxsize=4096)
def spherical_code(count: int, dim: int) -> np.ndarray:
    """Unit vectors in d >= 2 dimensions, the first of them -e1, all `widest_angle` or more apart.   -> (count, d)

    Peeled like an apple: rings around -e1, one angle apart, and on each ring a code of one dimension less. In two
    dimensions the circle in equal parts. Simplices and cross-polytopes come out as they are.

    >>> spherical_code(4, dim=2).round(3) + 0.0
    array([[-1.,  0.],
           [ 0.,  1.],
           [ 1.,  0.],
           [ 0., -1.]])
    """
    peel = _peel(widest_angle(count, dim), dim)
    code = np.array([next(peel) for _ in range(count)])
    code[abs(code) < TINY] = 0  # sin π: what lies straight ahead lies there exactly
    code.flags.writeable = False  # it is cached
    return code


def _holds(count: int, angle: float, dim: int) -> bool:
    """Whether at least so many directions are this far apart."""
    return _count(angle, dim, count) >= count


def _count(angle: float, dim: int, most: int) -> int:
    """How many directions `_peel` has; counting ends at `most`."""
    if dim == 2:
        return int((2 * math.pi + ROUND) / angle)
    found = 0
    for _, inner in _rings(angle):
        found += 1 if inner is None else _count(inner, dim - 1, most - found)
        if found >= most:
            break
    return found


def _peel(angle: float, dim: int) -> Iterator[tuple[float, ...]]:
    if dim == 2:
        count = _count(angle, 2, 0)
        for number in range(count):
            turn = 2 * math.pi * number / count
            yield -math.cos(turn), math.sin(turn)
        return
    for latitude, inner in _rings(angle):
        alone = ((1.0,) + (0.0,) * (dim - 2),)
        for around in alone if inner is None else _peel(inner, dim - 1):
            yield -math.cos(latitude), *(math.sin(latitude) * x for x in around)


def _rings(angle: float) -> Iterator[tuple[float, float | None]]:
    """Angles from -e1, and how far apart points must be there, seen from the axis; None: one point is all it holds."""
    for number in range(int((math.pi + ROUND) / angle) + 1):
        latitude = min(number * angle, math.pi)
        share = math.sin(angle / 2) / max(math.sin(latitude), ROUND)
        yield latitude, 2 * math.asin(min(share, 1)) if share <= 1 + ROUND else None
