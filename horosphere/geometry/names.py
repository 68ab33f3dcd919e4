"""Geometries by name, for recipes and the command line."""

from collections.abc import Callable

from horosphere.errors import UserError
from horosphere.geometry.euclidean import Euclidean
from horosphere.geometry.lorentz import Lorentz
from horosphere.geometry.manifold import Manifold, as_curvature
from horosphere.geometry.poincare import Poincare
from horosphere.geometry.product import Product
from horosphere.geometry.sphere import Sphere

GEOMETRIES = ("euclidean", "poincare", "lorentz", "product")  # that comparisons begin with
NAMES = (*GEOMETRIES, "sphere")


def matched_curvature(dim: int) -> float:
    """c = 3/(d-1)²: volume grows like e^((d-1)√c r), and so like e^(√3 r) in every dimension.

    The room for a tree should not depend on the dimension. At c = 1, two dimensions have too little of it. Ten have so
    much that a softmax over distances drives points far out before they are in order.
    Measured on WordNet's mammals and PyPI's classifiers in 2, 3, 5 and 10 dimensions.

    >>> matched_curvature(2), matched_curvature(11)
    (3.0, 0.03)
    """
    return 3 / max(1, dim - 1) ** 2


def geometry(name: str, dim: int, c: float | Callable[[int], float] | None = 1.0, learn: bool = False) -> Manifold:
    """The manifold of this name and dimension.

    name: "euclidean", "lorentz", "poincare", "sphere"; "product" is half Lorentz, half Euclidean; "lorentz:6+sphere:4"
    spells any product out. c: of every curved factor, or a function of its dimension; None is `matched_curvature`.
    The curvature is -c, on the sphere +c.

    >>> geometry("lorentz", dim=10, c=0.5)
    Lorentz(c=0.5)
    >>> geometry("lorentz:6+euclidean:4", dim=10).dims
    [6, 4]
    """
    c = matched_curvature if c is None else c
    if not callable(c):
        try:
            c = as_curvature(c)
        except (TypeError, ValueError) as error:
            raise UserError(str(error)) from error
    if name == "euclidean":
        return Euclidean()
    if name == "lorentz":
        return Lorentz(c(dim) if callable(c) else c, learn)
    if name == "poincare":
        return Poincare(c(dim) if callable(c) else c, learn)
    if name == "sphere":
        return Sphere(c(dim) if callable(c) else c, learn)
    if name == "product":
        if dim < 2:
            raise UserError(f"a product of {dim} dimension: it needs at least 2, one for each half")
        return geometry(f"lorentz:{dim - dim // 2}+euclidean:{dim // 2}", dim, c, learn)
    if ":" not in name:
        raise UserError(
            f'unknown geometry "{name}": choose {", ".join(NAMES)}, or a product such as lorentz:6+euclidean:4'
        )
    factors = []
    for factor in name.split("+"):
        kind, _, size = factor.partition(":")
        if not size.isdecimal() or int(size) < 1 or kind == "product":
            raise UserError(f'geometry "{name}": "{factor}" should read name:dimension, as in lorentz:6+euclidean:4')
        factors.append((geometry(kind, int(size), c, learn), int(size)))
    total = sum(d for _, d in factors)
    if total != dim:
        raise UserError(f'geometry "{name}" has {total} dimensions, not {dim}: change one of them')
    return Product(*factors)
