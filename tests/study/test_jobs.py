"""Jobs: so many at a time, none left behind, those that are lost begun again, each where it was."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from horosphere.errors import UserError
from horosphere.study import executors, jobs
from horosphere.study.executors import Here, executor
from horosphere.study.jobs import Job, run_all


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """fake(name, script): a job that is another program; it finds its folder in argv[1]."""
    monkeypatch.setattr(jobs, "POLL", 0.01)
    start = executors.start

    def started(command, errors, **place):
        words = [sys.executable, "-c", command[0], command[command.index("--out") + 1]]
        with monkeypatch.context() as patch:
            patch.setattr(executors.subprocess, "Popen", lambda _, **options: popen(words, **options))
            return start(command, errors, **place)

    popen = executors.subprocess.Popen
    monkeypatch.setattr(executors, "start", started)
    return lambda name, script: Job(name, (script,), tmp_path / name, 4, lambda folder: 0)


def quietly(jobs, at_once=2, update=lambda done, note: None):
    run_all(jobs, Here(at_once), update)


def test_a_job_is_a_command_that_can_be_given_twice(tmp_path):
    job = Job("MiCE-Const", ("train", "helm-mice-tiny", "seed=1"), tmp_path / "run", 4)
    assert job.command == ["train", "helm-mice-tiny", "seed=1", "--out", str(tmp_path / "run"), "--continue", "--quiet"]


def test_a_job_replaces_what_was_there_when_it_was_made_and_nothing_later(tmp_path):
    old = Job("a", ("train",), tmp_path / "a", 4)
    assert "--continue" in old.anew().command  # nothing was there
    (tmp_path / "a").mkdir()
    (tmp_path / "a/run.json").write_text("old")
    job = old.anew()
    assert "--overwrite" in job.command
    assert "--continue" not in job.command
    assert "--continue" in old.command
    (tmp_path / "a/run.json").write_text("new")  # it was begun, and lost: it goes on
    assert "--continue" in job.command
    assert "--overwrite" not in job.command


def test_a_folder_that_is_no_run_is_named_before_any_job_begins(tmp_path, fake):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()  # empty: that will do
    (tmp_path / "b/metrics.jsonl").touch()
    jobs = [fake(name, "open(__import__('sys').argv[1] + '/run.json', 'w')") for name in ("a", "b")]
    for given in (jobs, [job.anew() for job in jobs]):
        with pytest.raises(UserError, match=r"/b holds no run\.json: remove it, or choose another --out"):
            quietly(given)
        assert not list((tmp_path / "a").iterdir())
    (tmp_path / "b/metrics.jsonl").unlink()
    quietly(jobs)


MEET = """
import pathlib, sys, time
begin, mine = time.time(), pathlib.Path(sys.argv[1])
(mine.parent / f"begun-{mine.name}").touch()
while not (mine.parent / f"begun-{int(mine.name) ^ 1}").exists() and time.time() < begin + 60:
    time.sleep(0.01)
mine.write_text(f"{begin} {time.time()}")
"""


def test_at_most_so_many_at_once_and_all_in_the_end(tmp_path, fake):
    """Two by two they wait for each other."""
    shown = []
    quietly([fake(str(i), MEET) for i in range(6)], update=lambda done, note: shown.append(done))
    spans = [tuple(map(float, (tmp_path / str(i)).read_text().split())) for i in range(6)]
    assert max(sum(a <= begin < b for a, b in spans) for begin, _ in spans) == 2
    assert shown[-1] == 24
    assert shown == sorted(shown)


TOLD = "import signal, sys, time; signal.signal(15, lambda *_: (open(sys.argv[1], 'w').write('told'), sys.exit(130)))"


def test_when_one_fails_the_others_are_told_to_stop(tmp_path, fake):
    stays = f"{TOLD}; time.sleep(60)"
    fails = "import sys, time; time.sleep(0.5); sys.exit('noise\\nhorosphere: the loss is not finite: lower lr')"
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"^b: the loss is not finite: lower lr$"):
        quietly([fake("a", stays), fake("b", fails), fake("c", stays)])
    assert time.monotonic() - begin < 30
    assert (tmp_path / "a").read_text() == "told"
    assert not (tmp_path / "c").exists()


def test_who_is_told_to_stop_leaves_no_job_behind(tmp_path, fake):
    # many short sleeps: a signal that comes just before a long one would wait for its end
    stays = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(130)); open(sys.argv[1], 'w')\n"
        "for _ in range(600): time.sleep(0.1)"
    )
    before, started = signal.getsignal(signal.SIGTERM), []

    def update(done, note):
        if (tmp_path / "a").exists() and not started:
            started.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        quietly([fake("a", stays)], update=update)
    assert time.monotonic() - begin < 30  # it waited for the job's end, and the job had been told
    assert signal.getsignal(signal.SIGTERM) is before


KILLED = """
import os, sys
count = len(open(sys.argv[1]).read()) if os.path.exists(sys.argv[1]) else 0
open(sys.argv[1], "a").write(".")
if count < int({times}):
    os.kill(os.getpid(), 9)
"""


def test_a_job_that_was_killed_is_begun_again_but_not_for_ever(tmp_path, fake):
    quietly([fake("twice", KILLED.format(times=2))])
    assert (tmp_path / "twice").read_text() == "..."
    with pytest.raises(UserError, match=r"^always: it ended with code -9$"):
        quietly([fake("always", KILLED.format(times=9))])
    assert (tmp_path / "always").read_text() == "..."


def test_a_process_does_not_outlive_who_started_it(tmp_path):
    """Not even where that one was killed."""
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from horosphere.study import executors\n"
        "executors.sys.executable = sys.executable\n"
        "words = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "import subprocess\n"
        "child = subprocess.Popen(words, preexec_fn=executors._die_with_parent)\n"
        f"Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", script])
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z (zombie)" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the child lives on")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("moon", "there is no such executor; choose from here, ray, slurm"),
        ("slrm", "did you mean slurm?"),
        ("here:jobs", "jobs has no value; write here:key=value"),
        ("here:jobs=0", "jobs=0: it goes from 1 to 1e9"),
        ("slurm:partion=gpu", "there is no setting partion; did you mean partition?"),
    ],
)
def test_a_wrong_executor_is_named(text, complaint):
    with pytest.raises(UserError) as error:
        executor(text)
    assert complaint in str(error.value)


def test_settings_of_executors():
    assert executor("here", 3).at_once == 3
    assert executor("here:jobs=2").at_once == 2
    with pytest.raises(UserError, match="--jobs 3 and --executor here:jobs=2: how many at once"):
        executor("here:jobs=2", 3)
    slurm = executor("slurm:partition=gpu,gpus=2,minutes=90")
    assert (slurm.partition, slurm.gpus, slurm.minutes) == ("gpu", 2, 90)
