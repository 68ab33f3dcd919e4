"""Products of chosen pairs of rows of two tables: a few entries of a matrix product, without the others."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

COMPILED = find_spec("numba") is not None  # on a CPU ten times as fast as copies of rows


def pair_products(x: Tensor, u: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """x[row]·u[column], pair by pair.   (N, d), (K, d), (P,), (P,) -> (P,)

    >>> x, u = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.eye(2)
    >>> pair_products(x, u, row=torch.tensor([0, 1, 1]), column=torch.tensor([1, 0, 0]))
    tensor([2., 3., 3.])
    """
    plain = x.dtype == u.dtype and x.dtype in (torch.float32, torch.float64)
    if COMPILED and plain and x.device.type == "cpu":
        product: Tensor = _Products.apply(x, u, row, column)
        return product
    return (x[row] * u[column]).sum(-1)


def distinct(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The different numbers among rows, in order, and the place of each row among them; all are below `count`.

    (P,) -> (D,), (P,)

    >>> distinct(torch.tensor([5, 2, 5]), count=9)
    (tensor([2, 5]), tensor([1, 0, 1]))
    """
    place = rows.new_zeros(count)
    place[rows] = 1
    different = place.nonzero()[:, 0]
    place[different] = torch.arange(len(different), device=rows.device)
    return different, place[rows]


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, u: Tensor, row: Tensor, column: Tensor) -> Tensor:
        from horosphere.nn import pair_kernels

        x, u, out = x.contiguous(), u.contiguous(), x.new_empty(len(row))
        ctx.save_for_backward(x, u, row, column)
        pair_kernels.products(*(t.detach().numpy() for t in (x, u, row, column, out)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        from horosphere.nn import pair_kernels

        x, u, row, column = ctx.saved_tensors
        dx, du = torch.zeros_like(x), torch.zeros_like(u)
        pair_kernels.spread(*(t.detach().numpy() for t in (x, u, row, column, g.contiguous(), dx, du)))
        return dx, du, None, None
