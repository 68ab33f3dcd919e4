"""Files and folders are there whole, or not at all; what was there before stays until then."""

import errno
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from horosphere import files, runs
from horosphere.errors import UserError
from horosphere.files import (
    forget_partial,
    locked,
    new_folder,
    require_new_file,
    require_new_folder,
    take_place,
    write_synced,
    write_whole,
)

ROOT = Path(__file__).parents[1]
FAILURES = [RuntimeError, KeyboardInterrupt, OSError]
MARK = "about.json"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def everything():
    return {str(path): path.read_text() if path.is_file() else None for path in Path().rglob("*")}


def old_folder(path="out", **files):
    Path(path).mkdir(parents=True)
    for name, text in {MARK: "old", **files}.items():
        Path(path, name).write_text(text)


def told(failure):
    """How a failure reaches the caller: that of a disk comes with the name of the file."""
    return UserError if issubclass(failure, OSError) else failure


def half_write(folder, failure):
    (folder / MARK).write_text("half")
    raise failure


@contextmanager
def processes(script, *words):
    """A process of Python for each word, which it finds in argv[1]; they are killed at the end of the block."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begun = [
        subprocess.Popen([sys.executable, "-c", script, word], env=environment, stderr=subprocess.PIPE, text=True)
        for word in words
    ]
    try:
        yield begun
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def wait_for(path, seconds=30):
    end = time.monotonic() + seconds
    while not Path(path).exists():
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.005)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_and_replaced():
    write_whole("a.txt", b"one")
    write_whole("a.txt", b"two")
    assert everything() == {"a.txt": "two"}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("step", ["write", "rename"])
@pytest.mark.parametrize("before", [{}, {"a.txt": "old"}])
def test_a_failed_file_leaves_things_as_they_were(failure, step, before, monkeypatch):
    for name, text in before.items():
        Path(name).write_text(text)

    def fail(path, _):
        path.write_text("half")
        raise failure

    monkeypatch.setattr(*((files, "write_synced") if step == "write" else (Path, "replace")), fail)
    with pytest.raises(told(failure)):
        write_whole("a.txt", b"new")
    assert everything() == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("write", [write_whole, lambda path, content: runs.append(Path(path).parent, {"step": 1})])
def test_a_write_that_the_disk_refuses_names_its_file(monkeypatch, number, write):
    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError) as error:
        write("metrics.jsonl", b"new")
    assert str(error.value).startswith(f"metrics.jsonl: cannot be written ({os.strerror(number)}); ")
    assert ("make room" in str(error.value)) == (number != errno.EIO)


def test_a_file_that_appeared_meanwhile_stays(monkeypatch):
    write_whole("a.txt", b"mine", new=True)
    with pytest.raises(UserError, match=r"a\.txt exists already: choose another --out, or pass --overwrite"):
        write_whole("a.txt", b"theirs", new=True)
    assert everything() == {"a.txt": "mine"}

    def no_links(*_):
        raise OSError(errno.EPERM, "this file system has none")

    monkeypatch.setattr(os, "link", no_links)
    write_whole("b.txt", b"mine", new=True)
    with pytest.raises(UserError, match="exists already"):
        write_whole("b.txt", b"theirs", new=True)
    assert everything() == {"a.txt": "mine", "b.txt": "mine"}


RIVAL = """
import sys
from pathlib import Path
from horosphere.errors import UserError
from horosphere.files import write_whole
for number in range(300):
    try:
        write_whole(f"{number}.txt", sys.argv[1].encode(), new=True)
        with Path("won").open("a") as won:
            won.write(".")
    except UserError:
        pass
"""


def test_of_two_that_write_a_new_file_at_once_one_wins():
    with processes(RIVAL, "x", "y") as begun:
        assert [process.communicate(timeout=60)[1] for process in begun] == ["", ""]
    assert Path("won").read_text() == "." * 300
    assert not list(Path().glob(".*"))


def test_a_file_needs_its_folder():
    with pytest.raises(UserError, match="there is no folder reports; create it first"):
        write_whole("reports/a.html", b"")
    assert everything() == {}


WRITER = """
import sys
from pathlib import Path
from horosphere.files import write_whole
while True:
    write_whole("a.txt", sys.argv[1].encode() * 200_000)
    Path(sys.argv[1]).touch()
"""


def test_a_reader_sees_a_whole_file_while_others_write_it_and_after_they_are_killed():
    with processes(WRITER, "x", "y"):
        wait_for("x")
        wait_for("y")
        seen = [Path("a.txt").read_text() for _ in range(100)]
    seen.append(Path("a.txt").read_text())
    assert {(len(text), len(set(text))) for text in seen} == {(200_000, 1)}


def test_what_is_synced_reaches_the_disk_whole_before_the_call_returns(monkeypatch):
    sizes, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (sizes.append(os.fstat(handle).st_size), sync(handle)))
    for content in (b"a longer one", b"short", b""):
        write_synced(Path("a.bin"), content)
        assert Path("a.bin").read_bytes() == content
    assert sizes == [12, 5, 0]


# -- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["out", "runs/deep/out", "./out", "out/"])
def test_a_folder_appears_when_it_is_whole(path):
    with new_folder(path) as folder:
        (folder / "a").write_text("new")
        assert not Path(path).exists()
    assert {name for name, text in everything().items() if text} == {str(Path(path, "a"))}
    assert not list(Path().rglob(".*"))


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("path", ["out", "runs/deep/out"])
def test_a_failed_folder_leaves_nothing(failure, path):
    with pytest.raises(failure), new_folder(path) as folder:
        half_write(folder, failure)
    assert everything() == {}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_folder_leaves_the_old_one(failure):
    old_folder(points="1")
    before = everything()
    with pytest.raises(failure), new_folder("out", overwrite=True, mark=MARK) as folder:
        half_write(folder, failure)
    assert everything() == before


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_between_the_renames_brings_the_old_folder_back(failure, monkeypatch):
    old_folder()
    before, rename = everything(), Path.rename

    def fail(path, target):
        if path.name == "new":
            raise failure
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    monkeypatch.setattr(files, "LIBRARY", None)  # a system that cannot exchange two names in one move
    with pytest.raises(told(failure)), new_folder("out", overwrite=True, mark=MARK) as folder:
        (folder / MARK).write_text("new")
    assert everything() == before


def test_a_folder_that_appeared_meanwhile_stays():
    with pytest.raises(UserError, match="exists already"), new_folder("out"):
        old_folder()
    assert everything() == {"out": None, f"out/{MARK}": "old"}
    with pytest.raises(UserError, match="--overwrite leaves it alone"), new_folder("home", True, "another mark"):
        old_folder("home")
    assert Path("home", MARK).read_text() == "old"


WATCHED = """
import shutil
from pathlib import Path
from horosphere.files import take_place
for number in range(400):
    Path(".new").mkdir()
    Path(".new/about.json").write_text(str(number))
    take_place(Path(".new"), Path("out"))
"""


def test_a_folder_is_there_at_every_moment_while_others_take_its_place():
    old_folder()
    with processes(WATCHED, "") as (process,):
        seen = 0
        while process.poll() is None:
            assert Path("out").is_dir()
            seen += 1
        assert process.returncode == 0
    assert seen > 50
    assert everything() == {"out": None, f"out/{MARK}": "399"}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("old", [True, False])
def test_a_folder_takes_the_place_of_another_or_of_none(monkeypatch, exchange, old):
    if not exchange:
        monkeypatch.setattr(files, "LIBRARY", None)
    if old:
        old_folder(points="1")
    old_folder("fresh", more="2")
    take_place(Path("fresh"), Path("out"))
    assert everything() == {"out": None, f"out/{MARK}": "old", "out/more": "2"}


FILLER = """
import sys, time
from pathlib import Path
from horosphere.files import new_folder
with new_folder(sys.argv[1]) as folder:
    Path(folder, "a").write_text("half")
    Path("begun").touch()
    time.sleep(60)
"""


def test_what_killed_processes_left_goes_and_what_the_living_write_stays():
    with processes(FILLER, "out"):
        wait_for("begun")
    (left,) = Path().glob(".out.*")
    Path("begun").unlink()
    with processes(FILLER, "other"):
        wait_for("begun")
        with new_folder("other"):
            assert len(list(Path().glob(".other.*"))) == 2
    with new_folder("out"):
        assert not left.exists()
    assert not list(Path().glob(".out.*"))


def test_what_a_killed_process_was_writing_is_forgotten():
    old_folder(kept="1")
    Path("out/.points.123.partial").write_text("half")
    old_folder("out/.aside.partial")
    Path("out/.hidden").write_text("not ours")
    forget_partial(Path("out"))
    assert {path.name for path in Path("out").iterdir()} == {MARK, "kept", ".hidden"}


def test_overwriting_replaces_the_whole_folder():
    old_folder(points="1")
    with new_folder("out", overwrite=True, mark=MARK) as folder:
        (folder / MARK).write_text("new")
        assert everything()[f"out/{MARK}"] == "old"
    assert everything() == {"out": None, f"out/{MARK}": "new"}


def test_overwriting_the_folder_we_are_in(monkeypatch, tmp_path):
    old_folder()
    monkeypatch.chdir("out")
    with new_folder(".", overwrite=True, mark=MARK) as folder:
        (folder / MARK).write_text("new")
    assert (tmp_path / "out" / MARK).read_text() == "new"


def test_the_umask_decides_who_may_look():
    Path("usual").mkdir()
    with new_folder("out"):
        pass
    assert Path("out").stat().st_mode == Path("usual").stat().st_mode


# -- complaints in time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("require", [require_new_file, require_new_folder])
def test_what_exists_is_not_replaced_unasked(require):
    Path("out").write_text("old")
    with pytest.raises(UserError, match="out exists already: choose another --out, or pass --overwrite"):
        require("out")


def test_new_places_are_fine():
    require_new_file("report.html")
    require_new_folder("runs/deep/out")
    assert everything() == {}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_cannot_take_the_place_of_a_folder(overwrite):
    Path("out").mkdir()
    with pytest.raises(UserError, match="out is a folder"):
        require_new_file("out", overwrite)


def test_overwriting_spares_what_it_did_not_make():
    Path("home").mkdir()
    Path("home/thesis.tex").write_text("years of work")
    Path("notes.txt").write_text("more")
    before = everything()
    for path in ("home", "notes.txt", "."):
        with pytest.raises(UserError, match="--overwrite leaves it alone"), new_folder(path, overwrite=True, mark=MARK):
            pytest.fail("it went ahead")
    assert everything() == before


def test_a_link_that_leads_to_itself():
    Path("out").symlink_to("out")
    for path in ("out", "out/run"):
        with pytest.raises(UserError, match="a link that leads back to itself; choose another --out"):
            require_new_folder(path)
        assert "a link that leads back to itself" in refusal(path)


def test_what_was_staged_and_is_a_link_is_left_alone():
    Path("precious").mkdir()
    files.staged(Path("out")).symlink_to("precious")
    with pytest.raises(UserError, match=r"\.out\.new\.partial: cannot be written \("):
        files.make_staged(Path("out"))
    assert Path("precious").is_dir()


def test_a_folder_below_a_file():
    Path("a").write_text("")
    with pytest.raises(UserError, match="no folder you may write to"):
        require_new_folder("a/out")


def test_a_folder_without_permission(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere, so chmod would not do
    for require in (require_new_file, require_new_folder):
        with pytest.raises(UserError, match="no folder you may write to: choose another --out"):
            require("out")


# -- locks ------------------------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from horosphere.files import locked
with locked(Path(sys.argv[1])):
    Path("held").touch()
    time.sleep(60)
"""


def refusal(folder):
    with pytest.raises(UserError) as error, locked(Path(folder)):
        pytest.fail("it went ahead")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_that_another_process_holds_is_refused_by_the_name_of_its_holder():
    with processes(HOLDER, "runs/out") as (holder,):
        wait_for("held")
        told = f"{Path('runs/out').resolve()} is in use by process {holder.pid} on {socket.gethostname()}: "
        for same in ("runs/out", "./runs/../runs/out", "runs/out/"):
            assert refusal(same) == f"{told}wait for it, or choose another --out"
        with locked(Path("runs/other")):  # its neighbour is free
            pass


def test_a_holder_that_is_killed_lets_go():
    with processes(HOLDER, "out"):
        wait_for("held")
        refusal("out")
    with locked(Path("out")):
        assert f"process {os.getpid()} " in refusal("out")
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_lets_go_and_leaves_no_trace(failure):
    with pytest.raises(failure), locked(Path("out")):
        raise failure
    assert everything() == {}
    with locked(Path("out")):
        pass


def test_a_lock_leaves_no_folders_above_what_was_never_made():
    with locked(Path("runs/deep/out")):
        pass
    assert everything() == {}
    with locked(Path("runs/deep/out")):
        old_folder("runs/deep/out")
    assert f"runs/deep/out/{MARK}" in everything()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_no_other_process(monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with locked(Path("out")), new_folder("out"):
        pass
    assert everything() == {"out": None}


def test_a_lock_makes_no_folder_and_may_be_held_while_the_folder_is_replaced():
    with locked(Path("runs/out")):
        assert not Path("runs/out").exists()
        old_folder("runs/out")
        with new_folder("runs/out", overwrite=True, mark=MARK) as folder:
            (folder / MARK).write_text("new")
        refusal("runs/out")
    assert everything() == {"runs": None, "runs/out": None, f"runs/out/{MARK}": "new"}


def pipe(path):
    os.mkfifo(path)


def link_to_a_file(path):
    Path("precious").write_text("mine")
    path.symlink_to("precious")


def link_to_nowhere(path):
    path.symlink_to("missing/file")


@pytest.mark.parametrize("put", [pipe, link_to_a_file, link_to_nowhere, Path.mkdir])
def test_what_has_the_name_of_a_lock_and_is_none_is_left_alone(put):
    """A link in a folder that many may write to could lead to any file of ours, and a lock would empty it."""
    put(Path(".out.lock"))
    before = everything() if put is not pipe else None
    assert refusal("out").startswith(f"{Path('.out.lock').absolute()}: cannot be written (")
    assert before is None or everything() == before


def test_where_no_file_can_be_made_a_lock_does_not_try_for_ever(monkeypatch):
    def nowhere(*_):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "open", nowhere)
    assert "cannot be written (No such file or directory)" in refusal("out")


def test_a_holder_that_says_no_text_is_another_process():
    Path(".out.lock").write_bytes(b"\xff")
    with open(".out.lock") as other:
        files.fcntl.flock(other, files.fcntl.LOCK_EX)
        assert "is in use by" in refusal("out")


@pytest.mark.parametrize("looks", [(1,), (2,), (1, 2)])
def test_a_holder_that_leaves_while_we_look_for_its_file_is_no_trouble(monkeypatch, looks):
    """What it removes is not what we lock in the end."""
    stat, seen = Path.stat, []

    def leaving(path, **options):
        if path.name == ".out.lock":
            seen.append(path)
            if len(seen) in looks:
                path.unlink()
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", leaving)
    with locked(Path("out")):
        assert f"process {os.getpid()} " in refusal("out")
    assert everything() == {}


COUNTER = """
import time
from pathlib import Path
from horosphere.errors import UserError
from horosphere.files import locked
count, left = Path("count"), 200
while left:
    try:
        with locked(Path("out")):
            count.write_text(str(int(count.read_text()) + 1))
            left -= 1
    except UserError:
        time.sleep(1e-5)
"""


def test_processes_that_come_and_go_are_never_two_at_once():
    Path("count").write_text("0")
    with processes(COUNTER, *"abc") as begun:
        assert [process.communicate(timeout=60)[1] for process in begun] == [""] * 3
    assert Path("count").read_text() == "600"
    assert not list(Path().glob(".*"))
