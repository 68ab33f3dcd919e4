"""What the geometry tests range over: manifolds, points by radius, tangent vectors by length, a table of functions.

Radii and lengths are in units of 1/√c, so that one number means the same place at every curvature.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from horosphere.geometry import Euclidean, Lorentz, Manifold, Poincare, Product, Sphere, exterior_angle, half_aperture

DIM = 6
RADII = {"sphere": [1.0, 2.5]}  # π is as far as a sphere goes
CURVATURES = [0.1, 1.0, 4.0]
DTYPES = [torch.float32, torch.float64]
WEIGHTS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def manifold(name: str, c: float, learn: bool = False) -> Manifold:
    """By name; the product mixes the other three with weights, DIM // 3 coordinates each."""
    if name == "euclidean":
        return Euclidean()
    if name == "product":
        factors = (Lorentz(c, learn), DIM // 3), (Poincare(c, learn), DIM // 3), (Euclidean(), DIM // 3)
        return Product(*factors, weights=(1.0, 2.0, 0.5))
    return {"lorentz": Lorentz, "poincare": Poincare, "sphere": Sphere}[name](c, learn)


MANIFOLDS = ["euclidean", "lorentz", "poincare", "product", "sphere"]
HYPERBOLIC = ["lorentz", "poincare"]
CURVED = [*HYPERBOLIC, "sphere"]


def directions(n: int, d: int = DIM, seed: int = 0) -> Tensor:
    """Random unit vectors, fp64.   -> (n, d)"""
    v = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return v / v.norm(dim=-1, keepdim=True)


@dataclass(frozen=True)
class Case:
    """A manifold, a curvature, a dtype and a radius: where a law is tried."""

    name: str
    c: float
    dtype: torch.dtype
    radius: float

    @functools.cached_property
    def m(self) -> Manifold:
        return manifold(self.name, self.c)

    @property
    def unit(self) -> float:
        return 1 / math.sqrt(self.c)

    @property
    def tolerance(self) -> float:
        """A length. Rounding a point at radius r moves it by ε·e^r across, and results lie up to 1 farther out."""
        return 16 * torch.finfo(self.dtype).eps * math.exp(self.radius + 1) * self.unit

    def points(self, n: int = 32, seed: int = 1) -> Tensor:
        """Radii from 0 to `radius`; the first point is the origin, the second very near it.   -> (n, DIM)"""
        radii = torch.linspace(0, self.radius, n, dtype=torch.float64)[
            torch.randperm(n - 2, generator=torch.Generator().manual_seed(seed)) + 2
        ]
        radii = torch.cat((torch.tensor([0.0, 1e-6], dtype=torch.float64), radii))
        return self.m.lift(self.unit * radii[:, None] * directions(n, seed=seed)).to(self.dtype)

    def tangents(self, x: Tensor, seed: int = 2, length: float = 1.0) -> Tensor:
        """Random directions at x, lengths from 0 to `length`. Carried from the origin: far out others point along x."""
        lengths = (
            length
            * self.unit
            * torch.rand(len(x), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        )
        x, v = x.double(), lengths * directions(len(x), seed=seed)
        v = self.m.transport(v, torch.zeros_like(x), x)
        at_origin = self.m.norm(torch.zeros_like(x), torch.ones_like(x)) / math.sqrt(
            DIM
        )  # the ball's metric is 4 at the origin
        return (v / at_origin[:, None]).to(self.dtype)

    def assert_same_point(self, a: Tensor, b: Tensor, factor: float = 1.0) -> None:
        assert a.dtype == b.dtype == self.dtype
        apart = self.m.dist(a.double(), b.double()).max().item()
        assert apart <= factor * self.tolerance, f"{apart:.2e} apart, {factor * self.tolerance:.2e} allowed"

    def assert_same_tangent(self, x: Tensor, a: Tensor, b: Tensor, factor: float = 1.0) -> None:
        assert a.dtype == b.dtype == self.dtype
        apart = self.m.norm(x.double(), a.double() - b.double()).max().item()
        assert apart <= factor * self.tolerance, f"{apart:.2e} apart, {factor * self.tolerance:.2e} allowed"

    def assert_same_number(self, a: Tensor, b: Tensor, factor: float = 1.0, power: int = 1) -> None:
        """Lengths (power 1), their squares (2) or angles (0). The tolerance is a length, relative above 1/√c."""
        assert a.dtype == b.dtype == self.dtype
        a, b = a.double(), b.double()
        allowed = factor * self.tolerance / self.unit * self.unit**power
        apart = ((a - b).abs() / (1 + (b / self.unit**power).abs())).max().item()
        assert apart <= allowed, f"{apart:.2e} apart, {allowed:.2e} allowed"


@dataclass(frozen=True)
class Function:
    """One function of a manifold as call(m, x, y, v): x, y points, v tangent at x.   (..., N, d) each

    power: f_c(x, y, v) = f_1(√c x, √c y, √c v)/√c^power.  smooth: differentiable at x = y, at the origin and at v = 0.
    """

    call: Callable[[Manifold, Tensor, Tensor, Tensor], Tensor]
    power: int = 1
    smooth: bool = True
    product: bool = True
    flat_scales: bool = True
    sphere: bool = True


def _three(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x, y, x / 2), -2)


def _ambient(m: Manifold, x: Tensor) -> Tensor:
    u, time = m.ambient(x)
    return u if time is None else torch.cat((u, time), -1)


FUNCTIONS = {
    "exp0": Function(lambda m, x, y, v: m.exp0(v)),
    "log0": Function(lambda m, x, y, v: m.log0(x)),
    "lift": Function(lambda m, x, y, v: m.lift(v)),
    "lower": Function(lambda m, x, y, v: m.lower(x)),
    "exp": Function(lambda m, x, y, v: m.exp(x, v)),
    "log": Function(lambda m, x, y, v: m.log(x, y)),
    "flow position": Function(lambda m, x, y, v: m.flow(x, v, 0.7)[0]),
    "flow velocity": Function(lambda m, x, y, v: m.flow(x, v, 0.7)[1]),
    "transport": Function(lambda m, x, y, v: m.transport(v, x, y)),
    "geodesic": Function(lambda m, x, y, v: m.geodesic(x, y, 0.3)),
    "dist": Function(lambda m, x, y, v: m.dist(x, y), smooth=False),
    "sqdist": Function(lambda m, x, y, v: m.sqdist(x, y), power=2),
    "pairwise": Function(lambda m, x, y, v: m.pairwise(x, y), smooth=False),
    "dist0": Function(lambda m, x, y, v: m.dist0(x), smooth=False),
    "dist_to_hyperplane": Function(lambda m, x, y, v: m.dist_to_hyperplane(x, y, v), smooth=False, product=False),
    "inner": Function(lambda m, x, y, v: m.inner(x, v, y), power=2),
    "norm": Function(lambda m, x, y, v: m.norm(x, v), smooth=False),
    "rgrad": Function(lambda m, x, y, v: m.rgrad(x, v)),
    "component_sqnorm": Function(lambda m, x, y, v: m.component_sqnorm(v, y), power=2),
    "mean": Function(lambda m, x, y, v: m.midpoint(_three(x, y))),
    "midpoint": Function(lambda m, x, y, v: m.midpoint(_three(x, y), WEIGHTS.to(x.dtype))),
    "add": Function(lambda m, x, y, v: m.add(x, y, 0.5)),
    "translate": Function(lambda m, x, y, v: m.translate(x, y)),
    "ambient": Function(lambda m, x, y, v: _ambient(m, x)),
    "point": Function(lambda m, x, y, v: m.point(v)),
    "log_volume": Function(lambda m, x, y, v: m.log_volume(v), power=0),
    "half_aperture": Function(
        lambda m, x, y, v: half_aperture(x, m), power=0, smooth=False, product=False, flat_scales=False, sphere=False
    ),
    "exterior_angle": Function(
        lambda m, x, y, v: exterior_angle(x, y, m), power=0, smooth=False, product=False, sphere=False
    ),
}


def functions_of(name: str) -> dict[str, Function]:
    """The functions the manifold of this name has."""
    return {k: f for k, f in FUNCTIONS.items() if getattr(f, name, True)}


EVERY_FUNCTION = [(name, f) for name in MANIFOLDS for f in functions_of(name)]  # for parametrize


def generic(
    name: str, c: float = 1.0, dtype: torch.dtype = torch.float64, radius: float = 1.5, n: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """x, y, v in general position: no equal points, no origin."""
    case = Case(name, c, dtype, radius)
    x, y = case.points(n + 2, seed=3)[2:], case.points(n + 2, seed=4)[2:]
    return x, y, case.tangents(x, seed=5)


def special(name: str, c: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """x = y; x, y, both at the origin; v = 0; opposite points; one ray."""
    x, y, v = generic(name, c, dtype, n=7)
    zero = torch.zeros_like(x[0])
    x = torch.stack((x[0], zero, x[2], zero, x[4], x[5], x[6]))
    y = torch.stack((x[0], y[1], zero, zero, y[4], -x[5], x[6] / 3))
    v = torch.stack((v[0], v[1], v[2], v[3], zero, v[5], v[6]))
    return x, y, v
