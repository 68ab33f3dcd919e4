"""Two processes under torchrun: the same run as one, checkpoints that travel, and failures nobody sleeps through."""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from horosphere.errors import UserError
from horosphere.train.distributed import World, norms, world
from tests.train import toy_task
from tests.train.toy_task import lines, train

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Everything two processes do, done once; the last job fails in one of them."""
    folder = tmp_path_factory.mktemp("two")
    train(folder / "one")
    with pytest.raises(SystemExit):
        train(folder / "begun by one", task={"interrupt_at": 3})
    jobs = [
        {"folder": "two"},
        {"folder": "micro", "micro_batch": 1},
        {"folder": "begun by one", "resume": True},
        {"folder": "begun by two", "task": {"interrupt_at": 3}},
        {"folder": "dropout", "dropout": 0.2},
        {"folder": "dropout begun", "dropout": 0.2, "task": {"interrupt_at": 3}},
        {"folder": "dropout begun", "name": "again", "dropout": 0.2, "resume": True},
        {"folder": "two", "name": "exists"},
        {"folder": "nan", "task": {"nan_at": 3}},
        {"folder": "full", "full_disk": ".step-00000004.partial/optimizer-*"},
        {"folder": "odd", "batch": 7},
        {"folder": "torn", "task": {"torn_at": 4}},
        {"folder": "torn", "name": "again", "resume": True},
        {"folder": "replaced", "lr": 0.5, "steps": 2},
        {"folder": "replaced", "name": "again", "overwrite": True},
        {"folder": "alone", "task": {"raise_at": 3}},
    ]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(toy_task.__file__),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begin = time.monotonic()
    arguments = json.dumps([{**job, "folder": str(folder / job["folder"])} for job in jobs])
    done = subprocess.run([*command, arguments], env=env, cwd=ROOT, capture_output=True, text=True, timeout=240)

    def outcome(name, number):
        path = folder / f"{name}.{number}.outcome"
        assert path.is_file(), done.stderr
        return path.read_text()

    return folder, outcome, done, time.monotonic() - begin


def assert_same_run(a, b):
    assert [(line["step"], set(line)) for line in lines(a)] == [(line["step"], set(line)) for line in lines(b)]
    for one, other in zip(lines(a), lines(b), strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-7)
    for file in ("model-00001-of-00001.safetensors", "optimizer-00001-of-00001.safetensors"):
        torch.testing.assert_close(
            *(load_file(f / "checkpoints/step-00000006" / file) for f in (a, b)), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(("name", "number"), [("two", 0), ("micro", 1), ("begun by one", 2)])
def test_two_processes_train_as_one(runs, name, number):
    """The model has a curvature that blocks share, one that a block shares with the table, and tied weights."""
    folder, outcome, _, _ = runs
    assert outcome(name, number) == "done"
    assert_same_run(folder / name, folder / "one")


def test_one_process_goes_on_from_two(runs):
    folder, outcome, done, _ = runs
    assert outcome("begun by two", 3) == "exit 130"  # only one of them was interrupted
    assert done.stderr.count("stopped after step 3 of 6") == 2  # once a run, though there are two processes
    train(folder / "begun by two", resume=True)
    assert_same_run(folder / "begun by two", folder / "one")


def test_two_processes_resume_exactly(runs):
    folder, outcome, _, _ = runs
    assert outcome("dropout begun", "again") == "done"
    assert lines(folder / "dropout begun") == lines(folder / "dropout")


def test_a_mistake_is_told_by_both_and_neither_waits(runs):
    folder, outcome, _, _ = runs
    assert "exists already" in outcome("two", "exists")
    assert "does not divide into 2 processes" in outcome("odd", 10)
    assert not (folder / "odd").exists()
    assert "in step 3 is not finite" in outcome("nan", 8)
    file = folder / "full/checkpoints/.step-00000004.partial/optimizer-00001-of-00001.safetensors"
    assert outcome("full", 9).startswith(f"{file}: cannot be written (No space left on device); make room")
    assert [p.name for p in (folder / "full/checkpoints").iterdir()] == ["step-00000002"]


def test_rows_that_one_process_cannot_read_cost_no_step(runs):
    folder, outcome, _, _ = runs
    assert outcome("torn", 11) == "7.png: torn. The 3 steps before it are saved: go on with --resume."
    assert outcome("torn", "again") == "done"
    assert_same_run(folder / "torn", folder / "one")


def test_a_run_of_two_processes_replaces_another(runs):
    folder, outcome, _, _ = runs
    assert outcome("replaced", "again") == "done"
    assert_same_run(folder / "replaced", folder / "one")


def test_who_fails_alone_ends_all(runs):
    folder, _, done, seconds = runs
    assert done.returncode != 0
    assert "this process fails alone" in done.stderr
    assert (folder / "alone").is_dir()
    assert not (folder / "alone.15.outcome").exists()
    assert seconds < 200  # nobody waited for a timeout


# -- alone ------------------------------------------------------------------------------------------------------------


def test_alone_there_is_no_process_group(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with world("cpu") as here:
        assert here == World(0, 1, torch.device("cpu"))
        assert not dist.is_initialized()
        assert here.is_main
        assert here.any(True)
        assert not here.any(False)
        assert here.from_main(lambda: (1, 2)) == (1, 2)
        assert here.mean(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_several_processes_take_a_kind_of_device(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="say cuda"), world("cuda:1"):
        pass


def test_what_fails_in_the_main_process_is_its_own_failure_there_and_a_complaint_elsewhere(monkeypatch):
    def fail():
        raise FileNotFoundError("no such thing")

    monkeypatch.setattr(World, "_told", lambda self, message, by=0: message or {"failure": "no such thing"})
    with pytest.raises(FileNotFoundError, match="no such thing"):
        World(rank=0, size=2).from_main(fail)
    with pytest.raises(UserError, match="no such thing"):
        World(rank=1, size=2).from_main(fail)


def test_alone_the_main_process_asks_nobody(monkeypatch):
    monkeypatch.setattr(World, "_told", lambda *_: pytest.fail("there is nobody to ask"))
    assert World().from_main(lambda: 3) == World().main_first(lambda: 3) == 3


def test_others_work_after_the_main_process_and_it_works_once(monkeypatch):
    done = []

    def told(self, message, by=0):
        done.append("all have heard of the main one")
        return message or {"value": None}

    monkeypatch.setattr(World, "_told", told)
    for rank, expected in (
        (0, ["work", "all have heard of the main one"]),
        (1, ["all have heard of the main one", "work"]),
    ):
        assert World(rank, size=2).main_first(lambda: done.append("work") or "answer") == "answer"
        assert done == expected
        done.clear()


def test_norms_are_lengths_and_show_what_is_not_finite():
    tensors = [torch.tensor([3.0, 4.0]), None, torch.tensor([[float("nan")]]), torch.tensor([float("inf"), 1.0])]
    lengths = norms(tensors, World())
    assert lengths[:2].tolist() == [5.0, 0.0]
    assert lengths.isfinite().tolist() == [True, True, False, False]


def test_those_who_wait_for_a_checkpoint_have_patience(monkeypatch):
    """Half an hour on every device; by itself NCCL waits ten minutes."""
    asked = []
    monkeypatch.setattr(dist, "init_process_group", lambda *words, **options: asked.append((*words, options)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: asked.append("left"))
    for name, value in (("WORLD_SIZE", 3), ("RANK", 2), ("LOCAL_RANK", 1), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    with world("cpu") as here:
        assert (here.rank, here.size, here.device, here.is_main) == (2, 3, torch.device("cpu"), False)
    assert asked == [("gloo", {"timeout": timedelta(minutes=30)}), "left"]
