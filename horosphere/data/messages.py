"""Messages of installed packages and their translations: sentences in many languages that come with no download."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from horosphere.data.builtin import BUILTIN
from horosphere.errors import UserError, choices
from horosphere.extras import package_folder
from horosphere.foreign import read_text

Pair = tuple[str, str]
PACKAGES = ("django", "sphinx", "wagtail")
SIMPLIFIED = ("zh_Hans", "zh_CN")  # what packages call the Chinese that is meant by zh

# %(name)s, %s, %.2f, %%, {name}: what a program fills in
_FILLED = re.compile(r"%\([^)]*\)[.\d]*[a-z]|%[.\d]*[sdrif%]|\{[^{}]*\}")
_LINE = re.compile(r'(?:(?P<keyword>[a-z_]+)(?:\[(?P<form>\d)\])?\s+)?"(?P<text>.*)"')
_ESCAPED = re.compile(r"\\(.)")


def read_messages(packages: Iterable[str], language: str) -> list[Pair]:
    """Messages of installed packages and their translations, without what a program fills in.

    Packages are found, not imported.
    """
    pairs = [pair for package in packages for path in _files(package, language) for pair in read_po(read_text(path))]
    clean = [(_clean(source), _clean(target)) for source, target in pairs]
    return [pair for pair in clean if all(pair)]


def _files(package: str, language: str) -> list[Path]:
    """All .po of a language: every part of a package has its own."""
    files: dict[str, list[Path]] = {}
    for path in sorted(package_folder(package).rglob("*.po")):
        files.setdefault(path.parts[-3], []).append(path)
    language = next((name for name in SIMPLIFIED if language == "zh" and name in files), language)
    if language not in files:
        known = choices(language, sorted(files))
        raise UserError(f"{BUILTIN}{package}-{language}: {package} has no such language; {known}")
    return files[language]


def _clean(message: str) -> str:
    """Without what is filled in, one kind of apostrophe, one space between words."""
    return " ".join(_FILLED.sub(" ", message).replace("’", "'").split())


def read_po(text: str) -> list[Pair]:
    """Messages of a .po file that have a translation: the forms for one and for many are pairs of their own.

    >>> read_po('msgid "a cat"\\nmsgid_plural "cats"\\nmsgstr[0] "un chat"\\nmsgstr[1] "des chats"')
    [('a cat', 'un chat'), ('cats', 'des chats')]
    """
    pairs = []
    for entry in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        said: dict[tuple[str, str | None], str] = {}
        key: tuple[str, str | None] = ("", None)
        if re.search(r"^#,.*\bfuzzy\b", entry, re.MULTILINE):  # a guess that nobody has looked at
            continue
        for found in filter(None, map(_LINE.fullmatch, map(str.strip, entry.split("\n")))):
            key = (found["keyword"], found["form"]) if found["keyword"] else key  # else the line goes on
            said[key] = said.get(key, "") + _ESCAPED.sub(_unescaped, found["text"])
        one, many = (said.get((word, None), "") for word in ("msgid", "msgid_plural"))
        forms = [said[key] for key in sorted(said, key=str) if key[0] == "msgstr"]
        sources = [many] if many and len(forms) == 1 else [one, many]  # Japanese has one form for all numbers
        pairs += [pair for pair in zip(sources, forms, strict=False) if all(pair)]
    return pairs


def _unescaped(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1])
