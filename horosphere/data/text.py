"""Text for language models, one document at a time: from files, Hugging Face, or Python's own documentation."""

import ast
import codecs
import hashlib
import io
import json
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from horosphere.cache import file_digests
from horosphere.data.hub import dataset_name, require_split, saved_splits
from horosphere.errors import UserError, one_line
from horosphere.foreign import Unreadable, is_text, lines_of, opened, parse_json, read_bytes, shown

PLAIN = (".txt", ".md", "")  # documents separated by a form feed; a file without an extension is text
KINDS = (*PLAIN, ".jsonl")  # each also with .gz
LONGEST = 4 << 20  # characters; a longer document in a plain file is cut, so that a huge file needs little memory
BLOCK = 1 << 20  # bytes read at a time
# folders of the standard library that document nothing
NOT_DOCUMENTATION = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "pydoc_data",
}


def documents(source: str, field: str = "text") -> Iterator[str]:
    """The documents of a source, one by one; those without a visible character are left out.

    source is one of these:
    - "python": Python's documentation.
    - "topics": the first nine tenths of the topics of Python's help; "topics-held-out": the last tenth.
    - "hf:NAME[:CONFIG[:SPLIT]]": a Hugging Face dataset, streamed.
    - a file or folder of .txt and .md (documents separated by a form feed) and .jsonl (one object a line, the text in
      `field`), each also .gz. A file without an extension is a .txt; in a folder, if it begins like a text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "two.txt").write_text("once upon a time\\f the end")
    ...     list(documents(folder))
    ['once upon a time', ' the end']
    """
    texts: Iterable[str]
    if source in BUILT_IN:
        texts = BUILT_IN[source]()
    elif source.startswith("hf:"):
        texts = _hugging_face(source, field)
    else:
        texts = (text for path in _files(source) for text in _documents_in(path, field))
    empty = True
    for text in texts:
        if text and not text.isspace():
            empty = False
            yield text
    if empty:
        raise UserError(f"{source} holds no text: give a source that has some")


def fingerprint(source: str, memo: Path) -> str:
    """What a source is known by: the content of its files in their order, or the name of a dataset elsewhere.

    memo: a file that remembers digests, so that what did not change is not read again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fingerprint("hf:a", Path(folder, "memo")) == fingerprint("hf:b", Path(folder, "memo"))
    False
    """
    identity: Any = source
    try:
        if source in BUILT_IN:
            identity = [source, sys.version]
        elif not source.startswith("hf:"):
            files = _files(source)
            kinds = [(_kind(path), path.suffix.lower() == ".gz") for path in files]
            identity = ["files", *zip(kinds, file_digests(files, memo), strict=True)]
        elif (folder := Path(dataset_name(source)[0])).is_dir():  # names decide what is a part of which split
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            names = [path.relative_to(folder).as_posix() for path in files]
            identity = [dataset_name(source)[1:], *zip(names, file_digests(files, memo), strict=True)]
    except (OSError, Unreadable) as error:
        how = "Check the files and their permissions."
        raise UserError(f"{source}: cannot be read ({one_line(error)}). {how}") from None
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def cut(text: str, low: int, high: int) -> int:
    """Where to cut a text, low < cut <= high: after the last blank line there, else a line, else before a space.

    >>> text = "one line\\nand another one"
    >>> text[: cut(text, 0, 20)], text[: cut(text, 12, 20)]
    ('one line\\n', 'one line\\nand another')
    """
    for boundary, length in (("\n\n", 2), ("\n", 1), (" ", 0)):
        if (place := text.rfind(boundary, low + 1, high)) >= 0:
            return place + length
    return high


# -- files ------------------------------------------------------------------------------------------------------------


def _files(source: str) -> list[Path]:
    """The file, or the text files in the folder and below, in the order of their names."""
    path = Path(source)
    if not path.exists():
        raise UserError(
            f"{source}: no such file or folder. "
            'Check the path; a dataset of Hugging Face is "hf:NAME", Python\'s documentation "python".'
        )
    known = f"{' '.join(filter(None, KINDS))}, each also with .gz"
    if not path.is_dir():
        if _kind(path) not in KINDS:
            raise UserError(f"{source}: unknown extension {_kind(path)}. Known are {known}.")
        return [path]
    files = [
        file
        for file in path.rglob("*")
        if _kind(file) in KINDS and file.is_file() and "/." not in f"/{_name(file, source)}"
        if _kind(file) or _begins_like_text(file)
    ]
    if not files:
        raise UserError(f"{source}: a folder without text files ({known}). Put some there, or name another.")
    return sorted(files, key=lambda file: _name(file, source))


def _begins_like_text(file: Path) -> bool:
    """Of a file without an extension in a folder: a program may lie beside texts."""
    try:
        with opened(file) as stream:
            start = stream.read(1024)
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except (Unreadable, UnicodeDecodeError):
        return False
    return b"\0" not in start


def _documents_in(path: Path, field: str) -> Iterator[str]:
    try:
        with opened(path) as file:
            yield from _plain(file, path) if _kind(path) in PLAIN else _json_lines(file, path, field)
    except Unreadable as error:
        raise UserError(f"{path}: {error}. Check the file and its permissions, or make it again.") from None


def _plain(file: IO[bytes], path: Path) -> Iterator[str]:
    held = ""
    for block in _decoded(file, path):
        *whole, held = (held + block).split("\f")
        yield from (text.strip("\n") for text in whole)
        while len(held) > LONGEST:
            end = cut(held, LONGEST // 2, LONGEST)
            yield held[:end].strip("\n")
            held = held[end:]
    yield held.strip("\n")


def _decoded(file: IO[bytes], path: Path) -> Iterator[str]:
    """Blocks of text, line ends as \\n, without the mark that some editors put first."""
    bytes_to_text = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(bytes_to_text, translate=True)
    first = file.read(len(codecs.BOM_UTF8))
    done = len(first) if first == codecs.BOM_UTF8 else 0
    for block in chain([] if done else [first], iter(lambda: file.read(BLOCK), b""), [b""]):
        start = done - len(bytes_to_text.getstate()[0])  # half a character may wait from the block before
        try:
            yield decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: no UTF-8 text at byte {start + error.start}. Save the file as UTF-8.") from None
        done += len(block)


def _json_lines(file: IO[bytes], path: Path, field: str) -> Iterator[str]:
    done = 0
    for number, line in enumerate(lines_of(file), 1):
        try:
            if line.strip():
                yield _text_of(parse_json(line), field, f"{path} line {number}")
        except Unreadable as error:
            where, cause = f"{path} line {number}", error.__cause__
            if isinstance(cause, UnicodeDecodeError):
                raise UserError(
                    f"{where}: no UTF-8 text at byte {done + cause.start}. Save the file as UTF-8."
                ) from None
            raise UserError(f"{where}: no valid JSON ({error}). Put one object on each line.") from None
        done += len(line)


def _text_of(row: Any, field: str, where: str) -> str:
    if not isinstance(row, dict):
        raise UserError(f'{where}: {shown(row)} is no object. Write {{"{field}": "the text"}}.')
    if field not in row:
        there = ", ".join(map(str, row)) or "nothing"
        raise UserError(f'{where}: no field "{field}"; there is {one_line(there)}. Choose the one that holds the text.')
    text = row[field]
    if not isinstance(text, str):
        raise UserError(
            f'{where}: the field "{field}" is {shown(text)}, not text. Choose a field of text, or remove the row.'
        )
    if not is_text(text):
        raise UserError(
            f'{where}: half a character (a lone surrogate such as "\\ud83d") in the text. Repair or remove the row.'
        )
    return text


def _kind(path: Path) -> str:
    packed = path.suffix.lower() == ".gz"
    return Path(path.stem).suffix.lower() or ".gz" if packed else path.suffix.lower()


def _name(file: Path, source: str) -> str:
    return file.relative_to(source).as_posix() if file != Path(source) else file.name


# -- other sources ----------------------------------------------------------------------------------------------------


def _hugging_face(source: str, field: str) -> Iterator[str]:
    name, config, split = dataset_name(source)
    from datasets import load_dataset

    try:
        splits = saved_splits(name)
        if splits is None:
            rows = load_dataset(name, config or None, split=split or "train", streaming=True)
        else:
            rows = splits[require_split(source, split, splits)]
        for number, row in enumerate(rows, 1):
            yield _text_of(row, field, f"{source} row {number}")
    except UserError:
        raise
    except Exception as error:  # the library raises whatever it runs into: names, splits, connections, files
        raise UserError(
            f"{source}: cannot be read ({one_line(error)}). Check the name, the split and the connection."
        ) from error


@cache  # two megabytes, and seconds to collect
def _python() -> list[str]:
    """The topics of Python's help, and a document for each module of the standard library: its docstrings.

    A docstring that several modules share belongs to the first.
    """
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_path("stdlib"))
    seen: set[str] = set()
    texts = list(dict.fromkeys(topics[name].strip() for name in sorted(topics)))
    for path in sorted(library.rglob("*.py")):
        if NOT_DOCUMENTATION.isdisjoint(path.relative_to(library).parts):
            new = dict.fromkeys(text for text in _docstrings(ast.parse(read_bytes(path))) if text not in seen)
            seen.update(new)
            texts.append("\n\n".join(new))
    return texts


def _topics() -> str:
    """In Python 3.11 464,970 characters, of 103 kinds."""
    from pydoc_data.topics import topics

    return "".join(topics.values())


def _first_topics() -> list[str]:
    text = _topics()
    return [text[: len(text) * 9 // 10]]


def _last_topics() -> list[str]:
    text = _topics()
    return [text[len(text) * 9 // 10 :]]


BUILT_IN: dict[str, Callable[[], Iterable[str]]] = {
    "python": _python,
    "topics": _first_topics,
    "topics-held-out": _last_topics,
}


def _docstrings(node: ast.AST) -> Iterator[str]:
    """The docstrings in a parsed module. It is not imported: importing some modules of the library does things."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
        text := ast.get_docstring(node)
    ):
        yield text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):  # nothing inside an expression has a docstring
            yield from _docstrings(child)
