"""The one table of names: tasks, models, comparisons. It answers `list`, `--help`, near misses and "whose is this?".

What an entry stands for is text, "module:name", imported when it is asked for: this package imports nothing heavy.
An installed package adds entries of its own by an entry point of the group "horosphere" that names a `Plugin`.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from horosphere.catalogue import classics, systems
from horosphere.catalogue.entries import BOTH, FLAT, LORENTZ, Comparison, Entrant, Model, Plugin, Task
from horosphere.described import Setting, describe
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import require_package

__all__ = ["BOTH", "FLAT", "LORENTZ", "Comparison", "Entrant", "Model", "Plugin", "Task"]

TASKS = (*systems.TASKS, *classics.TASKS)
MODELS = (*systems.MODELS, *classics.MODELS)
COMPARISONS = systems.COMPARISONS
ENGINE = "horosphere.train.config:EngineConfig"
Named = TypeVar("Named", Task, Model, Comparison)


@cache
def plugins() -> tuple[Plugin, ...]:
    """What installed packages add, in the order of their names."""
    return tuple(_plugin(point) for point in sorted(entry_points(group="horosphere"), key=lambda point: point.name))


def _plugin(point: EntryPoint) -> Plugin:
    """What an entry point names."""
    try:
        plugin = point.load()
    except Exception as error:  # whatever a package does when it is imported
        how = "repair or uninstall the package"
        raise UserError(f"the plugin {point.name} cannot be loaded ({one_line(error)}); {how}") from error
    if not isinstance(plugin, Plugin):
        raise UserError(f"the plugin {point.name}: {point.value} is no horosphere.catalogue.Plugin; make it one")
    for kind, cls in (("tasks", Task), ("models", Model), ("comparisons", Comparison)):
        entries = getattr(plugin, kind)
        if not isinstance(entries, tuple) or not all(isinstance(entry, cls) for entry in entries):
            raise UserError(f"the plugin {point.name}: its {kind} should be a tuple of {cls.__name__}")
    return plugin


def tasks() -> dict[str, Task]:
    return _by_name(TASKS, "tasks")


def models() -> dict[str, Model]:
    return _by_name(MODELS, "models")


def comparisons() -> dict[str, Comparison]:
    return _by_name(COMPARISONS, "comparisons")


def _by_name(table: tuple[Named, ...], kind: str) -> dict[str, Named]:
    """A plugin adds names; it takes none away from those before it."""
    named = {entry.name: entry for entry in table}
    for entry in (entry for plugin in plugins() for entry in getattr(plugin, kind)):
        if entry.name in named:
            raise UserError(f"a plugin adds to the {kind} {entry.name}, which is there already; rename or uninstall it")
        named[entry.name] = entry
    return named


def task(name: object) -> Task:
    if not isinstance(name, str) or name not in tasks():
        raise UserError(f"task={name}: there is no such task; {choices(name, tasks())}")
    return tasks()[name]


def model(name: str, task: str, setting: str = "model") -> Model:
    """The model of this name, which must be one of this task's; `setting` is how it was asked for."""
    known = models()
    mine = [entry.name for entry in known.values() if entry.task == task and not entry.asked]
    mine = [f"{n}NAME" if n.endswith(":") else n for n in mine]
    library = f"{name.partition(':')[0]}:" if ":" in name else name
    entry = known.get(library)
    if entry is None:
        raise UserError(f"{setting}={name}: there is no such model; {choices(name, mine)}")
    if entry.task != task or entry.asked:
        whose = f"it is asked for by {entry.asked}" if entry.asked else f"a model of the task {entry.task}"
        raise UserError(f"{setting}={name}: {whose}; {task} has {', '.join(mine)}")
    if name.endswith(":"):
        raise UserError(f"{setting}={name}: which one? Write {name}NAME")
    return entry


def known_settings(recipe: Mapping[str, Any]) -> dict[str, Setting]:
    """All settings of a recipe: those of its task, of every training, and of the network it names."""
    entry = network_of(recipe)
    classes = [task(recipe.get("task")).build, ENGINE, *([entry.settings] if entry and entry.settings else [])]
    return {name: setting for reference in classes for name, setting in describe(reference).items()}


def network_of(recipe: Mapping[str, Any]) -> Model | None:
    """What the table says of the network of a recipe whose settings can be changed: its model, else its backbone."""
    names = [str(recipe.get(setting)) for setting in ("model", "backbone")]
    model, backbone = (models().get(f"{name.partition(':')[0]}:" if ":" in name else name) for name in names)
    return model if backbone is None or (model and model.settings) else backbone


def owners(setting: str) -> list[str]:
    """Who has a setting of this name: tasks, what they can be asked for in a comparison, and models."""
    tables = {f"the task {entry.name}": entry.build for entry in tasks().values()}
    tables |= {f"comparisons of {entry.name}": entry.options for entry in tasks().values()}
    tables |= {entry.title: entry.settings for entry in models().values() if entry.settings}
    return [owner for owner, reference in tables.items() if setting in describe(reference)]


def comparison_of(entry: Model, geometries: tuple[str, ...] = ()) -> Comparison:
    """What `compare` sets beside a model: what the table says, else its flat twin, else its geometries, or some."""
    if geometries:
        return comparison_of_geometries(_some(entry, geometries))
    if entry.comparison in comparisons():
        return comparisons()[entry.comparison]
    if entry.twin:
        twin = models()[entry.twin]
        return Comparison(
            entry.name, "model", (Entrant(entry.title), Entrant(twin.title, twin.name, flat=True, twin_of=entry.title))
        )
    if len(entry.geometries) < 2:
        raise UserError(f"{entry.name} exists in {entry.geometries[0]} space only: there is nothing to compare it with")
    return comparison_of_geometries(entry.geometries)


def _some(entry: Model, geometries: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a model that were asked for, each once."""
    if entry.comparison in comparisons():
        raise UserError(
            f"geometries={','.join(geometries)}: the entrants of {entry.comparison} are fixed; leave it out"
        )
    for name in geometries:
        if name not in entry.geometries:
            raise UserError(f"geometries={name}: {entry.title} does not exist in it; {choices(name, entry.geometries)}")
    return tuple(dict.fromkeys(geometries))


def comparison_of_geometries(names: tuple[str, ...]) -> Comparison:
    return Comparison(
        "geometries",
        "geometry",
        tuple(Entrant(name, changes=(f"geometry={name}",), flat=name == FLAT) for name in names),
    )


def resolve(reference: str) -> Any:
    """What "module:name" stands for, imported now."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        require_package(error.name or "")
        raise
