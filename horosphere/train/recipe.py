"""Recipes: YAML files that name every choice of a run, `key=value` in their place, and dataclasses that check them."""

import dataclasses
import difflib
import math
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from horosphere.errors import UserError

T = TypeVar("T")
FOLDER = Path(__file__).parent.parent / "recipes"
BASE = "base"  # the key that names the recipe a recipe builds on
NOTHING = ("none", "null")


def recipe_names(folder: Path | None = None) -> list[str]:
    """The recipes that come with the package (or lie in another folder)."""
    return sorted(path.stem for path in (folder or FOLDER).glob("*.yaml"))


def read_recipe(name: str, overrides: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """A recipe by name or by the path of a .yaml file, over its `base`, under `key=value` overrides (a.b=value reaches into sections).

    Values of overrides are text; `build` gives them their types.
    """
    recipe = _read(name, folder or FOLDER, ())
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


def build(cls: type[T], values: dict[str, Any], where: str) -> T:
    """A dataclass from a recipe's values: every key known, every value of its field's type. `where` begins the complaints."""
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields)
            raise UserError(
                f"{where}: there is no setting {key}; "
                + (f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(fields)}")
            )
    nothing = dataclasses.MISSING
    if missing := [
        f.name
        for f in fields.values()
        if f.name not in values and f.default is nothing and f.default_factory is nothing
    ]:
        raise UserError(f"{where}: {', '.join(missing)} must be given; add {missing[0]}=…")
    return cls(**{key: _converted(value, hints[key], f"{where}: {key}") for key, value in values.items()})


def sorted_settings(parts: Sequence[type], apart: set[str], given: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One flat list of settings, given to the dataclasses whose fields they name; fields `apart` are no settings.

    `build` checks them against one dataclass that has all the fields: so it knows every name, type and near miss.
    """
    names = [[f.name for f in dataclasses.fields(cls) if f.name not in apart] for cls in parts]
    fields: list[Any] = []
    for cls, own in zip(parts, names, strict=True):
        hints, known = get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}
        nothing = dataclasses.MISSING
        required = {name for name in own if known[name].default is nothing and known[name].default_factory is nothing}
        fields += [
            (name, hints[name], dataclasses.field() if name in required else dataclasses.field(default=None))
            for name in own
        ]
    values: Any = build(dataclasses.make_dataclass("Settings", fields, kw_only=True), given, where)
    return [{name: getattr(values, name) for name in given if name in own} for own in names]


# -- files ------------------------------------------------------------------------------------------------------------


def _read(name: str, folder: Path, children: tuple[Path, ...]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    path = _find(name, folder, children)
    if path in children:
        chain = " -> ".join(p.stem for p in (*children[children.index(path) :], path))
        raise UserError(f"{path}: recipes build on each other in a circle ({chain}); remove one {BASE}")
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())}); mend it") from error
    recipe = {} if recipe is None else recipe
    if not isinstance(recipe, dict) or not all(isinstance(key, str) for key in recipe):
        raise UserError(f"{path}: a recipe is a list of `key: value`; this is {type(recipe).__name__}")
    base = recipe.pop(BASE, None)
    if base is None:
        return recipe
    if not isinstance(base, str):
        raise UserError(f"{path}: {BASE} names a recipe or a .yaml file, and {base!r} is neither")
    return _merged(_read(base, folder, (*children, path)), recipe, str(path))


def _find(name: str, folder: Path, children: tuple[Path, ...]) -> Path:
    """A path ends in .yaml or .yml, and is meant beside the recipe that names it; everything else is a name."""
    if name.endswith((".yaml", ".yml")):
        path = Path(children[-1].parent if children else ".", name).resolve()
        if not path.is_file():
            raise UserError(
                f"{children[-1] if children else name}: there is no file {path}; known recipes are {', '.join(recipe_names(folder))}"
            )
        return path
    names = recipe_names(folder)
    if name not in names:
        near = difflib.get_close_matches(name, names)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(names)}, or give a .yaml file"
        raise UserError(f"there is no recipe {name}; {hint}")
    return (folder / f"{name}.yaml").resolve()


def _merged(under: dict[str, Any], over: dict[str, Any], where: str) -> dict[str, Any]:
    """Sections are merged key by key, everything else is replaced."""
    merged = dict(under)
    for key, value in over.items():
        old = under.get(key)
        if isinstance(old, dict) and not isinstance(value, dict) and not _is_nothing(value):
            raise UserError(
                f"{where}: {key} is a section; set its parts, for example {key}.{next(iter(old), 'name')}=…"
            )
        merged[key] = _merged(old, value, where) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


# -- types ------------------------------------------------------------------------------------------------------------


def _converted(value: Any, kind: Any, where: str) -> Any:
    """The value as its field's type has it, from text (key=value, and what YAML takes for text, like 1e-3) or from YAML."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(value, args, where)
    if origin is Literal:
        for choice in args:
            if (value == choice and type(value) is type(choice)) or value == str(choice):
                return choice
        raise UserError(f"{where}={value}: choose from {', '.join(map(str, args))}")
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return build(kind, _of(value, dict, where, "a section"), where)
    if origin in (list, tuple):
        return _sequence(value, origin, args, where)
    if origin is dict or kind is dict:
        return _of(value, dict, where, "a section")
    scalar = {bool: _bool, int: _int, float: _float, str: _str, Path: _path}.get(kind)
    if scalar is None:
        raise TypeError(f"{where}: recipes have no type {kind}")
    return scalar(value, where)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in NOTHING)


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if types.NoneType in kinds and _is_nothing(value):
        return None
    complaints = []
    for kind in sorted(
        (k for k in kinds if k is not types.NoneType), key=lambda k: k is str
    ):  # any text is a str: it is asked last
        try:
            return _converted(value, kind, where)
        except UserError as error:
            complaints.append(str(error).removeprefix(f"{where}={value}: "))
    choices = [*complaints, *["none"] * (types.NoneType in kinds)]
    raise UserError(f"{where}={value}: {', or '.join(choices)}")


def _sequence(value: Any, origin: type, args: tuple[Any, ...], where: str) -> Any:
    items = (
        [item.strip() for item in value.strip("[]() ").split(",") if item.strip()] if isinstance(value, str) else value
    )
    items = _of(items, (list, tuple), where, "a list, for example 1,2")
    if origin is list or args[1:] == (...,):
        return origin(_converted(item, args[0], where) for item in items)
    if len(items) != len(args):
        raise UserError(f"{where}={value}: it should be {len(args)} values, separated by commas")
    return tuple(_converted(item, kind, where) for item, kind in zip(items, args, strict=True))


def _of(value: Any, kind: Any, where: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise UserError(f"{where}={value}: it should be {name}")
    return value


def _bool(value: Any, where: str) -> bool:
    named = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(named, bool):
        raise UserError(f"{where}={value}: it should be true or false")
    return named


def _int(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        with suppress(ValueError):  # 1e6 is no int to Python
            return int(value)
    number = _number(value)
    if number is None or not number.is_integer():
        raise UserError(f"{where}={value}: it should be a whole number")
    return int(number)


def _float(value: Any, where: str) -> float:
    number = _number(value)
    if number is None:
        raise UserError(f"{where}={value}: it should be a number")
    return number


def _number(value: Any) -> float | None:
    """None for all that is no number: a truth value and NaN too."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _str(value: Any, where: str) -> str:
    return str(_of(value, str, where, "text; put it in quotes"))


def _path(value: Any, where: str) -> Path:
    return Path(_of(value, (str, Path), where, "a path"))
