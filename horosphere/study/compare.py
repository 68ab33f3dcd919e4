"""Entrants x seeds: the same recipe in several geometries, a model beside its twin. Does curvature pay?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from horosphere import catalogue
from horosphere.catalogue import Entrant
from horosphere.errors import UserError
from horosphere.files import locked
from horosphere.runs import Run, made_with
from horosphere.study.executors import Executor, Here
from horosphere.study.grid import Tuned
from horosphere.study.jobs import Job, Trainer
from horosphere.study.planning import Study, slug
from horosphere.study.table import RESULTS, Results, Row, require_same_study
from horosphere.study.tune import tune
from horosphere.study.work import gflop
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.task import Task

BEFORE = Entrant("before", flat=True, baseline=True)
STUCK = 0.05  # a score that is not better than the floor by this share of it: nothing more was learned


def compare(study: Study, executor: Executor, device: str, overwrite: bool = False, quiet: bool = False) -> Results:
    """Train every entrant with every seed, each by a command of its own into a folder below `out`.

    Where something is tuned, each entrant first tries the grid with the first seed, judged by one half of what is held
    out. Its best goes into the trainings, which have other seeds and are judged by the other half.
    A study that was stopped goes on where it was; runs that are done stay.
    """
    recipe, task = next(iter(study.recipes.values())), study.task
    task.quiet, task.world = quiet, World(device=torch.device(device))
    data = task.open_data()  # here, so that complaints come once, and before jobs look for caches that are not there
    if study.grid.values:
        task.parted(data, "tuning")
    task.check_study(study.options, data)
    engine = recipe.engine.for_data(task.rows(data), recipe.engine.batch or task.natural_batch(data))
    work = {}
    if task.counts_work and isinstance(executor, Here):
        work = {name: gflop(of, data, engine, device) for name, of in study.recipes.items()}
    del data  # the jobs open it themselves
    trainer = Trainer(executor, executor.device(device), engine.steps, overwrite, quiet)
    with locked(study.out):
        require_same_study(study.out / RESULTS, study.asked, overwrite)
        tuned = tune(study, engine.seed, trainer)
        seeds = range(first := engine.seed + bool(tuned), first + study.seeds)
        results = _judged(*_trained(study, tuned, seeds, trainer), engine, device)
        rows = [replace(row, tuned=tuned.get(row.name), gflop=work.get(row.name, 0.0)) for row in results.rows]
        results = replace(results, rows=rows)
        results.save(study.out, study.asked)
    return results


def _trained(
    study: Study, tuned: Mapping[str, Tuned], seeds: Sequence[int], trainer: Trainer
) -> tuple[Study, dict[tuple[int, str], Job], dict[Path, str]]:
    """The study with what was tuned, the jobs of its seeds and entrants, and the folders of those that diverged."""
    if tuned:
        study = study.with_words({name: [*tuned[name].chosen, "judged_on=rest"] for name in study.words})
    jobs = {}
    for seed, name in ((seed, name) for seed in seeds for name in study.words):
        jobs[seed, name] = trainer.job(study.words_of(name, seed), study.out / slug(name, str(seed)))
    return study, jobs, trainer("training", list(jobs.values()))


def _judged(
    study: Study, jobs: Mapping[tuple[int, str], Job], failed: Mapping[Path, str], engine: EngineConfig, device: str
) -> Results:
    """What the runs of the jobs came to."""
    task = study.task
    seeds = sorted({seed for seed, _ in jobs})
    a_step, rows = engine.batch * task.units_per_row, []
    before: list[dict[str, float]] = []
    beside: dict[str, dict[str, float]] = {}
    for entrant in study.comparison.entrants:
        mine = {seed: jobs[seed, entrant.name].folder for seed in seeds}
        runs = {seed: Run.open(folder) for seed, folder in mine.items() if folder not in failed}
        scores = {seed: {**run.scores(), **task.judge(run, study.options, device)} for seed, run in runs.items()}
        why = {seed: failed[folder] for seed, folder in mine.items() if folder in failed}
        why |= {seed: said for seed, run in runs.items() if (said := stuck(task, run))}
        rows.append(replace(_row(entrant, runs, scores, task, a_step, seeds), failed=dict(sorted(why.items()))))
        for run in runs.values():
            beside = beside or run.baselines()
        before = [run.evaluations()[0] for run in runs.values()] or before
    if task.measures_before and before:  # nothing has learned yet: all entrants begin alike
        columns = _columns(dict(enumerate(before)), range(len(before)))
        rows.append(replace(rows[-1], entrant=BEFORE, parameters=0, scores=columns, seconds=[], step_ms=0.0, failed={}))
    return _results(study, rows, made_with(device), beside)


def stuck(task: Task[Any], run: Run) -> str:
    """Why a training counts as failed that ended well: its score is that of the task's floor."""
    floor, scores = run.baselines().get(task.floor, {}), run.scores()
    metric = next((m for m in task.metrics if m.role == "judged" and m.name in floor and m.name in scores), None)
    if metric is None:
        return ""
    score, least, digits = scores[metric.name], floor[metric.name], metric.digits
    if metric.ahead(score, least) > STUCK * abs(least):
        return ""
    return f"stuck: {metric.title} {score:.{digits}f}, and {task.floor} has {least:.{digits}f}"


def examine(study: Study, results: Results) -> Any:
    """What instruments see in the two runs that the verdict is about."""
    shown = results.pairs()[0] if len(results.rows) > 1 else results.rows[:1]
    runs = {row.name: Run.open(row.folders[0]) for row in shown if row.folders}
    return study.task.examine(runs) if len(runs) == len(shown) else None


def _row(
    entrant: Entrant,
    runs: Mapping[int, Run],
    scores: Mapping[int, dict[str, float]],
    task: Task[Any],
    a_step: int,
    seeds: Sequence[int],
) -> Row:
    """Of the runs, by seed, that ended."""
    if not runs:
        return Row(entrant, 0, {}, [], 0.0, "", [], [])
    lines, unit = [run.lines() for run in runs.values()], f"{task.unit}_per_second"
    samples = [line["sample"] for line in lines[0] if "sample" in line]
    curve_of, curve = _curve([run.evaluations() for run in runs.values()], lines, task, a_step)
    return Row(
        entrant=entrant,
        parameters=next(iter(runs.values())).about.count("parameters"),
        scores=_columns(scores, seeds),
        seconds=[max(line.get("seconds", 0.0) for line in run) for run in lines],
        step_ms=1000 * a_step / median(line[unit] for run in lines for line in run if unit in line),
        curve_of=curve_of,
        curve=curve,
        folders=[str(run.folder) for run in runs.values()],
        sample=samples[-1] if samples else "",
    )


def _curve(
    evaluations: list[list[dict[str, float]]], lines: list[list[dict[str, Any]]], task: Task[Any], a_step: int
) -> tuple[str, list[tuple[float, float]]]:
    """What it shows, and the mean over runs there: of evaluations, or of the loss where these make no curve."""
    metric = next((m.name for m in task.metrics if m.name in evaluations[0][0]), "loss")
    if len(evaluations[0]) < 2:  # one evaluation, at the end
        evaluations, metric = [[line for line in run if "loss" in line] for run in lines], "loss"
    at = [{int(line["step"]): line[metric] for line in run} for run in evaluations]
    common = sorted(set.intersection(*map(set, at)))
    return metric, [(float(step * a_step), fmean(run[step] for run in at)) for step in common]


def _columns(scores: Mapping[int, dict[str, float]], seeds: Sequence[int]) -> dict[str, list[float]]:
    """By name, what all runs have: a number for each seed, NaN for one whose training failed."""
    first = next(iter(scores.values()))
    names = [name for name in first if all(name in of for of in scores.values())]
    return {name: [scores[seed][name] if seed in scores else math.nan for seed in seeds] for name in names}


def _results(study: Study, rows: list[Row], made: dict[str, Any], baselines: dict[str, dict[str, float]]) -> Results:
    """Rows from the best to the worst."""
    task = study.task
    learned = [row for row in rows if row.scores]
    metrics = tuple(m for m in task.metrics if all(m.name in row.scores for row in learned))
    metrics = metrics if learned else tuple(m for m in metrics if m.role == "judged")[:1]
    nothing = {metric.name: [math.nan] * study.seeds for metric in metrics}
    rows = [row if row.scores else replace(row, scores=nothing) for row in rows]
    if not any(metric.role == "judged" for metric in metrics):
        raise UserError(f"{study.title}: the task {task.kind} measures nothing that runs could be compared by")
    first = next(metric for metric in metrics if metric.role == "judged")
    rows = sorted(rows, key=lambda row: -first.merit(row.scores[first.name]))
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
