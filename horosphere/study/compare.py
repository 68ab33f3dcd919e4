"""Entrants x seeds: the same recipe in several geometries, a model beside its twin. Does curvature pay?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from horosphere import catalogue
from horosphere.catalogue import Comparison, Entrant
from horosphere.errors import UserError
from horosphere.files import locked
from horosphere.progress import progress
from horosphere.recipes import recipe_names
from horosphere.runs import Run, made_with
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, run_all
from horosphere.study.table import RESULTS, Results, Row, require_same_study
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe
from horosphere.train.task import CompareOptions, Task

BEFORE = Entrant("before", flat=True, baseline=True)


@dataclass(frozen=True)
class Study:
    """What is compared, and how."""

    title: str
    comparison: Comparison
    recipes: dict[str, Recipe]  # of each entrant
    words: dict[str, list[str]]  # what `horosphere train` is told of each entrant
    options: CompareOptions
    seeds: int
    out: Path

    @property
    def task(self) -> Task[Any]:
        return next(iter(self.recipes.values())).task

    @property
    def asked(self) -> dict[str, Any]:
        """What tells it from other studies. With more seeds it is the same."""
        return {entrant: [said[0], *sorted(said[1:])] for entrant, said in self.words.items()}


def plan(
    name: str, settings: Sequence[str], options: CompareOptions | None, seeds: int, out: Path, title: str | None = None
) -> Study:
    """The study of a comparison or recipe by name, under settings for all entrants."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: --out takes the name of a folder here")
    known = catalogue.comparisons()
    if name in known and name not in recipe_names():
        comparison = known[name]
        options = options or Recipe.read(comparison.entrants[0].recipe, settings).task.options()
        if options.geometries:
            raise UserError(
                f"geometries={','.join(options.geometries)}: the entrants of {name} are fixed; leave it out"
            )
    else:
        task = Recipe.read(name, settings).task
        options = options or task.options()
        comparison = task.comparison(options)
    _refuse_decided(comparison, settings)
    words = {e.name: [e.recipe or name, *settings, *e.changes] for e in comparison.entrants}
    recipes = {entrant: Recipe.read(said[0], said[1:]) for entrant, said in words.items()}
    evened = next(iter(recipes.values())).task.evened(recipes)
    _refuse_decided(comparison, settings, {change.partition("=")[0] for more in evened.values() for change in more})
    words = {entrant: [*said, *evened.get(entrant, [])] for entrant, said in words.items()}
    return Study(title or name, comparison, recipes, words, options, seeds, out)


def _refuse_decided(comparison: Comparison, settings: Sequence[str], evened: Set[str] = frozenset()) -> None:
    """What the entrants differ in, or what makes them alike in size, is not for users to set."""
    decided = evened | {change.partition("=")[0] for entrant in comparison.entrants for change in entrant.changes}
    if len({entrant.recipe for entrant in comparison.entrants}) > 1:
        decided |= {"model", "geometry"}
    for setting in settings:
        if setting.partition("=")[0].strip() in decided:
            how = f"leave it out, or train one {comparison.column} with it"
            raise UserError(f"{setting}: this is what the entrants of the comparison differ in; {how}")


def compare(study: Study, executor: Executor, device: str, overwrite: bool = False, quiet: bool = False) -> Results:
    """Train every entrant with every seed, each by a command of its own into a folder below `out`.

    A study that was stopped goes on where it was; runs that are done stay.
    """
    recipe, task = next(iter(study.recipes.values())), study.task
    task.quiet, task.world = quiet, World(device=torch.device(device))
    data = task.open_data()  # here, so that complaints come once, and before jobs look for caches that are not there
    task.check_study(study.options, data)
    engine = recipe.engine.for_data(task.rows(data), recipe.engine.batch or task.natural_batch(data))
    del data  # the jobs open it themselves
    seeds = range(engine.seed, engine.seed + study.seeds)
    there = executor.device(device)
    jobs = {(seed, name): _job(study, name, seed, engine.steps, there) for seed in seeds for name in study.words}
    if overwrite:
        jobs = {key: job.anew() for key, job in jobs.items()}
    with locked(study.out):
        require_same_study(study.out / RESULTS, study.asked, overwrite)
        with progress("training", sum(job.steps for job in jobs.values()), quiet) as update:
            run_all(list(jobs.values()), executor, update)
        results = _judged(study, jobs, engine, device)
        results.save(study.out, study.asked)
    return results


def _judged(study: Study, jobs: Mapping[tuple[int, str], Job], engine: EngineConfig, device: str) -> Results:
    """What the runs of the jobs came to."""
    task = study.task
    seeds = sorted({seed for seed, _ in jobs})
    a_step, rows = engine.batch * task.units_per_row, []
    for entrant in study.comparison.entrants:
        runs = [Run.open(jobs[seed, entrant.name].folder) for seed in seeds]
        scores = [{**run.scores(), **task.judge(run, study.options, device)} for run in runs]
        rows.append(_row(entrant, runs, scores, task, a_step))
        before = [run.evaluations()[0] for run in runs]
    if task.measures_before:  # nothing has learned yet: all entrants begin alike
        rows.append(
            replace(rows[-1], entrant=BEFORE, parameters=0, scores=_columns(before), seconds=[0.0], step_ms=0.0)
        )
    return _results(study, rows, made_with(device), runs[0].baselines())


def examine(study: Study, results: Results) -> Any:
    """What instruments see in the two runs that the verdict is about."""
    shown = results.pairs()[0] if len(results.rows) > 1 else results.rows[:1]
    return study.task.examine({row.name: Run.open(row.folders[0]) for row in shown})


def _job(study: Study, name: str, seed: int, steps: int, device: str) -> Job:
    slug = "-".join(re.findall(r"[\w.-]+", name.lower()))
    folder = study.out / f"{slug}-{seed}"
    return Job(folder.name, ("train", *study.words[name], f"seed={seed}", "--device", device), folder, steps)


def _row(entrant: Entrant, runs: list[Run], scores: list[dict[str, float]], task: Task[Any], a_step: int) -> Row:
    lines, unit = [run.lines() for run in runs], f"{task.unit}_per_second"
    samples = [line["sample"] for line in lines[0] if "sample" in line]
    evaluations = [run.evaluations() for run in runs]
    metric = next((m.name for m in task.metrics if m.name in evaluations[0][0]), "loss")
    if len(evaluations[0]) < 2:  # one evaluation, at the end, makes no curve
        evaluations, metric = [[line for line in run if "loss" in line] for run in lines], "loss"
    at = [{int(line["step"]): line[metric] for line in run} for run in evaluations]
    common = sorted(set.intersection(*map(set, at)))
    curve = [(float(step * a_step), fmean(run[step] for run in at)) for step in common]
    return Row(
        entrant=entrant,
        parameters=runs[0].about.count("parameters"),
        scores=_columns(scores),
        seconds=[max(line.get("seconds", 0.0) for line in run) for run in lines],
        step_ms=1000 * a_step / median(line[unit] for run in lines for line in run if unit in line),
        curve_of=metric,
        curve=curve,
        folders=[str(run.folder) for run in runs],
        sample=samples[-1] if samples else "",
    )


def _columns(scores: list[dict[str, float]]) -> dict[str, list[float]]:
    """By name, what all of them have."""
    return {name: [s[name] for s in scores] for name in scores[0] if all(name in s for s in scores)}


def _results(study: Study, rows: list[Row], made: dict[str, Any], baselines: dict[str, dict[str, float]]) -> Results:
    """Rows from the best to the worst."""
    task = study.task
    metrics = tuple(metric for metric in task.metrics if all(metric.name in row.scores for row in rows))
    if not any(metric.role == "judged" for metric in metrics):
        raise UserError(f"{study.title}: the task {task.kind} measures nothing that runs could be compared by")
    for row, metric in ((row, metric) for row in rows for metric in metrics):
        if not all(map(math.isfinite, row.scores[metric.name])):
            raise UserError(f"{row.name}: its {metric.title} is not finite; lower lr, and run the study again")
    first = next(metric for metric in metrics if metric.role == "judged")
    rows = sorted(rows, key=lambda row: -first.ahead(fmean(row.scores[first.name]), 0.0))
    titles = {metric.name: metric.title for metric in metrics}
    return Results(
        title=study.title,
        column=study.comparison.column,
        subject=catalogue.tasks()[task.kind].subject,
        unit=task.unit,
        curve_of=titles.get(rows[0].curve_of, "training loss"),
        metrics=metrics,
        rows=rows,
        seeds=study.seeds,
        made_with=made,
        baselines=baselines,
    )
