"""What the table of names holds: tasks, models, comparisons, and what a plugin adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LORENTZ, FLAT = "lorentz", "euclidean"
BOTH = (LORENTZ, FLAT)


@dataclass(frozen=True)
class Task:
    """A kind of learning."""

    name: str
    build: str  # its class
    summary: str
    subject: str  # what a verdict speaks of: curvature pays "on this text"
    options: str = "horosphere.train.task:CompareOptions"  # what `compare` can be asked for besides settings
    drawer: str = ""  # the function that adds what instruments saw in its runs to the page of a study


@dataclass(frozen=True)
class Model:
    """A network by name; a name that ends in a colon stands for all of another library's."""

    name: str
    task: str
    build: str  # what makes it
    title: str  # what people call it
    configure: str = ""  # the function (name, **changes) that gives its configuration; "": `settings` with the changes
    settings: str = ""  # the class of that configuration, whose fields are its settings
    geometries: tuple[str, ...] = (FLAT,)
    twin: str = ""  # the same network in flat space, where that has a name of its own
    ablations: tuple[str, ...] = ()  # settings that the paper turns
    comparison: str = ""  # what `compare` does with it; "": its twin, or its geometries
    paper: str = ""
    oracle: str = ""  # whose numbers it must reproduce in flat space
    asked: str = ""  # how it is asked for, where that is not model=NAME
    notes: tuple[str, ...] = ()  # the items of the notes that it is (`notes.yaml`)
    parameters: tuple[tuple[tuple[int, ...], int], ...] = ()  # for (channels, classes, pixels), on a recipe's backbone


@dataclass(frozen=True)
class Entrant:
    """One side of a comparison."""

    name: str
    recipe: str = ""  # "": the one that is compared
    changes: tuple[str, ...] = ()  # settings, as key=value
    flat: bool = False
    twin_of: str = ""  # the curved entrant whose flat twin this is
    ablation_of: str = ""  # the entrant that this is without a part
    baseline: bool = False  # shown beside the others; a verdict does not speak of it


@dataclass(frozen=True)
class Comparison:
    name: str
    column: str  # what its entrants are: "model", "geometry"
    entrants: tuple[Entrant, ...]


@dataclass(frozen=True)
class Plugin:
    """What an installed package adds. Recipes are flat dictionaries of settings."""

    tasks: tuple[Task, ...] = ()
    models: tuple[Model, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    recipes: Mapping[str, dict[str, Any]] = field(default_factory=dict)
