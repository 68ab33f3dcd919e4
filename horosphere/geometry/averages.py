"""Moving averages of points."""

from torch import Tensor

from horosphere.geometry.manifold import Manifold


def moving_average(average: Tensor, new: Tensor, decay: float, manifold: Manifold) -> Tensor:
    """decay·average + (1 - decay)·new; of points, the point at 1 - decay of the way from one to the other.

    (..., d), (..., d) -> (..., d).   From the origin, t steps towards the same value go 1 - decayᵗ of the way: that is
    the sum of the weights of all values so far. No bias is corrected.

    >>> import torch
    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> moving_average(torch.tensor([1.0]), torch.tensor([3.0]), 0.75, Euclidean())
    tensor([1.5000])
    >>> L, x = Lorentz(), Lorentz().exp0(torch.tensor([2.0, 0.0]))
    >>> L.dist0(moving_average(torch.zeros(2), x, 0.75, L)).round(decimals=3)  # a quarter of the way
    tensor(0.5000)
    """
    return manifold.geodesic(average, new, 1 - decay)
