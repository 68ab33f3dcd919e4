"""What the configurations of the classics share: the geometry, one axis of variation and nothing else."""

from dataclasses import dataclass
from typing import Literal

from horosphere.errors import UserError
from horosphere.geometry import Manifold, geometry
from horosphere.settings import Curvature, check


@dataclass(frozen=True, kw_only=True)
class InAnyGeometry:
    """A network that exists in flat space, where it is the classic, on the hyperboloid and on the ball.

    >>> InAnyGeometry(geometry="lorentz", curvature=0.5).manifold()
    Lorentz(c=0.5)
    """

    geometry: Literal["euclidean", "lorentz", "poincare"] = "euclidean"
    curvature: Curvature = 1.0  # c of a curved geometry, whose curvature is -c

    def __post_init__(self) -> None:
        check(self)

    def manifold(self) -> Manifold:
        """One for the whole network: its layers share it."""
        return geometry(self.geometry, 1, self.curvature)


@dataclass(frozen=True, kw_only=True)
class FlatOrHyperboloid(InAnyGeometry):
    """A network of attention. Its kernels read times from slots, which the ball has not.

    >>> FlatOrHyperboloid().manifold()
    Euclidean()
    """

    geometry: Literal["euclidean", "lorentz"] = "euclidean"


def require_heads(width: int, heads: int) -> None:
    """Complain about heads that do not divide a width, or that have no room for a time and another coordinate."""
    if width % heads or width < 2 * heads:
        fitting = [n for n in range(1, width // 2 + 1) if width % n == 0] or [1]
        nearest = min(fitting, key=lambda n: abs(n - heads))
        raise UserError(f"heads={heads}: width={width} does not divide into as many of at least 2; use heads={nearest}")
