"""Pictures are read from disk while the accelerator works on those before."""

from collections.abc import Callable
from typing import Generic, TypeVar

from horosphere.train.distributed import World
from horosphere.train.engine import EngineConfig

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """start(step, rows) begins to read rows of a batch; this returns what was begun, and begins with the rows that the engine asks for next."""

    def __init__(self, start: Callable[[int, range], T], engine: EngineConfig, world: World):
        share = engine.batch // world.size
        mine = range(world.rank * share, (world.rank + 1) * share)
        micro = engine.micro_batch or share
        self.start, self.steps = start, engine.steps
        self.order = [mine[i : i + micro] for i in range(0, share, micro)]  # in which the engine asks
        self.begun: dict[tuple[int, range], T] = {}

    def __call__(self, step: int, rows: range) -> T:
        found = self.begun[step, rows] if (step, rows) in self.begun else self.start(step, rows)
        following = self._following(step, rows)
        self.begun = {following: self.start(*following)} if following else {}
        return found

    def _following(self, step: int, rows: range) -> tuple[int, range] | None:
        if rows not in self.order:
            return None
        place = self.order.index(rows) + 1
        step, place = (step, place) if place < len(self.order) else (step + 1, 0)
        return (step, self.order[place]) if step < self.steps else None
