"""LatHAdapter: learned attributes between classes and pictures, on a Poincaré ball.

Classes are general, attributes lie between, pictures are specific. Only the attributes are learned here. They refine
the vectors of the classes (ATR), and a loss (HHL) places all three on the ball as a hierarchy:

    F = [T; A],  S = cos(F, F),  F^ = F + β·D^-½ S D^-½ F,  T^ = F^[:C]                            ATR
    t~ = exp0(T^),  v~ = exp0(v),  a~ = exp0(a)                                                    HHL, c = 0.1
    L = L_ecls + L_hcls + L_va + L_at
    P(class | v) = softmax(cos(v, T^)/τ - d_H(v~, t~))

geometry="euclidean" is the same in flat space. The adapter takes any vectors of pictures and of classes in one space. T
may carry a gradient of its own: beside prompt learning this is one more loss.

    adapter = LatHAdapter(width=512, config=LatHAdapterConfig(), scale=100.0)   # scale is 1/τ
    adapter.loss(images, texts, labels).total.backward()
    adapter.eval()(images, texts).argmax(1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold, geometry
from horosphere.settings import Amount, Curvature, Range, Size, check

TEMPERATURE = 0.1  # of the choice of an ancestor
MOST = 4096  # triplets of a step


@dataclass(frozen=True)
class LatHAdapterConfig:
    """The numbers of the paper."""

    geometry: Literal["poincare", "lorentz", "euclidean"] = "poincare"  # where classes, attributes and pictures lie
    attributes: Size = 16  # N: learned vectors between classes and pictures
    beta: Amount = 0.1  # β: how much of its neighbours a class takes on
    curvature: Curvature = 0.1  # c of a curved geometry, whose curvature is -c
    margin: Amount = 0.1  # σ of both hierarchy losses
    # k: how many nearest points are near, the point itself among them
    neighbours: Annotated[int, Range(least=2, most=10**6)] = 3

    def __post_init__(self) -> None:
        check(self)


# -- the attribute-aware text refiner (ATR) ---------------------------------------------------------------------------


def refine(texts: Tensor, attributes: Tensor, beta: float) -> Tensor:
    """T^ = F^[:C],  F^ = F + β·D^-½ S D^-½ F,  F = [T; A],  S = cos(F, F),  D = row sums of S.

    (C, d), (N, d) -> (C, d)

    Cosines are negative where texts disagree, and so may be their sums, which have no square root. A row has at least
    its cosine with itself, so sums below 1 count as 1.

    >>> refine(torch.tensor([[1.0, 0.0]]), torch.tensor([[-2.0, 0.0]]), beta=0.5)  # T + β·(T - A)
    tensor([[2.5000, 0.0000]])
    """
    rows = torch.cat([texts, attributes])
    unit = F.normalize(rows, dim=-1)
    affinity = unit @ unit.T
    root = affinity.sum(1, keepdim=True).clamp_min(1.0).rsqrt()
    return texts + beta * (root * (affinity @ (root * rows)))[: len(texts)]


# -- hyperbolic hierarchy learning (HHL) ------------------------------------------------------------------------------


def reciprocal(distances: Tensor, k: int) -> Tensor:
    """Whether two points are among the k nearest of each other. A point is its own neighbour.   (B, B) -> (B, B) bool

    >>> at = torch.tensor([0.0, 1.0, 3.0])
    >>> reciprocal((at[:, None] - at).abs(), k=2).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    own = torch.eye(len(distances), dtype=torch.bool, device=distances.device)
    nearest = distances.masked_fill(own, -1.0).topk(min(k, len(distances)), largest=False).indices
    near = torch.zeros_like(own).scatter(1, nearest, True)
    return near & near.T


def triplets(distances: Tensor, k: int) -> Tensor:
    """All (i, j, l): i and another point j are reciprocal neighbours, i and l are not.   (B, B) -> (triplets, 3)

    Of more than `MOST`, as many drawn at random. There may be none.

    >>> at = torch.tensor([0.0, 1.0, 3.0])
    >>> triplets((at[:, None] - at).abs(), k=2)
    tensor([[0, 1, 2],
            [1, 0, 2]])
    """
    near = reciprocal(distances, k)
    own = torch.eye(len(near), dtype=torch.bool, device=near.device)
    pairs = (near & ~own).nonzero()  # i, j
    pair, far = (~near[pairs[:, 0]]).nonzero().unbind(1)
    found = torch.cat([pairs[pair], far[:, None]], 1)
    return found if len(found) <= MOST else found[torch.randperm(len(found), device=found.device)[:MOST]]


def ancestor(distances: Tensor, training: bool) -> Tensor:
    """Which candidate is the ancestor of a few points, whose largest distances to the candidates these are.

    (..., N) -> (..., N), 1 for the one and 0 for the others. Of softmax(-distance/0.1 + Gumbel noise) the arg-max, with
    the gradient of the softmax (straight-through); after training the nearest.
    """
    if training:
        return F.gumbel_softmax(-distances / TEMPERATURE, hard=True)
    return F.one_hot(distances.argmin(-1), distances.shape[-1]).to(distances.dtype)


def hierarchy_loss(points: Tensor, above: Tensor, space: Manifold, k: int, margin: float, training: bool) -> Tensor:
    """Two near points have a nearer ancestor than the three of a triplet. Ancestors are chosen from `above`.

    (B, d), (N, d) -> ().  L_va: points are pictures, above are attributes.  L_at: attributes, classes.

        ReLU(d(i, a_ij) - d(i, a_ijl) + σ) + ReLU(d(j, a_ij) - d(j, a_ijl) + σ) + ReLU(d(l, a_ijl) - d(l, a_ij) + σ)

    The mean over triplets; those whose two ancestors are the same count as 0. Without triplets it is 0.
    """
    i, j, l = triplets(space.pairwise(points, points).detach(), k).unbind(1)
    up = space.pairwise(points, above)  # (B, N)
    pair = torch.maximum(up[i], up[j])
    of_two = ancestor(pair, training)
    of_three = ancestor(torch.maximum(pair, up[l]), training)
    apart = (of_two.argmax(-1) != of_three.argmax(-1)).to(up.dtype)
    nearer = [(up[point] * (of_two - of_three)).sum(-1) for point in (i, j, l)]  # d(·, a_ij) - d(·, a_ijl)
    hinges = F.relu(nearer[0] + margin) + F.relu(nearer[1] + margin) + F.relu(margin - nearer[2])
    return (apart * hinges).sum() / max(len(i), 1)


# -- answers and the whole --------------------------------------------------------------------------------------------


def placed(vectors: Tensor, space: Manifold) -> Tensor:
    """exp0(v) of the ball, which lies 2|v| from the origin, and the point as far in another geometry.   (..., d)

    >>> ball, flat = geometry("poincare", 2, 0.1), geometry("euclidean", 2)
    >>> v = torch.tensor([0.6, 0.8])
    >>> torch.equal(placed(v, ball), ball.exp0(v)), placed(v, flat)
    (True, tensor([1.2000, 1.6000]))
    """
    return space.lift(2 * vectors)


def dual_space_logits(images: Tensor, texts: Tensor, scale: float, space: Manifold) -> Tensor:
    """cos(v, t)/τ - d_H(exp0(v), exp0(t)), 1/τ = scale.   (B, d), (C, d) -> (B, C)

    Where v and t are unit vectors, d_H falls as the cosine grows, and changes no answer. Texts that ATR has refined
    have lengths of their own, and keep them here.
    """
    cosines, distances = both_spaces(images, texts, space)
    return scale * cosines - distances


def both_spaces(images: Tensor, texts: Tensor, space: Manifold) -> tuple[Tensor, Tensor]:
    """cos(v, t), and d_H(exp0(v), exp0(t)).   (B, d), (C, d) -> 2 x (B, C)"""
    cosines = F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).T
    return cosines, space.pairwise(placed(images, space), placed(texts, space))


class LatHAdapterLoss(NamedTuple):
    total: Tensor
    ecls: Tensor  # cross-entropy of cosines/τ
    hcls: Tensor  # cross-entropy of -d_H
    va: Tensor  # pictures below attributes
    at: Tensor  # attributes below classes


class LatHAdapter(nn.Module):
    """Vectors of pictures and of classes, of any length: both are made unit vectors first.

    >>> adapter = LatHAdapter(width=8, config=LatHAdapterConfig(attributes=4), scale=100.0)
    >>> adapter(torch.randn(5, 8), torch.randn(3, 8)).shape
    torch.Size([5, 3])
    """

    def __init__(self, width: int, config: LatHAdapterConfig, scale: float):
        super().__init__()
        self.config, self.scale = config, scale
        self.space = geometry(config.geometry, width, config.curvature)
        self.attributes = nn.Parameter(torch.randn(config.attributes, width) / width**0.5)  # about as long as texts

    def refined(self, texts: Tensor) -> Tensor:
        """T^, not normalised again.   (C, d) -> (C, d)"""
        return refine(F.normalize(texts, dim=-1), self.attributes, self.config.beta)

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        """Logits, whose softmax is P(class | picture).   (B, d), (C, d) -> (B, C)"""
        return dual_space_logits(F.normalize(images, dim=-1), self.refined(texts), self.scale, self.space)

    def loss(self, images: Tensor, texts: Tensor, labels: Tensor) -> LatHAdapterLoss:
        """L = L_ecls + L_hcls + L_va + L_at.   (B, d), (C, d), (B,) -> scalars"""
        images, refined = F.normalize(images, dim=-1), self.refined(texts)
        cosines, distances = both_spaces(images, refined, self.space)
        ecls, hcls = F.cross_entropy(self.scale * cosines, labels), F.cross_entropy(-distances, labels)
        v, a, t = (placed(vectors, self.space) for vectors in (images, self.attributes, refined))
        how = self.space, self.config.neighbours, self.config.margin, self.training
        va, at = hierarchy_loss(v, a, *how), hierarchy_loss(a, t, *how)
        return LatHAdapterLoss(ecls + hcls + va + at, ecls, hcls, va, at)
