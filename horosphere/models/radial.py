"""Radial Embeddings: texts that say more lie farther from the text that says nothing (Alper & Averbuch-Elor 2024).

The root r is the embedding of "". A text e entails e' when the way from e to e' goes on in the direction from r to e:

    Ξ_r(e, e') = angle between e - r and e' - e          0: straight on;  π: straight back

    L = mean Ξ(p_i, p_i+1) - mean Ξ(p_i, n_i)            chains p of captions from general to specific, and captions n
      + the same for the two hardest of them             of the same levels that are not true
      + 10·(1 - cos(e, e before training))/2             what was learned before is kept
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from horosphere.geometry import Euclidean, exterior_angle, half_aperture

FLAT = Euclidean()


def radial_angle(e: Tensor, other: Tensor, root: Tensor) -> Tensor:
    """Ξ_r(e, e'); 0 where e is the root or e' is e.   (..., D), (..., D), (D,) -> (...)

    >>> import torch
    >>> root, dog, poodle = torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    >>> radial_angle(dog, poodle, root).rad2deg().round()
    tensor(90.)
    """
    return exterior_angle(e - root, other - root, FLAT)


def radial_loss(true: Tensor, false: Tensor, root: Tensor) -> Tensor:
    """Chains of L captions, unit vectors, and captions of the same levels that are not true.   (B, L, D) twice -> ()"""
    onward = radial_angle(true[:, :-1], true[:, 1:], root)
    aside = radial_angle(true[:, :-1], false[:, :-1], root)
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
    half = half_aperture(apex - root, FLAT, width)
    outside = radial_angle(apex, true[:, 1:], root) - half
    inside = radial_angle(apex, false[:, :-1], root) - half
    return outside.clamp(min=0).mean() + (margin - inside).clamp(min=0).mean()
