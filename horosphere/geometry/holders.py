"""Modules that hold points among their parameters. A parameter does not know that it is one; optimizers ask here."""

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn

from horosphere.geometry.manifold import Manifold

_holders: "WeakSet[HoldsPoints]" = WeakSet()


class HoldsPoints(nn.Module):
    """A module whose `point_parameters` lie on its `manifold`. Copies are known as well.

    >>> from horosphere.geometry import Lorentz
    >>> class Table(HoldsPoints):
    ...     point_parameters = ("rows",)
    ...     def __init__(self, manifold):
    ...         super().__init__()
    ...         self.manifold, self.rows = manifold, nn.Parameter(manifold.random(5, 2))
    >>> table = Table(Lorentz())
    >>> list(points_among(table.parameters()).values())
    [Lorentz(c=1)]
    """

    point_parameters: tuple[str, ...]
    manifold: Manifold

    def __new__(cls, *args: Any, **options: Any) -> Any:  # not __init__: a copy is made without one
        made = super().__new__(cls)
        _holders.add(made)
        return made


def points_among(parameters: Iterable[Tensor]) -> dict[int, Manifold]:
    """{id of a parameter: its manifold} for those that are points of a curved one."""
    wanted = {id(p) for p in parameters}
    found: dict[int, Manifold] = {}
    for holder in list(_holders):
        manifold = holder._modules.get("manifold")
        if not isinstance(manifold, Manifold) or manifold.flat:
            continue
        for name in holder.point_parameters:
            if (p := holder._parameters.get(name)) is not None and id(p) in wanted:
                found[id(p)] = manifold
    return found
