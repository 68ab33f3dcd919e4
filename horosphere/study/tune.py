"""Each entrant at its own best: the points of a grid, tried with one seed, judged by one half of what is held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.runs import Run
from horosphere.study.grid import Grid, Point, Tuned, name_of
from horosphere.study.jobs import Trainer
from horosphere.study.planning import Study, slug
from horosphere.train.recipe import Recipe

Scores = dict[Point, tuple[float, float]]  # NaN where the training failed; and how good that is, the more the better
FOLDER = "tuning"  # in the folder of a study: the runs that only choose


def tune(study: Study, seed: int, trainer: Trainer) -> dict[str, Tuned]:
    """What each entrant does best with. Where that lies at the edge of the grid, one value beyond is tried too."""
    if not study.grid.values:
        return {}
    tried = dict.fromkeys(study.words, study.grid.points())
    found = _try(study, tried, seed, trainer)
    further = {name: _possible(study, name, study.grid.beyond(_best(merits))) for name, merits in found.items()}
    if any(further.values()):
        more = _try(study, further, seed, trainer)
        found = {name: {**found[name], **more[name]} for name in study.words}
    return {name: _chosen(study, scores) for name, scores in found.items()}


def _try(study: Study, points: Mapping[str, Sequence[Point]], seed: int, trainer: Trainer) -> dict[str, Scores]:
    """The score of each entrant at each point, by the first metric that is judged and that the runs have."""
    jobs = {}
    for name, point in ((name, point) for name, mine in points.items() for point in mine):
        folder = study.out / FOLDER / slug(name, *point)
        jobs[name, point] = trainer.job(study.words_of(name, seed, (*point, "judged_on=tuning")), folder)
    failed = trainer("tuning", list(jobs.values()))
    found: dict[str, Scores] = {name: {} for name in points}
    for (name, point), job in jobs.items():
        scores = {} if job.folder in failed else Run.open(job.folder).scores()
        judged = next((m for m in study.task.metrics if m.role == "judged" and m.name in scores), None)
        found[name][point] = (math.nan, -math.inf) if judged is None else _of(judged, scores[judged.name])
    return found


def _of(metric: Metric, score: float) -> tuple[float, float]:
    return score, metric.merit([score])


def _best(scores: Scores) -> Point:
    return max(scores, key=lambda point: scores[point][1])


def _possible(study: Study, name: str, points: Sequence[Point]) -> list[Point]:
    """Those that the entrant's recipe takes."""
    taken = []
    for point in points:
        try:
            Recipe.read(study.words[name][0], [*study.words[name][1:], *point])
        except UserError:
            continue
        taken.append(point)
    return taken


def _chosen(study: Study, scores: Scores) -> Tuned:
    best = _best(scores)
    tried = {name: [point[i].partition("=")[2] for point in scores] for i, name in enumerate(study.grid.values)}
    grid = Grid.sorted({name: tuple(dict.fromkeys(values)) for name, values in tried.items()})
    edge = bool(grid.beyond(best))
    return Tuned(best, {name_of(point): score for point, (score, _) in scores.items()}, edge)
