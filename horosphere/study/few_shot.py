"""Few-shot learning as one table: methods by shots, or on base and novel classes, over the seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from horosphere import catalogue
from horosphere.errors import UserError, choices
from horosphere.evaluate.metric import Metric
from horosphere.files import write_whole
from horosphere.study.compare import compare
from horosphere.study.executors import Executor
from horosphere.study.planning import Study, plan
from horosphere.study.table import PAIRED, Results, require_same_study
from horosphere.tables import table_lines
from horosphere.tasks.few_shot import ZERO

T = TypeVar("T")
RECIPE, TABLE = "few-shot", "table.json"
SHOTS = (1, 2, 4, 8, 16)
ZERO_SHOT = "zero-shot"
# who answers to whom, where both are in the table
PAIRS = (
    ("lathadapter", ZERO_SHOT),
    ("lathadapter", "lathadapter-flat"),
    ("lathadapter", "linear-probe"),
    ("coop-lathadapter", "coop"),
)


@dataclass(frozen=True)
class FewShotTable:
    """Rows are methods and what the towers know without one. Columns are shots, or kinds of classes."""

    columns: dict[str, Metric]
    scores: dict[str, dict[str, list[float]]]  # of a method, in a column, of each seed
    seeds: int
    studies: dict[str, Results]  # with all that was measured

    def lines(self) -> list[str]:
        """For a terminal: the table and the verdict."""
        heads = ["method", *(f"{name} {metric.head.split()[-1]}" for name, metric in self.columns.items())]
        rows = [
            [method, *(self.columns[name].cell(values) for name, values in mine.items())]
            for method, mine in self.scores.items()
        ]
        return [*table_lines(heads, rows), self.verdict()]

    def verdict(self) -> str:
        """Who beats whom, and where."""
        if self.seeds < 2:
            return "1 seed: one run says nothing about chance. Pass --seeds 3."
        pairs = [(a, b) for a, b in PAIRS if a in self.scores and b in self.scores]
        pairs = pairs or [(method, ZERO_SHOT) for method in self.scores if method != ZERO_SHOT]
        return f"{self.seeds} seeds, {PAIRED}. {' '.join(self._between(a, b) for a, b in pairs)}"

    def _between(self, a: str, b: str) -> str:
        won, lost = self._wins(a, b), self._wins(b, a)
        if not won and not lost:
            return f"{_sentence(a)} and {b} cannot be told apart."
        said = [f"{x} beats {y} on {_listed(on)}" for x, y, on in ((a, b, won), (b, a, lost)) if on]
        return f"{_sentence('; '.join(said))}."

    def _wins(self, a: str, b: str) -> list[str]:
        """The columns in which a beats b, beyond chance."""
        return [n for n, metric in self.columns.items() if metric.beats(self.scores[a][n], self.scores[b][n])]

    def save(self, folder: Path, asked: dict[str, Any]) -> None:
        about = {"verdict": self.verdict(), "asked": asked, "seeds": self.seeds, "scores": self.scores}
        write_whole(folder / TABLE, (json.dumps(about, indent=2) + "\n").encode())


@dataclass(frozen=True)
class FewShotStudy:
    """All methods x seeds, as studies of `compare`. A study that was stopped goes on where it was.

    study = FewShotStudy(["data=pictures.npz", "towers=runs/two-towers"], 3, Path("runs/few-shot"), Here(), "cpu")
    print(*study.by_shots().lines(), sep="\\n")
    """

    settings: Sequence[str]  # of all trainings, as key=value
    seeds: int
    out: Path  # runs lie in folders below
    executor: Executor = field(repr=False)
    device: str
    overwrite: bool = False
    quiet: bool = False
    methods: Sequence[str] = ()  # of the comparison few-shot; none: all

    def by_shots(self, shots: Sequence[int] = SHOTS) -> FewShotTable:
        """Accuracy, a column for each number of shots."""
        if not shots:
            raise UserError(f"shots: give some numbers, as in {','.join(map(str, SHOTS))}")
        most_first = sorted(set(shots), reverse=True)  # a class with too few pictures is told before the trainings
        self._require_place([f"{count}-shot" for count in most_first])
        studies = {count: self._compare(f"{count}-shot", f"shots={count}") for count in most_first}
        return self._table({f"{count}-shot": (studies[count], "accuracy") for count in sorted(studies)})

    def base_to_novel(self, shots: int = 16) -> FewShotTable:
        """Half of the classes is learned. Columns: accuracy on that half, on the other, and their harmonic mean."""
        columns = {"base": "base", "novel": "novel", "mean": "harmonic"}
        self._require_place(columns)
        results = self._compare(f"base-to-novel-{shots}-shot", f"shots={shots}", "protocol=base-to-novel")
        return self._table({name: (results, metric) for name, metric in columns.items()})

    def _require_place(self, columns: Iterable[str]) -> None:
        require_same_study(self.out / TABLE, self._asked(columns), self.overwrite)

    def _asked(self, columns: Iterable[str]) -> dict[str, Any]:
        """What tells the table from others."""
        return {name: [*sorted(self.settings), *sorted(self.methods)] for name in columns}

    def _compare(self, name: str, *more: str) -> Results:
        decided = {setting.partition("=")[0] for setting in more} | {"protocol"}
        for setting in self.settings:
            if setting.partition("=")[0].strip() in decided:
                raise UserError(f"{setting}: the table decides this; leave it out")
        study = plan(RECIPE, [*self.settings, *more], None, self.seeds, self.out / name, name)
        return compare(self._chosen(study), self.executor, self.device, self.overwrite, self.quiet)

    def _chosen(self, study: Study) -> Study:
        """With the methods that were asked for."""
        known = {entrant.name: entrant for entrant in study.comparison.entrants}
        for method in self.methods:
            if method not in known:
                raise UserError(f"--methods {method}: there is no such method here; {choices(method, known)}")
        if not self.methods:
            return study
        entrants = tuple(entrant for name, entrant in known.items() if name in self.methods)
        return replace(
            study,
            comparison=replace(study.comparison, entrants=entrants),
            words=_part(study.words, self.methods),
            recipes=_part(study.recipes, self.methods),
        )

    def _table(self, columns: dict[str, tuple[Results, str]]) -> FewShotTable:
        """Of columns, each a study and one of its metrics."""
        metrics: dict[str, Metric] = {}
        scores: dict[str, dict[str, list[float]]] = {ZERO_SHOT: {}}
        for name, (results, metric) in columns.items():
            metrics[name] = next(m for m in results.metrics if m.name == metric)
            scores[ZERO_SHOT][name] = results.rows[0].scores[ZERO + metric]
            for row in results.rows:
                scores.setdefault(row.name, {})[name] = row.scores[metric]
        methods = [e.name for e in catalogue.comparisons()[RECIPE].entrants if e.name in scores]
        ordered = {method: scores[method] for method in (ZERO_SHOT, *methods)}
        table = FewShotTable(metrics, ordered, self.seeds, {name: results for name, (results, _) in columns.items()})
        table.save(self.out, self._asked(columns))
        return table


def _part(table: dict[str, T], names: Sequence[str]) -> dict[str, T]:
    return {name: value for name, value in table.items() if name in names}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _listed(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
