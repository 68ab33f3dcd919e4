"""What a trained model says to inputs that people write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from horosphere.errors import NotFinite, UserError, one_line

WIDEST = 60  # letters of an input or an answer in a table for a terminal

Said = tuple[str, float | None]


@dataclass(frozen=True)
class Answers:
    """The best answers to each input, the best first, each with its score. To an input there may be none.

    >>> answers = Answers("class", "probability", ["5,3"], [[("rose", 0.75), ("tulip", 0.25)]])
    >>> answers.rows()
    [['5,3', 'rose', '0.7500'], ['', 'tulip', '0.2500']]
    >>> answers.as_json()
    [{'input': '5,3', 'answers': [{'class': 'rose', 'probability': 0.75}, {'class': 'tulip', 'probability': 0.25}]}]
    """

    what: str  # an answer is: a class, an item
    score: str | None  # what its number is; None: it has none
    inputs: list[str]
    best: list[list[Said]]  # of each input

    def __post_init__(self) -> None:
        for given, best in zip(self.inputs, self.best, strict=True):
            if not all(score is None or math.isfinite(score) for _, score in best):
                raise no_answer(given)

    def heads(self) -> list[str]:
        return ["input", self.what, *([self.score] if self.score else [])]

    def rows(self) -> list[list[str]]:
        """For a terminal: one an answer."""
        rows = []
        for given, best in zip(self.inputs, self.best, strict=True):
            if not best:
                rows.append([one_line(given, WIDEST), "nothing", *([""] if self.score else [])])
            for place, (answer, score) in enumerate(best):
                shown = one_line(given, WIDEST) if place == 0 else ""
                rows.append([shown, one_line(answer, WIDEST), *([] if score is None else [f"{score:.4f}"])])
        return rows

    def as_json(self) -> list[dict[str, Any]]:
        """For other programs."""

        def named(answer: str, score: float | None) -> dict[str, Any]:
            return {self.what: answer} | ({} if self.score is None else {self.score: score})

        told = zip(self.inputs, self.best, strict=True)
        return [{"input": given, "answers": [named(*said) for said in best]} for given, best in told]


def no_answer(given: str) -> NotFinite:
    why = "it is too far from what was learned, or the weights are damaged"
    return NotFinite(f'to "{one_line(given, WIDEST)}" there is no finite answer; {why}')


def best_of(scores: Tensor, names: Sequence[str], k: int) -> list[list[Said]]:
    """The k names of the highest scores in each row.   (N, K) -> N lists

    >>> import torch
    >>> best_of(torch.tensor([[0.25, 0.75]]), ["cat", "dog"], 1)
    [[('dog', 0.75)]]
    """
    values, places = scores.topk(min(k, scores.shape[-1]))
    rows = zip(values.tolist(), places.tolist(), strict=True)
    return [[(names[place], value) for value, place in zip(*row, strict=True)] for row in rows]


def require_one(k: int, what: str) -> None:
    """Of models that give one answer."""
    if k > 1:
        raise UserError(f"--k {k}: there is one {what} to each input; leave --k out")
