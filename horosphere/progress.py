"""Progress for people: a bar on a terminal, a line now and then in a pipe or a file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, str], None]

FIRST = 5.0  # seconds until a log gets its first line, which says how long it will take; shorter work is not worth one
EVERY = 30.0  # seconds between further lines


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
    from rich import progress as rich
    from rich.console import Console

    columns = (
        "{task.description}",
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[note]}"),
    )
    clocks = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, *clocks, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


class _Lines:
    """training: 120 of 600, loss 3.1, about 2 minutes left"""

    def __init__(self, title: str, total: int):
        self.title, self.total = title, total
        self.begin = time.monotonic()
        self.before: int | None = None  # a resumed job has work behind it: the pace is that of the rest
        self.due = self.begin + FIRST

    def __call__(self, done: int, note: str) -> None:
        now = time.monotonic()
        self.before = done - 1 if self.before is None else self.before
        if now < self.due or done >= self.total:
            return
        left = (self.total - done) * (now - self.begin) / max(1, done - self.before)
        parts = [f"{self.title}: {done:,} of {self.total:,}", *[note] * bool(note), f"{about(left)} left"]
        print(", ".join(parts), file=sys.stderr, flush=True)
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
