"""Tables in plain text: they fit a terminal and a log."""

import re
from collections.abc import Collection, Sequence

# how a cell of a column of numbers begins
NUMBER = re.compile(r"[-+−±<>≈~]?\s*[\d.]|[-–—]?$|nan|-?inf", re.IGNORECASE)


def is_numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return bool(rows) and all(NUMBER.match(str(row[column])) for row in rows)


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], best: Collection[int] = ()) -> list[str]:
    """Columns just wide enough, those of numbers to the right, the rows `best` marked; without heads all to the left.

    >>> print("\\n".join(table_lines(["model", "top-1"], [["a", "0.5"], ["b", "12.5"]], best=[1])))
    model  top-1
    a        0.5
    b       12.5   <- best
    """
    lines = [list(heads), *map(list, rows)] if heads else [list(row) for row in rows]
    columns = range(len(lines[0])) if lines else range(0)
    widths = [max(len(line[i]) for line in lines) for i in columns]
    right = [bool(heads) and i > 0 and is_numeric(rows, i) for i in columns]
    text = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
        for line in lines
    ]
    marked = [line + "   <- best" * (place - bool(heads) in best) for place, line in enumerate(text)]
    return [line.rstrip() for line in marked]
