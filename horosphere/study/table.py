"""What a study found: one table, one rule for "beats", one verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from horosphere.catalogue import Entrant
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.files import write_whole
from horosphere.foreign import read_json
from horosphere.study.grid import Tuned
from horosphere.tables import table_lines

RESULTS = "study.json"
PAIRED = "paired (± is a 95 % interval)"


@dataclass(frozen=True)
class Row:
    """One entrant over the seeds."""

    entrant: Entrant
    parameters: int
    scores: dict[str, list[float]]  # of each seed, at the end; NaN of a training that failed
    seconds: list[float]  # of each training
    step_ms: float  # the median
    curve_of: str  # the metric that its curve shows
    curve: list[tuple[float, float]]  # units read in training, and the mean over seeds there
    folders: list[str]  # of the runs
    sample: str = ""  # what the first of them wrote
    failed: dict[int, str] = field(default_factory=dict)  # {seed: why}: it diverged, or learned nothing
    tuned: Tuned | None = None
    gflop: float = 0.0  # of a step; 0: not counted

    @property
    def name(self) -> str:
        return self.entrant.name

    @property
    def sentence_name(self) -> str:
        return self.name[0].upper() + self.name[1:]


def _step(ms: float) -> str:
    return f"{ms:.3g}" if ms < 1000 else f"{ms:,.0f}"


@dataclass(frozen=True)
class Results:
    """Rows from the best to the worst by the first metric."""

    title: str
    column: str  # what the entrants are
    subject: str  # what the verdict speaks of
    unit: str  # what curves count
    curve_of: str  # what they show
    metrics: tuple[Metric, ...]  # that the runs have
    rows: list[Row]
    seeds: int
    made_with: dict[str, Any]
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)  # {method: {metric: score}}, below the rows

    # -- the table --------------------------------------------------------------------------------------------------

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells of the table a person reads."""
        shown = [metric for metric in self.metrics if metric.role != "detail"]
        columns = self._more_columns()
        heads = [self.column, *columns, "parameters", *(metric.head for metric in shown), "ms/step", "time"]
        rows = [
            [
                row.name,
                *(of(row) for of in columns.values()),
                f"{row.parameters:,}",
                *(metric.cell(row.scores[metric.name]) for metric in shown),
                *([_step(row.step_ms), f"{median(row.seconds):.1f} s"] if row.seconds and row.step_ms else ["", ""]),
            ]
            for row in self.rows
        ]
        for name, scores in self.baselines.items():
            told = [metric.cell([scores[metric.name]]) if metric.name in scores else "" for metric in shown]
            rows.append([name, *[""] * len(columns), "", *told, "", ""])
        return heads, rows

    def _more_columns(self) -> dict[str, Callable[[Row], str]]:
        """What only some studies have: values that were tuned, trainings that failed, operations counted."""
        columns: dict[str, Callable[[Row], str]] = {}
        if tuned := next((row.tuned for row in self.rows if row.tuned), None):
            head = " ".join(word.partition("=")[0] for word in tuned.chosen)
            columns[head] = lambda row: row.tuned.cell if row.tuned else ""
        if any(row.failed for row in self.rows):
            columns["failed"] = lambda row: f"{len(row.failed)} of {self.seeds}" if row.failed else ""
        if any(row.gflop for row in self.rows):
            columns["GFLOP/step"] = lambda row: f"{row.gflop:,.3g}" if row.gflop else ""
        return columns

    def lines(self) -> list[str]:
        """For a terminal: the table, what a reader should know of it, and the verdict."""
        return [*table_lines(*self.cells(), best=self.best()), *self.notes(), self.verdict()]

    def notes(self) -> list[str]:
        """Trainings that failed, each with its reason, and values at the edge of what was tried."""
        said = [f"{row.name}, seed {seed}: {why}" for row in self.rows for seed, why in row.failed.items()]
        edge = [row.name for row in self.rows if row.tuned and row.tuned.edge]
        if edge:
            where = f"the best value lies at the edge of what was tried, for {' and '.join(edge)}"
            said.append(f"* {where}: a better one may lie beyond")
        return said

    def best(self) -> range:
        """Which rows to mark: the best ones, unless all are."""
        leaders = len(self.leaders())
        return range(leaders if leaders < len(self.rows) else 0)

    def leaders(self) -> list[Row]:
        """The best rows: several where the digits shown do not tell them apart."""
        first = self.judged[0]
        best = first.merit(self.rows[0].scores[first.name])
        merits = [(row, first.merit(row.scores[first.name])) for row in self.rows]
        return [row for row, merit in merits if merit > -math.inf and round(best - merit, first.digits) <= 0]

    # -- the verdict ------------------------------------------------------------------------------------------------

    @property
    def judged(self) -> list[Metric]:
        return [metric for metric in self.metrics if metric.role == "judged"]

    def verdict(self) -> str:
        """What the table says, and no more than it says."""
        several = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        if len(self.rows) < 2:
            return f"{several} of one {self.column}: nothing to compare."
        best, first = self.leaders(), self.judged[0]
        if not best:
            return f"{several}: every training failed.{self._failures()}"
        if self.seeds < 2:
            has = f"{best[0].name} has" if len(best) == 1 else f"{' and '.join(row.name for row in best)} share"
            said = f"{has} the best {first.title} ({first.cell(best[0].scores[first.name])})"
            return f"{several}: {said}{self._gap(best)}, but one run says nothing about chance. Pass --seeds 3."
        pairs = self.pairs()
        told = {frozenset((a.name, b.name)) for a, b in pairs}
        more = [(a, b) for a, b in self._ablations() if {a.name, b.name} not in told]
        said = " ".join(self._between(a, b) for a, b in [*pairs, *more])
        return f"{several}, {PAIRED}. {said}{self._failures()}{self._conclusion(pairs)}"

    def _gap(self, best: list[Row]) -> str:
        """How far the best are ahead of the others of one seed, the nearest of them."""
        others = [row for row in self.rows if row not in best and not row.entrant.baseline]
        first = self.judged[0]
        gaps = [(first.merit(best[0].scores[first.name]) - first.merit(row.scores[first.name]), row) for row in others]
        gap, second = min(gaps, key=lambda pair: pair[0], default=(math.inf, None))
        return f", {gap:.{first.digits}f} ahead of {second.name}" if second and math.isfinite(gap) else ""

    def _failures(self) -> str:
        said = [f"{row.sentence_name} failed in {len(row.failed)} of {self.seeds}" for row in self.rows if row.failed]
        return f" {', '.join(said)}." if said else ""

    def pairs(self) -> list[tuple[Row, Row]]:
        """Who answers to whom, the curved one first: twins; else the best of each kind; else the first two."""
        rows = {row.name: row for row in self.rows if not row.entrant.baseline}
        twins = [(rows[row.entrant.twin_of], row) for row in rows.values() if row.entrant.twin_of in rows]
        if twins:
            order = list(rows)
            return sorted(twins, key=lambda pair: order.index(pair[0].name))
        flat = next((row for row in rows.values() if row.entrant.flat), None)
        curved = [row for row in rows.values() if not row.entrant.flat]
        if flat is None or not curved:
            first, second, *_ = rows.values()
            return [(first, second)]
        return [(max(curved, key=lambda row: len(self._wins(row, flat)) - len(self._wins(flat, row))), flat)]

    def _ablations(self) -> list[tuple[Row, Row]]:
        rows = {row.name: row for row in self.rows}
        return [(rows[row.entrant.ablation_of], row) for row in self.rows if row.entrant.ablation_of in rows]

    def _wins(self, a: Row, b: Row) -> list[Metric]:
        """What a beats b on, beyond chance. Who fails more often beats nobody."""
        if len(a.failed) > len(b.failed):
            return []
        return [metric for metric in self.judged if metric.beats(a.scores[metric.name], b.scores[metric.name])]

    def _between(self, a: Row, b: Row) -> str:
        won, lost = self._wins(a, b), self._wins(b, a)
        if not won and not lost:
            by = " and ".join(self._lead(a, b, m) for m in self.judged)
            return f"{a.sentence_name} and {b.sentence_name} cannot be told apart ({by})."
        said = [
            f"{x.sentence_name} beats {y.sentence_name} by {' and '.join(self._lead(x, y, m) for m in metrics)}"
            for x, y, metrics in ((a, b, won), (b, a, lost))
            if metrics
        ]
        only = " only" * (len(won or lost) < len(self.judged) and len(said) == 1)
        return f"{'; '.join(said)}{only}."

    def _lead(self, a: Row, b: Row, metric: Metric) -> str:
        """ "0.021 ± 0.006 on bits/byte": how far a is ahead of b"""
        lead = metric.lead(a.scores[metric.name], b.scores[metric.name])
        if not math.isfinite(lead.half):
            return f"fewer than two pairs on {metric.title}"
        return f"{lead.mean:.{metric.digits}f} ± {lead.half:.{metric.digits}f} on {metric.title}"

    def _conclusion(self, pairs: list[tuple[Row, Row]]) -> str:
        pairs = [(a, b) for a, b in pairs if b.entrant.flat and not a.entrant.flat]
        failing = [row.sentence_name for pair in pairs for row in pair if len(row.failed) == self.seeds]
        pairs = [(a, b) for a, b in pairs if self.seeds not in (len(a.failed), len(b.failed))]
        if not pairs:
            return (
                f" With {' and '.join(failing)} failing every time, this says nothing of curvature." if failing else ""
            )
        won = [a.name for a, b in pairs if self._wins(a, b)]
        lost = [a.name for a, b in pairs if self._wins(b, a)]
        mixed = [name for name in won if name in lost]
        pays = [name for name in won if name not in lost]
        if not won:
            pays_not = "does not pay" if len(lost) == len(pairs) else "is not seen to pay"
            return f" Curvature {pays_not} on {self.subject}."
        if len(pays) == len(pairs):
            return f" Curvature pays on {self.subject}."
        if not mixed:
            return f" Curvature pays on {self.subject} in {' and '.join(pays)} only."
        if len(mixed) == len(pairs):
            return f" Whether curvature pays on {self.subject} depends on which of them counts."
        sure = f"it pays in {' and '.join(pays)}" if pays else "it is not seen to pay in the others"
        return f" On {self.subject} {sure}; in {' and '.join(mixed)} that depends on which score counts."

    # -- files ------------------------------------------------------------------------------------------------------

    def save(self, folder: Path, asked: dict[str, Any]) -> None:
        """asked: what tells the study from others, by name."""
        about = {"verdict": self.verdict(), "asked": asked, **asdict(self)}
        write_whole(folder / RESULTS, (json.dumps(without_nan(about), indent=2) + "\n").encode())


def without_nan(tree: Any) -> Any:
    """As JSON has it: what failed is null."""
    if isinstance(tree, dict):
        return {name: without_nan(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [without_nan(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def require_same_study(file: Path, asked: dict[str, Any], overwrite: bool) -> None:
    """Results are replaced unasked by those of a study that has all of theirs, and perhaps more."""
    if overwrite or not file.is_file():
        return
    try:
        before = read_json(file)["asked"]
        same = all(asked.get(name) == what for name, what in before.items())
    except (ValueError, LookupError, AttributeError):
        same = False
    if not same:
        raise UserError(f"{file} is of another study: choose another --out, or pass --overwrite")
