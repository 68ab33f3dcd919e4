"""The same study at several sizes: quality against size, and where one entrant catches up with another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from horosphere.evaluate.metric import Metric
from horosphere.files import write_whole
from horosphere.study.compare import compare
from horosphere.study.executors import Executor
from horosphere.study.planning import Study
from horosphere.study.table import PAIRED, RESULTS, Results, require_same_study, without_nan
from horosphere.tables import table_lines

SWEEP = "sizes.json"


@dataclass(frozen=True)
class Sweep:
    """Results by size, the smallest first."""

    what: str  # what a size is: "dims", "widths"
    results: dict[int, Results]

    @property
    def metric(self) -> Metric:
        """The first that is judged."""
        return self._any.judged[0]

    @property
    def _any(self) -> Results:
        return next(iter(self.results.values()))

    @property
    def unit(self) -> str:
        """One size: "dim", "width"."""
        return self.what.removesuffix("s")

    def scores(self) -> dict[str, dict[int, list[float]]]:
        """Of each entrant at each size, every seed, by that metric."""
        names = [row.name for row in self._any.rows if not row.entrant.baseline]
        rows = {size: {row.name: row for row in results.rows} for size, results in self.results.items()}
        return {name: {size: of[name].scores[self.metric.name] for size, of in rows.items()} for name in names}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells: an entrant a row, a size a column."""
        heads = [self._any.column, *(f"{self.unit} {size}" for size in self.results)]
        rows = [[name, *(self.metric.cell(values) for values in of.values())] for name, of in self.scores().items()]
        return heads, rows

    def lines(self) -> list[str]:
        """For a terminal."""
        return [self.metric.head, *table_lines(*self.cells()), self.verdict()]

    def verdict(self) -> str:
        """Of each curved entrant and flat space: who is ahead at which sizes."""
        if self._any.seeds < 2:
            return "1 seed: one run says nothing about chance. Pass --seeds 3."
        said = [self._between(a, b) for a, b in self._pairs()]
        return f"{self._any.seeds} seeds, {PAIRED.partition(' (')[0]}, by {self.metric.title}. {' '.join(said)}"

    def _pairs(self) -> list[tuple[str, str]]:
        """Twins; else each curved entrant and the flat one; else the first two."""
        entrants = [row.entrant for row in self._any.rows if not row.entrant.baseline]
        names = {entrant.name for entrant in entrants}
        twins = [(entrant.twin_of, entrant.name) for entrant in entrants if entrant.twin_of in names]
        flat = next((entrant.name for entrant in entrants if entrant.flat), None)
        others = [(entrant.name, flat) for entrant in entrants if flat and not entrant.flat]
        return twins or others or [(entrants[0].name, entrants[1].name)]

    def _between(self, a: str, b: str) -> str:
        """Neighbouring sizes at which the same is true are told together."""
        told = []
        for leader, sizes in groupby(self.results, key=lambda size: self._leader(a, b, size)):
            at = ", ".join(map(str, sizes))
            told.append(f"{leader} leads at {at}" if leader else f"they cannot be told apart at {at}")
        return f"{a} and {b}: {'; '.join(told)}."

    def _leader(self, a: str, b: str, size: int) -> str:
        rows = {row.name: row for row in self.results[size].rows}
        for one, other in ((a, b), (b, a)):
            fails = len(rows[one].failed) > len(rows[other].failed)
            of, than = (rows[name].scores[self.metric.name] for name in (one, other))
            if self.metric.beats(of, than) and not fails:
                return one
        return ""

    def save(self, folder: Path) -> None:
        about = {"verdict": self.verdict(), "sizes": self.what, "metric": self.metric.name, "scores": self.scores()}
        write_whole(folder / SWEEP, (json.dumps(without_nan(about), indent=2) + "\n").encode())


def sweep(
    studies: Mapping[int, Study], executor: Executor, device: str, overwrite: bool = False, quiet: bool = False
) -> Sweep:
    """Each study in turn. What was stopped goes on where it was."""
    for study in studies.values():
        require_same_study(study.out / RESULTS, study.asked, overwrite)
    results = {size: compare(study, executor, device, overwrite, quiet) for size, study in sorted(studies.items())}
    return Sweep(next(iter(studies.values())).task.sizes, results)
