"""Pictures are read from disk while the accelerator works on those before."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """start(step, rows) begins to read rows of a batch. A call returns what was begun, and begins with the next rows.

    order: the rows of a step, as they will be asked for.

    >>> begun = []
    >>> read = ReadAhead(lambda step, rows: begun.append((step, rows)), order=[range(2), range(2, 4)], steps=9)
    >>> read(0, range(2)), begun
    (None, [(0, range(0, 2)), (0, range(2, 4))])
    """

    def __init__(self, start: Callable[[int, range], T], order: Sequence[range], steps: int):
        self.start, self.order, self.steps = start, list(order), steps
        self.begun: dict[tuple[int, range], T] = {}

    def __call__(self, step: int, rows: range) -> T:
        asked = self.begun[step, rows] if (step, rows) in self.begun else self.start(step, rows)
        following = self._following(step, rows)
        self.begun = {following: self.start(*following)} if following else {}
        return asked

    def _following(self, step: int, rows: range) -> tuple[int, range] | None:
        if rows not in self.order:
            return None
        place = self.order.index(rows) + 1
        step, place = (step, place) if place < len(self.order) else (step + 1, 0)
        return (step, self.order[place]) if step < self.steps else None


def ahead(start: Callable[[int], Callable[[], T]], count: int) -> Iterator[T]:
    """What start(0)() … start(count - 1)() give; each is begun while whoever asks works on the one before.

    >>> list(ahead(lambda number: lambda: number**2, 4))
    [0, 1, 4, 9]
    """
    if not count:
        return
    later = start(0)
    for number in range(count):
        now = later()
        if number + 1 < count:
            later = start(number + 1)
        yield now
