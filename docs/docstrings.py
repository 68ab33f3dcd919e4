"""For the reference pages: docstrings are plain text, and are shown as they are written.

Markdown would take an example (`>>>`) for a quotation, <x, y> for a tag and |x|*|y| for emphasis.
"""

import re
from typing import Any

import griffe

MARKS = re.compile(r"[<*_\[]")


class PlainDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Examples fenced, and marks that mean nothing here escaped; `code` and indented formulas stay."""
    lines: list[str] = []
    in_example = False
    for line in text.splitlines():
        if line.startswith(">>>") and not in_example:
            lines += ["", "```pycon"]
            in_example = True
        elif in_example and not line:
            lines.append("```")
            in_example = False
        lines.append(line if in_example or line.startswith("    ") else escaped(line))
    return "\n".join([*lines, *["```"] * in_example])


def escaped(line: str) -> str:
    parts = line.split("`")
    return "`".join(part if i % 2 else MARKS.sub(r"\\\g<0>", part) for i, part in enumerate(parts))
