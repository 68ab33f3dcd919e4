"""Manifolds as objects with pure tensor functions. One convention: c > 0, sectional curvature -c."""

from horosphere.geometry.averages import moving_average
from horosphere.geometry.cones import exterior_angle, half_aperture
from horosphere.geometry.euclidean import Euclidean
from horosphere.geometry.kernels import gaussian_kernel, laplacian_kernel
from horosphere.geometry.lorentz import Lorentz
from horosphere.geometry.manifold import Manifold
from horosphere.geometry.maps import (
    halfspace_to_lorentz,
    halfspace_to_poincare,
    klein_to_lorentz,
    klein_to_poincare,
    lorentz_to_halfspace,
    lorentz_to_klein,
    lorentz_to_poincare,
    poincare_to_halfspace,
    poincare_to_klein,
    poincare_to_lorentz,
)
from horosphere.geometry.names import GEOMETRIES, geometry, matched_curvature
from horosphere.geometry.poincare import Poincare
from horosphere.geometry.product import Product
from horosphere.geometry.slots import Slots
from horosphere.geometry.sphere import Sphere
from horosphere.geometry.wrapped_normal import WrappedNormal

__all__ = [
    "GEOMETRIES",
    "Euclidean",
    "Lorentz",
    "Manifold",
    "Poincare",
    "Product",
    "Slots",
    "Sphere",
    "WrappedNormal",
    "exterior_angle",
    "gaussian_kernel",
    "geometry",
    "half_aperture",
    "halfspace_to_lorentz",
    "halfspace_to_poincare",
    "klein_to_lorentz",
    "klein_to_poincare",
    "laplacian_kernel",
    "lorentz_to_halfspace",
    "lorentz_to_klein",
    "lorentz_to_poincare",
    "matched_curvature",
    "moving_average",
    "poincare_to_halfspace",
    "poincare_to_klein",
    "poincare_to_lorentz",
]
