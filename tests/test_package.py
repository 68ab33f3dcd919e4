"""The package as it is installed: light to import, typed, every module whole."""

import json
import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import venv
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


def test_functions_of_pictures_are_torch_alone_until_one_needs_more():
    modules = [name for name in MODULES if name.startswith("horosphere.ops")]
    assert len(modules) >= 8
    taken = python(f"import json, sys; import {', '.join(modules)}; print(json.dumps(list(sys.modules)))")
    assert {"kornia", "cv2", "torchvision", "skimage"}.isdisjoint(taken)


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


# -- what is shipped --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The wheel and the sdist of a copy of the source."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("shipped")
    source = folder / "source"
    for name in ("horosphere", "pyproject.toml", "README.md", "LICENSE"):
        path = ROOT.parent / name
        copy = shutil.copytree if path.is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(path, source / name)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    return {path.suffix: path for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("kind", [".whl", ".gz"])
def test_what_is_shipped_installs_in_an_empty_environment(shipped, tmp_path, kind):
    """Its dependencies are lent by this environment: they are not what is tested."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    how = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *how, "--target", site, shipped[kind]], check=True)
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    words = [str(tmp_path / "venv/bin/python"), "-m", "horosphere"]

    def say(*more):
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([*words, *more], check=True, capture_output=True, text=True, cwd=tmp_path, env=env).stdout

    assert say("--version") == f"horosphere {horosphere.__version__}\n"
    assert "helm-d-tiny" in say("list")
    assert "mAP" in say("embed", "builtin:trove", "epochs=1", "--device", "cpu", "--quiet")
    installed = {str(path.relative_to(site / "horosphere")) for path in (site / "horosphere").rglob("*.*")}
    source = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.*")}
    assert {name for name in source if "__pycache__" not in name} <= installed
