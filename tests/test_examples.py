"""Every export of a room has a runnable example in its docstring, and every example holds."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

ROOMS = ["horosphere.geometry", "horosphere.nn", "horosphere.optim"]


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


def added(cls):
    """Public methods and properties of a class that no class above it has."""
    above = {name for base in cls.__mro__[1:] for name in vars(base)} | {"reset_parameters"}
    members = {name: member for name, member in vars(cls).items() if not name.startswith("_") and name not in above}
    return [name for name, member in members.items() if inspect.isfunction(member) or isinstance(member, property)]


def modules():
    for room in ROOMS:
        yield from (f"{room}.{m.name}" for m in pkgutil.iter_modules(importlib.import_module(room).__path__))


@pytest.mark.parametrize(("name", "export"), [pytest.param(*pair, id=pair[0]) for pair in exports()])
def test_every_export_has_an_example(name, export):
    assert ">>>" in (inspect.getdoc(export) or ""), f"{name}: give its docstring an example"


@pytest.mark.parametrize("module", [name for name in modules() if not name.endswith("kernels")])
def test_examples_hold(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
