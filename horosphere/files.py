"""Files and folders that are there whole, or not at all."""

import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from horosphere.errors import UserError


def write_whole(path: str | Path, content: bytes) -> None:
    """Write beside the target, then rename: the file is there whole, or as it was before."""
    path = Path(path)
    require_parent(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


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


@contextmanager
def new_folder(path: str | Path, overwrite: bool = False, mark: str = "") -> Iterator[Path]:
    """A folder to fill beside the target. It takes the target's place when the block ends well, else it vanishes."""
    require_new_folder(path, overwrite, mark)
    path = Path(path).resolve()
    with TemporaryDirectory(dir=_nearest(path.parent), prefix=f".{path.name}.", ignore_cleanup_errors=True) as aside:
        new, old = Path(aside, "new"), Path(aside, "old")
        new.mkdir()
        yield new
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """No other process that asks may write to this folder meanwhile. The lock of a process that dies is gone."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f".{folder.name}.lock")
    while True:
        stream = path.open("a+")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.seek(0)
            owner = stream.read().strip() or "another process"
            stream.close()
            raise UserError(f"{folder} is in use by {owner}: wait for it, or choose another --out") from None
        if _is_there(stream, path):
            break
        stream.close()  # its last owner removed the file between our opening and our locking it
    try:
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        stream.close()


def _is_there(stream: IO[str], path: Path) -> bool:
    """Whether an open file still has this name. Asked once: between two questions others remove and make files."""
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


# -- complaints before the work, not after it, when its result has no place to go -------------------------------------


def require_new_file(path: str | Path, overwrite: bool = False) -> None:
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: --out takes the name of a file here")
    _require_new(path, overwrite)
    require_parent(path)


def require_new_folder(path: str | Path, overwrite: bool = False, mark: str = "") -> None:
    """Overwrites only a folder that holds a file called `mark`: a slip in --out must not cost someone's files."""
    path = Path(path)
    if path.is_dir() and not any(path.iterdir()):
        return _require_writable(path)
    _require_new(path, overwrite)
    if path.exists() and not (path / mark).is_file():
        raise UserError(f"{path} holds no {mark}, so --overwrite leaves it alone: choose another --out")
    _require_writable(_nearest(path.resolve().parent))


def require_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    _require_writable(path.parent)


def _require_new(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already: choose another --out, or pass --overwrite")


def _require_writable(folder: Path) -> None:
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"{folder} is no folder you may write to: choose another --out")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists."""
    return next(p for p in (folder, *folder.parents) if p.exists())
