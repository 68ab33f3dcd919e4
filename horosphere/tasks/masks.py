"""What tasks on pictures with masks share: crops of one size, read ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from horosphere.data.classes import write_classes
from horosphere.data.dense import DenseData
from horosphere.data.dense_batches import collate_masks, cut
from horosphere.data.read_ahead import ReadAhead
from horosphere.errors import UserError
from horosphere.files import digest
from horosphere.settings import Positive, Size
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task


@dataclass(kw_only=True)
class Masks(Task[DenseData[Any]]):
    """A batch has squares of resized pictures, and of their masks."""

    unit = "images"
    one_shape = True

    valid: str | None = None  # a source of its own; none: what the data hold out, or every tenth picture
    size: Size = 512  # pixels of the shorter side; of classes of pixels also the side of the crops to train on
    scale: tuple[Positive, Positive] = (0.5, 2.0)  # in training that times a number between these
    flip: bool = True  # left and right
    ignore: int | None = 255  # of classes of pixels: the number in masks that counts for nothing

    def check(self, engine: EngineConfig) -> None:
        if self.scale[0] > self.scale[1]:
            raise UserError(f"scale={self.scale[0]:g},{self.scale[1]:g}: two positive numbers, the smaller first")

    def rows(self, data: DenseData[Any]) -> int:
        return len(data.train)

    def facts(self, data: DenseData[Any]) -> dict[str, Any]:
        return {
            "pictures": {"train": len(data.train), "valid": len(data.valid)},
            "classes": len(data.classes),
            "digest": digest(*data.classes, *(str(file) for part in (data.train, data.valid) for file in part.files)),
        }

    def ready(self, data: DenseData[Any]) -> None:
        self.pictures = data
        order = self.engine.rows_of(self.world.rank, self.world.size)
        self.read = ReadAhead(self.started, order, self.engine.steps)

    def begin(self, folder: Path) -> None:
        write_classes(folder, self.pictures.classes)

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """images (B, 3, s, s) uint8, masks (B, s, s) int16. Pictures of the next rows are read meanwhile."""
        return collate_masks(self.read(step, rows)())

    def started(self, step: int, rows: range) -> Callable[[], list[Any]]:
        """Begin to read the pictures of these rows; the function returned waits for them."""
        chosen, draws = self.drawn(step, rows, len(self.pictures.train)), self.chances(step, rows)
        return self.pictures.train.later(
            chosen, lambda image, mask, i: cut(image, mask, self.size, self.scale, self.flip, draws[i])
        )

    def chances(self, step: int, rows: range) -> np.ndarray:
        """What chance decides in these rows: scale, top, left, flip.   -> (len(rows), 4), from 0 to 1"""
        random = np.random.default_rng((self.engine.seed, step, 2))
        return random.random((self.engine.batch, 4))[rows.start : rows.stop]
