"""What a number is called, how many digits of it are shown, and which way is better."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number of an evaluation.

    >>> Metric("top1", "top-1", 4, "high", "judged").cell([0.5, 0.52])
    '0.5100 ± 0.0141'
    """

    name: str  # as an evaluation has it
    title: str  # as people read it
    digits: int
    better: Literal["high", "low"]
    role: Literal["judged", "shown", "detail"] = (
        "shown"  # judged: a verdict speaks of it; detail: not in tables of studies
    )
    note: str = ""  # what a reader should know: "1 is perfect"

    @property
    def head(self) -> str:
        return f"{self.title} {'↑' if self.better == 'high' else '↓'}"

    def show(self, value: float) -> str:
        return f"{value:.{self.digits}f}" + f"  ({self.note})" * bool(self.note)

    def cell(self, values: Sequence[float]) -> str:
        """Mean and, of several, standard deviation."""
        return f"{fmean(values):.{self.digits}f}" + (f" ± {spread(values):.{self.digits}f}" if len(values) > 1 else "")

    def ahead(self, value: float, other: float) -> float:
        """By how much a value is better than another one."""
        return value - other if self.better == "high" else other - value

    def beats(self, values: Sequence[float], others: Sequence[float]) -> bool:
        """Beyond the spread of seeds: the means are farther apart than the two standard deviations together.

        And the digits that are shown must tell them apart.
        """
        gap = self.ahead(fmean(values), fmean(others))
        return round(gap, self.digits) > 0 and gap > spread(values) + spread(others)


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 of one."""
    return stdev(values) if len(values) > 1 else 0.0
