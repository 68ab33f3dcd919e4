"""The rooms of the house: each imports only from rooms below it, and the foundation nothing heavy."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "horosphere"
# from the ground up; rooms of one line stand beside each other
FLOORS = [
    [
        *("errors", "files", "memory", "foreign", "cache", "progress", "stopping", "tables", "settings", "described"),
        *("extras", "local_server", "catalogue", "recipes"),
    ],
    ["geometry"],
    ["nn", "optim", "ops"],
    ["data"],
    ["models"],
    ["evaluate"],
    ["measure"],
    ["runs"],
    ["train"],
    ["tasks"],
    ["study", "estimators"],
    ["superposition"],
    ["plots", "explorer"],
    ["demo"],
    ["cli"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
HEAVY = {"torch", "numpy", "transformers", "matplotlib", "scipy", "PIL", "safetensors", "yaml"}


def room_of(path, package=PACKAGE):
    return path.relative_to(package).parts[0].removesuffix(".py")


def imports(path):
    """(line, module) of everything a file imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "horosphere"
                else [node.module]
            )
            yield from ((node.lineno, name) for name in names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def upward(package):
    """ "file:line imports room" of every import from a room above, or of another room on the same floor."""
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for line, module in imports(path):
            other = module.split(".")[1] if module.startswith("horosphere.") else None
            if other in FLOOR and room in FLOOR and other != room and FLOOR[other] >= FLOOR[room] and FLOOR[room] > 0:
                yield f"{path.relative_to(package)}:{line} imports {other}"
            if other in FLOOR and FLOOR.get(room) == 0 and FLOOR[other] > 0:
                yield f"{path.relative_to(package)}:{line} imports {other}"


def test_every_room_has_a_floor():
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms <= FLOOR.keys()


def test_nobody_imports_from_above():
    assert list(upward(PACKAGE)) == []


def test_an_upward_import_is_found(tmp_path):
    for room, text in (
        ("data", "from horosphere.models import helm"),
        ("models", "def f():\n    import horosphere.train.engine"),
    ):
        (tmp_path / room).mkdir()
        (tmp_path / room / "planted.py").write_text(text)
    assert list(upward(tmp_path)) == ["data/planted.py:1 imports models", "models/planted.py:2 imports train"]


@pytest.mark.parametrize("room", FLOORS[0])
def test_the_foundation_imports_nothing_heavy(room):
    path = PACKAGE / room / "__init__.py" if (PACKAGE / room).is_dir() else PACKAGE / f"{room}.py"
    tops = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    modules = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in tops if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules}.isdisjoint(HEAVY)
