"""Does an embedding of texts know general from specific? HierarCaps' measures (Alper & Averbuch-Elor 2024).

A picture has chains of captions from general to specific. Radius is the distance from the root, for CLIP that of "".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

import numpy as np
import torch
from torch import Tensor

THRESHOLDS = 50  # radii at which the best text within is looked for


@dataclass(frozen=True)
class HierarchyRetrieval:
    precision: float  # share of the captions retrieved for a picture that are its own
    recall: float  # share of the levels of which a caption of the picture is retrieved
    order: float  # Kendall's τ of radius and level, the mean over chains


def retrieve(alike: Tensor, radii: Tensor, thresholds: int = THRESHOLDS) -> list[int]:
    """The walk of a picture from general to specific: the best text within each radius, repetitions dropped.

    alike: how well each text fits the picture.   (N,), (N,) -> numbers of texts

    >>> retrieve(torch.tensor([0.2, 0.9, 0.5]), torch.tensor([1.0, 3.0, 2.0]))
    [0, 2, 1]
    """
    fit, at = (values.double().cpu().numpy() for values in (alike, radii))
    walk = []
    for level in np.linspace(at.min(), at.max(), thresholds):
        within = np.flatnonzero(at <= level + 1e-9)
        walk.append(int(within[fit[within].argmax()]))
    return [place for place, _ in groupby(walk)]


def hierarchy_retrieval(
    alike: Tensor, radii: Tensor, of: Sequence[int], captions: Sequence[Sequence[str]]
) -> HierarchyRetrieval:
    """N chains of L captions, chain n being one of picture of[n] among M.

    alike (N, L, M): how well captions fit pictures; radii (N, L). Captions count by what they say: two chains may
    share one.

    >>> alike = torch.tensor([[[0.5, 0.5], [0.9, 0.1]], [[0.5, 0.5], [0.1, 0.9]]])
    >>> captions = [["animal", "dog"], ["animal", "cat"]]
    >>> hierarchy_retrieval(alike, torch.tensor([[1.0, 2.0], [1.0, 2.0]]), [0, 1], captions)
    HierarchyRetrieval(precision=1.0, recall=1.0, order=1.0)
    """
    fit, levels = alike.flatten(0, 1), alike.shape[1]
    words = [text for chain in captions for text in chain]
    precisions, recalls = [], []
    for number in range(alike.shape[2]):
        own = [captions[n] for n, picture in enumerate(of) if picture == number]
        if not own:
            continue
        told = {words[place] for place in retrieve(fit[:, number], radii.flatten())}
        known = {text for chain in own for text in chain}
        precisions.append(len(told & known) / len(told))
        recalls.append(sum(any(chain[level] in told for chain in own) for level in range(levels)) / levels)
    return HierarchyRetrieval(float(np.mean(precisions)), float(np.mean(recalls)), order_of(radii))


def order_of(radii: Tensor) -> float:
    """Kendall's τ of radius and level, the mean over chains; a tie counts as half right.   (N, L) -> τ

    >>> order_of(torch.tensor([[1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0]]))
    0.8333333333333334
    """
    pairs = list(combinations(range(radii.shape[1]), 2))
    signs = torch.stack([(radii[:, b] - radii[:, a]).sign() for a, b in pairs])
    return float(signs.double().mean())


def length_order(captions: Sequence[Sequence[str]]) -> float:
    """The same where the number of characters is the radius: what an embedding must beat to know anything.

    >>> length_order([["dog", "a poodle", "a poodle on a lawn"]])
    1.0
    """
    return order_of(torch.tensor([[float(len(text)) for text in chain] for chain in captions]))
