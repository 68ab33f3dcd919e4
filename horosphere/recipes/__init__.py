"""Named recipes: YAML files that hold the settings of a run in one flat list, and their reader.

A recipe says which `task` it is for, and may build on another one, its `base`. `key=value` pairs go before it.
"""

import os
from collections.abc import Sequence, Set
from copy import deepcopy
from pathlib import Path
from typing import Any

from horosphere.catalogue import models, plugins
from horosphere.errors import UserError, choices, one_line
from horosphere.foreign import Unreadable, is_text, read_yaml, shown
from horosphere.settings import is_nothing

FOLDER = Path(__file__).parent
BASE = "base"  # the key that names the recipe a recipe builds on
LENGTHS = {"steps", "epochs"}  # who gives one takes the other back


def recipe_names(folder: Path = FOLDER) -> list[str]:
    """The recipes that come with the package and with installed plugins, or lie in another folder."""
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    for name in (name for plugin in plugins() for name in plugin.recipes) if folder == FOLDER else ():
        if name in names:
            raise UserError(f"a plugin adds the recipe {name}, which is there already; rename or uninstall it")
        names.append(name)
    return sorted(names)


def read_recipe(name: str, overrides: Sequence[str] = (), folder: Path = FOLDER) -> dict[str, Any]:
    """A recipe by name or by the path of a .yaml file, under `key=value` overrides (a.b=value reaches into sections).

    Values of overrides are text; `settings.assign` gives them their types.
    """
    recipe = _unless_asked(_read(name, folder, ()), {pair.partition("=")[0].strip() for pair in overrides})
    for pair in overrides:
        key, equals, value = pair.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise UserError(f"{pair}: a setting is written key=value, for example lr=1e-3")
        if parts == [BASE]:
            raise UserError(f"{pair}: {BASE} is chosen in the file; give the other recipe's name in place of {name}")
        part: Any = {parts[-1]: value.strip()}
        for section in reversed(parts[:-1]):
            part = {section: part}
        recipe = _merged(recipe, part, pair)
    return recipe


def _read(name: str, folder: Path, children: tuple[str, ...]) -> dict[str, Any]:
    recipe, where = _content(name, folder, children)
    if where in children:
        chain = " -> ".join(Path(child).stem for child in (*children[children.index(where) :], where))
        raise UserError(f"{where}: recipes build on each other in a circle ({chain}); remove one {BASE}")
    if not isinstance(recipe, dict) or not all(isinstance(key, str) for key in recipe):
        raise UserError(f"{where}: a recipe is a list of `key: value`; this is {type(recipe).__name__}")
    recipe = deepcopy(recipe)  # a plugin's is read again
    base = recipe.pop(BASE, None)
    if base is None:
        return recipe
    if not isinstance(base, str) or not is_text(base):
        raise UserError(f"{where}: {BASE} names a recipe or a .yaml file, and {shown(base)} is neither")
    return _merged(_unless_asked(_read(base, folder, (*children, where)), recipe.keys()), recipe, where)


def _unless_asked(recipe: dict[str, Any], asked: Set[str]) -> dict[str, Any]:
    """A recipe without its length, where another one is asked for."""
    return {key: value for key, value in recipe.items() if key not in LENGTHS or not asked & LENGTHS}


def _content(name: str, folder: Path, children: tuple[str, ...]) -> tuple[Any, str]:
    """What a recipe says, and where. A path ends in .yaml or .yml, and is meant beside the recipe that names it."""
    names = recipe_names(folder)
    if name.endswith((".yaml", ".yml")):
        path = Path(Path(children[-1]).parent if children else ".", name).resolve()
        if not os.path.isfile(path):  # Path's own way complains of names that are too long
            where, known = children[-1] if children else name, choices(Path(name).stem, names)
            raise UserError(f"{where}: there is no file {one_line(path, 300)}; of those that come along, {known}")
    elif name in names:
        path = (folder / f"{name}.yaml").resolve()
    elif name in models():
        fitting = [recipe for recipe in names if _read(recipe, folder, ()).get("task") == models()[name].task]
        how = f"give one and model={name}: {', '.join(fitting)}" if fitting else "write one"
        raise UserError(f"{name} is a model, not a recipe; {how}")
    else:
        raise UserError(f"there is no recipe {one_line(name)}; {choices(name, names, ', or give a .yaml file')}")
    if not path.is_file():
        return next(plugin.recipes[name] for plugin in plugins() if name in plugin.recipes), name
    try:
        content = read_yaml(path)
    except Unreadable as error:
        raise UserError(f"{path}: not YAML for a recipe ({error}); mend it") from error
    return {} if content is None else content, str(path)


def _merged(under: dict[str, Any], over: dict[str, Any], where: str) -> dict[str, Any]:
    """Sections are merged key by key, everything else is replaced."""
    merged = dict(under)
    for key, value in over.items():
        old = under.get(key)
        if isinstance(old, dict) and not isinstance(value, dict) and not is_nothing(value):
            example = one_line(f"{key}.{next(iter(old), 'name')}=…")
            raise UserError(f"{where}: {one_line(key)} is a section; set its parts, for example {example}")
        merged[key] = _merged(old, value, where) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
