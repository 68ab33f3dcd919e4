"""Where a recommender puts what a user took next: Hit@k, NDCG@k, AUC, all over candidates that are named."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Places:
    """Of each user the one item that counts, among the candidates: how many others are before it, level, and in all.

    What is no number counts as before it.
    """

    before: Tensor  # (U,)
    level: Tensor  # (U,)
    others: Tensor  # (U,)


def places(scores: Tensor, target: Tensor, candidates: Tensor | None = None) -> Places:
    """Scores (U, I), the item of each user (U,), and the items it competes with (U, I) bool; none: all.

    The item itself is no competitor, whatever `candidates` says of it.

    >>> places(torch.tensor([[0.9, 0.5, 0.5, 0.1]]), torch.tensor([1]))
    Places(before=tensor([1]), level=tensor([1]), others=tensor([3]))
    """
    own = scores.gather(1, target[:, None])
    others = torch.ones_like(scores, dtype=torch.bool) if candidates is None else candidates.clone()
    others.scatter_(1, target[:, None], False)
    level = (scores == own) & others
    before = ~(scores < own) & others & ~level
    return Places(before.sum(1), level.sum(1), others.sum(1))


def hit_at(placed: Places, k: int) -> float:
    """1/m Σ_u 1(rank ≤ k): the share of users whose item is among the first k. A tie counts against the item.

    >>> hit_at(places(torch.tensor([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1]]), torch.tensor([1, 2])), 2)
    0.5
    """
    return float((placed.before + placed.level < k).double().mean())


def ndcg_at(placed: Places, k: int) -> float:
    """1/m Σ_u 1(rank ≤ k)/log₂(1 + rank): an item at the top counts 1, farther down less. A tie counts against it.

    >>> round(ndcg_at(places(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([1])), 10), 3)  # 1/log₂ 3
    0.631
    """
    rank = (placed.before + placed.level + 1).double()
    gain = math.log(2) / (1 + rank).log()
    return float(torch.where(rank <= k, gain, 0.0).mean())


def auc(placed: Places) -> float:
    """1/m Σ_u 1/n_u Σ_j 1(rank_g < rank_j), over the n_u candidates j but the item g itself; a tie counts ½.

    The share of comparisons that the item wins: ½ by chance. Users without a competitor count ½.

    >>> first = torch.tensor([0])
    >>> auc(places(torch.tensor([[0.9, 0.5, 0.1]]), first)), auc(places(torch.zeros(1, 3), first))
    (1.0, 0.5)
    """
    after = (placed.others - placed.before - placed.level).double()  # whole numbers would be divided in fp32
    won = (after + placed.level / 2 + (placed.others == 0) / 2) / placed.others.clamp_min(1)
    return float(won.mean())
