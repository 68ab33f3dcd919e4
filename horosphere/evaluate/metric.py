"""What a number is called, how many digits of it are shown, which way is better, and who is ahead beyond chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

SURE = 0.95  # how often an interval holds the true difference


@dataclass(frozen=True)
class Lead:
    """How far one is ahead of another: the mean of differences, and half the width of its interval."""

    mean: float
    half: float  # infinite of fewer than two pairs


@dataclass(frozen=True)
class Metric:
    """One number of an evaluation. NaN stands for a training that failed.

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
        """Mean and, of several, standard deviation; of those that did not fail."""
        values = finite(values)
        if not values:
            return "failed"
        return f"{fmean(values):.{self.digits}f}" + (f" ± {spread(values):.{self.digits}f}" if len(values) > 1 else "")

    def ahead(self, value: float, other: float) -> float:
        """By how much a value is better than another one."""
        return value - other if self.better == "high" else other - value

    def merit(self, values: Sequence[float]) -> float:
        """The larger the better: of the mean; -inf where all failed."""
        values = finite(values)
        return self.ahead(fmean(values), 0.0) if values else -math.inf

    def lead(self, values: Sequence[float], others: Sequence[float]) -> Lead:
        """Of paired values, one a seed: the mean difference, ± t·s/√n, Student's t for 95 %.

        Pairs share what their seed decides: the order of data, the start. So the spread that they share drops out.

        >>> lead = Metric("loss", "loss", 2, "low").lead([1.0, 2.0, 3.0], [1.5, 2.6, 3.4])
        >>> f"{lead.mean:.3f} ± {lead.half:.3f}"
        '0.500 ± 0.248'
        """
        pairs = [(a, b) for a, b in zip(values, others, strict=True) if math.isfinite(a) and math.isfinite(b)]
        gaps = [self.ahead(a, b) for a, b in pairs]
        mean = fmean(gaps) if gaps else math.nan
        return Lead(mean, student(len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf)

    def beats(self, values: Sequence[float], others: Sequence[float]) -> bool:
        """Beyond chance: the interval of the paired difference lies above 0.

        And the digits that are shown must tell them apart.
        """
        lead = self.lead(values, others)
        return round(lead.mean, self.digits) > 0 and lead.mean > lead.half if math.isfinite(lead.half) else False


def student(freedom: int) -> float:
    """How many standard errors reach from the middle of Student's t to the end of its interval.

    >>> round(student(2), 3)
    4.303
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + SURE) / 2))


def finite(values: Sequence[float]) -> list[float]:
    """Those of trainings that did not fail."""
    return [value for value in values if math.isfinite(value)]


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 of one."""
    return stdev(values) if len(values) > 1 else 0.0
