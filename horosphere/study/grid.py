"""Settings and the values that each entrant of a study tries, and what it does best with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from horosphere.errors import UserError

Point = tuple[str, ...]  # a value for each setting: ("lr=1e-3",)
FIXED = ("model", "geometry", "task", "data", "seed", "judged_on")  # what an entrant is, and how it is judged
EQUAL = ("steps", "epochs", "batch", "length")  # what all entrants of a study have alike: as much to learn from


@dataclass(frozen=True)
class Grid:
    """Settings, and the values that each may take.

    >>> Grid.read(["lr=1e-3,2e-3", "weight_decay=0,0.1"]).points()[:2]
    [('lr=1e-3', 'weight_decay=0'), ('lr=1e-3', 'weight_decay=0.1')]
    """

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def read(words: Sequence[str]) -> Grid:
        """Of "lr=1e-3,2e-3": a setting and its values. Numbers are put in order."""
        values: dict[str, tuple[str, ...]] = {}
        for word in words:
            name, _, listed = (part.strip() for part in word.partition("="))
            given = tuple(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
            if not name or len(given) < 2:
                raise UserError(f"--tune {word}: give a setting and at least two values, as in --tune lr=1e-3,2e-3")
            if name in FIXED:
                raise UserError(f"--tune {word}: {name} says what is trained, not how; tune another setting")
            if name in EQUAL:
                raise UserError(f"--tune {word}: entrants learn from as much, so {name} is the same for all; set it")
            if name in values:
                raise UserError(f"--tune {word}: {name} is tuned twice; give all its values at once")
            values[name] = given
        return Grid.sorted(values)

    @staticmethod
    def sorted(values: Mapping[str, tuple[str, ...]]) -> Grid:
        """Numbers in order."""
        number = {name: all(map(_is_number, given)) for name, given in values.items()}
        return Grid({name: tuple(sorted(g, key=float)) if number[name] else g for name, g in values.items()})

    def points(self) -> list[Point]:
        axes = [[f"{name}={value}" for value in values] for name, values in self.values.items()]
        return list(product(*axes))

    def beyond(self, best: Point) -> list[Point]:
        """For each setting whose first or last value the point has: the point with the next value beyond.

        The next value is as far from the last as that is from the one before: in ratio, of positive numbers.

        >>> Grid.read(["lr=1e-3,2e-3,4e-3"]).beyond(("lr=4e-3",))
        [('lr=0.008',)]
        """
        further = []
        for place, (name, values) in enumerate(self.values.items()):
            value = best[place].partition("=")[2]
            if not all(map(_is_number, values)) or value not in (values[0], values[-1]):
                continue
            end, before = (values[0], values[1]) if value == values[0] else (values[-1], values[-2])
            if (new := _next(end, before)) is not None:
                further.append((*best[:place], f"{name}={new}", *best[place + 1 :]))
        return further


@dataclass(frozen=True)
class Tuned:
    """What tuning found for one entrant."""

    chosen: Point
    scores: dict[str, float]  # of each point, "lr=1e-3", by the metric that decides; NaN where the training failed
    edge: bool  # the best lies at the edge of what was tried, so a better one may lie beyond

    @property
    def cell(self) -> str:
        """For a table: "lr 2e-3", with a star at the edge."""
        return " ".join(word.partition("=")[2] for word in self.chosen) + "*" * self.edge


def name_of(point: Point) -> str:
    """A point as one word."""
    return " ".join(point)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _next(end: str, before: str) -> str | None:
    """The value beyond the end of a row of numbers, written as short as it is; None where there is none.

    >>> _next("4e-3", "2e-3"), _next("8", "16"), _next("0", "0.1")
    ('0.008', '4', None)
    """
    last, inner = float(end), float(before)
    if last <= 0 or inner <= 0:
        return None
    new = last * last / inner
    text = str(round(new)) if end.isdecimal() and before.isdecimal() else f"{new:.3g}"
    return None if float(text) in (last, 0.0) else text
