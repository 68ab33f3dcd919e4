"""Progress for people: a bar on a terminal, a line now and then in a pipe or a file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Update = Callable[[int, str], None]

FIRST = 5.0  # seconds until a log gets its first line, which says how long it will take; shorter work is not worth one
EVERY = 30.0  # seconds between further lines

_bars: list[Any] = []  # the bar that is on the screen, if any: a terminal can show but one


@contextmanager
def progress(title: str, total: int, quiet: bool = False) -> Iterator[Update]:
    """with progress("training", steps) as update: update(done, "loss 0.12")"""
    if quiet or not total:
        yield lambda done, note: None
    elif not sys.stderr.isatty():
        yield _Lines(title, total)
    else:
        with _bar(title, total) as update:
            yield update


@contextmanager
def _bar(title: str, total: int) -> Iterator[Update]:
    """Work within work, such as an evaluation within a training, gets a line of its own below."""
    from rich import progress as rich
    from rich.console import Console

    if _bars:
        inner = _bars[-1].add_task(title, total=total, note="")
        try:
            yield lambda done, note: _bars[-1].update(inner, completed=done, note=note)
        finally:
            _bars[-1].remove_task(inner)
        return
    columns = (
        "{task.description}",
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[note]}"),
    )
    clocks = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, *clocks, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        _bars.append(bar)
        try:
            yield lambda done, note: bar.update(task, completed=done, note=note)
        finally:
            _bars.pop()


class _Lines:
    """training: 120 of 600, loss 3.1, about 2 minutes left"""

    def __init__(self, title: str, total: int):
        self.title, self.total = title, total
        self.due = time.monotonic() + FIRST
        # a resumed job has work behind it: the pace is that of the rest
        self.first: tuple[float, int] | None = None

    def __call__(self, done: int, note: str) -> None:
        now = time.monotonic()
        begin, before = self.first = self.first or (now, done)
        if now < self.due or done >= self.total:
            return
        left = [f"{about((self.total - done) * (now - begin) / (done - before))} left"] if done > before else []
        print(
            ", ".join([f"{self.title}: {done:,} of {self.total:,}", *[note] * bool(note), *left]),
            file=sys.stderr,
            flush=True,
        )
        self.due = now + EVERY


def about(seconds: float) -> str:
    """A duration as one would say it.

    >>> about(20), about(200), about(2 * 3600)
    ('about 20 seconds', 'about 3 minutes', 'about 2 hours')
    """
    for size, name in ((3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.0f} {name}s"
    if seconds >= 45:
        return "about a minute"
    return f"about {max(1, round(seconds))} second{'s' * (round(seconds) > 1)}"
