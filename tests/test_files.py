"""Files and folders are there whole, or not at all; what was there before stays until then."""

import os
from pathlib import Path

import pytest

from horosphere.errors import UserError
from horosphere.files import new_folder, require_new_file, require_new_folder, write_whole

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


def half_write(folder, failure):
    (folder / MARK).write_text("half")
    raise failure


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_and_replaced():
    write_whole("a.txt", b"one")
    write_whole("a.txt", b"two")
    assert everything() == {"a.txt": "two"}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("step", ["write_bytes", "replace"])
@pytest.mark.parametrize("before", [{}, {"a.txt": "old"}])
def test_a_failed_file_leaves_things_as_they_were(failure, step, before, monkeypatch):
    for name, text in before.items():
        Path(name).write_text(text)

    def fail(path, _):
        with path.open("w") as file:
            file.write("half")
        raise failure

    monkeypatch.setattr(Path, step, fail)
    with pytest.raises(failure):
        write_whole("a.txt", b"new")
    assert everything() == before


def test_a_file_needs_its_folder():
    with pytest.raises(UserError, match="there is no folder reports; create it first"):
        write_whole("reports/a.html", b"")
    assert everything() == {}


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
    with pytest.raises(failure), new_folder("out", overwrite=True, mark=MARK) as folder:
        (folder / MARK).write_text("new")
    assert everything() == before


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


def test_a_folder_below_a_file():
    Path("a").write_text("")
    with pytest.raises(UserError, match="no folder you may write to"):
        require_new_folder("a/out")


def test_a_folder_without_permission(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere, so chmod would not do
    for require in (require_new_file, require_new_folder):
        with pytest.raises(UserError, match="no folder you may write to: choose another --out"):
            require("out")
