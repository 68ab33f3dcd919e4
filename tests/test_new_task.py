"""The developer's guide: the package that it writes has everything a task has."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from horosphere import catalogue
from tests.cli.command_line import cells, runner

GUIDE = Path(__file__).parent.parent / "docs/design/new-task.md"
LONGEST = 80  # lines, with data, model and scores
SHORT = ("data=table.csv", "epochs=8", "lr=0.01", "save_every=10", "--device", "cpu", "--quiet")


def files():
    """{name: text} of the blocks that have a name."""
    return dict(re.findall(r'```\w+ title="(.+?)"\n(.*?)```', GUIDE.read_text(encoding="utf-8"), re.DOTALL))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of the package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("installed")
    text = files()
    for name in ("horosphere_rows/__init__.py", "horosphere_rows/task.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text[name], encoding="utf-8")
    about = folder / "horosphere_rows-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: horosphere-rows\nVersion: 0.1\n")
    point = re.search(r"^rows = \"(.+)\"$", text["pyproject.toml"], re.MULTILINE)[1]
    (about / "entry_points.txt").write_text(f"[horosphere]\nrows = {point}\n")
    return folder


@pytest.fixture
def run(package, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), str(Path(__file__).parent.parent)]))
    monkeypatch.syspath_prepend(str(package))
    catalogue.plugins.cache_clear()
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, 200)
    columns = draws.normal(size=(200, 5)) + 2 * np.eye(5)[labels]
    np.savetxt("table.csv", np.c_[columns, labels], fmt="%.4f", delimiter=",")
    yield runner(capsys)
    catalogue.plugins.cache_clear()


def test_the_package_is_small():
    assert sum(text.count("\n") for name, text in files().items() if name.endswith(".py")) <= LONGEST
    assert max(len(line) for text in files().values() for line in text.splitlines()) <= 120


def test_it_is_listed_trained_judged_and_its_mistakes_are_named(run):
    assert "table-net" in run("list", "--task", "rows")[1]
    assert "classify the rows of a table" in run("list", "rows")[1]
    code, out, _ = run("train", "rows", *SHORT)
    assert code == 0
    assert float(cells(out)["rows right"]) > 0.8
    assert cells(run("eval", "runs/rows", "--device", "cpu")[1])["rows right"] == cells(out)["rows right"]
    assert "did you mean width" in run("train", "rows", *SHORT, "widht=3", "--out", "new")[2]
    assert "width=0: it goes from 1 to 1e9" in run("train", "rows", *SHORT, "width=0", "--out", "new")[2]
    assert "no table of numbers" in run("train", "rows", *SHORT, "data=none.csv", "--out", "new")[2]


def test_a_killed_run_goes_on_to_the_same_weights(run):
    words = ("train", "rows", *SHORT, "epochs=200")
    assert run(*words, "--out", "whole")[0] == 0
    process = subprocess.Popen([sys.executable, "-m", "horosphere", *words, "--out", "killed"])
    while not list(Path("killed").glob("checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("killed/model.safetensors").exists()
    assert run(*words, "--out", "killed", "--resume")[0] == 0
    whole, killed = (load_file(f"{name}/model.safetensors") for name in ("whole", "killed"))
    assert all(whole[name].equal(killed[name]) for name in whole | killed)


def test_its_geometries_are_compared_in_a_report(run):
    code, out, _ = run("compare", "rows", *SHORT, "--seeds", "1")
    assert code == 0
    assert all(name in out for name in ("lorentz", "poincare", "euclidean", "rows right"))
    page = Path("runs/compare-rows/report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("lorentz", "poincare", "euclidean", "rows right", "on this table"))
    assert len(list(Path("runs/compare-rows").glob("*/run.json"))) == 3
