"""Settings: text and YAML become typed fields of dataclasses. What is unknown or out of range is told in one line.

A setting stands once, as a field. Its type says what it takes (`Count`: whole numbers from 1), its comment is its help.
"""

import dataclasses
import inspect
import math
import types
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from horosphere.errors import UserError, choices, one_line

T = TypeVar("T")
NOTHING = ("none", "null")


@dataclass(frozen=True)
class Range:
    """What numbers a setting takes. `least` and `most` belong to it, `above` and `below` do not."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        return f"{'goes' if self.words.startswith('from') else 'must be'} {self.words}"

    @property
    def words(self) -> str:
        """For help: "at least 1", "from 0 to 1"."""
        if self.above == 0:
            end = f"at most {_end(self.most)}" if math.isfinite(self.most) else f"below {_end(self.below)}"
            return f"positive and {'finite' if end == 'below inf' else end}"
        if math.isfinite(self.least) and (math.isfinite(self.most) or math.isfinite(self.below)):
            end = f"just below {_end(self.below)}" if self.below < self.most else _end(self.most)
            return f"from {self.least:g} to {end}"
        return f"at least {self.least:g}"


def _end(number: float) -> str:
    """As one would write it: 1,000, but 1e9."""
    short = f"{number:.0e}".replace("e+0", "e").replace("e+", "e")
    return short if 10**6 <= number < math.inf and float(short) == number else f"{number:,.12g}"


# Ends that no setting needs to pass: beyond them a slip of the pen would fill the memory, or train for ever.
Count = Annotated[int, Range(least=1, most=10**9)]
Natural = Annotated[int, Range(least=0, most=10**9)]
Size = Annotated[int, Range(least=1, most=10**6)]  # widths, lengths, sides
Extent = Annotated[int, Range(least=0, most=10**6)]  # a size, or 0: nothing
Few = Annotated[int, Range(least=1, most=1000)]  # layers, levels, heads, pixels of a kernel
Curvature = Annotated[float, Range(least=1e-10, most=1e10)]
Positive = Annotated[float, Range(above=0, below=math.inf)]
Amount = Annotated[float, Range(least=0, below=math.inf)]
Share = Annotated[float, Range(least=0, most=1)]
Decay = Annotated[float, Range(least=0, below=1)]
Seed = Annotated[int, Range(least=0, below=2**32)]


FLAT = "flat"  # Annotated[Part, FLAT]: the fields of this dataclass stand in the flat list of its owner


def settings_of(cls: type) -> dict[str, tuple[Any, Any]]:
    """{name: (type, default)} of the fields of a dataclass, MISSING where there is no default.

    A class names its fields that are no settings in `no_settings`.
    """
    known: dict[str, tuple[Any, Any]] = {}
    for f, kind in _fields(cls):
        if (part := _flat_part(kind)) is not None:
            known |= settings_of(part)
        else:
            known[f.name] = kind, f.default if f.default_factory is MISSING else f.default_factory()
    return known


def values_of(instance: Any) -> dict[str, Any]:
    """{name: value} of the settings of a dataclass; a section is a dictionary of its own."""
    values: dict[str, Any] = {}
    for f, kind in _fields(type(instance)):
        value = getattr(instance, f.name)
        if dataclasses.is_dataclass(value):
            values |= values_of(value) if _flat_part(kind) else {f.name: values_of(value)}
        else:
            values[f.name] = value
    return values


def make(cls: type[T], values: dict[str, Any], **more: Any) -> T:
    """A dataclass from typed values of its settings, and from `more` that are none."""
    own: dict[str, Any] = dict(more)
    for f, kind in _fields(cls):
        if (part := _flat_part(kind)) is not None:
            own[f.name] = make(part, {name: values[name] for name in settings_of(part) if name in values})
        elif f.name in values:
            own[f.name] = values[f.name]
    return cls(**own)


def build(cls: type[T], values: dict[str, Any], where: str, **more: Any) -> T:
    """A dataclass from values of its settings, each known and of its type and range. `where` begins the complaints."""
    return make(cls, assign((cls,), values, where)[0], **more)


def assign(parts: Sequence[type], values: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One flat list of settings, given to the dataclasses whose fields they name, in their types."""
    known = [settings_of(part) for part in parts]
    every = {name: kind for part in known for name, (kind, _) in part.items()}
    for name in values:
        if name not in every:
            raise UserError(f"{where}: there is no setting {name}; {choices(name, every)}")
    if missing := [
        name for part in known for name, (_, default) in part.items() if default is MISSING and name not in values
    ]:
        raise UserError(f"{where}: {', '.join(missing)} must be given; add {missing[0]}=…")
    typed = {name: convert(value, every[name], f"{where}: {name}") for name, value in values.items()}
    return [{name: typed[name] for name in part if name in typed} for part in known]


def check(instance: Any) -> None:
    """Complain about a dataclass made in Python whose settings are out of range, or none of the choices."""
    values = values_of(instance)
    for name, (kind, _) in settings_of(type(instance)).items():
        _allowed(values[name], kind, name)


def _fields(cls: type) -> Iterator[tuple["dataclasses.Field[Any]", Any]]:
    """The fields that are settings, with their types."""
    apart: frozenset[str] = getattr(cls, "no_settings", frozenset())
    fields = [f for f in dataclasses.fields(cls) if f.init and f.name not in apart]
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__annotations__", {})
        if any(f.name in own for f in fields):  # a foreign base may not know its own types
            hints |= inspect.get_annotations(base, eval_str=True)
    return ((f, hints[f.name]) for f in fields)


def _flat_part(kind: Any) -> type | None:
    return get_args(kind)[0] if get_origin(kind) is Annotated and FLAT in get_args(kind)[1:] else None


# -- types ------------------------------------------------------------------------------------------------------------


def convert(value: Any, kind: Any, where: str) -> Any:
    """The value as its field's type has it, from YAML or from text (key=value; and YAML takes 1e-3 for text)."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        return _allowed(convert(value, args[0], where), kind, where)
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
        raise TypeError(f"{where}: settings have no type {kind}")
    return scalar(value, where)


def is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in NOTHING)


def _allowed(value: Any, kind: Any, where: str) -> Any:
    """The value, where ranges and choices of its type allow it; of other types there is nothing to say."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [part for part in args if get_origin(part) in (Annotated, Literal, tuple, list)]
        if value is not None and len(inner) == 1 and not (isinstance(value, bool) and bool in args):
            _allowed(value, inner[0], where)
    elif origin is Annotated and isinstance(value, (int, float)):
        for rule in args[1:]:
            if value not in rule:
                raise UserError(f"{where}={_short(value)}: it {rule}")
    elif origin is Literal and value not in args:
        raise UserError(f"{where}={_short(value)}: choose from {', '.join(map(str, args))}")
    elif origin in (tuple, list) and isinstance(value, (tuple, list)):
        for item in value:
            _allowed(item, args[0], where)
    return value


def _short(value: Any) -> str:
    """A number of a thousand digits, too."""
    return f"{value:g}" if isinstance(value, float) else one_line(value, 40)


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    if types.NoneType in kinds and is_nothing(value):
        return None
    complaints = []
    # any text is a str: it is asked last
    for kind in sorted((k for k in kinds if k is not types.NoneType), key=lambda k: k is str):
        try:
            return convert(value, kind, where)
        except UserError as error:
            complaints.append(str(error).removeprefix(f"{where}=").partition(": ")[2])
    answers = [*complaints, *["none"] * (types.NoneType in kinds)]
    raise UserError(f"{where}={value}: {', or '.join(dict.fromkeys(answers))}")


def _sequence(value: Any, origin: type, args: tuple[Any, ...], where: str) -> Any:
    items = value
    if isinstance(value, str):
        items = [item.strip() for item in value.strip("[]() ").split(",") if item.strip()]
    items = _of(items, (list, tuple), where, "a list, for example 1,2")
    if origin is list or args[1:] == (...,):
        return origin(convert(item, args[0], where) for item in items)
    if len(items) != len(args):
        raise UserError(f"{where}={value}: it should be {len(args)} values, separated by commas")
    return tuple(convert(item, kind, where) for item, kind in zip(items, args, strict=True))


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
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _str(value: Any, where: str) -> str:
    text = str(_of(value, str, where, "text; put it in quotes"))
    if not text.strip():
        raise UserError(f"{where}={value}: it should be text; this is empty")
    return text


def _path(value: Any, where: str) -> Path:
    return Path(_of(value, (str, Path), where, "a path"))
