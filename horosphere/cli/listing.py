"""`horosphere list`: what there is, and what one of it can be asked for."""

import argparse
from typing import Any

from horosphere import catalogue
from horosphere.cli.common import ENGINE, command, known_settings, table
from horosphere.errors import UserError, choices
from horosphere.recipes import read_recipe, recipe_names
from horosphere.settings import Setting, describe


def add(commands: Any) -> None:
    listing = command(
        commands, "list", run, "what there is: tasks, models, recipes, settings", "horosphere list helm-d-tiny"
    )
    listing.add_argument("name", nargs="?", help="a task, model, recipe or comparison to tell more about")
    listing.add_argument("--task", help="only models of this task")
    listing.add_argument("--geometry", help="only models that exist in it")


def run(args: argparse.Namespace) -> None:
    if args.name is None:
        return _models(args.task, args.geometry)
    recipes, models, tasks = recipe_names(), catalogue.models(), catalogue.tasks()
    comparisons = catalogue.comparisons()
    if args.name not in (*recipes, *models, *tasks, *comparisons):
        known = (*recipes, *models, *tasks, *comparisons)
        raise UserError(f"{args.name}: there is nothing of this name; {choices(args.name, known)}")
    if args.name in models:
        _model(models[args.name])
    if args.name in tasks:
        _task(tasks[args.name])
    if args.name in comparisons:
        entrants = comparisons[args.name].entrants
        table(
            [comparisons[args.name].column, "recipe", "settings"],
            [[e.name, e.recipe, " ".join(e.changes)] for e in entrants],
        )
    if args.name in recipes:
        _recipe(args.name)


def _models(task: str | None, geometry: str | None) -> None:
    if task is not None:
        catalogue.task(task)
    entries = [
        m
        for m in catalogue.models().values()
        if task in (None, m.task) and (geometry is None or geometry in m.geometries)
    ]
    if not entries:
        known = {g: None for m in catalogue.models().values() for g in m.geometries}
        raise UserError(
            f"--geometry {geometry}: no model{f' of {task}' if task else ''} exists in it; {choices(geometry, known)}"
        )
    rows = [[m.name, m.task, ", ".join(m.geometries), m.twin, m.paper] for m in entries]
    table(["model", "task", "geometries", "flat twin", "paper"], rows)
    print(f"\n{len(rows)} models. More about one, its recipe and its settings: horosphere list NAME")


def _model(model: catalogue.Model) -> None:
    about = {
        "model": f"{model.title}, {model.paper}" if model.paper else model.title,
        "task": f"{model.task}: {catalogue.tasks()[model.task].summary}",
        "geometries": ", ".join(model.geometries),
        "flat twin": model.twin,
        "ablations": ", ".join(model.ablations),
        "equals": model.oracle,
        "asked for by": model.asked or ("" if model.name.endswith(":") else f"model={model.name}"),
        "made by": model.build,
    }
    table([], [[name, value] for name, value in about.items() if value])


def _task(task: catalogue.Task) -> None:
    table([], [["task", f"{task.name}: {task.summary}"], ["made by", task.build]])
    _settings("settings of the task", describe(task.build), {})
    _settings("settings of every training", describe(ENGINE), {})


def _recipe(name: str) -> None:
    """All its settings, with the values it gives them."""
    given = read_recipe(name)
    network = str(given.get("backbone", given.get("model")))
    known = known_settings(given["task"], network)
    print()
    _settings(f"recipe {name}", list(known.values()), given)


def _settings(title: str, settings: list[Setting], given: dict[str, Any]) -> None:
    table([title, "value", "what it is"], [[s.name, s.value(given), s.help] for s in settings])
