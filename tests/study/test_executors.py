"""Ray and Slurm: real workers, a worker killed in mid-job, and nothing lost."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from horosphere.runs import steps_done
from horosphere.study.executors import executor, last_line
from horosphere.study.jobs import Job, run_all
from tests.tasks.tiny import NODES, write_tree

STEPS = 1500
WORDS = (
    "train",
    "embedding",
    *NODES,
    f"steps={STEPS}",
    "save_every=20",
    "eval_every=none",
    "log_every=20",
    "--device",
    "cpu",
)


def job(folder, seed, data):
    return Job(folder.name, (*WORDS, f"data={data}", f"seed={seed}"), folder, STEPS)


@pytest.fixture
def straight(tmp_path):
    """Two runs that nobody disturbs, here."""
    data = write_tree(tmp_path / "tree.tsv")
    here = [job(tmp_path / f"here-{seed}", seed, data) for seed in (0, 1)]
    run_all(here, executor("here:jobs=2"), lambda done, note: None)
    return data, [load_file(j.folder / "points.safetensors")["points"] for j in here]


def training_of(folder):
    """The process that trains into a folder, once it has saved something."""
    for _ in range(6000):
        if steps_done(folder) >= 40:
            for status in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = status.read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"train" in words and str(folder).encode() in words:
                    return int(status.parent.name)
        time.sleep(0.02)
    return None


def parent_of(process):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("PPid:")))


def disturb(folder, killed):
    """Kill the worker that started the training, in mid-job."""

    def kill():
        process = training_of(folder)
        if process is not None:
            killed.append(parent_of(process))
            os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("package", "text"), [("ray", "ray:jobs=2,cpus=1"), ("submitit", "slurm:cluster=local,jobs=2,folder={folder}")]
)
def test_a_worker_that_is_killed_costs_nothing(straight, tmp_path, package, text, monkeypatch):
    pytest.importorskip(package)
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.chdir(tmp_path)
    data, points = straight
    there = [job(tmp_path / f"there-{seed}", seed, data) for seed in (0, 1)]
    killed = []
    thread = disturb(there[0].folder, killed)
    run_all(there, executor(text.format(folder=tmp_path / "jobs")), lambda done, note: None)
    thread.join()
    assert killed
    for expected, done in zip(points, there, strict=True):
        assert load_file(done.folder / "points.safetensors")["points"].equal(expected)


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"horosphere: no such file\n", "no such file"),
        (b"a warning\nhorosphere: lower lr\n\n  \n", "lower lr"),
        (b"Killed", "Killed"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_the_last_complaint_is_what_people_are_told(said, last):
    assert last_line(io.BytesIO(said)) == last
