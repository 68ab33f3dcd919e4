"""Kernels: similarities of points that are inner products of features, on all pairs."""

from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry.manifold import Manifold
from horosphere.geometry.product import Product


def laplacian_kernel(x: Tensor, y: Tensor, manifold: Manifold, rate: float = 1.0) -> Tensor:
    """exp(-λ dist(x, y)) of all pairs.   (..., N, d), (..., M, d) -> (..., N, M)

    It is positive definite in flat and in hyperbolic space, for every λ > 0: both distances are of negative type. The
    Gram matrix of some points is the kernel of them with themselves.

    >>> import torch
    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> x = L.random(20, 3, dtype=torch.float64)
    >>> bool(torch.linalg.eigvalsh(laplacian_kernel(x, x, L)).min() > 0)
    True
    """
    if isinstance(manifold, Product) and not all(factor.flat for factor in manifold.factors):
        raise UserError(f"{manifold}: whether exp(-λ dist) is a kernel on a product is not known; use one factor")
    return (-rate * manifold.pairwise(x, y)).exp()


def gaussian_kernel(x: Tensor, y: Tensor, manifold: Manifold, rate: float = 1.0) -> Tensor:
    """exp(-λ dist(x, y)²) of all pairs, in flat space.   (..., N, d), (..., M, d) -> (..., N, M)

    On a curved manifold it is no kernel for all λ: some Gram matrices have negative eigenvalues.

    >>> import torch
    >>> from horosphere.geometry import Euclidean
    >>> gaussian_kernel(torch.tensor([[0.0]]), torch.tensor([[0.0], [1.0]]), Euclidean())
    tensor([[1.0000, 0.3679]])
    """
    if not manifold.flat:
        how = "use laplacian_kernel, exp(-λ dist)"
        raise UserError(f"exp(-λ dist²) is not positive definite on {manifold}, which is curved; {how}")
    return (-rate * manifold.pairwise(x, y).square()).exp()
