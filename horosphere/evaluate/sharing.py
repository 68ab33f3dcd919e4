"""Work that several processes share."""

from typing import Protocol

import torch
from torch import Tensor


class Shared(Protocol):
    """This process among `size`: what `train.distributed.World` is."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def is_main(self) -> bool: ...

    def sum(self, values: Tensor) -> Tensor:
        """Over the processes, in place.   (...) -> (...)"""
        ...
