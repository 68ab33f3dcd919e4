"""The one exception meant for people: what is wrong, where, and what to do, in one line."""

import difflib
from collections.abc import Iterable

LONGEST = 2000  # characters of a message: what it quotes may be anything


class UserError(Exception):
    """A mistake in what the user gave. The command line prints it without a traceback and exits with its code.

    >>> print(UserError("a label\x1b[2J with a command for the terminal"))
    a label [2J with a command for the terminal
    """

    exit_code = 2

    def __init__(self, text: object = ""):
        super().__init__(one_line(text, LONGEST) if text else "")


class NotFinite(UserError):
    """What was computed is NaN or infinite."""


class Diverged(NotFinite):
    """A training, that is. A study counts it and goes on."""

    exit_code = 3


LISTED = 800  # letters of names that a message still lists in full; a vocabulary has thousands of names
FIRST = 20  # names that it begins a longer list with


def choices(name: object, known: Iterable[str], more: str = "") -> str:
    """How a message about an unknown name ends: with near misses, else with all there are and what `more` there is.

    >>> choices("stepps", ["steps", "lr"]), choices("colour", ["steps", "lr"])
    ('did you mean steps?', 'choose from steps, lr')
    """
    known = list(known)
    near = difflib.get_close_matches(str(name), known)
    shown = known if sum(map(len, known)) <= LISTED else [*known[:FIRST], "…"]
    return f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(shown)}{more}"


def one_line(text: object, most: int = 160) -> str:
    """What others say in many lines, for a message of one; an error without words is called by its type.

    What a terminal would obey, or could not print, becomes a space.
    """
    start = str(text)[: 100 * most]  # what is quoted may be gigabytes
    printable = "".join(letter if letter.isprintable() else " " for letter in start)
    return " ".join(printable.split())[:most] or type(text).__name__
