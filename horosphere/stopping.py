"""How long jobs are stopped: Ctrl-C and SIGTERM ask, and what is done is saved first."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ECHO = 1.0  # seconds: under torchrun one Ctrl-C arrives twice, from the terminal and from torchrun


@contextmanager
def stop_asked() -> Iterator[Callable[[], bool]]:
    """Whether someone asked to stop. Who asks again does not wait: KeyboardInterrupt."""
    first: list[float] = []

    def heed(number: int, frame: object) -> None:
        if first and time.monotonic() - first[0] > ECHO:
            raise KeyboardInterrupt
        first.append(time.monotonic())

    before = {}
    if threading.current_thread() is threading.main_thread():  # Python lets no other set handlers
        before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(first)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt: by itself it would leave the children of this process without a parent."""
    if threading.current_thread() is not threading.main_thread():  # Python lets no other set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
