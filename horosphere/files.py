"""Files and folders that are there whole, or not at all."""

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from horosphere.errors import UserError, one_line

PARTIAL = ".partial"  # how names of what is being written end; they begin with a dot
LOCKLESS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers
EXCHANGE = 2  # Linux: RENAME_EXCHANGE
HERE = -100  # Linux: AT_FDCWD
TRIES = 1000  # to make the file of a lock, in a folder that others may remove meanwhile
LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


# -- files ------------------------------------------------------------------------------------------------------------


def write_whole(path: str | Path, content: bytes, new: bool = False) -> None:
    """Write beside the target, then rename: the file is there whole, or as it was before.

    new: a file that has appeared there meanwhile stays, and is told.
    """
    path = Path(path)
    require_parent(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with writing(path):
        try:
            write_synced(aside, content)
            if new:
                _put_new(aside, path)
            else:
                aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def _put_new(aside: Path, path: Path) -> None:
    """Under its name, if that is free at this very moment."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise _there(path) from None
    except OSError:  # a file system without hard links
        if path.exists():
            raise _there(path) from None
        aside.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A write that fails says which file it was, and what to do: the system's own words do not."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        how = "make room" if full else "check the disk and your permissions"
        reason = one_line(error.strerror or error)
        raise UserError(
            f"{path}: cannot be written ({reason}); {how}, then run it again (a training: --resume)"
        ) from error


def write_synced(path: Path, content: bytes) -> None:
    """On the disk, not only on its way there, when this returns."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """The names in a folder, likewise."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(*parts: bytes | str) -> str:
    """What data are known by: another one when a part changes.

    >>> digest("a", "b") == digest("ab", "")
    False
    """
    content = [part.encode(errors="surrogateescape") if isinstance(part, str) else part for part in parts]
    sums = b"".join(hashlib.sha256(part).digest() for part in content)
    return hashlib.sha256(sums).hexdigest()[:16]


def files_digest(files: Sequence[Path]) -> str:
    """The same for the content of files, in their order, read one by one.

    >>> files_digest([]) == digest()
    True
    """
    sums = []
    for file in files:
        with file.open("rb") as stream:
            sums.append(hashlib.file_digest(stream, "sha256").digest())
    return digest(*sums)


# -- folders ----------------------------------------------------------------------------------------------------------


@contextmanager
def new_folder(path: str | Path, overwrite: bool = False, mark: str = "") -> Iterator[Path]:
    """A folder to fill beside the target. It takes the target's place when the block ends well, else it vanishes.

    What killed processes have left there goes.
    """
    require_new_folder(path, overwrite, mark)
    path = Path(path).resolve()
    with _aside(path) as aside:
        new = aside / "new"
        new.mkdir()
        yield new
        require_new_folder(path, overwrite, mark)  # once more: much can appear while a folder is filled
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if overwrite:
                take_place(new, path)
            else:
                new.rename(path)  # refused where a folder with something in it has appeared at this very moment


def take_place(new: Path, path: Path) -> None:
    """The folder `new` gets the name `path`; what had it goes. Others see the one or the other, never none."""
    if _exchanged(new, path):
        old = new
    elif path.exists():  # a system that cannot exchange: for a moment there is none
        old = new.with_name(f".{new.name}.old{PARTIAL}")
        path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            old.rename(path)
            raise
    else:
        old = None
        new.rename(path)
    sync_folder(path.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _exchanged(a: Path, b: Path) -> bool:
    """Whether the system has given each the other's name, in one move."""
    if LIBRARY is None or not hasattr(LIBRARY, "renameat2"):
        return False
    return bool(LIBRARY.renameat2(HERE, os.fsencode(a), HERE, os.fsencode(b), EXCHANGE) == 0)


def staged(folder: Path) -> Path:
    """Where is written what shall take the place of a folder, once it is worth more than what is there."""
    folder = folder.resolve()
    return folder.with_name(f".{folder.name}.new{PARTIAL}")


def make_staged(folder: Path) -> Path:
    """That folder, empty: what a killed process has left there goes."""
    new = staged(folder)
    with writing(new):
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(parents=True)
    return new


def settle(written: Path, folder: Path) -> Path:
    """What was staged takes its place; what was there goes. Where it is in its place, nothing happens."""
    folder = folder.resolve()
    if written != folder:
        with writing(folder):
            take_place(written, folder)
    return folder


def abandon(written: Path, folder: Path, empty: bool = False) -> None:
    """What failed before it settled leaves nothing; what it was to replace stays. empty: it holds nothing of worth."""
    if empty or written != folder.resolve():
        shutil.rmtree(written, ignore_errors=True)


def forget_partial(folder: Path) -> None:
    """Remove what killed processes were writing into a folder that this one has locked."""
    for left in _partial(folder):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _partial(folder: Path, name: str = "") -> list[Path]:
    """What is being written there, or was: under this name, or all of it."""
    inside = folder.iterdir() if folder.is_dir() else ()
    return [path for path in inside if path.name.startswith(f".{name}") and path.name.endswith(PARTIAL)]


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A folder beside a path, or beside the first above it that exists. While we live it is ours; what the dead left
    there goes."""
    place = _nearest(path.parent)
    for left in _partial(place, f"{path.name}."):
        with _held(left) as ours:
            if ours:
                shutil.rmtree(left, ignore_errors=True)
    while True:
        aside = Path(tempfile.mkdtemp(dir=place, prefix=f".{path.name}.", suffix=PARTIAL))
        with _held(aside):
            if not aside.is_dir():  # another process took it for what a dead one left
                continue
            try:
                yield aside
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            return


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether a folder is ours until the end of the block: another process may have it, or have removed it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = True
    except OSError:
        ours = False
    try:
        yield ours
    finally:
        os.close(handle)


# -- locks ------------------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """No other process that asks may write to this folder meanwhile. The lock of a process that dies is gone.

    Where a file system has no locks, none is held.
    """
    require_text(folder)
    folder = folder.resolve()
    path = lock_of(folder)
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        with writing(path):
            lock = hold(path)
    except Busy as owner:
        raise UserError(f"{folder} is in use by {owner}: wait for it, or choose another --out") from None
    try:
        yield
    finally:
        let_go(path, lock)
        for parent in made:  # that nothing was put into
            with suppress(OSError):
                parent.rmdir()


class Busy(Exception):
    """Another process has the lock; its words say which."""


def lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def hold(path: Path) -> IO[str] | None:
    """The file of a lock, ours until we `let_go` or die. None where the file system has no locks."""
    tries = 0
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stream = open(path, "a+", encoding="utf-8", errors="replace", opener=_itself)  # noqa: SIM115 (kept)
        except FileNotFoundError:  # another process found its new folder empty, and removed it
            tries += 1
            if tries == TRIES:  # or no file can be made there, as in /proc
                raise
            continue
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.seek(0)
            owner = stream.read().strip() or "another process"
            stream.close()
            if error.errno not in LOCKLESS:
                raise Busy(one_line(owner)) from None
            path.unlink(missing_ok=True)
            return None
        if not _is_there(stream, path):
            stream.close()  # its last owner removed the file between our opening and our locking it
            continue
        try:
            stream.truncate(0)
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
            stream.flush()
        except OSError:
            let_go(path, stream)
            raise
        return stream


def _itself(path: str, flags: int) -> int:
    """Opens no link: the file that it leads to would be emptied."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def let_go(path: Path, lock: IO[str] | None) -> None:
    if lock is not None:
        path.unlink(missing_ok=True)
        with suppress(OSError):  # words that a full disk has refused already
            lock.close()


def _is_there(stream: IO[str], path: Path) -> bool:
    """Whether an open file still has this name. Asked once: between two questions others remove and make files."""
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


# -- complaints before the work, not after it, when its result has no place to go -------------------------------------


def require_new_file(path: str | Path, overwrite: bool = False, option: str = "--out") -> None:
    """option: by which the file was named."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: {option} takes the name of a file here")
    if path.exists() and not path.is_file():  # a device would become a file
        raise UserError(f"{path} is no file, and is not replaced: choose another {option}")
    if path.exists() and not overwrite:
        raise _there(path, option)
    require_parent(path)


def require_text(path: Path) -> None:
    """safetensors opens no other."""
    try:
        str(path.resolve()).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: a path that is no UTF-8 text; choose another --out") from None
    except RuntimeError:
        raise UserError(f"{path}: a link that leads back to itself; choose another --out") from None


def require_new_folder(path: str | Path, overwrite: bool = False, mark: str = "") -> None:
    """Overwrites only a folder that holds a file called `mark`: a slip in --out must not cost someone's files."""
    path = Path(path)
    require_text(path)
    if path.is_dir() and not any(path.iterdir()):
        return _require_writable(path)
    if path.exists() and not overwrite:
        raise _there(path)
    if path.exists() and not (path / mark).is_file():
        raise UserError(f"{path} holds no {mark}, so --overwrite leaves it alone: choose another --out")
    _require_writable(_nearest(path.resolve().parent))


def require_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    _require_writable(path.parent)


def _there(path: Path, option: str = "--out") -> UserError:
    return UserError(f"{path} exists already: choose another {option}, or pass --overwrite")


def _require_writable(folder: Path) -> None:
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"{folder} is no folder you may write to: choose another --out")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists."""
    return next(p for p in (folder, *folder.parents) if p.exists())
