"""`horosphere list`: what there is, and what one of it can be asked for."""

import argparse
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from horosphere import catalogue
from horosphere.catalogue import notes
from horosphere.cli.common import command, table
from horosphere.described import Setting, describe
from horosphere.errors import UserError, choices
from horosphere.recipes import read_recipe, recipe_names

LONGEST = 32  # characters of a value in a list of settings


def add(commands: Any) -> None:
    summary = "what there is: tasks, models, recipes, settings"
    listing = command(commands, "list", run, summary, "horosphere list helm-d-tiny")
    what = "a task, model, recipe or comparison to tell more about, or an item of the notes, as 11.06"
    listing.add_argument("name", nargs="?", help=what)
    listing.add_argument("--task", help="only models of this task")
    listing.add_argument("--geometry", help="only models that exist in it")
    listing.add_argument("--chapter", help="in place of models, the items of a chapter of the notes, 1 to 15")


def run(args: argparse.Namespace) -> None:
    chosen = [option for option in ("task", "geometry", "chapter") if getattr(args, option)]
    if args.chapter and (args.name or len(chosen) > 1):
        raise UserError("--chapter lists the items of a chapter; leave out what else you ask for, or --chapter")
    if args.chapter:
        return _chapter(notes.chapter(args.chapter))
    if args.name is None:
        return _models(args.task, args.geometry)
    if chosen:
        raise UserError(f"--task and --geometry choose among all models; leave them out, or the name {args.name}")
    recipes = dict.fromkeys(recipe_names(), args.name)
    tables: tuple[dict[str, Any], ...] = (catalogue.models(), catalogue.tasks(), catalogue.comparisons(), recipes)
    known = list(dict.fromkeys(name for entries in tables for name in entries))
    if args.name not in known and (item := notes.find(args.name)):
        return _item(item)
    if args.name not in known:
        if args.name in notes.chapters():
            raise UserError(f"{args.name}: a chapter of the notes is listed with --chapter {args.name}")
        raise UserError(f"{args.name}: there is nothing of this name; {choices(args.name, known)}")
    tellers: tuple[Any, ...] = (_model, _task, _comparison, _recipe)
    for entries, tell in zip(tables, tellers, strict=True):
        if args.name in entries:
            tell(entries[args.name])


def _models(task: str | None, geometry: str | None) -> None:
    of_task = [m for m in catalogue.models().values() if task is None or m.task == catalogue.task(task).name]
    entries = [m for m in of_task if geometry is None or geometry in m.geometries]
    if not entries:
        known = list(dict.fromkeys(g for m in of_task for g in m.geometries))
        whose = f" of {task}" if task else ""
        raise UserError(f"--geometry {geometry}: no model{whose} exists in it; {choices(geometry, known)}")
    rows = [[m.name, m.task, ", ".join(m.geometries), m.twin, m.paper] for m in entries]
    heads = ["model", "task", "geometries", "flat twin", "paper"]
    if task and any(m.parameters for m in entries):
        heads.append("parameters (classes)")
        rows = [[*row, _sizes(m)] for row, m in zip(rows, entries, strict=True)]
    table(heads, rows)
    named = {"tasks": catalogue.tasks(), "recipes": recipe_names(), "comparisons": catalogue.comparisons()}
    for what, names in {} if task or geometry else named.items():
        print("\n" + fill(f"{what}: {', '.join(names)}", 120, break_on_hyphens=False, subsequent_indent="  "))
    print("\nMore about any of them, and its settings: horosphere list NAME")


def _sizes(model: catalogue.Model) -> str:
    """Its parameters, for so many classes: of the first of its sizes."""
    if not model.parameters:
        return ""
    (_, classes, _), count = model.parameters[0]
    return f"{count:,} ({classes})"


def _chapter(chapter: notes.Chapter) -> None:
    print(f"{chapter.number} {chapter.title}. {chapter.about}\n")
    table(["item", "what", "found as", "geometry"], [_found(item) for item in chapter.items.values()])
    print("\nThe right form of an item, and what the notes have wrong: horosphere list NUMBER")


def _found(item: notes.Item) -> list[str]:
    where = ", ".join(item.found(list(catalogue.models().values())))
    return [item.number, item.name, where, notes.GEOMETRIES[item.geometry]]


def _item(item: notes.Item) -> None:
    number, name, where, geometry = _found(item)
    about = {"item": f"{number} {name}", "form": item.form, "in the notes": item.error, "found as": where}
    about |= {"geometry": geometry, "held by": item.test}
    for head, text in about.items():
        if text:
            print(fill(f"{head:14}{text}", 120, break_on_hyphens=False, subsequent_indent=" " * 14))


def _comparison(comparison: catalogue.Comparison) -> None:
    rows = [[entrant.name, entrant.recipe, " ".join(entrant.changes)] for entrant in comparison.entrants]
    table([comparison.column, "recipe", "settings"], rows)


def _model(model: catalogue.Model) -> None:
    about = {
        "model": f"{model.title}, {model.paper}" if model.paper else model.title,
        "task": f"{model.task}: {catalogue.task(model.task).summary}",
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
    _settings("settings of every training", describe(catalogue.ENGINE), {})


def _recipe(name: str) -> None:
    """All its settings, with their values; blank are those of the network that its name decides."""
    given = read_recipe(name)
    network = catalogue.network_of(given)
    decided = dict.fromkeys(describe(network.settings) if network and network.configure else (), "")
    print()
    _settings(f"recipe {name}", catalogue.known_settings(given), {**decided, **given})


def _settings(title: str, known: Mapping[str, Setting], given: Mapping[str, Any]) -> None:
    values = {s.name: s.value(given) for s in known.values()}
    # one long value would move all that is said beside them out of sight
    cut = {name: value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…" for name, value in values.items()}
    # choices stand in full in --help
    rows = [[s.name, cut[s.name], s.allowed if len(s.allowed) <= LONGEST else "", s.help] for s in known.values()]
    table([title, "value", "allowed", "what it is"], rows)
