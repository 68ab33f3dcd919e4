"""Trainings as processes: so many at a time, none left behind, and each goes on where it was."""

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from horosphere.errors import UserError
from horosphere.train import trainings as module
from horosphere.train.trainings import Entrant, Training, run_all


def fake(tmp_path, name, script):
    """A training that is another program."""
    training = Training(SimpleNamespace(name=name, recipe=""), [], tmp_path / name, 4)
    object.__setattr__(
        training, "command", lambda device, overwrite: [sys.executable, "-c", script, str(tmp_path / name)]
    )
    return training


def test_at_most_so_many_at_once_and_all_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "POLL", 0.01)
    script = "import sys, time; t = time.time(); time.sleep(0.15); open(sys.argv[1], 'w').write(f'{t} {time.time()}')"
    shown = []
    run_all([fake(tmp_path, str(i), script) for i in range(5)], 2, "cpu", False, lambda done, note: shown.append(done))
    spans = [tuple(map(float, (tmp_path / str(i)).read_text().split())) for i in range(5)]
    assert max(sum(a <= begin < b for a, b in spans) for begin, _ in spans) == 2
    assert shown[-1] == 20
    assert shown == sorted(shown)


def test_when_one_fails_the_others_are_told_to_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "POLL", 0.01)
    stays = "import signal, sys, time; signal.signal(15, lambda *_: (open(sys.argv[1], 'w').write('told'), sys.exit(130))); time.sleep(60)"
    fails = "import sys, time; time.sleep(0.5); sys.exit('noise\\nhorosphere: the loss is not finite: lower lr')"
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"^b: the loss is not finite: lower lr$"):
        run_all(
            [fake(tmp_path, "a", stays), fake(tmp_path, "b", fails), fake(tmp_path, "c", stays)],
            2,
            "cpu",
            False,
            lambda *_: None,
        )
    assert time.monotonic() - begin < 30
    assert (tmp_path / "a").read_text() == "told"
    assert not (tmp_path / "c").exists()


def test_who_is_told_to_stop_leaves_no_training_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "POLL", 0.01)
    stays = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(130)); open(sys.argv[1], 'w'); time.sleep(60)"
    )
    before, started = signal.getsignal(signal.SIGTERM), []

    def update(done, note):
        if (tmp_path / "a").exists() and not started:
            started.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_all([fake(tmp_path, "a", stays)], 1, "cpu", False, update)
    assert time.monotonic() - begin < 30  # it waited for the training's end, and the training had been told
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_training_goes_on_or_starts_anew(tmp_path):
    training = Training(Entrant("MiCE-Const", "helm-mice-tiny"), ["seed=1"], tmp_path, 4)
    assert training.command("cpu", False)[1:6] == ["-m", "horosphere", "train", "helm-mice-tiny", "seed=1"]
    assert "--resume" not in training.command("cpu", False)
    (tmp_path / "run.json").write_text("{}")
    assert training.command("cpu", False)[-1] == "--resume"
    assert training.command("cpu", True)[-1] == "--overwrite"
