"""The same data in several geometries, at equal dimension and budget: does curvature pay?"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from horosphere.data import Graph
from horosphere.geometry import GEOMETRIES
from horosphere.measure import Delta, delta, reconstruction
from horosphere.train.config import EmbedConfig
from horosphere.train.embed import Embedded, embed

MOST_NODES = 10_000  # are ranked, against all; more change the third digit and take minutes on a CPU
BETTER: dict[str, Literal["low", "high"]] = {
    "mean rank": "low",
    "mAP": "high",
}  # what is compared, and which way is good


@dataclass(frozen=True)
class Row:
    """One geometry: each metric over the seeds, the time of one seed, and the last seed's embedding."""

    geometry: str
    metrics: dict[str, list[float]]
    seconds: float
    example: Embedded

    def mean(self, metric: str) -> float:
        return statistics.fmean(self.metrics[metric])

    def spread(self, metric: str) -> float:
        """Standard deviation over seeds."""
        return statistics.stdev(self.metrics[metric]) if len(self.metrics[metric]) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Rows from best to worst mAP."""

    rows: list[Row]
    config: EmbedConfig
    seeds: int
    relations: int
    delta: Delta

    @property
    def best(self) -> Row:
        return self.rows[0]

    @property
    def rival(self) -> Row | None:
        """Whom the best answers to: flat space; where that is the best, the first that still beats it somewhere, else the runner-up."""
        others = self.rows[1:]
        wanted = [r for r in others if r.geometry == "euclidean"] or [
            r for r in others if self.best.geometry == "euclidean" and wins(r, self.best)
        ]
        return next(iter(wanted or others), None)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells of the table a person reads."""

        def cell(row: Row, metric: str, digits: int) -> str:
            spread = f" ± {row.spread(metric):.{digits}f}" if self.seeds > 1 else ""
            return f"{row.mean(metric):.{digits}f}{spread}"

        heads = ["geometry", "dim", "mean rank ↓", "mAP ↑", "time"]
        return heads, [
            [r.geometry, str(self.config.dim), cell(r, "mean rank", 2), cell(r, "mAP", 3), f"{r.seconds:.1f} s"]
            for r in self.rows
        ]

    def verdict(self) -> str:
        """What the table says, and no more than it says."""
        best, rival = self.best, self.rival
        if rival is None:
            return f"{self.seeds} {'seeds' if self.seeds > 1 else 'seed'} of one geometry: nothing to compare."
        if self.seeds < 2:
            return (
                f"1 seed: {best.geometry} has the highest mAP, but one run says nothing about chance. Pass --seeds 3."
            )
        flat = next((r for r in self.rows if r.geometry == "euclidean"), None)
        pays = flat is None or any(wins(r, flat) for r in self.rows)
        return f"{self.seeds} seeds. {_between(best, rival)}" + (
            "" if pays else " Curvature does not pay on this data."
        )


def wins(a: Row, b: Row) -> list[str]:
    """The metrics on which a beats b beyond the spread of seeds: the means are farther apart than the two standard deviations together."""
    sign = {"low": -1, "high": 1}
    return [m for m in BETTER if sign[BETTER[m]] * (a.mean(m) - b.mean(m)) > a.spread(m) + b.spread(m)]


def _between(a: Row, b: Row) -> str:
    one, other = a.geometry.capitalize(), b.geometry.capitalize()
    won, lost = wins(a, b), wins(b, a)
    if len(won) == len(BETTER):
        return f"{one} beats {other} beyond the spread of seeds on both mean rank and mAP."
    if won and lost:
        return f"{one} beats {other} beyond the spread of seeds on {won[0]}, {other} beats {one} on {lost[0]}."
    if won or lost:
        winner, loser = (one, other) if won else (other, one)
        return f"{winner} beats {loser} beyond the spread of seeds on {(won or lost)[0]} only."
    return f"{one} and {other} are within the spread of seeds of each other."


def compare(
    graph: Graph,
    config: EmbedConfig,
    geometries: Sequence[str] = GEOMETRIES,
    seeds: int = 3,
    device: str = "cpu",
    progress: Callable[[int, str], None] | None = None,
) -> Comparison:
    """Train every geometry with every seed at the same configuration. `progress(epochs done, note)` over all of them."""
    for name in geometries:
        replace(config, geometry=name).check()
    relations, tree_likeness = config.relations(graph), delta(graph, seed=config.seed)
    rows, done = [], 0
    for name in geometries:
        metrics: dict[str, list[float]] = {m: [] for m in BETTER}
        for seed in range(seeds):
            note = f"{name}, seed {seed + 1} of {seeds}"
            tick = (
                (lambda epoch, loss, done=done, note=note: progress(done + epoch, f"{note}, {loss}"))
                if progress
                else None
            )
            result = embed(graph, replace(config, geometry=name, seed=config.seed + seed), device, tick)
            score = reconstruction(result.points, result.manifold, relations, nodes=MOST_NODES, device=device)
            metrics["mean rank"].append(score.mean_rank)
            metrics["mAP"].append(score.map)
            done += config.epochs
        rows.append(Row(name, metrics, result.seconds, result))
    rows.sort(key=lambda r: -r.mean("mAP"))
    return Comparison(rows, config, seeds, len(relations), tree_likeness)
