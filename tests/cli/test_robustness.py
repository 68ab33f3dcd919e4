"""Real commands that are killed, meet each other, or find the disk full: nothing is lost, and one line tells it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from horosphere.runs import Run
from tests.train.toy_task import lines

pytestmark = pytest.mark.usefixtures("_beside_a_tree")
SCRIPT = Path(sys.executable).with_name("horosphere")
SHIM = Path(__file__).parents[2] / "benchmarks" / "failing_disk.c"
SHORT = ("--dim", "3", "steps=6", "batch=8", "negatives=9", "log_every=1", "eval_every=3", "save_every=2", "--quiet")
LONG = ("--dim", "3", "steps=1e8", "batch=8", "negatives=9", "log_every=50", "save_every=200", "--quiet")


def embed(*words, **how):
    return subprocess.run(
        [SCRIPT, "embed", "tree.tsv", *map(str, words)], capture_output=True, text=True, timeout=120, check=False, **how
    )


def told(done):
    """The one line of a command that was refused."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("horosphere: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def weights(folder):
    return {str(file.relative_to(folder)): load_file(file) for file in sorted(Path(folder).rglob("*.safetensors"))}


def assert_same(a, b):
    assert lines(a) == lines(b)
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    for file in ours:
        assert all(torch.equal(ours[file][name], t) for name, t in theirs[file].items())


@pytest.fixture
def living():
    """living(*words): an `embed` that trains, with a checkpoint."""
    begun = []

    def start(*words):
        process = subprocess.Popen([SCRIPT, "embed", "tree.tsv", *LONG, *words], stderr=subprocess.PIPE, text=True)
        begun.append(process)
        folder, end = Path(words[words.index("--out") + 1]), time.monotonic() + 60
        while not list(folder.glob("checkpoints/step-*")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.01)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_beside_a_living_run_nothing_is_done(living):
    process = living("--out", "run")
    for way in ("--resume", "--overwrite", "--continue"):
        assert f"is in use by process {process.pid} on " in told(embed(*LONG, "--out", "run", way))
    assert process.poll() is None
    before = len(Run.open("run").lines())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    last = Run.open("run").checkpoint()
    assert int(last.name.removeprefix("step-")) >= Run.open("run").lines()[-1]["step"]
    assert len(Run.open("run").lines()) >= before > 0  # it could save, and its metrics are all there


def test_of_two_commands_that_begin_at_once_one_gets_the_folder():
    words = [SCRIPT, "embed", "tree.tsv", *SHORT, "steps=300", "save_every=100", "log_every=100", "--out", "run"]
    two = [subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(2)]
    said = sorted((process.communicate(timeout=120)[1], process.returncode) for process in two)
    assert said[0] == ("", 0)
    line, code = said[1]
    assert code == 2
    assert "is in use by process" in line or "exists already" in line
    assert line.count("\n") == 1
    assert [path.name for path in sorted(Path().iterdir())] == ["run", "tree.tsv"]
    assert embed(*words[3:], "--overwrite", "--out", "alone").returncode == 0
    assert_same("run", "alone")


def test_kill_9_costs_the_steps_since_the_last_checkpoint_and_leaves_the_lock_to_others(living):
    process = living("--out", "run")
    process.kill()
    process.wait()
    kept = Run.open("run").checkpoint()
    with subprocess.Popen([SCRIPT, "embed", "tree.tsv", *LONG, "--out", "run", "--resume"]) as again:
        end = time.monotonic() + 60
        while Run.open("run").checkpoint() == kept and time.monotonic() < end:
            time.sleep(0.01)
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == 130
    assert Run.open("run").checkpoint().name > kept.name
    steps = [line["step"] for line in Run.open("run").lines()]
    assert steps == sorted(set(steps))


def test_a_run_that_is_to_be_replaced_outlives_whoever_is_killed_before_the_first_checkpoint():
    assert embed(*SHORT, "--out", "run").returncode == 0
    shutil.copytree("run", "before")
    words = [SCRIPT, "embed", "tree.tsv", *SHORT, "steps=1e8", "save_every=1e8", "eval_every=none"]
    with subprocess.Popen([*words, "--out", "run", "--overwrite"]) as process:
        end = time.monotonic() + 60
        while not list(Path().glob(".run.new.partial/metrics.jsonl")) and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
    assert_same("run", "before")
    assert embed(*SHORT, "--out", "run", "--overwrite").returncode == 0
    assert_same("run", "before")
    assert sorted(path.name for path in Path().iterdir()) == ["before", "run", "tree.tsv"]


# embeds in forks, which have no need to import anything; argv: the settings, and how to run each: {env, words}
FORKS = """
import json, os, sys
import horosphere.plots, horosphere.tasks.nodes, horosphere.train.training, torch
from horosphere.cli import main
torch.set_num_threads(1)
for number, (env, words) in enumerate(json.loads(sys.argv[1])):
    if not (child := os.fork()):
        os.environ |= env
        errors = os.open(f"said-{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(["embed", "tree.tsv", *words]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code)
"""


def embeds(library, *runs):
    """Exit code and standard error of each."""
    env = {**os.environ, "LD_PRELOAD": str(library)}
    words = json.dumps([[env, [*SHORT, *map(str, words)]] for env, *words in runs])
    done = subprocess.run(
        [sys.executable, "-c", FORKS, words], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    said = [Path(f"said-{number}").read_text() for number in range(len(runs))]
    return list(zip(map(int, done.stdout.split()), said, strict=True))


@pytest.mark.skipif(shutil.which("cc") is None, reason="a disk that is full at will needs a C compiler")
def test_a_disk_that_is_full_at_any_write_is_told_and_the_run_goes_on_as_if_nothing_had_been(tmp_path):
    """Some of the writes of a run; `benchmarks/robustness.py disk` tries them all."""
    library = tmp_path / "failing_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
    (tmp_path / "whole").mkdir()
    count = {"FULL_BELOW": str(tmp_path / "whole"), "FULL_COUNT": str(tmp_path / "count")}
    assert embeds(library, (count, "--out", "whole/run")) == [(0, "")]
    writes = int((tmp_path / "count").read_text())
    assert writes > 30
    numbers = [1, 2, *range(5, writes + 1, 9)]
    runs = []
    for number in numbers:
        place = tmp_path / f"place-{number}"
        place.mkdir()
        full = {"FULL_BELOW": str(place), "FULL_FROM": str(number)}
        runs += [(full, "--out", place / "run"), ({}, "--out", place / "run", "--continue")]
    ends = embeds(library, *runs)
    for number, refused, again in zip(numbers, ends[::2], ends[1::2], strict=True):
        place = tmp_path / f"place-{number}"
        code, line = refused
        assert (code, line.count("\n")) == (2, 1), (number, line)
        assert line.startswith(f"horosphere: {place}")
        assert "No space left on device" in line
        assert again == (0, ""), number
        assert_same(place / "run", "whole/run")
        assert [path.name for path in place.iterdir()] == ["run"]
