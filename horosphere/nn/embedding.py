"""Tables of points."""

from typing import Any

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold
from horosphere.geometry.holders import HoldsPoints
from horosphere.nn.first_call import settle


class Embedding(HoldsPoints, nn.Embedding):
    """nn.Embedding whose rows are points of a manifold; `optim.param_groups` puts them into a group of their own.

    Rows start as a wrapped normal of this std around the origin, in flat space a plain normal.

    >>> from horosphere.geometry import Lorentz
    >>> table = Embedding(100, 2, Lorentz(), std=0.1)
    >>> table(torch.tensor([3, 7])).shape
    torch.Size([2, 2])
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
        self.manifold = settle(self, manifold, reads=False)

    def reset_parameters(self) -> None:
        """New rows, and the curvature that their manifold began with: a row is a point of no other.

        A model made on the meta device has no curvature yet, and `modules()` names a table before its manifold.
        """
        manifold: Manifold | None = self.__dict__.get("_start")
        if manifold is None:
            manifold = self.manifold
            for part in manifold.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()  # type: ignore[operator]
        nn.init.normal_(self.weight, std=self.std)  # in place, as torch does: the table may be sharded
        with torch.no_grad():
            self.weight.copy_(manifold.lift(self.weight))
            self._fill_padding_idx_with_zero()


class Lift(nn.Module):
    """Euclidean features to points: v to the point |v| from the origin in direction v; the identity in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> L.dist0(Lift(L)(torch.tensor([3.0, 4.0]))).round(decimals=3)
    tensor(5.)
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, manifold, reads=False)

    def forward(self, v: Tensor) -> Tensor:
        return self.manifold.lift(v)


class Lower(nn.Module):
    """Points to Euclidean features of length dist0(x): the inverse of `Lift`; the identity in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> L, v = Lorentz(), torch.tensor([3.0, 4.0])
    >>> Lower(L)(Lift(L)(v)).round(decimals=3)
    tensor([3., 4.])
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, manifold, makes=Euclidean())

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.lower(x)
