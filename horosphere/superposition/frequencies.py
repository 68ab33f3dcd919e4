"""How often each feature is on: laws by name, scaled to a mean number of active features."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.foreign import Unreadable, read_table, shown

LAWS = "power:ALPHA, exponential:SCALE, linear, uniform, counts:FILE"
NUMBERED: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "power": lambda i, alpha: i**-alpha,
    "exponential": lambda i, scale: np.exp(-i / scale),
}
PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {"linear": lambda i: len(i) + 1 - i, "uniform": np.ones_like}
EXACT = 1e-9  # a frequency this near to one means a feature that is always on


def frequencies(law: str, n: int, density: float) -> np.ndarray:
    """p (n,), decreasing, proportional to the weights of a law, with Σp = density, the mean number of active features.

    Weights for i = 1 … n: power:α has i^-α, exponential:s has exp(-i/s), linear has n + 1 - i, uniform has 1, and
    counts:FILE has the n largest counts of a file.

    >>> frequencies("linear", n=4, density=1.0)
    array([0.4, 0.3, 0.2, 0.1])
    """
    if not (math.isfinite(density) and density > 0):
        raise UserError(f"density {density:g}: the mean number of active features must be a positive number")
    weights = weights_of(law, n)
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise UserError(f"{law}: frequencies must be finite and not negative")
    total = weights.sum()
    if not (np.isfinite(total) and total > 0):
        raise UserError(f"{law}: the frequencies of {n} features add up to {total:g}, there is nothing to scale")
    p = weights * (density / total)
    if p[0] > 1 + EXACT:
        most = math.floor(total / weights[0] * 1e6) / 1e6
        raise UserError(
            f"{law} with n = {n} at density {density:g}: the first feature would be on with p = {p[0]:.6g} > 1; "
            f"use at most {most:.8g}"
        )
    return np.where(p > 1 - EXACT, 1.0, p)


def plain_law(law: str) -> str:
    """The law in its shortest spelling. Refuses what is no law, but reads no file.

    >>> plain_law("power:0.50")
    'power:0.5'
    """
    name, _, argument = law.partition(":")
    if name in NUMBERED:
        value = _number(law, argument)
        return f"{name}:{value:g}" if float(f"{value:g}") == value else f"{name}:{value!r}"
    if law in PLAIN or (name == "counts" and argument):
        return law
    raise UserError(f"{law}: no such law of frequencies; choose from {LAWS}")


def weights_of(law: str, n: int) -> np.ndarray:
    """The weights of a law, decreasing, not yet scaled.   -> (n,) float64

    >>> weights_of("power:1", 4).round(3)
    array([1.   , 0.5  , 0.333, 0.25 ])
    """
    plain_law(law)
    name, _, argument = law.partition(":")
    i = np.arange(1, n + 1, dtype=np.float64)
    if name in NUMBERED:
        return NUMBERED[name](i, _number(law, argument))
    return PLAIN[law](i) if law in PLAIN else _counts(Path(argument), n)


def _number(law: str, text: str) -> float:
    """α >= 0 or a scale > 0: with anything else the law would not decrease."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and law.startswith("exponential")):
        raise UserError(
            f'{law}: "{text}" is no number that this law can take; write e.g. power:1.25 or exponential:400'
        )
    return value


def _counts(path: Path, n: int) -> np.ndarray:
    """The n largest counts of a file: one a line, or the column `count` of a CSV."""
    try:
        rows = read_table(path)
    except Unreadable as error:
        raise UserError(f"counts:{path}: cannot be read ({error}); give a file of counts, one a line") from error
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    column = 0
    if "count" in header:
        column, rows = header.index("count"), rows[1:]
    elif len(header) > 1:
        raise UserError(f"{path}: a table without a column `count`; it has {one_line(', '.join(header))}")
    if len(rows) < n:
        raise UserError(f"{path}: {len(rows)} counts for n = {n} features; lower n, or give a longer file")
    return np.sort([_count(path, number, row, column) for number, row in rows])[::-1][:n].copy()


def _count(path: Path, line: int, row: list[str], column: int) -> float:
    text = row[column].strip() if column < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{path} line {line}: {shown(text)} is no count (a number that is not negative)")
    return value
