"""Who is compared with whom, under which settings: entrants, and what `horosphere train` is told of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.catalogue import Comparison
from horosphere.errors import UserError
from horosphere.recipes import recipe_names
from horosphere.study.grid import Grid
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
    grid: Grid = field(default_factory=Grid)  # what each entrant has tuned for itself

    @property
    def task(self) -> Task[Any]:
        return next(iter(self.recipes.values())).task

    @property
    def asked(self) -> dict[str, Any]:
        """What tells it from other studies. With more seeds it is the same."""
        asked: dict[str, Any] = {entrant: [said[0], *sorted(said[1:])] for entrant, said in self.words.items()}
        tried = {name: list(values) for name, values in self.grid.values.items()}
        return {**asked, "tune": tried}

    def with_words(self, more: Mapping[str, Sequence[str]]) -> Study:
        """With more settings of each entrant."""
        words = {name: [*said, *more[name]] for name, said in self.words.items()}
        return replace(self, words=words, recipes={name: Recipe.read(w[0], w[1:]) for name, w in words.items()})

    def words_of(self, name: str, seed: int, more: Sequence[str] = ()) -> list[str]:
        """The words behind `horosphere` for a training of an entrant."""
        return ["train", *self.words[name], *more, f"seed={seed}"]


def slug(*words: str) -> str:
    """The name of a folder, of words for people."""
    return "-".join(re.findall(r"[\w.-]+", " ".join(words).lower()))


def plan(
    name: str | Comparison,
    settings: Sequence[str],
    options: CompareOptions | None,
    seeds: int,
    out: Path,
    title: str | None = None,
    *,
    tune: Sequence[str] = (),
    size: int | None = None,
) -> Study:
    """The study of a comparison, or of a recipe by name, under settings for all entrants.

    tune: settings and the values that each entrant tries for itself, ["lr=1e-3,2e-3"]. size: of the models.
    """
    grid = Grid.read(tune)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: --out takes the name of a folder here")
    comparison, options = _compared(name, settings, options)
    _refuse_decided(comparison, settings)
    _refuse_tuned(grid, settings)
    words = {e.name: [e.recipe or str(name), *settings, *e.changes] for e in comparison.entrants}
    recipes = {entrant: Recipe.read(said[0], said[1:]) for entrant, said in words.items()}
    if size is not None:
        words = {entrant: [*said, *recipes[entrant].task.sized(size)] for entrant, said in words.items()}
        recipes = {entrant: Recipe.read(said[0], said[1:]) for entrant, said in words.items()}
    evened = next(iter(recipes.values())).task.evened(recipes)
    _refuse_decided(comparison, settings, {change.partition("=")[0] for more in evened.values() for change in more})
    words = {entrant: [*said, *evened.get(entrant, [])] for entrant, said in words.items()}
    study = Study(title or comparison.name, comparison, recipes, words, options, seeds, out, grid)
    for point in grid.points() if grid.values else ():
        study.with_words(dict.fromkeys(words, point))  # complains of what no entrant could take
    return study


def _compared(
    name: str | Comparison, settings: Sequence[str], options: CompareOptions | None
) -> tuple[Comparison, CompareOptions]:
    """The entrants that are given, those of a comparison by name, or those that the task of a recipe says."""
    if isinstance(name, str) and (name in recipe_names() or name not in catalogue.comparisons()):
        task = Recipe.read(name, settings).task
        options = options or task.options()
        return replace(task.comparison(options), name=name), options
    comparison = catalogue.comparisons()[name] if isinstance(name, str) else name
    options = options or Recipe.read(comparison.entrants[0].recipe, settings).task.options()
    if options.geometries:
        asked = f"geometries={','.join(options.geometries)}"
        raise UserError(f"{asked}: the entrants of {comparison.name} are fixed; leave it out")
    return comparison, options


def _refuse_decided(comparison: Comparison, settings: Sequence[str], evened: Set[str] = frozenset()) -> None:
    """What the entrants differ in, or what makes them alike in size, is not for users to set."""
    decided = evened | {change.partition("=")[0] for entrant in comparison.entrants for change in entrant.changes}
    if len({entrant.recipe for entrant in comparison.entrants}) > 1:
        decided |= {"model", "geometry"}
    for setting in settings:
        if setting.partition("=")[0].strip() in decided:
            how = f"leave it out, or train one {comparison.column} with it"
            raise UserError(f"{setting}: this is what the entrants of the comparison differ in; {how}")


def _refuse_tuned(grid: Grid, settings: Sequence[str]) -> None:
    for setting in settings:
        if grid.values and setting.partition("=")[0].strip() == "judged_on":
            raise UserError(f"{setting}: with --tune a study tunes on one half and judges on the other; leave it out")
        if (name := setting.partition("=")[0].strip()) in grid.values:
            raise UserError(f"{setting}: --tune chooses {name} for each entrant; leave one of them out")
