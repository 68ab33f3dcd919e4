"""What a layer asks of every batch outside of compiled code: a number that must not pass a limit, and no GPU waits."""

from collections import deque

import torch
from torch import Tensor, nn

from horosphere.nn.near import has_values


class Watch:
    """The largest number of every batch.

    The CPU reads it at once. From a GPU it travels while the GPU works on, and the first later call that finds it
    arrived reads it: a complaint comes a call or a few late. Other devices are not asked.

    >>> Watch().largest(torch.tensor(3.0))
    3.0
    """

    def __init__(self) -> None:
        self._travelling: deque[tuple[Tensor, torch.cuda.Event]] = deque()

    def __reduce__(self) -> tuple[type["Watch"], tuple[()]]:
        return Watch, ()  # a copy has seen nothing yet, and events cannot be copied

    def largest(self, number: Tensor) -> float:
        """This number, or the largest that has arrived since the last call; 0 where none has.   () -> number"""
        if number.device.type == "cpu":
            return float(number)
        if not number.is_cuda:
            return 0.0
        arrived = 0.0
        while self._travelling and self._travelling[0][1].query():
            arrived = max(arrived, float(self._travelling.popleft()[0]))
        here = torch.empty_like(number, device="cpu", pin_memory=True).copy_(number, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(number.device))
        self._travelling.append((here, event))
        return arrived


def has_numbers(x: object) -> bool:
    """Whether x is a plain tensor, whose numbers may be looked at. A sharded one is not plain.

    >>> has_numbers(torch.ones(2)), has_numbers([1.0, 1.0])
    (True, False)
    """
    return type(x) in (Tensor, nn.Parameter) and has_values(x)  # type: ignore[arg-type]
