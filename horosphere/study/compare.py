"""Entrants x seeds: the same recipe in several geometries, a model beside its twin. Does curvature pay?"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from horosphere import catalogue
from horosphere.catalogue import Comparison, Entrant
from horosphere.errors import UserError
from horosphere.progress import progress
from horosphere.recipes import recipe_names
from horosphere.runs import RUN, Run, made_with
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, run_all
from horosphere.study.table import Results, Row
from horosphere.train.recipe import Recipe
from horosphere.train.task import CompareOptions, Task


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


def plan(
    name: str, settings: Sequence[str], options: CompareOptions | None, seeds: int, out: Path, title: str | None = None
) -> Study:
    """The study of a comparison or recipe by name, under settings for all entrants. All that can be wrong is said here."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: --out takes the name of a folder here")
    known = catalogue.comparisons()
    if name in known and name not in recipe_names():
        comparison = known[name]
        options = options or Recipe.read(comparison.entrants[0].recipe, settings).task.options()
    else:
        task = Recipe.read(name, settings).task
        options = options or task.options()
        comparison = task.comparison(options)
    _refuse_decided(comparison, settings)
    words = {e.name: [e.recipe or name, *settings, *e.changes] for e in comparison.entrants}
    recipes = {entrant: Recipe.read(said[0], said[1:]) for entrant, said in words.items()}
    for entrant, more in next(iter(recipes.values())).task.evened(recipes).items():
        words[entrant] += more
    return Study(title or name, comparison, recipes, words, options, seeds, out)


def _refuse_decided(comparison: Comparison, settings: Sequence[str]) -> None:
    decided = {change.partition("=")[0] for entrant in comparison.entrants for change in entrant.changes}
    if len({entrant.recipe for entrant in comparison.entrants}) > 1:
        decided |= {"model", "geometry"}
    for setting in settings:
        if setting.partition("=")[0].strip() in decided:
            how = f"leave it out, or train one {comparison.column} with it"
            raise UserError(f"{setting}: this is what the compared {_several(comparison.column)} differ in; {how}")


def compare(study: Study, executor: Executor, device: str, overwrite: bool = False, quiet: bool = False) -> Results:
    """Train every entrant with every seed, each by a command of its own into a folder below `out`.

    A study that was stopped goes on where it was; runs that are done stay.
    """
    recipe = next(iter(study.recipes.values()))
    task = recipe.task
    task.quiet = quiet
    data = (
        task.open_data()
    )  # what is wrong with it should be said once, and caches be made once, before all jobs look for them
    task.check_study(study.options, data)
    engine = recipe.engine.for_data(task.rows(data), recipe.engine.batch or task.natural_batch(data))
    jobs, folders = (
        [],
        {
            e.name: [study.out / f"{_slug(e.name)}-{engine.seed + s}" for s in range(study.seeds)]
            for e in study.comparison.entrants
        },
    )
    for s in range(study.seeds):
        for entrant in study.comparison.entrants:
            seed, folder = engine.seed + s, folders[entrant.name][s]
            if overwrite and (folder / RUN).is_file():
                shutil.rmtree(folder)
            words = ("train", *study.words[entrant.name], f"seed={seed}", "--device", device)
            jobs.append(Job(folder.name, words, folder, engine.steps))
    with progress("training", sum(job.steps for job in jobs), quiet) as update:
        run_all(jobs, executor, update)
    a_step = engine.batch * task.units_per_row
    opened = {name: [Run.open(folder) for folder in places] for name, places in folders.items()}
    rows = [_row(entrant, opened[entrant.name], study, a_step, device) for entrant in study.comparison.entrants]
    metrics = tuple(metric for metric in task.metrics if all(metric.name in row.scores for row in rows))
    if not metrics:
        raise UserError(f"{study.title}: the task {task.kind} measures nothing that runs could be compared by")
    first = metrics[0]
    rows.sort(key=lambda row: -first.ahead(fmean(row.scores[first.name]), 0.0))
    results = Results(
        title=study.title,
        column=study.comparison.column,
        subject=catalogue.tasks()[task.kind].subject,
        unit=task.unit,
        curve_of=first.title if _evaluated(next(iter(opened.values()))) else "training loss",
        metrics=metrics,
        rows=rows,
        seeds=study.seeds,
        made_with=made_with(device),
    )
    results.save(study.out)
    return results


def examine(study: Study, results: Results) -> Any:
    """What instruments see in the two runs that the verdict is about."""
    shown = results.pairs()[0] if len(results.rows) > 1 else results.rows[:1]
    return study.task.examine({row.name: Run.open(row.folders[0]) for row in shown})


def _slug(name: str) -> str:
    return "-".join(name.lower().replace("+", " ").replace(",", " ").replace(":", " ").split())


def _evaluated(runs: Sequence[Run]) -> bool:
    """Whether evaluations make a curve: one at the end does not."""
    return len(runs[0].evaluations()) > 1


def _row(entrant: Entrant, runs: Sequence[Run], study: Study, a_step: int, device: str) -> Row:
    task = study.task
    last = [{**run.evaluations()[-1], **task.judge(run, study.options, device)} for run in runs]
    lines = [run.lines() for run in runs]
    pace = median(line[f"{task.unit}_per_second"] for run in lines for line in run if f"{task.unit}_per_second" in line)
    samples = [line["sample"] for line in lines[0] if "sample" in line]
    return Row(
        entrant=entrant,
        parameters=runs[0].about.facts["parameters"],
        scores={name: [scores[name] for scores in last] for name in last[0] if all(name in scores for scores in last)},
        seconds=[max(line.get("seconds", 0.0) for line in run) for run in lines],
        step_ms=1000 * a_step / pace,
        curve=_curve(runs, task, a_step),
        folders=[str(run.folder) for run in runs],
        sample=samples[-1] if samples else "",
    )


def _curve(runs: Sequence[Run], task: Task[Any], a_step: int) -> list[tuple[float, float]]:
    """The first metric over the training, or where it is measured at the end only, the training loss: means over the runs."""
    if _evaluated(runs):
        points = [[(line["step"], line[task.metrics[0].name]) for line in run.evaluations()] for run in runs]
    else:
        points = [[(line["step"], line["loss"]) for line in run.lines() if "loss" in line] for run in runs]
    return [(at[0][0] * a_step, fmean(value for _, value in at)) for at in zip(*points, strict=False)]


def _several(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
