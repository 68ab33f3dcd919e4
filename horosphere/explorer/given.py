"""What people hand to `explore`, checked: numbers, lists, edges, pictures. One line says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError, one_line


def numbers(points: Any) -> Tensor:
    """A matrix of whoever makes one."""
    try:
        if isinstance(points, np.ma.MaskedArray) and np.ma.is_masked(points):
            raise ValueError("some values are masked")
        x = points if isinstance(points, Tensor) else torch.from_numpy(np.array(points))
        if x.is_complex() or x.layout != torch.strided or x.device.type == "meta":
            raise ValueError("no plain numbers")
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"explore(points): {one_line(error)}; give a matrix of numbers, a row for each point") from None
    return x


def listed(what: str, values: Any) -> list[Any]:
    """Values one after another, whatever holds them."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UserError(f"explore({what}=…): {one_line(values, 40)} is no list; give one value for each point")
    return list(values)


def pairs(edges: Any, labels: list[str]) -> np.ndarray:
    """Edges as rows, whether they are given so or by label.   -> (E, 2)

    >>> pairs([("b", "a")], ["a", "b"])
    array([[1, 0]])
    """
    rows = [listed("edges", edge) for edge in listed("edges", edges)]
    if any(len(row) != 2 for row in rows):
        raise UserError("explore(edges=…): give pairs, as (child, parent); a matrix should have the shape (E, 2)")
    number = {label: row for row, label in enumerate(labels)}
    return np.array([[_row(end, number) for end in row] for row in rows], np.int64).reshape(-1, 2)


def _row(end: Any, number: dict[str, int]) -> int:
    if isinstance(end, Tensor | np.generic):
        end = end.item()
    if isinstance(end, str):
        if end not in number:
            raise UserError(f'explore(edges=…): no point is called "{one_line(end, 60)}"; edges name labels or rows')
        return number[end]
    if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < 2**31:
        raise UserError(f"explore(edges=…): {one_line(end, 40)} is neither a row nor a label")
    return end


def pictures(given: Sequence[np.ndarray | None], count: int) -> Callable[[int], np.ndarray | None]:
    """The small picture of each point."""
    if len(given) != count:
        raise UserError(f"{len(given):,} thumbnails for {count:,} points; give one for each, or None")
    for point, pixels in enumerate(given):
        if pixels is not None and (np.ndim(pixels) != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8):
            raise UserError(f"thumbnail {point}: give pixels (h, w, 3) as uint8, or None where there is no picture")
    return lambda point: given[point]
