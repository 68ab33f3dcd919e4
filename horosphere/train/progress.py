"""Progress for people: a bar on a terminal, nothing in a log file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, str], None]


@contextmanager
def progress(title: str, total: int, quiet: bool = False) -> Iterator[Update]:
    """with progress("embedding", steps) as update: update(done, "loss 0.12")"""
    if quiet or not sys.stderr.isatty():
        yield lambda done, note: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
