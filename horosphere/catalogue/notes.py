"""The items of the notes that the classics come from: the right form of each, and where it is found here."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from horosphere.catalogue.entries import Model
from horosphere.errors import UserError, choices
from horosphere.foreign import read_yaml

FILE = Path(__file__).with_name("notes.yaml")
GEOMETRIES = {"": "", "any": "any geometry", "attention": "flat or hyperboloid", "head": "any geometry in the head"}


@dataclass(frozen=True)
class Item:
    number: str  # "11.06"
    name: str
    form: str  # what holds
    error: str = ""  # what the notes print instead
    use: str = ""  # "module:name" or a command, besides models of the catalogue that are the item
    test: str = ""
    geometry: str = ""  # of GEOMETRIES; "": geometry has no meaning for it

    def found(self, models: list[Model]) -> list[str]:
        """Where: what to call, and commands that train it."""
        called = [self.use if self.use.startswith("horosphere ") else self.use.replace(":", ".")] if self.use else []
        return [*called, *(f"horosphere train {model.name}" for model in models if self.number in model.notes)]


@dataclass(frozen=True)
class Chapter:
    number: str
    title: str
    about: str
    items: dict[str, Item]


@cache
def chapters() -> dict[str, Chapter]:
    """All of them, by number.

    >>> chapters()["9"].items["9.08"].name
    'Adam'
    """
    read = {}
    for number, chapter in read_yaml(FILE).items():
        items = {name: Item(name, **said) for name, said in chapter["items"].items()}
        read[number] = Chapter(number, chapter["title"], chapter["about"], items)
    return read


def chapter(number: str) -> Chapter:
    if number not in chapters():
        raise UserError(f"--chapter {number}: there is no such chapter; {choices(number, chapters())}")
    return chapters()[number]


def items() -> dict[str, Item]:
    """Of all chapters, by number.

    >>> len(items())
    230
    """
    return {number: item for one in chapters().values() for number, item in one.items.items()}


def find(name: str) -> Item | None:
    """The item of this number, its zero left out or not, or of this name in any letters.

    >>> find("11.06") is find("11.6") is find("skip-gram")
    True
    """
    chapter, _, place = name.partition(".")
    known = {item.name.lower(): item for item in items().values()} | items()
    return known.get(f"{chapter}.{place.zfill(2)}") or known.get(name.lower())
