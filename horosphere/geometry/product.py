"""Products of geometries: coordinates side by side, squared distances added with weights."""

import functools
import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.errors import one_line
from horosphere.geometry._scalar import length, safe_sqrt
from horosphere.geometry._shapes import no_tensor
from horosphere.geometry.manifold import Manifold, full_precision

FACTORS = "give factors as (manifold, dimension), e.g. Product((Lorentz(), 5), (Euclidean(), 5))"


class Product(Manifold):
    """Product((Lorentz(), 5), (Euclidean(), 3), weights=(1, 2)): metric Σ wᵢ gᵢ on 5 + 3 coordinates.

    Geodesics, transport and centroids are those of the factors. Weights scale lengths: dist² = Σ wᵢ distᵢ².

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> M = Product((Lorentz(), 2), (Euclidean(), 1))
    >>> x, y = M.exp0(torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]]))
    >>> M.dist(x, y).round(decimals=3)
    tensor(5.)
    """

    def __init__(self, *factors: tuple[Manifold, int], weights: Sequence[float] | None = None):
        super().__init__()
        if not factors:
            raise ValueError(f"Product() is empty: {FACTORS}")
        for factor in factors:
            if not _is_factor(factor):
                raise TypeError(f"{one_line(factor, 60)} is no factor: {FACTORS}")
        self.factors = nn.ModuleList(m for m, _ in factors)  # type: ignore[assignment]
        self.dims = [d for _, d in factors]
        self.weights = _positive([1.0] * len(factors) if weights is None else weights, len(factors))

    per_coordinate = True
    factors: Sequence[Manifold]

    @property
    def c(self) -> float | Tensor:
        # no AttributeError: nn.Module would replace its message
        raise TypeError("a product has no single curvature; ask its factors: [f.c for f in product.factors]")

    @property
    def dim(self) -> int:
        """How many coordinates a point has.

        >>> from horosphere.geometry import Euclidean, Lorentz
        >>> Product((Lorentz(), 2), (Euclidean(), 1)).dim
        3
        """
        return sum(self.dims)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """(..., d) -> one (..., dᵢ) for each factor

        >>> from horosphere.geometry import Euclidean, Lorentz
        >>> curved, flat = Product((Lorentz(), 2), (Euclidean(), 1)).split(torch.tensor([1.0, 2.0, 3.0]))
        >>> curved, flat
        (tensor([1., 2.]), tensor([3.]))
        """
        if not isinstance(x, Tensor):
            raise no_tensor("product", "x", x)
        if x.shape[-1] != self.dim:
            raise ValueError(f"{x.shape[-1]} coordinates for a product of dimensions {' + '.join(map(str, self.dims))}")
        return x.split(self.dims, -1)

    def exp0(self, v: Tensor) -> Tensor:
        return self._join(lambda m, v: m.exp0(v), v)

    def log0(self, x: Tensor) -> Tensor:
        return self._join(lambda m, x: m.log0(x), x)

    def lift(self, v: Tensor) -> Tensor:
        weighted = zip(self.factors, self.weights, self.split(v), strict=True)
        return torch.cat([m.lift(v / w**0.5) for m, w, v in weighted], -1)

    @full_precision
    def lower(self, x: Tensor) -> Tensor:
        weighted = zip(self.factors, self.weights, self.split(x), strict=True)
        return torch.cat([w**0.5 * m.lower(x) for m, w, x in weighted], -1)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        return self._join(lambda m, x, v: m.exp(x, v), x, v)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        return self._join(lambda m, x, y: m.log(x, y), x, y)

    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """t: a number, (..., 1), or (..., d) for a time a coordinate; a curved factor takes the first of its own."""
        rows = zip(self.factors, self.split(x), self.split(v), self._times(t), strict=True)
        flows = [m.flow(x, v, t) for m, x, v, t in rows]
        return torch.cat([moved for moved, _ in flows], -1), torch.cat([carried for _, carried in flows], -1)

    def _times(self, t: Tensor | float) -> list[Tensor | float]:
        """The time of `flow`, one for each factor."""
        if not isinstance(t, Tensor) or t.dim() == 0:
            return [t] * len(self.dims)
        times = t.split(self.dims, -1) if t.shape[-1] == self.dim else [t] * len(self.dims)
        return [t if m.flat else t[..., :1] for m, t in zip(self.factors, times, strict=True)]

    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        return self._join(lambda m, x, y: m.geodesic(x, y, t), x, y)

    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._join(lambda m, v, x, y: m.transport(v, x, y), v, x, y)

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """√Σ wᵢ distᵢ², of the distances: their squares may overflow."""
        weighted = zip(self.weights, self._by_factor((x, y)), strict=True)
        return length(torch.stack([w**0.5 * m.dist(x, y) for w, (m, x, y) in weighted], -1)).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        return self._sum(lambda m, x, y: m.sqdist(x, y), x, y)

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return safe_sqrt(self._sum(lambda m, x, y: m.pairwise(x, y).square(), x, y))

    @full_precision
    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        """Σ wᵢ distᵢ²"""
        parts = (w * m.pairwise_sq(x, y) for w, (m, x, y) in zip(self.weights, self._by_factor((x, y)), strict=True))
        return functools.reduce(torch.add, parts)

    @full_precision
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        """dist + √Σ wᵢ reachᵢ(0)²: each factor's noise adds at most what it makes of 0"""
        return dist + self._sum(lambda m, x, y: m.pairwise_reach(x, y, torch.zeros_like(dist)).square(), x, y).sqrt()

    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        raise TypeError(
            "hyperplanes of a product are not totally geodesic; take the distance on each factor, product.split(x)"
        )

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return self._sum(lambda m, x, u, v: m.inner(x, u, v), x, u, v)

    @full_precision
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        weighted = zip(self.factors, self.weights, self.split(x), self.split(g), strict=True)
        return torch.cat([m.rgrad(x, g) / w for m, w, x, g in weighted], -1)

    @full_precision
    def component_sqnorm(self, g: Tensor, r: Tensor) -> Tensor:
        def per_coordinate(m: Manifold, g: Tensor, r: Tensor) -> Tensor:
            return m.component_sqnorm(g, r).expand(torch.broadcast_shapes(g.shape, r.shape))

        return self._join(per_coordinate, g, r)

    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return self._join(lambda m, x: m.midpoint(x, weights), x)

    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        return self._join(lambda m, x, y: m.add(x, y, weight), x, y)

    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        return self._join(lambda m, x, by: m.translate(x, by), x, by)

    @property
    def ambient_extra(self) -> int:  # type: ignore[override]
        return sum(m.ambient_extra for m in self.factors)

    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        ambients = [m.ambient(x) for m, x in zip(self.factors, self.split(x), strict=True)]
        times = [t for _, t in ambients if t is not None]
        return torch.cat([u for u, _ in ambients], -1), torch.cat(times, -1) if times else None

    def free(self, x: Tensor) -> Tensor:
        return self._join(lambda m, x: m.free(x), x)

    def point(self, u: Tensor) -> Tensor:
        return self._join(lambda m, u: m.point(u), u)

    @property
    def free_chart(self) -> "Product":
        return Product(*((m.free_chart, d) for m, d in zip(self.factors, self.dims, strict=True)), weights=self.weights)

    @full_precision
    def log_volume(self, v: Tensor) -> Tensor:
        weighted = zip(self.factors, self.weights, self.split(v), strict=True)
        return torch.stack([m.log_volume(v / w**0.5) for m, w, v in weighted]).sum(0)

    def extra_repr(self) -> str:
        return f"dims={self.dims}, weights={self.weights}"

    def _join(self, f: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """f of each factor on its coordinates, side by side."""
        return torch.cat([f(m, *own) for m, *own in self._by_factor(tensors)], -1)

    def _sum(self, f: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Σ wᵢ f of each factor on its coordinates."""
        weighted = zip(self.weights, self._by_factor(tensors), strict=True)
        return torch.stack([w * f(m, *own) for w, (m, *own) in weighted]).sum(0)

    def _by_factor(self, tensors: tuple[Tensor, ...]) -> Any:
        """(factor, its coordinates of each tensor), factor by factor."""
        return zip(self.factors, *(self.split(t) for t in tensors), strict=True)


def _is_factor(given: Any) -> bool:
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    manifold, dim = given
    return isinstance(manifold, Manifold) and isinstance(dim, Integral) and not isinstance(dim, bool) and int(dim) > 0


def _positive(weights: Any, count: int) -> list[float]:
    try:
        numbers = [float(w) for w in weights]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != count or not all(0 < w < math.inf for w in numbers):
        what = one_line(weights, 60)
        raise ValueError(f"weights {what}: give one positive number for each of the {count} factors")
    return numbers
