"""Exact isometries between the models of hyperbolic space, all through the hyperboloid.   (..., d) -> (..., d)

Klein's ball has radius 1/√c. The half-space {y : y_d > 0} carries the metric |dy|²/(c y_d²); its point (0, …, 0, 1) is
the origin of the other models.
"""

import torch
from torch import Tensor

from horosphere.geometry._scalar import saturated_sq, sq
from horosphere.geometry.manifold import full_precision


@full_precision
def lorentz_to_poincare(x: Tensor, c: float | Tensor) -> Tensor:
    """x/(1 + √c x_t)

    Past the edge that floats resolve the image lies on it or outside; `Poincare.point` brings it back.

    >>> lorentz_to_poincare(torch.tensor([0.0, 0.75]), c=1.0).round(decimals=4)  # 0.75 / (1 + 1.25)
    tensor([0.0000, 0.3333])
    """
    return x / (1 + (1 + saturated_sq(x, c)).sqrt())


@full_precision
def poincare_to_lorentz(x: Tensor, c: float | Tensor) -> Tensor:
    """2x/(1 - c|x|²)

    >>> poincare_to_lorentz(torch.tensor([0.0, 0.5]), c=1.0).round(decimals=4)
    tensor([0.0000, 1.3333])
    """
    return 2 * x / (1 - c * sq(x))


@full_precision
def lorentz_to_klein(x: Tensor, c: float | Tensor) -> Tensor:
    """x/(√c x_t)

    >>> lorentz_to_klein(torch.tensor([0.0, 0.75]), c=1.0).round(decimals=4)  # 0.75 / 1.25
    tensor([0.0000, 0.6000])
    """
    return x / _loud_sqrt(1 + c * sq(x))


@full_precision
def klein_to_lorentz(x: Tensor, c: float | Tensor) -> Tensor:
    """x/√(1 - c|x|²)

    >>> klein_to_lorentz(torch.tensor([0.0, 0.6]), c=1.0).round(decimals=4)
    tensor([0.0000, 0.7500])
    """
    return x * (1 - c * sq(x)).rsqrt()


@full_precision
def lorentz_to_halfspace(x: Tensor, c: float | Tensor) -> Tensor:
    """(z_1, …, z_{d-1}, 1)/(z_t - z_d) for z = √c x

    >>> lorentz_to_halfspace(torch.tensor([0.0, 0.75]), c=1.0).round(decimals=4)  # 1 / (1.25 - 0.75)
    tensor([0., 2.])
    """
    z = c**0.5 * x
    across, last = z[..., :-1], z[..., -1:]
    rest = 1 + sq(across)
    t = _loud_sqrt(rest + last.square())
    longer = t + last.abs()
    below = torch.where(last > 0, rest / longer, longer)  # t - z_d = (t² - z_d²)/(t + z_d): no cancellation for z_d > 0
    return torch.cat((across, torch.ones_like(last)), -1) / below


@full_precision
def halfspace_to_lorentz(y: Tensor, c: float | Tensor) -> Tensor:
    """(2 y_1, …, 2 y_{d-1}, |y|² - 1)/(2 √c y_d)

    >>> halfspace_to_lorentz(torch.tensor([0.0, 2.0]), c=1.0).round(decimals=4)
    tensor([0.0000, 0.7500])
    """
    across, height = y[..., :-1], y[..., -1:]
    last = (sq(across) + (height - 1) * (height + 1)) / 2
    return torch.cat((across, last), -1) / (c**0.5 * height)


@full_precision
def poincare_to_klein(x: Tensor, c: float | Tensor) -> Tensor:
    """2x/(1 + c|x|²)

    >>> poincare_to_klein(torch.tensor([0.0, 0.5]), c=1.0).round(decimals=4)  # straight chords, farther out
    tensor([0.0000, 0.8000])
    """
    return 2 * x / (1 + c * sq(x))


@full_precision
def klein_to_poincare(x: Tensor, c: float | Tensor) -> Tensor:
    """x/(1 + √(1 - c|x|²))

    >>> klein_to_poincare(torch.tensor([0.0, 0.8]), c=1.0).round(decimals=4)
    tensor([0.0000, 0.5000])
    """
    return x / (1 + (1 - c * sq(x)).sqrt())


@full_precision
def poincare_to_halfspace(x: Tensor, c: float | Tensor) -> Tensor:
    """(2 √c x_1, …, 2 √c x_{d-1}, 1 - c|x|²)/|√c x - e_d|²

    >>> poincare_to_halfspace(torch.tensor([0.0, 0.5]), c=1.0).round(decimals=4)
    tensor([0., 3.])
    """
    z = c**0.5 * x
    across, last = z[..., :-1], z[..., -1:]
    return torch.cat((2 * across, 1 - sq(z)), -1) / (sq(across) + (1 - last).square())


@full_precision
def halfspace_to_poincare(y: Tensor, c: float | Tensor) -> Tensor:
    """(2 y_1, …, 2 y_{d-1}, |y|² - 1)/(√c |y + e_d|²)

    >>> halfspace_to_poincare(torch.tensor([0.0, 3.0]), c=1.0).round(decimals=4)
    tensor([0.0000, 0.5000])
    """
    across, height = y[..., :-1], y[..., -1:]
    last = sq(across) + (height - 1) * (height + 1)
    return torch.cat((2 * across, last), -1) / (c**0.5 * (sq(across) + (1 + height).square()))


def _loud_sqrt(q: Tensor) -> Tensor:
    """√q, but NaN where q = inf: |x|² has overflowed, and x/inf would pass for the origin."""
    return q / q.sqrt()
