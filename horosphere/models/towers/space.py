"""The common space of two towers, in any geometry: CLIP's sphere, MERU's hyperboloid, EuCLIP's flat space.

    x = lift(α·v)                                  points; one learned scale α a tower (MERU: Desai et al. 2023)
    alike(text, image) = cos, -d or -d²            logits are this times exp(scale)
    entailment = max(0, Ξ(text, image) - ω(text))  a picture lies in the cone of its text

In flat space everything but the curvature stays (EuCLIP: Chou & Alnegheimish 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold, exterior_angle, geometry, half_aperture
from horosphere.models.radial import radial_angle
from horosphere.settings import Amount, Curvature, Decay, Positive, Size


@dataclass(frozen=True)
class SpaceConfig:
    """A common space, and how it is learned."""

    geometry: Literal["sphere", "lorentz", "euclidean"] = "sphere"  # sphere: cosines, as in CLIP
    width: Size = 256  # of the common space
    curvature: Curvature = 1.0  # c at the start
    learn_curvature: bool = True
    squared: bool = False  # squares of distances in logits: EuCLIP has them, MERU has not
    reach: Positive = 0.0625  # α at the start: how far from the origin a vector of length 1 is put
    entailment: Amount = 0.2  # weight of the cones in the loss; a sphere has none
    dropout: Decay = 0.7  # of what frozen encoders say, in training


class Space(nn.Module):
    """Vectors of two towers become points that can be compared.

    >>> space = Space(SpaceConfig("lorentz", width=2))
    >>> text, image = space.text(torch.tensor([[1.0, 0.0]])), space.image(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> space.alike(text, image).argmax(1)
    tensor([0])
    """

    def __init__(self, config: SpaceConfig):
        super().__init__()
        self.config = config
        self.manifold: Manifold | None = None
        if config.geometry != "sphere":
            self.manifold = geometry(config.geometry, config.width, config.curvature, config.learn_curvature)
            self.reach = nn.ParameterDict(
                {side: nn.Parameter(torch.tensor([math.log(config.reach)])) for side in ("text", "image")}
            )

    def text(self, vectors: Tensor) -> Tensor:
        """(..., width) -> points (..., width)"""
        return self._points(vectors, "text")

    def image(self, vectors: Tensor) -> Tensor:
        """(..., width) -> points (..., width)"""
        return self._points(vectors, "image")

    def _points(self, vectors: Tensor, side: str) -> Tensor:
        if self.manifold is None:
            return F.normalize(vectors, dim=-1)
        return self.manifold.lift(self.reach[side].exp() * vectors)

    def alike(self, text: Tensor, image: Tensor) -> Tensor:
        """The higher the better they fit.   points (N, width), (M, width) -> (N, M)"""
        if self.manifold is None:
            return text @ image.transpose(-1, -2)
        distance = self.manifold.pairwise(text, image)
        return -(distance.square() if self.config.squared else distance)

    def radius(self, points: Tensor, root: Tensor) -> Tensor:
        """How specific a text is: its distance from the root.   (..., width), (width,) -> (...)

        The origin is the root of curved and flat space. On a sphere no point is in the middle: there it is "".
        """
        return (points - root).norm(dim=-1) if self.manifold is None else self.manifold.dist0(points)

    def angle(self, general: Tensor, specific: Tensor, root: Tensor) -> Tensor:
        """Ξ: 0 where the way from the root goes on straight to the specific.   (..., width) twice, (width,) -> (...)"""
        if self.manifold is None:
            return radial_angle(general, specific, root)
        return exterior_angle(general, specific, self.manifold)

    def entailment(self, text: Tensor, image: Tensor) -> Tensor:
        """By how much pictures lie outside the cones of their texts.   points (N, width), (N, width) -> ()"""
        if self.manifold is None:
            return text.new_zeros(())
        outside = exterior_angle(text, image, self.manifold) - half_aperture(text, self.manifold)
        return outside.clamp(min=0).mean()
