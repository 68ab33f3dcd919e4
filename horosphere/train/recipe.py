"""A recipe with its types: the task, its network, and the engine, out of one flat list of settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from horosphere import catalogue, settings
from horosphere.errors import UserError
from horosphere.recipes import read_recipe
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task

NAMED = 3  # owners of a setting that a complaint names; the others are counted


@dataclass(frozen=True)
class Recipe:
    """Every choice of a run."""

    task: Task[Any]
    engine: EngineConfig

    @staticmethod
    def read(name: str, overrides: Sequence[str] = ()) -> Recipe:
        """A recipe by name or .yaml file, under `key=value` settings."""
        given = read_recipe(name, overrides)
        if "task" not in given:
            raise UserError(f"{name}: which task is it for? Add task: with one of {', '.join(catalogue.tasks())}")
        kind = given.pop("task")
        cls = catalogue.resolve(catalogue.task(kind).build)
        _refuse_strangers(cls, given, name)
        own, engine, config = settings.assign(parts(cls, given), given, name)
        recipe = Recipe(settings.make(cls, own, config=config), EngineConfig(**engine))
        recipe.check()
        return recipe

    def check(self) -> None:
        self.engine.check()
        settings.check(self.task)
        self.task.configuration()
        self.task.check(self.engine)

    def sections(self, engine: EngineConfig) -> dict[str, dict[str, Any]]:
        """As run.json keeps and gives them back: tuples are lists there."""
        same: dict[str, dict[str, Any]] = json.loads(json.dumps({**self.task.sections(), "engine": asdict(engine)}))
        return same


def parts(cls: type[Task[Any]], given: dict[str, Any]) -> tuple[type, type, type]:
    """The classes whose fields the settings of a recipe are: of the task, the engine, and the network it names."""
    network = cls.configured(given)
    entry = cls.network(network) if isinstance(network, str) else None
    return cls, EngineConfig, catalogue.resolve(entry.settings) if entry and entry.settings else _NoSettings


@dataclass
class _NoSettings:
    """Of a network that has none."""


def _refuse_strangers(cls: type[Task[Any]], given: dict[str, Any], where: str) -> None:
    """A setting that somebody else has: say whose it is."""
    known = {name for part in parts(cls, given) for name in settings.settings_of(part)}
    entry = catalogue.network_of(given)
    for name in given.keys() - known:
        if name == "geometry" and entry is not None and entry.geometries == (catalogue.FLAT,):
            raise UserError(f"{where}: {entry.title} exists in flat space only; leave geometry={given[name]} out")
        if owners := list(dict.fromkeys(catalogue.owners(name))):
            more = len(owners) - NAMED
            whose = " and ".join(owners if more <= 1 else [*owners[:NAMED], f"{more} others"])
            network = f"{cls.configured(given) or 'this network'} in the task {cls.kind}"
            raise UserError(f"{where}: {name} is a setting of {whose}; {network} has none such")
