"""Settings as their sources describe them: names, defaults and help, without importing the seconds behind them."""

import ast
import importlib.util
import io
import textwrap
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, get_args

from horosphere import settings
from horosphere.errors import UserError, choices

WIDTH = 100  # of help


@dataclass(frozen=True)
class Setting:
    """A field as its source has it."""

    name: str
    kind: str
    default: str  # "" where there is none
    help: str  # the comment beside it, or above it

    def value(self, given: Mapping[str, Any]) -> str:
        """What it is where nobody sets it, as one would write it: what is given, else the default."""
        if self.name not in given:
            return {"None": "none", "True": "true", "False": "false"}.get(self.default, self.default.strip("'\""))
        value = given[self.name]
        if isinstance(value, (list, tuple)):
            return ",".join(map(str, value))
        return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    @property
    def allowed(self) -> str:
        """What its type allows; "" where that goes without saying.

        >>> Setting("keep", "Share | None", "", "").allowed, Setting("on", "Literal['a', 'b']", "", "").allowed
        ('from 0 to 1, or none', 'a, b')
        """
        tree = ast.parse(self.kind, mode="eval").body
        rules = [text for node in ast.walk(tree) if (text := _rule(node))]
        rules = ["true, false", *rules] if rules and self.kind.startswith("bool |") else rules
        optional = isinstance(tree, ast.BinOp) and self.kind.endswith("| None")
        return ", or ".join([*dict.fromkeys(rules), *["none"] * optional]) if rules else ""


def _rule(node: ast.AST) -> str:
    """What a part of a type allows, in words."""
    if isinstance(node, ast.Name):
        rules = get_args(getattr(settings, node.id, None))[1:]
        return rules[0].words if rules and isinstance(rules[0], settings.Range) else ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Range":
        return settings.Range(**{str(word.arg): _number(word.value) for word in node.keywords}).words
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        return ", ".join(str(part.value) for part in ast.walk(node.slice) if isinstance(part, ast.Constant))
    return ""


def _number(node: ast.expr) -> float:
    """A number as a source has it: 3, -1, 10**6."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return float(_number(node.left) ** _number(node.right))
    return float(ast.literal_eval(node))


@cache
def describe(reference: str) -> dict[str, Setting]:
    """{name: setting} of the class "module:Class", bases and flat parts included.

    >>> list(describe("horosphere.settings:Range"))
    ['least', 'most', 'above', 'below']
    """
    module, _, name = reference.partition(":")
    spec = _spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    tree = ast.parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if spec is None or name not in classes:
        raise UserError(f"{reference}: the catalogue names it, but it is not there; repair or uninstall its package")
    places = {name: f"{module}:{name}" for name in classes}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            source_of = importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            places |= {alias.asname or alias.name: f"{source_of}:{alias.name}" for alias in node.names}
    bases = [ast.unparse(base).partition("[")[0] for base in classes[name].bases]
    read = {"horosphere", module.partition(".")[0]}  # a foreign library's base has no settings of ours
    ours = [places[base] for base in bases if places.get(base, "").partition(":")[0].partition(".")[0] in read]
    # dataclasses take the fields of their last base first
    known = {name: setting for base in reversed(ours) for name, setting in describe(base).items()}
    comments, apart = _comments(source), set[str]()
    for node in classes[name].body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(target, ast.Name):
            continue
        if target.id == "no_settings":
            apart = {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
        if not isinstance(node, ast.AnnAssign):
            continue
        kind, default = ast.unparse(node.annotation), "" if node.value is None else ast.unparse(node.value)
        if kind.endswith(", FLAT]"):
            known |= describe(places[kind.removeprefix("Annotated[").removesuffix(", FLAT]")])
        elif not kind.startswith("ClassVar") and "init=False" not in default:
            text = comments.get(node.end_lineno or node.lineno) or comments.get(-(node.lineno - 1), "")
            known[target.id] = Setting(target.id, kind, default, text)
    return {name: setting for name, setting in known.items() if name not in apart}


def _spec(module: str) -> ModuleSpec | None:
    """Where a module is. `find_spec` would import the packages around it; only the outermost one is asked here."""
    outermost, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(outermost)
    except ImportError:
        return None
    for place in range(1, len(inner) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = ".".join([outermost, *inner[:place]])
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _comments(source: str) -> dict[int, str]:
    """Comments by line; below zero where nothing else stands in it."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0] * (1 if token.line[: token.start[1]].strip() else -1): token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }


# -- on the command line ----------------------------------------------------------------------------------------------


def from_words(
    words: Sequence[str], known: Mapping[str, Setting], owners: Callable[[str], list[str]] = lambda name: []
) -> list[str]:
    """Settings as people write them, as key=value. `owners` knows whose a setting is that is not `known`.

    >>> known = {"dim": Setting("dim", "int", "10", ""), "deep": Setting("deep", "bool", "False", "")}
    >>> from_words(["--dim", "5", "--deep", "lr=1"], known)
    ['dim=5', 'deep=true', 'lr=1']
    """
    said, left = [], list(words)
    while left:
        word = left.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not word.startswith("--"):
            if not equals:
                raise UserError(f"{word}: what is this for? A setting is written key=value or --key value")
            said.append(word)
            continue
        if name not in known:
            whose = "" if get_close_matches(name, known, cutoff=0.8) else " and ".join(owners(name))
            what = f"it is for {whose}; choose from {', '.join(known)}"
            raise UserError(f"--{key}: " + (what if whose else f"there is no such option here; {choices(name, known)}"))
        flag = known[name].kind in ("bool", "bool | None")
        if not equals and flag and (not left or left[0] not in ("true", "false", "none")):
            value = "true"
        elif not equals:
            if not left or left[0].startswith("--"):
                raise UserError(f"--{key} has no value; write --{key} {known[name].default or 'VALUE'}")
            value = left.pop(0)
        said.append(f"{name}={value}")
    return said


def help_lines(known: Mapping[str, Setting], given: Mapping[str, Any]) -> list[str]:
    """What can be set, and the value where nobody sets it."""
    width = max(map(len, known)) + 4
    lines = ["settings, as --key value or key=value:"]
    for setting in known.values():
        option, value = f"--{setting.name.replace('_', '-')}", setting.value(given)
        inside = "; ".join(filter(None, [value, setting.allowed]))
        text = " ".join([f"  {option:{width}} ", *filter(None, [setting.help, inside and f"({inside})"])])
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * (width + 4))
    return lines
