"""Points along any axis: pictures and sequences have them along their channels, manifolds along the last axis."""

from collections.abc import Callable

from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold, Product
from horosphere.geometry._scalar import sq


def free_along(x: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """Free coordinates of points along `dim`. A view where points are stored by them.

    >>> import torch
    >>> from horosphere.geometry import Poincare
    >>> free_along(torch.full((2, 3, 5), 0.1), Poincare(), dim=1).shape
    torch.Size([2, 3, 5])
    """
    return manifold.free(x.movedim(dim, -1)).movedim(-1, dim)


def point_along(u: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """Points with these free coordinates along `dim`: the inverse of `free_along`.

    >>> import torch
    >>> from horosphere.geometry import Poincare
    >>> point_along(torch.tensor([[[3.0], [4.0]]]), Poincare(), dim=1).norm(dim=1) < 1
    tensor([[True]])
    """
    return manifold.point(u.movedim(dim, -1)).movedim(-1, dim)


def through(function: Callable[[Tensor], Tensor], x: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """P(φ(u)): a function of the free coordinates, read off as a point; φ(x) in flat space.

    >>> import torch
    >>> from horosphere.geometry import Lorentz
    >>> through(torch.relu, torch.tensor([[-1.0, 2.0]]), Lorentz(), dim=-1)
    tensor([[0., 2.]])
    """
    return point_along(function(free_along(x, manifold, dim)), manifold, dim)


def sq_along(u: Tensor, dim: int) -> Tensor:
    """|u|² along `dim`, which stays with size 1; in one pass.

    >>> import torch
    >>> sq_along(torch.tensor([[3.0], [4.0]]), dim=0).round(decimals=3)
    tensor([[25.]])
    """
    return sq(u.movedim(dim, -1)).movedim(-1, dim)


def one_geometry(manifold: Manifold, layer: str) -> Manifold:
    """The manifold, unless it is a product: its coordinates belong to factors, which this layer would mix.

    >>> from horosphere.geometry import Lorentz
    >>> one_geometry(Lorentz(), "Conv2d")
    Lorentz(c=1)
    """
    if isinstance(manifold, Product):
        raise UserError(f"{layer} on a product: it mixes the coordinates of all factors; use one geometry for it")
    return manifold
