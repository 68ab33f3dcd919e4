"""Entries of a cache: one of many processes makes them, whole or not at all, and nothing is left of the dead."""

import os
import signal
import subprocess
import sys
import time

import pytest

from horosphere import cache, files
from horosphere.cache import alone, cache_folder, file_digests, made_once
from horosphere.errors import UserError

# makes an entry slowly, and says what it does: where, seconds
SLOW = """
import sys, time
from pathlib import Path
from horosphere import cache, files
from horosphere.cache import made_once

cache.NOTICE = 0.3

def make(aside):
    aside.mkdir()
    (aside / "half").write_text("half")
    print("making", flush=True)
    time.sleep(float(sys.argv[2]))
    (aside / "whole").write_text("whole")

made_once(Path(sys.argv[1]), make)
print("there", flush=True)
"""


def start(entry, seconds):
    command = [sys.executable, "-c", SLOW, str(entry), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def killed(tmp_path):
    """killed(*names): what processes leave that were killed while they made these entries."""

    def leave(*names):
        processes = [start(tmp_path / name, 60) for name in names]
        assert [process.stdout.readline() for process in processes] == ["making\n"] * len(names)
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=20)
        assert not any((tmp_path / name).exists() for name in names)

    return leave


def test_the_cache_has_a_place(monkeypatch, tmp_path):
    monkeypatch.setenv("HOROSPHERE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("HOROSPHERE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "horosphere"


def test_of_many_processes_one_makes_an_entry(tmp_path):
    processes = [start(tmp_path / "entry", 1) for _ in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(out for out, _ in said) == ["making\nthere\n", "there\n", "there\n"]
    assert (names(tmp_path), names(tmp_path / "entry")) == (["entry"], ["half", "whole"])


def test_who_waits_says_so(tmp_path):
    first = start(tmp_path / "entry", 2)
    assert first.stdout.readline() == "making\n"
    second = start(tmp_path / "entry", 0)
    out, err = second.communicate(timeout=60)
    first.communicate(timeout=60)
    assert out == "there\n"
    assert err.count("\n") == 1
    assert f"process {first.pid} on " in err
    assert "waiting for it" in err


def test_nothing_is_left_of_the_dead(tmp_path, killed):
    """Of whatever entry. What the living make stays."""
    killed("one", "two")
    (tmp_path / ".three.1234").write_text("as earlier versions left it")
    (tmp_path / ".four.abcd").mkdir()
    (tmp_path / "done").mkdir()
    assert len(names(tmp_path)) == 7  # with two locks
    living = start(tmp_path / "living", 60)
    try:
        assert living.stdout.readline() == "making\n"
        made_once(tmp_path / "one", lambda aside: aside.mkdir())
        beside = names(tmp_path)
        assert [name for name in beside if not name.startswith(".living.")] == ["done", "one"]
        assert len(beside) == 4
    finally:
        living.kill()
        living.communicate(timeout=20)
    made_once(tmp_path / "living", lambda aside: aside.mkdir())
    assert names(tmp_path) == ["done", "living", "one"]


def test_a_failure_leaves_nothing(tmp_path):
    def fail(aside):
        aside.mkdir()
        (aside / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "entry", fail)
    assert names(tmp_path) == []
    made_once(tmp_path / "entry", lambda aside: aside.write_text("a file will do"))
    assert names(tmp_path) == ["entry"]


def test_where_there_are_no_locks_the_first_wins_and_nobody_is_removed(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", unsupported)
    (tmp_path / ".other.abcd").mkdir()

    def early(aside):
        aside.mkdir()
        (aside / "early").touch()

    def late(aside):
        aside.mkdir()
        (aside / "late").touch()
        made_once(tmp_path / "entry", early)

    made_once(tmp_path / "entry", late)
    assert (names(tmp_path), names(tmp_path / "entry")) == ([".other.abcd", "entry"], ["early"])


def test_a_cache_that_may_only_be_read_gives_what_it_has(tmp_path):
    made_once(tmp_path / "entry", lambda aside: aside.mkdir())
    tmp_path.chmod(0o500)
    try:
        assert made_once(tmp_path / "entry", lambda aside: pytest.fail("made again")) == tmp_path / "entry"
    finally:
        tmp_path.chmod(0o700)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Set HOROSPHERE_CACHE"), alone(tmp_path / "file" / "entry"):
        pytest.fail("there is no place")


# -- digests ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """The files that were read."""
    seen = []
    real = cache.opened

    def opened(path, **how):
        seen.append(path.name)
        return real(path, **how)

    monkeypatch.setattr(cache, "opened", opened)
    return seen


def aged(path, content, seconds=10):
    path.write_text(content)
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


@pytest.fixture
def _settled_at_once(monkeypatch):
    """Times of change cannot be set back: let files settle in no time."""
    monkeypatch.setattr(cache, "SETTLED", -1)


@pytest.mark.usefixtures("_settled_at_once")
def test_a_file_is_read_once_and_again_when_it_changed(tmp_path, reads):
    a, b, memo = aged(tmp_path / "a", "one"), aged(tmp_path / "b", "two"), tmp_path / "digests" / "memo.json"
    first = file_digests([a, b], memo)
    assert (len(set(first)), reads) == (2, ["a", "b"])
    assert file_digests([b, a], memo) == first[::-1]
    assert reads == ["a", "b"]
    times = b.stat()
    b.write_text("ten")  # as long, and as old
    os.utime(b, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file_digests([a, b], memo) != first
    assert reads == ["a", "b", "b"]
    memo.write_text("{torn")
    assert file_digests([a], memo) == first[:1]
    assert names(tmp_path / "digests") == ["memo.json"]


def test_a_file_that_just_changed_is_read_again(tmp_path, reads, monkeypatch):
    """It could change once more within the same tick of the clock."""
    assert cache.SETTLED == 2_000_000_000
    monkeypatch.setattr(cache, "SETTLED", 600 * 10**9)  # however slow this machine is
    a, memo = tmp_path / "a", tmp_path / "digests" / "memo.json"
    a.write_text("one")
    assert file_digests([a], memo) == file_digests([a], memo)
    assert (reads, memo.exists()) == (["a", "a"], False)


@pytest.mark.usefixtures("_settled_at_once")
def test_the_memo_stays_small_and_does_without_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "DIGESTS", 3)
    memo = tmp_path / "memo.json"
    for number in range(5):
        file_digests([aged(tmp_path / f"{number}", str(number))], memo)
    assert len(cache._remembered(memo)) == 3
    assert file_digests([tmp_path / "4"], tmp_path / "4" / "nowhere" / "memo.json")
