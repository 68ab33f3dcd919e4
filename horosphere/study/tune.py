"""Each entrant at its own best: the points of a grid, tried with one seed, judged by one half of what is held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.study.grid import Grid, Point, Tuned, name_of
from horosphere.study.jobs import Trainer
from horosphere.study.planning import Study, slug
from horosphere.train.recipe import Recipe

FOLDER = "tuning"  # in the folder of a study: the runs that only choose


def tune(study: Study, seed: int, trainer: Trainer) -> dict[str, Tuned]:
    """What each entrant does best with. Where that lies at the edge of the grid, one value beyond is tried too."""
    if not study.grid.values:
        return {}
    tried = dict.fromkeys(study.words, study.grid.points())
    found = _try(study, tried, seed, trainer)
    further = {name: _possible(study, name, study.grid.beyond(_best(study, found[name]))) for name in study.words}
    if any(further.values()):
        more = _try(study, further, seed, trainer)
        found = {name: {**found[name], **more[name]} for name in study.words}
    return {name: _chosen(study, scores) for name, scores in found.items()}


def _try(
    study: Study, points: Mapping[str, Sequence[Point]], seed: int, trainer: Trainer
) -> dict[str, dict[Point, float]]:
    """The score of each entrant at each point, NaN where the training failed."""
    jobs = {}
    for name, point in ((name, point) for name, mine in points.items() for point in mine):
        folder = study.out / FOLDER / slug(name, *point)
        jobs[name, point] = trainer.job(study.words_of(name, seed, (*point, "judged_on=tuning")), folder)
    failed = trainer("tuning", list(jobs.values()))
    found: dict[str, dict[Point, float]] = {name: {} for name in points}
    for (name, point), job in jobs.items():
        found[name][point] = math.nan if job.folder in failed else _deciding(study, Run.open(job.folder))
    return found


def _deciding(study: Study, run: Run) -> float:
    """The score that decides, by the first of the metrics that are judged and that the run has."""
    scores = run.scores()
    return next(scores[m.name] for m in study.task.metrics if m.role == "judged" and m.name in scores)


def _best(study: Study, scores: Mapping[Point, float]) -> Point:
    judged = next(metric for metric in study.task.metrics if metric.role == "judged")
    return max(scores, key=lambda point: judged.merit([scores[point]]))


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


def _chosen(study: Study, scores: Mapping[Point, float]) -> Tuned:
    best = _best(study, scores)
    tried = {name: [point[i].partition("=")[2] for point in scores] for i, name in enumerate(study.grid.values)}
    grid = Grid.sorted({name: tuple(dict.fromkeys(values)) for name, values in tried.items()})
    edge = bool(grid.beyond(best))
    return Tuned(best, {name_of(point): score for point, score in scores.items()}, edge)
