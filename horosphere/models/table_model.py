"""What the models of tables share: what they answer, how they like their columns scaled, and their loss."""

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

from horosphere.data.tables import Scaling


class Sizes(NamedTuple):
    """What a model must know of its table."""

    columns: int
    answers: int  # classes; 1 for a number
    rows: int  # to learn from


class TableModel(nn.Module):
    """A model of the rows of a table. A subclass is built from `Sizes` and its configuration."""

    answer: ClassVar[Literal["class", "number", "none"]] = "class"
    probable = True  # of classes: softmax of what it says are their probabilities

    @staticmethod
    def scaling(x: np.ndarray) -> Scaling:
        """How it likes the columns of its rows.   (N, F)"""
        return Scaling.of_unit_length(x)

    @classmethod
    def noise(cls, columns: int, config: Any) -> tuple[int, ...]:
        """The shape of the random numbers, uniform in (0, 1), that the loss takes for each row."""
        return ()

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """The mean over rows.   (B, F), (B,), (B, *noise) -> ()"""
        raise NotImplementedError
