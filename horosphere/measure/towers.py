"""What towers know without training for it: how far one word is a kind of another, and what is in a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.hyperlex import read_hyperlex
from horosphere.data.images import Chosen, ImageData, Pictures, open_images
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.measure.entailment import graded_entailment
from horosphere.models.prompts import filled
from horosphere.models.towers import Texts, Towers, Views

AT_ONCE = 128  # texts or pictures


def vectors_of(read: Callable[[dict[str, Tensor]], Tensor], given: Texts | Views) -> Tensor:
    """All of them, by `towers.read` or `towers.look`.   -> (N, width)

    >>> class Three:
    ...     def __len__(self):
    ...         return 3
    ...     def at(self, numbers):
    ...         return {"features": torch.ones(len(numbers), 2)}
    >>> vectors_of(lambda given: given["features"], Three()).shape
    torch.Size([3, 2])
    """
    numbers = np.arange(len(given))
    return torch.cat([read(given.at(numbers[i : i + AT_ONCE])) for i in range(0, len(numbers), AT_ONCE)])


@dataclass(frozen=True, eq=False)
class Graded:
    """Pairs of words, and how far people say that one is a kind of the other."""

    terms: Texts
    specific: list[int]  # numbers of terms
    general: list[int]
    scores: list[float]

    @staticmethod
    def read(source: str, texts: Callable[[Sequence[str]], Texts]) -> Graded:
        pairs = read_hyperlex(source)
        numbers = {word: i for i, word in enumerate(sorted({*pairs.specific, *pairs.general}))}
        specific, general = ([numbers[word] for word in words] for words in (pairs.specific, pairs.general))
        return Graded(texts(list(numbers)), specific, general, pairs.scores)

    def score(self, towers: Towers, root: Tensor) -> float:
        points = towers.space.text(vectors_of(towers.read, self.terms))
        return graded_entailment(towers.space.angle(points[self.general], points[self.specific], root), self.scores)


@dataclass(frozen=True, eq=False)
class Named:
    """Pictures with classes, which towers name without having learned them."""

    data: ImageData
    names: Texts
    views: Views

    @staticmethod
    def open(
        source: str, template: str, texts: Callable[[Sequence[str]], Texts], views: Callable[[Pictures], Views]
    ) -> Named:
        data = open_images(source)
        held = Chosen(data.valid.pictures, data.valid.numbers)
        return Named(data, texts(filled(template, data.classes)), views(held))

    def score(self, towers: Towers) -> dict[str, float]:
        names, images = towers.space.text(vectors_of(towers.read, self.names)), vectors_of(towers.look, self.views)
        said = towers.space.alike(names, towers.space.image(images)).argmax(0).cpu().numpy()
        if self.data.tree is None:
            return {"zero_shot": float((said == self.data.valid.labels).mean())}
        scores = hierarchy_scores(said, self.data.valid.labels, self.data.tree)
        return {"zero_shot": scores.fine, "tree_error": scores.tree_error, "ancestor": scores.ancestor}
