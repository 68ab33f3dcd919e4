"""Radial Embeddings: texts that say more lie farther from the text that says nothing (Alper & Averbuch-Elor 2024).

The root r is the embedding of "". A text e entails e' when the way from e to e' goes on in the direction from r to e:

    Ξ_r(e, e') = angle between e - r and e' - e          0: straight on;  π: straight back

    L = mean Ξ(p_i, p_i+1) - mean Ξ(p_i, n_i)            chains p of captions from general to specific, and captions n
      + the same for the two hardest of them             of the same levels that are not true
      + 10·(1 - cos(e, e before training))/2             what was learned before is kept
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

KEEP = 10.0  # weight of what was learned before


def exterior_angle(e: Tensor, other: Tensor, root: Tensor) -> Tensor:
    """Ξ_r(e, e'), 0 where e is the root or e' is e.   (..., D), (..., D), (D,) -> (...)

    atan2 of both parts has a gradient everywhere but there; acos has none at 0 and π.

    >>> root, dog, poodle = torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    >>> exterior_angle(dog, poodle, root).rad2deg().round()
    tensor(90.)
    """
    a, b = torch.broadcast_tensors(e - root, other - e)
    along = (a * b).sum(-1)
    # |a||b| sin, as the length of what of b stands across a
    length = a.square().sum(-1, keepdim=True)
    across = b - a * (along[..., None] / length.where(length > 0, 1))
    sine = _length(across) * _length(a)
    angle = torch.atan2(sine, along)
    return torch.where((length[..., 0] > 0) & ((sine != 0) | (along != 0)), angle, 0.0)


def _length(x: Tensor) -> Tensor:
    """|x|, whose gradient at 0 is 0."""
    square = x.square().sum(-1)
    return torch.where(square > 0, square.where(square > 0, 1).sqrt(), 0.0)


def radial_loss(true: Tensor, false: Tensor, root: Tensor) -> Tensor:
    """Chains of L captions, unit vectors, and captions of the same levels that are not true.   (B, L, D) twice -> ()"""
    onward = exterior_angle(true[:, :-1], true[:, 1:], root)
    aside = exterior_angle(true[:, :-1], false[:, :-1], root)
    gaps = (onward - aside).flatten()
    hardest = gaps[onward.flatten().argmax()] + gaps[aside.flatten().argmin()]
    return gaps.mean() + hardest


def kept(now: Tensor, before: Tensor) -> Tensor:
    """(1 - cos)/2, the mean over texts.   (..., D), (..., D) -> ()"""
    return (1 - F.cosine_similarity(now, before, dim=-1)).mean() / 2


def cone_loss(true: Tensor, false: Tensor, root: Tensor, width: float = 0.1, margin: float = 0.1) -> Tensor:
    """Entailment cones, which came before: e' should lie in the cone of e, of half angle asin(width/|e - r|).

    Outside by how much, and for what is not true, inside by how much.   (B, L, D) twice -> ()
    """
    apex = true[:, :-1]
    half = torch.asin((width / (apex - root).norm(dim=-1)).clamp(max=1))  # nearer than `width` the cone is everything
    outside = exterior_angle(apex, true[:, 1:], root) - half
    inside = exterior_angle(apex, false[:, :-1], root) - half
    return outside.clamp(min=0).mean() + (margin - inside).clamp(min=0).mean()
