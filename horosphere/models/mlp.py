"""Multilayer perceptrons: f³(f²(f¹(x))), with rectified layers and with maxout."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Manifold, geometry
from horosphere.models.config import InAnyGeometry
from horosphere.models.table_model import Sizes, TableModel
from horosphere.nn import Classifier, Lift, Linear, Maxout
from horosphere.settings import Curvature, Few, Size, check


@dataclass(frozen=True, kw_only=True)
class MLPConfig(InAnyGeometry):
    hidden: tuple[Size, ...] = (64, 64)  # widths of the layers between rows and answers


@dataclass(frozen=True, kw_only=True)
class MaxoutConfig(MLPConfig):
    pieces: Few = 3  # linear maps whose maximum a unit is


class MLP(TableModel):
    """Rows, rectified layers, and one hyperplane a class.   (B, F) -> (B, K)

    >>> import torch
    >>> MLP(Sizes(columns=4, answers=3, rows=100), MLPConfig(hidden=(8,), geometry="lorentz"))(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, sizes: Sizes, config: Any):
        super().__init__()
        self.manifold = config.manifold()
        widths = (sizes.columns, *config.hidden)
        self.lift = Lift(self.manifold, scale=1.0)
        self.layers = nn.ModuleList(self.layer(*pair, config) for pair in pairwise(widths))
        self.head = Classifier(widths[-1], sizes.answers, self.manifold)

    def layer(self, before: int, after: int, config: Any) -> nn.Module:
        return Linear(before, after, self.manifold, out_manifold=Euclidean())  # free coordinates, to be rectified

    def through(self, layer: nn.Module, x: Tensor) -> Tensor:
        return self.manifold.point(F.relu(layer(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x)
        for layer in self.layers:
            x = self.through(layer, x)
        return self.head(x)

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)


class MaxoutNetwork(MLP):
    """Each unit is the maximum of a few linear maps of the layer before: its activation is learned, and convex."""

    def layer(self, before: int, after: int, config: MaxoutConfig) -> nn.Module:
        return Maxout(before, after, config.pieces, self.manifold)

    def through(self, layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)


@dataclass(frozen=True, kw_only=True)
class ProductMLPConfig:
    geometry: str = "product"  # half lorentz, half euclidean; or for example lorentz:32+poincare:16+euclidean:16
    hidden: tuple[Size, ...] = (64,)  # widths of the layers between rows and answers: those of the product
    curvature: Curvature | None = None  # c of the curved factors; none: 1/d in d dimensions

    def __post_init__(self) -> None:
        check(self)
        if len(set(self.hidden)) != 1:
            what = "hidden layers lie in one product, so they have one width"
            raise UserError(
                f"hidden={self.hidden} with geometry={self.geometry}: {what}; give for example hidden=(64,)"
            )
        self.manifold()

    def manifold(self) -> Manifold:
        return geometry(self.geometry, self.hidden[0], self.curvature or unit_curvature)


def unit_curvature(dim: int) -> float:
    """c = 1/d: d numbers of unit variance are one radius of curvature long.

    >>> unit_curvature(64)
    0.015625
    """
    return 1 / dim


class ProductMLP(MLP):
    """Hidden layers in a product of geometries. Rows enter flat: which factor a column suits is learned.

    >>> import torch
    >>> config = ProductMLPConfig(geometry="lorentz:4+euclidean:4", hidden=(8,))
    >>> ProductMLP(Sizes(columns=5, answers=3, rows=100), config)(torch.ones(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(self, sizes: Sizes, config: ProductMLPConfig):
        super().__init__(sizes, config)
        flat = Euclidean()
        self.lift, self.layers[0] = Lift(flat), Linear(sizes.columns, config.hidden[0], flat)
