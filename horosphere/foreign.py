"""The one place that opens files made by others: regular files only, within limits, and never code.

A reader here gives what a file holds, or raises `Unreadable` with the reason. Who asked adds what to do.
The limits below are far beyond honest files. They exist so that a broken or hostile file costs an error of one line,
and not the memory of the machine. docs/security.md has them in one table.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

from horosphere.errors import one_line
from horosphere.extras import require

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image
    from torch import Tensor

SMALL = 64 << 20  # bytes of a file of settings; large tokenizers have 30 MB
LARGE = 4 << 30  # bytes of a file of data that is read whole; COCO's largest has 0.5 GB
RECIPE = 10**6  # bytes of a recipe, written by hand
# what is packed may become so many times its size: ten times is usual, a bomb reaches a thousand ...
GROWTH = 100
FREELY = 64 << 20  # ... but so many bytes need no reason
LINE = 64 << 20  # bytes of a line
DEPTH = 500  # brackets within brackets; Python's own parser stops before a thousand
YAML_DEPTH = 20  # sections within sections of a recipe
ARRAYS = 64 << 30  # bytes of all arrays of a .npz
MEMBERS = 1000  # arrays of a .npz
PIXELS = 178_956_970  # of one picture: where Pillow itself stops; half a gigabyte

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm")
# Pillow looks into a file for its kind, whatever its name: PostScript named .png would start Ghostscript
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")
MODEL = "model.safetensors"
INDEX = f"{MODEL}.index.json"  # says which file holds a tensor, where there are several


class Unreadable(ValueError):
    """Why a file cannot be read: the reason alone."""


# -- names and values from files, in messages -------------------------------------------------------------------------


# controls, halves of characters, ends of lines, marks that turn the direction of writing
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A name on one line, without what a terminal would obey or cannot show: that becomes a space.

    Joiners stay, which some scripts and emoji are written with.

    >>> printable(" tree\\x1b[31m of\\nlife ")
    'tree [31m of life'
    """
    text = text.strip()
    return text if text.isprintable() else " ".join(_OBEYED.sub(" ", text).split())


def is_text(text: str) -> bool:
    """Whether UTF-8 can write it. JSON, shells and names of files can hold halves of characters, which it cannot.

    >>> is_text("größer"), is_text("\\ud83d")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """The beginning of a value, as JSON on one line, however long or deep it is.

    >>> shown({"a": [1, 2]}), shown("x" * 1000)[-4:]
    ('{"a": [1, 2]}', 'xxx…')
    """
    pieces = islice(json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value), 40)
    text = one_line("".join(pieces), 81)
    return text if len(text) < 81 else f"{text[:80]}…"


# -- bytes and text ---------------------------------------------------------------------------------------------------


@contextmanager
def opened(path: str | Path, unpack: bool = True) -> Iterator[IO[bytes]]:
    """A regular file to read from, unpacked where its name ends in .gz or .bz2. What goes wrong is Unreadable."""
    packed = Path(path).suffix.lower()
    try:
        with _regular(path) as file:
            if not unpack or packed not in (".gz", ".bz2"):
                yield file
                return
            most = max(FREELY, GROWTH * os.fstat(file.fileno()).st_size)
            with gzip.GzipFile(fileobj=file) if packed == ".gz" else bz2.BZ2File(file) as unpacked:
                yield io.BufferedReader(_Bounded(unpacked, most), 1 << 20)
    except FileNotFoundError as error:
        raise Unreadable("no such file") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Unreadable(f"a broken {'bzip2' if packed == '.bz2' else 'gzip'} file ({one_line(error)})") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"no UTF-8 text ({one_line(error)})") from error
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror or one_line(error)})") from error


def _regular(path: str | Path) -> IO[bytes]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its other end
    except ValueError as error:  # a NUL in the name
        raise Unreadable(f"no name of a file ({one_line(error)})") from error
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise Unreadable("a directory" if stat.S_ISDIR(kind) else "no regular file (a pipe or a device)")


def require_regular(folder: str | Path) -> None:
    """A folder whose files are regular ones: others may open each of them, and wait for a pipe for ever."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise Unreadable(f"no folder that can be read ({error.strerror})") from error
    for entry in entries:
        if os.path.exists(entry.path) and not entry.is_file() and not entry.is_dir():
            raise Unreadable(f"{one_line(entry.name)} is no regular file (a pipe or a device)")


class _Bounded(io.RawIOBase):
    """What comes out of another stream, up to so many bytes."""

    def __init__(self, stream: gzip.GzipFile | bz2.BZ2File, most: int):
        self.stream, self.left = stream, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.stream.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise Unreadable(f"a packed file that becomes more than {GROWTH} times as large")
        return count


def read_bytes(path: str | Path, most: int = SMALL) -> bytes:
    with opened(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Unreadable(f"more than {most:,} bytes")
    return content


def read_text(path: str | Path, most: int = SMALL) -> str:
    """In UTF-8, without the mark that some editors put first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_bytes(b"\\xef\\xbb\\xbfcat")
    ...     read_text(f"{folder}/a.txt")
    'cat'
    """
    return _decoded(read_bytes(path, most))


def read_lines(path: str | Path) -> list[str]:
    r"""The lines of a text, which end as editors end them: in \n, \r\n or \r, and not at marks within a sentence.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_bytes("a\u2028b\r\nc\n".encode())
    ...     read_lines(f"{folder}/a.txt")
    ['a\u2028b', 'c']
    """
    return [line.rstrip("\n") for line in io.StringIO(read_text(path, LARGE), newline=None)]


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + 3 * content.startswith(b"\xef\xbb\xbf")
        raise Unreadable(f"no UTF-8 text at byte {start}") from error


def lines_of(text: IO[Any]) -> Iterator[Any]:
    """The lines of an open text or of bytes, none of them longer than memory bears."""
    while line := text.readline(LINE + 1):
        if len(line) > LINE:
            raise Unreadable(f"a line of more than {LINE:,} bytes")
        yield line


def csv_rows(lines: Iterable[str], **how: Any) -> Iterator[tuple[int, list[str]]]:
    """(number of the line, cells) of each row that has any.

    >>> list(csv_rows(["a,b", "", '"c, d",e']))
    [(1, ['a', 'b']), (3, ['c, d', 'e'])]
    """
    rows = csv.reader(lines, **how)
    try:
        yield from ((rows.line_num, row) for row in rows if row)
    except csv.Error as error:
        raise Unreadable(f"line {rows.line_num}: {one_line(error)}") from error


def read_table(path: str | Path, **how: Any) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file, as `csv_rows` has them."""
    return list(csv_rows(io.StringIO(read_text(path, LARGE), newline=""), **how))


# -- JSON and YAML ----------------------------------------------------------------------------------------------------

_STRING = re.compile(rb'"[^"]*+"?')
_NOT_NESTING = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}
_DIGITS = bytes(48 if chr(number).isdigit() and number < 128 else 32 for number in range(256))
_EXPONENT = re.compile(rb"[eE]\+?\d{3}")


def parse_json(content: bytes, wide: bool = False, infinite: bool = False) -> Any:
    """The value of a JSON text in UTF-8. No NaN, no number beyond 64 bits, no key twice, no deep nesting.

    wide: larger whole numbers too. infinite: NaN and infinities too, which our own files may hold.

    >>> parse_json(b'{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    if _depth(content) > DEPTH:
        raise Unreadable(f"nested more than {DEPTH} deep")
    how: dict[str, Any] = {}
    # the checks of numbers are slow, and only numbers with many digits or a large exponent need them
    if b"0" * 19 in content.translate(_DIGITS) or _EXPONENT.search(content):
        how = {**({} if infinite else {"parse_float": _finite}), **({} if wide else {"parse_int": _whole})}
    if not infinite:
        how["parse_constant"] = _refused
    try:
        return json.loads(_decoded(content), object_pairs_hook=_unrepeated, **how)
    except json.JSONDecodeError as error:
        raise Unreadable(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:  # called from deep within
        raise Unreadable("nested too deeply") from error
    except Unreadable:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise Unreadable(one_line(error)) from error


def read_json(path: str | Path, kind: type = dict, most: int = SMALL, **how: bool) -> Any:
    """The value in a file, which is of this kind; `how` as `parse_json` has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.json").write_text('{"a": 1}')
    ...     read_json(f"{folder}/a.json")
    {'a': 1}
    """
    value = parse_json(read_bytes(path, most), **how)
    if not isinstance(value, kind):
        raise Unreadable(f"it holds no {'list' if kind is list else 'JSON object'}")
    return value


def _depth(content: bytes) -> int:
    """How many brackets are open at most. Brackets in strings are none."""
    if content.count(b"[") + content.count(b"{") <= DEPTH:
        return 0
    unescaped = content.replace(rb"\\", b"").replace(rb"\"", b"")
    nesting = _STRING.sub(b"", unescaped.translate(None, _NOT_NESTING))
    return max(accumulate(_STEP.get(letter, 0) for letter in nesting), default=0)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(item := dict(pairs)) == len(pairs):
        return item
    again = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    raise Unreadable(f'the key "{one_line(again)}" stands twice in one object')


def _refused(name: str) -> NoReturn:
    raise Unreadable(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise Unreadable(f"the number {one_line(text, 20)} is too large")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise Unreadable(f"the number {text[:20]}… has more than 64 bits")
    return number


def read_yaml(path: str | Path) -> Any:
    """What a recipe says.

    Aliases are refused: nine lines of them can stand for a billion values. Tags are, but for those of plain values.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.yaml").write_text("steps: 100")
    ...     read_yaml(f"{folder}/a.yaml")
    {'steps': 100}
    """
    import yaml  # type: ignore[import-untyped, unused-ignore]

    class Plain(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise Unreadable(f"it has an alias, *{self.peek_event().anchor}: write out what it stands for")
            self.depth += 1
            if self.depth > YAML_DEPTH:
                raise Unreadable(f"nested more than {YAML_DEPTH} deep")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            made = super().construct_mapping(node, deep)
            if len(made) < len(node.value):
                raise Unreadable(f"a key stands twice, in line {node.start_mark.line + 1} or below")
            return made

    try:
        return yaml.load(read_text(path, RECIPE), Plain)
    except Unreadable:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(one_line(error)) from error


# -- arrays and tensors -----------------------------------------------------------------------------------------------


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz, by name. What their headers claim is compared with what the archive holds first.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", labels=np.arange(3))
    ...     read_npz(f"{folder}/a.npz")["labels"]
    array([0, 1, 2])
    """
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    from numpy.lib import format as npy

    with opened(path) as file:
        most = min(ARRAYS, max(FREELY, GROWTH * os.fstat(file.fileno()).st_size))
        try:
            with ZipFile(file) as archive:
                members = archive.infolist()
                if len(members) > MEMBERS or len({member.filename for member in members}) < len(members):
                    raise Unreadable(f"{len(members)} arrays, or two of one name")
                if sum(member.file_size for member in members) > most:
                    raise Unreadable(f"its arrays would take more than {most:,} bytes, {GROWTH} times the file")
                for member in members:
                    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or member.flag_bits & 1:
                        raise Unreadable(f"{one_line(member.filename)} is packed in a way that NumPy does not use")
                    with archive.open(member) as stream:
                        _require_claimed(stream, member.file_size, one_line(member.filename))
                arrays = {}
                for member in members:
                    with archive.open(member) as stream:
                        arrays[member.filename.removesuffix(".npy")] = npy.read_array(stream, allow_pickle=False)
                return arrays
        except Unreadable:
            raise
        except Exception as error:  # zipfile and NumPy raise whatever they run into
            raise Unreadable(one_line(error)) from error


def read_npy(path: str | Path) -> np.ndarray:
    """The array of a .npy, checked in the same way.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     read_npy(f"{folder}/a.npy")
    array([0, 1, 2])
    """
    from numpy.lib import format as npy

    with opened(path, unpack=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGE:
            raise Unreadable(f"more than {LARGE:,} bytes")
        try:
            _require_claimed(file, size, "the array")
            file.seek(0)
            array: np.ndarray = npy.read_array(file, allow_pickle=False)
            return array
        except Unreadable:
            raise
        except Exception as error:  # NumPy raises whatever it runs into
            raise Unreadable(one_line(error)) from error


def _require_claimed(stream: IO[bytes], held: int, name: str) -> None:
    """The header of an array, and whether as many bytes follow as it says."""
    from math import prod

    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise Unreadable(f"{name} has the version {version} of NumPy's format")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise Unreadable(f"{name} holds Python objects, which may be code")
    claimed = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed != held - stream.tell():
        raise Unreadable(f"{name} claims {claimed:,} bytes, and {held - stream.tell():,} are there")


def map_numbers(path: str | Path, dtype: np.dtype) -> np.ndarray:
    """A file of bare numbers, read where it lies, when they are asked for."""
    import numpy as np

    with opened(path) as file:
        return np.memmap(file, dtype, mode="r")


def open_tensors(path: str | Path) -> Any:
    """The open file of a .safetensors: its header is read, its tensors are not."""
    from safetensors import SafetensorError, safe_open

    with opened(path):
        pass  # a regular file
    try:
        return safe_open(os.fspath(path), framework="pt")
    except (OSError, SafetensorError) as error:
        raise Unreadable(one_line(error)) from error


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a .safetensors, by name."""
    from safetensors import SafetensorError

    with open_tensors(path) as file:
        try:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # a handle, not a dict
        except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise Unreadable(one_line(error)) from error


def read_packaged_weights(path: str | Path) -> dict[str, Tensor]:
    """Tensors that an installed package has in torch's own format only. weights_only runs no code."""
    import torch

    with opened(path) as file:
        return cast("dict[str, Tensor]", torch.load(file, map_location="cpu", weights_only=True))


def read_index(path: str | Path) -> dict[str, str]:
    """Tensor -> its file, as `INDEX` says it: .safetensors beside the index, and nothing else.

    Who would open what another index says opens a .bin, which may run code, or a file anywhere.
    """
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise Unreadable("it has no weight_map of tensors to files")
    for name in files.values():
        beside = isinstance(name, str) and Path(name).name == name and len(name) < 200 and "\0" not in name
        if not beside or not name.endswith(".safetensors"):
            raise Unreadable(f"{shown(name)} is no .safetensors beside it")
    return cast("dict[str, str]", files)


# -- pictures ---------------------------------------------------------------------------------------------------------


def open_picture(path: str | Path | bytes) -> Image:
    """A file, or the bytes of one, decoded, and turned as its EXIF says: cameras write pictures as their chips lie.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     Image.new("RGB", (3, 2)).save(f"{folder}/a.png")
    ...     open_picture(f"{folder}/a.png").size
    (3, 2)
    """
    require("pillow")
    from PIL import Image, ImageOps, UnidentifiedImageError

    with nullcontext(io.BytesIO(path)) if isinstance(path, bytes) else opened(path) as file:
        try:
            with Image.open(file, formats=FORMATS) as picture:
                if picture.width * picture.height > PIXELS:
                    raise Unreadable(f"{picture.width} x {picture.height} pixels are more than {PIXELS:,}")
                picture.load()
                return ImageOps.exif_transpose(picture)
        except Unreadable:
            raise
        except UnidentifiedImageError as error:  # its own words name a file handle
            raise Unreadable("it is of no known format") from error
        except Exception as error:  # what decoders raise for a broken file is anyone's guess
            raise Unreadable(one_line(error)) from error
