"""Tables of points."""

from typing import Any

import torch
from torch import Tensor, nn

from horosphere.geometry import Manifold


class Embedding(nn.Embedding):
    """nn.Embedding whose rows are points of a manifold; `optim.param_groups` puts them into a group of their own.

    Rows start as a wrapped normal of this std around the origin, in flat space a plain normal.
    """

    point_parameters = ("weight",)

    def __init__(
        self, num_embeddings: int, embedding_dim: int, manifold: Manifold, std: float = 1.0, **torch_options: Any
    ):
        self.std = std
        # nn.Embedding.__init__ calls reset_parameters, before modules can be set
        object.__setattr__(self, "_start", manifold)
        super().__init__(num_embeddings, embedding_dim, **torch_options)
        del self._start
        self.manifold = manifold

    def reset_parameters(self) -> None:
        manifold: Manifold = self.__dict__.get("_start") or self.manifold
        nn.init.normal_(self.weight, std=self.std)  # in place, as torch does: the table may be sharded
        with torch.no_grad():
            self.weight.copy_(manifold.lift(self.weight))
            self._fill_padding_idx_with_zero()


class Lift(nn.Module):
    """Euclidean features to points: v to the point |v| from the origin in direction v; the identity in flat space."""

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = manifold

    def forward(self, v: Tensor) -> Tensor:
        return self.manifold.lift(v)


class Lower(nn.Module):
    """Points to Euclidean features of length dist0(x): the inverse of `Lift`; the identity in flat space."""

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = manifold

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.lower(x)
