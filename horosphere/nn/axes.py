"""Points along any axis: pictures and sequences have them along their channels, manifolds along the last axis."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold, Product


def require_width(x: Tensor, width: int, layer: nn.Module, dim: int = -1) -> None:
    """Complain about points that have more or fewer coordinates along `dim` than a layer reads.

    Only shapes are read: nothing of it is left in a compiled graph.

    >>> require_width(torch.ones(5, 4), 3, nn.Linear(3, 2))
    Traceback (most recent call last):
        ...
    horosphere.errors.UserError: Linear: x of shape (5, 4) has 4 coordinates along dim -1; give points of 3
    """
    if x.dim() <= (dim if dim >= 0 else ~dim):
        raise UserError(f"{layer._get_name()}: x of shape {tuple(x.shape)} has no dim {dim}; give points of {width}")
    if x.size(dim) != width:
        found = f"x of shape {tuple(x.shape)} has {x.size(dim)} coordinates along dim {dim}"
        raise UserError(f"{layer._get_name()}: {found}; give points of {width}")


def free_along(x: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """Free coordinates of points along `dim`. A view where points are stored by them.

    >>> from horosphere.geometry import Poincare
    >>> free_along(torch.full((2, 3, 5), 0.1), Poincare(), dim=1).shape
    torch.Size([2, 3, 5])
    """
    return manifold.free(x.movedim(dim, -1)).movedim(-1, dim)


def point_along(u: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """Points with these free coordinates along `dim`: the inverse of `free_along`.

    >>> from horosphere.geometry import Poincare
    >>> point_along(torch.tensor([[[3.0], [4.0]]]), Poincare(), dim=1).norm(dim=1) < 1
    tensor([[True]])
    """
    return manifold.point(u.movedim(dim, -1)).movedim(-1, dim)


def through(function: Callable[[Tensor], Tensor], x: Tensor, manifold: Manifold, dim: int) -> Tensor:
    """P(φ(u)): a function of the free coordinates, read off as a point; φ(x) in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> through(torch.relu, torch.tensor([[-1.0, 2.0]]), Lorentz(), dim=-1)
    tensor([[0., 2.]])
    """
    return point_along(function(free_along(x, manifold, dim)), manifold, dim)


class _SquaresAlong(torch.autograd.Function):
    """|u|² along an axis that is not the last: torch's norm is 15x slower there than a product and its sum."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, dim: int) -> Tensor:
        return (u * u).sum(dim, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        return u * (2 * grad), None


def sq_along(u: Tensor, dim: int) -> Tensor:
    """|u|² along `dim`, which stays with size 1.

    >>> sq_along(torch.tensor([[3.0], [4.0]]), dim=0)
    tensor([[25.]])
    """
    squares: Tensor = _SquaresAlong.apply(u, dim)
    return squares


def positions(u: Tensor) -> list[int]:
    """All axes but that of the channels.

    >>> positions(torch.zeros(2, 3, 5, 5))
    [0, 2, 3]
    """
    return [axis for axis in range(u.dim()) if axis != 1]


def column(per_channel: Tensor, u: Tensor) -> Tensor:
    """(C,) -> (C, 1, …), to stand beside u (B, C, …)

    >>> column(torch.zeros(3), torch.zeros(2, 3, 5, 5)).shape
    torch.Size([3, 1, 1])
    """
    return per_channel.view(-1, *(1 for _ in u.shape[2:]))


def dot_along(a: Tensor, u: Tensor) -> Tensor:
    """a·u of every point.   (C,), (B, C, …) -> (B, 1, …)

    >>> dot_along(torch.tensor([1.0, 2.0]), torch.ones(4, 2, 3)).shape
    torch.Size([4, 1, 3])
    """
    return (u * column(a, u)).sum(1, keepdim=True)


def one_geometry(manifold: Manifold, layer: str) -> Manifold:
    """The manifold, unless it is a product: its coordinates belong to factors, which this layer would mix.

    >>> from horosphere.geometry import Lorentz
    >>> one_geometry(Lorentz(), "Conv2d")
    Lorentz(c=1)
    """
    if isinstance(manifold, Product):
        raise UserError(f"{layer} on a product: it mixes the coordinates of all factors; use one geometry for it")
    return manifold
