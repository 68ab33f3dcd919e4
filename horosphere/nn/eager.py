"""Compiled blocks, run as they are written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def eager() -> Iterator[None]:
    """Within the block nothing is compiled: for shapes that come once.

    Where nothing was compiled before, no compiler is imported.

    >>> with eager():
    ...     torch.nn.Linear(2, 3)(torch.ones(1, 2)).shape
    torch.Size([1, 3])
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
