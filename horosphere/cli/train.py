"""`horosphere train`: any recipe."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.recipes import read_recipe, recipe_names

Rows = list[list[str]]
KEPT = ("run.json", "{out} is at its last checkpoint, and the same command with --resume goes on")


def add(commands: Any) -> None:
    example = "horosphere train helm-d-tiny data=books/ geometry=lorentz steps=500 lr=1e-3"
    train = common.command(commands, "train", run, "train a recipe (see `horosphere list`)", example)
    train.set_defaults(kept=KEPT)
    train.add_argument("recipe", help=f"{', '.join(recipe_names())}, or a .yaml file")
    common.settings_argument(train, "in place of the recipe's: data, steps, lr, …; `horosphere list RECIPE` shows all")
    common.run_options(train, "run", "folder of the run (default runs/RECIPE)")


def run(args: argparse.Namespace) -> None:
    given = read_recipe(args.recipe, args.settings)
    settings = common.settings_of(args, catalogue.known_settings(given))
    args.out = args.out or str(Path("runs") / common.stem(args.recipe))
    train_and_tell(args, args.recipe, settings, more=lambda folder: [])


def train_and_tell(args: argparse.Namespace, name: str, settings: list[str], more: Callable[[Path], Rows]) -> None:
    """Train into args.out, and print what came of it, with `more` rows of what else is made of the run."""
    from horosphere.runs import RUN, Run
    from horosphere.train.engine import Place
    from horosphere.train.recipe import Recipe
    from horosphere.train.training import train

    recipe, folder = Recipe.read(name, settings), Path(args.out)
    resume = args.resume or (args.go_on and (folder / RUN).is_file())
    train(recipe, Place(folder, resume, args.overwrite, args.quiet), common.choose_device(args.device))
    if common.is_main():
        then = recipe.task.then.format(run=folder)
        rows = [*recipe.task.summary(Run.open(folder)), *more(folder), ["written", f"{folder}/"]]
        common.table([], [*rows, *([["next", then]] if then else [])])
