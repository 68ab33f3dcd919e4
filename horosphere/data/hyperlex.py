"""HyperLex: pairs of words, and how far people say that the first is a kind of the second (Vulić et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from horosphere.errors import UserError, one_line
from horosphere.foreign import read_text

FILE = "hyperlex-all.txt"
COLUMNS = ("WORD1", "WORD2", "AVG_SCORE")


@dataclass(frozen=True)
class GradedPairs:
    specific: list[str]
    general: list[str]
    scores: list[float]  # from 0 to 6


def read_hyperlex(path: str | Path) -> GradedPairs:
    """The file hyperlex-all.txt, or the folder that holds it: words and numbers, separated by blanks, below a head.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = "WORD1 WORD2 POS TYPE AVG_SCORE", "poodle dog N hyp-1 5.9", "dog poodle N r-hyp-1 1.2"
    ...     _ = Path(folder, FILE).write_text("\\n".join(lines))
    ...     read_hyperlex(folder)
    GradedPairs(specific=['poodle', 'dog'], general=['dog', 'poodle'], scores=[5.9, 1.2])
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    try:
        head, *rows = [line.split() for line in read_text(file).splitlines() if line.strip()]
        places = [head.index(column) for column in COLUMNS]
        columns = [[row[place] for row in rows] for place in places]
        scores = [float(score) for score in columns[2]]
        if not all(map(isfinite, scores)) or len(set(scores)) < 2:
            raise ValueError("scores are finite numbers, and not all the same")
        return GradedPairs(columns[0], columns[1], scores)
    except (ValueError, IndexError) as error:
        how = f"give {FILE} of HyperLex, with columns {', '.join(COLUMNS)}"
        raise UserError(f"{file}: no pairs of words with scores ({one_line(error)}); {how}") from error
