"""Entailment cones (Ganea et al. 2018; Le et al. 2019): x entails y when y lies in the cone at x.

The cone opens away from the origin:   y in cone(x)   iff   exterior_angle(x, y) <= half_aperture(x)
"""

import math

import torch
from torch import Tensor

from horosphere.geometry._scalar import dot, safe_sqrt, sq
from horosphere.geometry.manifold import Manifold, full_precision
from horosphere.geometry.product import Product

APERTURE = 0.1  # K of the papers: where the cones begin to close


@full_precision
def half_aperture(x: Tensor, manifold: Manifold, k: float = APERTURE) -> Tensor:
    """Half the angle by which the cone at x opens.   (..., d) -> (...)

    asin(2k/(√c|x|)) for x on the hyperboloid, asin(k/|x|) in flat space; π/2 near the origin, where no cone closes.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> x = L.exp0(torch.tensor([[0.1, 0.0], [1.0, 0.0], [3.0, 0.0]]))
    >>> half_aperture(x, L).round(decimals=3)  # cones narrow as points move out
    tensor([1.5710, 0.1710, 0.0200])
    """
    space, time = _coordinates(x, manifold)
    length = safe_sqrt(sq(space))
    reach = k if time is None else 2 * k / manifold.c**0.5
    closes = length > reach
    return torch.where(closes, (reach / torch.where(closes, length, 2 * reach)).asin(), math.pi / 2).squeeze(-1)


@full_precision
def exterior_angle(x: Tensor, y: Tensor, manifold: Manifold) -> Tensor:
    """Angle in [0, π] at x between the ray from the origin, continued, and the geodesic to y.   (..., d) x 2 -> (...)

    atan2 of the part of y across x and the part along the ray, √c (x_t y·x̂ - |x| y_t). acos would lose half the digits
    near 0 and π. The angle is undefined at x = 0 and at y = x; it is 0 there.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> x, y = L.exp0(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))  # y lies behind x: x entails y, y does not entail x
    >>> exterior_angle(x, y, L) <= half_aperture(x, L), exterior_angle(y, x, L) <= half_aperture(y, L)
    (tensor(True), tensor(False))
    """
    (x, xt), (y, yt) = _coordinates(x, manifold), _coordinates(y, manifold)
    length2 = sq(x)
    nonzero = length2 > 0
    length = torch.where(nonzero, length2, 1.0).sqrt()
    unit = x / length
    d = x - y
    short = dot(d, unit)  # |x| - y·x̂
    across = safe_sqrt(sq(d - short * unit))
    if xt is None or yt is None:
        along = -short
    else:
        c, foot = manifold.c, length - short  # foot = y·x̂
        # |x| y_t - x_t foot as a quotient of sums where its terms have one sign
        same_side = foot > 0
        # both sides divided by y_t, and before they are multiplied: |x|²|y|² overflows
        below = torch.where(same_side, length + xt / yt * foot, torch.inf)
        quotient = short / yt / c * ((length + foot) / below) + length / below * length * (across.square() / yt)
        along = -(c**0.5) * torch.where(same_side, quotient, length * yt - xt * foot)
    apart = nonzero & (sq(d) > torch.finfo(d.dtype).tiny)  # nearer, atan2 has no gradient
    return torch.where(apart, torch.atan2(across, torch.where(apart, along, 1.0)), 0.0).squeeze(-1)


def _coordinates(x: Tensor, manifold: Manifold) -> tuple[Tensor, Tensor | None]:
    if isinstance(manifold, Product):
        raise TypeError("entailment cones need one geometry; take them on each factor of the product, product.split(x)")
    return manifold.ambient(x)
