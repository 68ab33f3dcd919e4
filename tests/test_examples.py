"""Every export of a room has a runnable example in its docstring. Every example holds, and all Python of the guides."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import horosphere

ROOMS = ["horosphere.geometry", "horosphere.nn", "horosphere.optim"]  # whose classes, methods and functions have one
MORE = ["horosphere.data", "horosphere.measure", "horosphere.evaluate"]  # whose functions have one
# what cannot be shown without a trained model or files
WITHOUT = {"horosphere.evaluate.evaluate_task", "horosphere.evaluate.harness"}
GUIDES = sorted(Path(__file__).parents[1].joinpath("docs").glob("*.md"))
# a block of Python, and the comment above it that says what it would need: no reader of the page sees that
BLOCK = re.compile(r"^(?P<skipped><!-- not run: .+ -->\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def exports():
    """Functions and classes of the rooms, and the methods that their classes add to what torch has."""
    for room in map(importlib.import_module, ROOMS):
        for name in room.__all__:
            export = getattr(room, name)
            if not callable(export):
                continue
            yield f"{room.__name__}.{name}", export
            if inspect.isclass(export):
                yield from ((f"{room.__name__}.{name}.{method}", getattr(export, method)) for method in added(export))


def functions():
    for room in map(importlib.import_module, MORE):
        names = (f"{room.__name__}.{name}" for name in room.__all__ if inspect.isfunction(getattr(room, name)))
        yield from ((name, getattr(room, name.rpartition(".")[2])) for name in names if name not in WITHOUT)


def added(cls):
    """Public methods and properties of a class that no class above it has."""
    above = {name for base in cls.__mro__[1:] for name in vars(base)} | {"reset_parameters"}
    members = {name: member for name, member in vars(cls).items() if not name.startswith("_") and name not in above}
    return [name for name, member in members.items() if inspect.isfunction(member) or isinstance(member, property)]


def modules():
    """Every module that has an example."""
    for module in pkgutil.walk_packages(horosphere.__path__, "horosphere."):
        source = importlib.util.find_spec(module.name).origin
        if source and ">>>" in Path(source).read_text(encoding="utf-8"):
            yield module.name


@pytest.mark.parametrize(("name", "export"), [pytest.param(*pair, id=pair[0]) for pair in (*exports(), *functions())])
def test_every_export_has_an_example(name, export):
    assert ">>>" in (inspect.getdoc(export) or ""), f"{name}: give its docstring an example"


@pytest.mark.parametrize("module", list(modules()))
def test_examples_hold(module):
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"it needs {error.name}")
    assert doctest.testmod(imported).failed == 0


def blocks(page):
    """The Python of a page, with empty lines before it: so that a traceback names the page's own lines."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if not block["skipped"]:
            yield "\n" * text.count("\n", 0, block.start("code")) + block["code"]


@pytest.mark.parametrize("page", [page for page in GUIDES if any(blocks(page))], ids=lambda page: page.stem)
def test_the_python_of_a_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in blocks(page):
        try:
            exec(compile(code, str(page), "exec"), names)
        except ModuleNotFoundError as error:
            pytest.skip(f"it needs {error.name}")
