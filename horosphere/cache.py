"""What is made once and kept: its folder, entries that one process makes while others wait, and digests of files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, cast
from uuid import uuid4

from horosphere.errors import UserError
from horosphere.files import Busy, hold, let_go, lock_of
from horosphere.foreign import Unreadable, opened, read_json

NOTICE = 3.0  # seconds that a process waits for another before it says so
POLL = 0.1  # seconds between two looks whether it is done
SETTLED = 2 * 10**9  # nanoseconds: a file that changed later than that may change again and keep its times
DIGESTS = 50_000  # that are remembered: ten megabytes


def cache_folder() -> Path:
    """$HOROSPHERE_CACHE, or ~/.cache/horosphere.

    >>> cache_folder().is_absolute()
    True
    """
    return Path(os.environ.get("HOROSPHERE_CACHE") or "~/.cache/horosphere").expanduser()


# -- entries ----------------------------------------------------------------------------------------------------------


def made_once(entry: Path, make: Callable[[Path], None]) -> Path:
    """An entry of a cache. Where it is not there, make(aside) writes a file or folder aside, which takes its place.

    Of several processes one makes it; the others wait, and find it. It is there whole, or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     entry = made_once(Path(folder, "entry"), lambda aside: aside.mkdir())
    ...     entry.is_dir(), len(list(Path(folder).iterdir()))
    (True, 1)
    """
    if not entry.exists():
        with alone(entry) as aside:
            if not entry.exists():  # another was first
                make(aside)
                _rename(aside, entry)
    return entry


def _rename(aside: Path, entry: Path) -> None:
    try:
        aside.rename(entry)
    except OSError:
        if not entry.is_dir():  # made twice, where the file system has no locks
            raise


@contextmanager
def alone(entry: Path) -> Iterator[Path]:
    """A name beside an entry to make it under, while no other process makes the entry.

    What is left under that name vanishes at the end. What processes that died have left beside it vanishes now.
    """
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock = _wait(entry)
    except OSError as error:
        how = "Set HOROSPHERE_CACHE to one you may write to."
        raise UserError(f"{entry.parent}: no folder to write to ({error.strerror}). {how}") from error
    aside = entry.with_name(f".{entry.name}.{uuid4().hex}")
    try:
        if lock is not None:
            _remove_leftovers(entry)
        yield aside
    finally:
        _remove(aside)
        let_go(lock_of(entry), lock)


def _wait(entry: Path) -> IO[str] | None:
    """The lock of an entry, sooner or later; None where the file system has none."""
    begin, told = time.monotonic(), os.environ.get("RANK", "0") != "0"  # of many processes one says it
    while True:
        try:
            return hold(lock_of(entry))
        except Busy as owner:
            if not told and time.monotonic() - begin > NOTICE:
                told = True
                print(f"horosphere: {owner} makes {entry} already; waiting for it", file=sys.stderr, flush=True)
        time.sleep(POLL)


def _remove_leftovers(entry: Path) -> None:
    """Hidden files and folders beside an entry are named after the entry they were to become, as its lock is."""
    for path in [path for path in entry.parent.iterdir() if path.name.startswith(".")]:
        owner = path.with_name(path.name[1:].rpartition(".")[0] or path.name)
        if owner == entry:  # this process has its lock
            if path != lock_of(entry):
                _remove(path)
            continue
        with suppress(Busy):  # its owner lives
            lock = hold(lock_of(owner))
            if lock is not None and path != lock_of(owner):
                _remove(path)
            let_go(lock_of(owner), lock)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# -- digests ----------------------------------------------------------------------------------------------------------


def file_digests(files: Sequence[Path], memo: Path) -> list[str]:
    """The sha256 of each file. A file whose digest is in the memo, and that did not change since, is not read.

    A file is known by its device, number, size, and times of change, as git knows it.
    """
    known = _remembered(memo)
    found: dict[str, str] = {}
    digests = []
    for file in files:
        key = _key(file.stat())
        if key in known:
            digests.append(known[key])
            continue
        with opened(file, unpack=False) as stream:
            digests.append(hashlib.file_digest(cast(BufferedReader, stream), "sha256").hexdigest())
            state = os.fstat(stream.fileno())
        settled = time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > SETTLED
        if settled and _key(state) == key:
            found[key] = digests[-1]
    if found:
        _remember(memo, found)
    return digests


def _key(state: os.stat_result) -> str:
    return f"{state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"


def _remembered(memo: Path) -> dict[str, str]:
    try:
        known = read_json(memo)
    except Unreadable:  # none yet, or torn: digests are computed again
        return {}
    return known if all(isinstance(digest, str) and len(digest) == 64 for digest in known.values()) else {}


def _remember(memo: Path, found: dict[str, str]) -> None:
    with suppress(UserError, OSError), alone(memo) as aside:  # where nothing can be kept, the next start takes longer
        every = list({**_remembered(memo), **found}.items())[-DIGESTS:]
        aside.write_text(json.dumps(dict(every)), encoding="utf-8")
        aside.replace(memo)
