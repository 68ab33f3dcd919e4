"""The package as it is installed: light to import, typed, every module whole."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import horosphere

ROOT = Path(horosphere.__file__).parent
MODULES = [module.name for module in pkgutil.walk_packages([str(ROOT)], "horosphere.")]
HEAVY = {"torch", "matplotlib", "scipy", "networkx", "rich", "numpy"}


def python(code):
    """What the code prints as JSON, run by a fresh interpreter."""
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def heavy_after(statement):
    """The heavy packages that a statement imports."""
    return HEAVY.intersection(python(f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"))


def test_importing_the_package_is_light():
    assert heavy_after("import horosphere, horosphere.cli, horosphere.train.config, horosphere.files") == set()


def test_importing_the_geometry_takes_torch_and_little_more():
    taken = python(
        "import json, sys, time, torch, numpy; before = set(sys.modules);"
        "start = time.perf_counter(); import horosphere.geometry;"
        "print(json.dumps([time.perf_counter() - start, sorted(set(sys.modules) - before)]))"
    )
    seconds, modules = taken
    assert not HEAVY.intersection(modules)
    assert seconds < 0.5  # 0.02 s on an idle machine


def test_training_and_measuring_need_no_pictures():
    taken = heavy_after("import horosphere.study.compare, horosphere.tasks.nodes, horosphere.measure, horosphere.plots")
    assert not taken & {"matplotlib", "networkx", "rich"}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name):
    assert import_module(name).__doc__  # and says what it is for


def test_it_is_typed():
    assert (ROOT / "py.typed").is_file()


def test_the_installed_version_is_the_one_of_the_source():
    assert metadata.version("horosphere") == horosphere.__version__


def test_every_public_name_is_there():
    for name in MODULES:
        module = import_module(name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.{public}"
