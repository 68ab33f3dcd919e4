"""What every geometry offers. One convention everywhere: c > 0, sectional curvature -c; flat space has c = 0.

Plain tensors in, plain tensors out. Points and tangent vectors are (..., d); functions broadcast over the leading axes.
bf16 and fp16 inputs are computed in fp32 and come back in their own dtype.
"""

import functools
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from horosphere.geometry._scalar import dot, length, safe_sqrt, sinhc, sq
from horosphere.geometry._shapes import dimension_check, same_dimension

if TYPE_CHECKING:
    from horosphere.geometry.slots import Slots

HALF = (torch.bfloat16, torch.float16)
P = ParamSpec("P")
R = TypeVar("R")


def full_precision(method: Callable[P, R]) -> Callable[P, R]:
    """Compute in fp32 what comes in bf16 or fp16 (or under autocast), and return it in the dtype it came in.

    Points and vectors of different dimension are refused (`_shapes.py`).
    """
    check = dimension_check(method)

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        first = tensors[0]
        device = first.device.type
        if device != "meta" and torch.is_autocast_enabled(device):  # meta has no autocast to ask for
            with torch.autocast(device, enabled=False):
                return wrapper(*args, **kwargs)
        if not [t for t in tensors if t.dtype in HALF]:  # a list: faster than any(...)
            return method(*args, **kwargs)
        up: list[Any] = [a.float() if isinstance(a, Tensor) and a.dtype in HALF else a for a in args]
        up_named = {k: a.float() if isinstance(a, Tensor) and a.dtype in HALF else a for k, a in kwargs.items()}
        out: Any = method(*up, **up_named)  # type: ignore[arg-type]
        if isinstance(out, tuple):
            return tuple(o.to(first.dtype) for o in out)  # type: ignore[return-value]
        return out.to(first.dtype)

    return wrapper


def shares(weights: Tensor) -> Tensor:
    """Weights that sum to 1, for `midpoint`; weights that are all 0 stay so.   (..., N) -> (..., N)

    >>> shares(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    total = weights.sum(-1, keepdim=True)
    return weights / (total + (total == 0))


class Manifold(nn.Module, ABC):
    """A geometry with an origin. A module, so that a learned curvature is found by `model.parameters()`.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> v, w = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 3.0])
    >>> for m in (Euclidean(), Lorentz(c=1.0)):  # the same lines in any geometry
    ...     print(f"{m.dist(m.lift(v), m.lift(w)):.2f}")
    4.24
    5.31
    """

    flat = False
    per_coordinate = False  # whether `component_sqnorm` tells coordinates apart

    @property
    @abstractmethod
    def c(self) -> float | Tensor:
        """Minus the sectional curvature: a float when fixed, a tensor of shape (1,) when learned.

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz(c=0.5).c
        0.5
        >>> Lorentz(c=0.5, learn=True).c.shape
        torch.Size([1])
        """

    # -- maps at the origin ------------------------------------------------------------------------------------------

    @abstractmethod
    def exp0(self, v: Tensor) -> Tensor:
        """Point reached from the origin along v after unit time.   (..., d) -> (..., d)

        >>> from horosphere.geometry import Lorentz
        >>> L, v = Lorentz(), torch.tensor([3.0, 4.0])
        >>> L.dist0(L.exp0(v)).round(decimals=3)  # as far as v is long
        tensor(5.)
        """

    @abstractmethod
    def log0(self, x: Tensor) -> Tensor:
        """Tangent vector at the origin that reaches x.   (..., d) -> (..., d)

        >>> from horosphere.geometry import Lorentz
        >>> L, v = Lorentz(), torch.tensor([3.0, 4.0])
        >>> L.log0(L.exp0(v)).round(decimals=3)
        tensor([3., 4.])
        """

    def lift(self, v: Tensor) -> Tensor:
        """exp0 of a vector in an orthonormal frame: in every geometry the point lies |v| from the origin.

        >>> from horosphere.geometry import Poincare
        >>> P, v = Poincare(), torch.tensor([0.6, 0.8])
        >>> P.dist0(P.lift(v)).round(decimals=3)
        tensor(1.)
        >>> P.dist0(P.exp0(v)).round(decimals=3)  # the ball's metric at the origin is 4|dx|²
        tensor(2.)
        """
        return self.exp0(v)

    def lower(self, x: Tensor) -> Tensor:
        """Inverse of `lift`: coordinates of length dist0(x).

        >>> from horosphere.geometry import Poincare
        >>> P, v = Poincare(), torch.tensor([0.5, 1.5])
        >>> P.lower(P.lift(v)).round(decimals=3)
        tensor([0.5000, 1.5000])
        """
        return self.log0(x)

    # -- maps at any point -------------------------------------------------------------------------------------------

    @abstractmethod
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Point reached from x along v after unit time.

        >>> from horosphere.geometry import Lorentz
        >>> L, v = Lorentz(), torch.tensor([0.0, 2.0])
        >>> x = L.exp0(torch.tensor([1.0, 0.0]))
        >>> L.dist(x, L.exp(x, v)).round(decimals=3)  # as far as v is long at x
        tensor(2.)
        """

    @abstractmethod
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """Tangent vector at x that reaches y.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x, y = L.exp0(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> torch.allclose(L.exp(x, L.log(x, y)), y, atol=1e-5)
        True
        """

    @abstractmethod
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Geodesic flow: position and velocity after time t from x with velocity v.

        >>> from horosphere.geometry import Lorentz
        >>> L, x, v = Lorentz(), torch.zeros(2), torch.tensor([2.0, 0.0])
        >>> y, w = L.flow(x, v, 0.5)  # half the way, at the same speed
        >>> L.dist(x, y).round(decimals=3), L.norm(y, w).round(decimals=3)
        (tensor(1.), tensor(2.))
        """

    @same_dimension
    def flow_(self, x: Tensor, v: Tensor, t: Tensor | float) -> None:
        """`flow` in place, without gradient: how an optimizer moves a point x and its momentum v.

        >>> from horosphere.geometry import Lorentz
        >>> L, x, v = Lorentz(), torch.zeros(2), torch.tensor([2.0, 0.0])
        >>> L.flow_(x, v, 0.5)
        >>> L.dist0(x).round(decimals=3), L.norm(x, v).round(decimals=3)
        (tensor(1.), tensor(2.))
        """
        moved, carried = self.flow(x, v, t)
        x.copy_(moved)
        v.copy_(carried)

    @abstractmethod
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Parallel transport of v from x to y along their geodesic.

        >>> from horosphere.geometry import Lorentz
        >>> L, v = Lorentz(), torch.tensor([0.0, 2.0])
        >>> x, y = L.exp0(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> L.norm(y, L.transport(v, x, y)).round(decimals=3)  # lengths stay what they were
        tensor(2.)
        """

    @full_precision
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """Point at fraction t of the way from x to y; t broadcasts against (..., 1).

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x, y = L.exp0(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> (L.dist(x, L.geodesic(x, y, 0.25)) / L.dist(x, y)).round(decimals=3)
        tensor(0.2500)
        """
        return self.exp(x, t * self.log(x, y))

    # -- distances ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance.   (..., d), (..., d) -> (...)   Gradient 0 at x = y.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x, y = L.exp0(torch.tensor([[5.0, 0.0], [0.0, 5.0]]))
        >>> L.dist(x, y).round(decimals=3)  # nearly 5 + 5: the shortest way leads past the origin, as in a tree
        tensor(9.3070)
        """

    @abstractmethod
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        """dist², smooth at x = y.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> L.sqdist(torch.zeros(2), L.exp0(torch.tensor([0.0, 3.0]))).round(decimals=3)
        tensor(9.)
        """

    @abstractmethod
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        """All distances by one matrix product.   (..., N, d), (..., M, d) -> (..., N, M)

        At radius r the product has noise of about cosh(√c r)·√(2ε). That is right for logits and statistics; compare
        near neighbours in fp64 or with `dist`.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> L.pairwise(L.random(3, 5), L.random(4, 5)).shape
        torch.Size([3, 4])
        """

    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        """The squares of all distances, for objectives over many pairs.   (N, d), (M, d) -> (N, M)

        One product a factor, and no root. Of float64 points the products are float64, and what follows is float32: it
        has six digits, and is faster than the squares of `pairwise`. There is a first derivative only.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> L.pairwise_sq(*L.lift(torch.tensor([[[0.0, 0.0]], [[0.6, 0.8]]]))).round(decimals=3)
        tensor([[1.]])
        """
        return self.pairwise(x, y).square()

    @abstractmethod
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        """The most that `pairwise` may report for pairs at this distance, noise included.

        (N, d), (M, d), (N,) -> (N,)

        >>> from horosphere.geometry import Lorentz
        >>> L, x = Lorentz(), Lorentz().exp0(torch.eye(3))
        >>> reach = L.pairwise_reach(x, x, torch.zeros(3))  # each point from itself
        >>> bool((L.pairwise(x, x).diagonal() <= reach).all()), bool(reach.max() < 0.01)
        (True, True)
        """

    @full_precision
    def dist0(self, x: Tensor) -> Tensor:
        """Distance from the origin.   (..., d) -> (...)

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> L.dist0(L.exp0(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))).round(decimals=3)
        tensor([0., 5.])
        """
        return length(self.lower(x)).squeeze(-1)

    @abstractmethod
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """Signed distance from x to the totally geodesic hyperplane through p with normal w at p.   (...)

        >>> from horosphere.geometry import Lorentz
        >>> L, w = Lorentz(), torch.tensor([1.0, 0.0])
        >>> x = L.exp0(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))  # on both sides
        >>> L.dist_to_hyperplane(x, torch.zeros(2), w).round(decimals=3)
        tensor([ 2., -2.])
        """

    # -- metric ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Riemannian inner product of tangent vectors at x.   (...)

        >>> from horosphere.geometry import Poincare
        >>> P, u = Poincare(), torch.tensor([1.0, 0.0])
        >>> x = torch.tensor([[0.0, 0.0], [0.5, 0.0]])
        >>> P.inner(x, u, u).round(decimals=3)  # the same coordinates are longer towards the edge
        tensor([4.0000, 7.1110])
        """

    @full_precision
    def norm(self, x: Tensor, v: Tensor) -> Tensor:
        """Riemannian length of v at x; gradient 0 at v = 0.

        >>> from horosphere.geometry import Poincare
        >>> Poincare().norm(torch.zeros(2), torch.tensor([3.0, 4.0])).round(decimals=3)
        tensor(10.)
        """
        return safe_sqrt(self.inner(x, v, v).clamp_min(0))  # a sum of squares: only rounding makes it negative

    @abstractmethod
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        """Riemannian gradient metric⁻¹ g, from the gradient g that autograd gives for the stored coordinates.

        >>> from horosphere.geometry import Poincare
        >>> Poincare().rgrad(torch.zeros(2), torch.tensor([4.0, 8.0]))  # metric 4 at the origin
        tensor([1., 2.])
        """

    @abstractmethod
    def component_sqnorm(self, g: Tensor, r: Tensor) -> Tensor:
        """|r|² = g·r of r = rgrad(x, g), as Adam's second moment keeps it.   (..., d), (..., d) -> (..., 1) or (..., d)

        One number a point where coordinates have no meaning of their own; one a coordinate in flat space.

        >>> from horosphere.geometry import Euclidean, Lorentz
        >>> g = torch.tensor([3.0, 4.0])
        >>> Lorentz().component_sqnorm(g, g), Euclidean().component_sqnorm(g, g)
        (tensor([25.]), tensor([ 9., 16.]))
        """

    @abstractmethod
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted centroid over the second to last axis.   (..., N, d), (..., N) -> (..., d)

        Weights are >= 0 and count by their ratios. Points without any weight have the origin for their centroid.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x = L.exp0(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> L.dist0(L.midpoint(x)).round(decimals=3)
        tensor(1.)
        >>> L.dist0(L.midpoint(x, weights=torch.tensor([1.0, 3.0]))).round(decimals=3)
        tensor(1.4010)
        """

    @abstractmethod
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """A residual connection: x + weight·y in flat space, elsewhere the centroid of x and weight·y.

        weight: a number or (..., 1).

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x, y = L.exp0(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> torch.allclose(L.add(x, y), L.geodesic(x, y, 0.5))
        True
        """

    # -- symmetry ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        """The isometry without rotation that takes the origin to `by`. `translate(·, -by)` undoes it.

        >>> from horosphere.geometry import Lorentz
        >>> L = Lorentz()
        >>> x, by = L.exp0(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> torch.allclose(L.translate(torch.zeros(2), by), by)
        True
        >>> torch.allclose(L.translate(L.translate(x, by), -by), x, atol=1e-5)
        True
        """

    # -- coordinates for layers --------------------------------------------------------------------------------------

    ambient_extra = 0  # how many times `ambient` gives

    @abstractmethod
    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What a linear map multiplies: free coordinates (..., d), any vector of R^d; and the time (..., 1), if any.

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().ambient(torch.tensor([0.0, 0.75]))  # time² = 1 + space²
        (tensor([0.0000, 0.7500]), tensor([1.2500]))
        """

    def free(self, x: Tensor) -> Tensor:
        """The free coordinates alone, `ambient(x)[0]`: for layers that read no time.   (..., d) -> (..., d)

        >>> from horosphere.geometry import Poincare
        >>> P, u = Poincare(), torch.tensor([3.0, 4.0])
        >>> P.free(P.point(u)).round(decimals=3)
        tensor([3., 4.])
        """
        return self.ambient(x)[0]

    @abstractmethod
    def point(self, u: Tensor) -> Tensor:
        """The point with free coordinates u. Inverse of `free`.   (..., d) -> (..., d)

        >>> from horosphere.geometry import Poincare
        >>> P, u = Poincare(), torch.tensor([3.0, 4.0])  # outside the ball
        >>> P.point(u).norm() < 1, P.ambient(P.point(u))[0].round(decimals=3)
        (tensor(True), tensor([3., 4.]))
        """

    @property
    def free_chart(self) -> "Manifold":
        """The same geometry with free coordinates for points: what `ambient` gives, for a loop that stays there.

        >>> from horosphere.geometry import Poincare
        >>> P, v = Poincare(), torch.tensor([3.0, 4.0])
        >>> torch.allclose(P.free_chart.lift(v), P.ambient(P.lift(v))[0], rtol=1e-4)
        True
        """
        return self

    @property
    def slots(self) -> "Slots":
        """Points that carry their time in vectors of ordinary width, for deep stacks (`geometry/slots.py`).

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().slots.heads(torch.tensor([0.0, 0.0, 0.75]))  # slot 0 is for the time
        tensor([1.2500, 0.0000, 0.7500])
        """
        raise NotImplementedError(f"slots on {type(self).__name__}: use Lorentz or Euclidean")

    # -- randomness --------------------------------------------------------------------------------------------------

    def random(self, *shape: int, std: float = 1.0, generator: torch.Generator | None = None, **factory: Any) -> Tensor:
        """Points of a wrapped normal at the origin: `lift` of a Gaussian with this std.   -> shape = (..., d)

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().random(2, 3, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3])
        """
        return self.lift(std * torch.randn(*shape, generator=generator, **factory))

    @full_precision
    def log_volume(self, v: Tensor) -> Tensor:
        """log of the volume by which `lift` stretches space at v.   (..., d) -> (...)

        (d - 1)·log(sinh(√c r)/(√c r)), r = |v|.

        >>> from horosphere.geometry import Lorentz
        >>> Lorentz().log_volume(torch.tensor([1.0, 0.0])).exp().round(decimals=3)  # circles are sinh(1) times as long
        tensor(1.1750)
        """
        return (v.shape[-1] - 1) * sinhc(self.c * sq(v)).log().squeeze(-1)


LOG_BOUND = math.log(100.0)


def learned_curvature(c0: Tensor, log_ratio: Tensor) -> Tensor:
    """c₀·exp(bounded log_ratio): c₀ at log_ratio = 0, always between c₀/100 and 100 c₀; fp32 also in a bf16 model."""
    ratio = log_ratio.float() if log_ratio.dtype in HALF else log_ratio
    return c0.to(ratio.dtype) * (LOG_BOUND * (ratio / LOG_BOUND).tanh()).exp()


def as_curvature(c: Any) -> float:
    """A number that can be a curvature; else an error that says what is wrong with it.

    >>> as_curvature(2)
    2.0
    """
    if isinstance(c, Tensor):
        raise TypeError("c is a tensor: give a number, as in c=float(c), or let it be learned with learn=True")
    if isinstance(c, bool) or not isinstance(c, numbers.Real):
        raise TypeError(f"c = {c!r}: the curvature is -c, so c must be a positive number, as in c=1.0")
    if not 0 < float(c) < math.inf:
        raise ValueError(f"c = {c}: the curvature is -c, so c must be positive; for flat space use Euclidean()")
    return float(c)


MARK = "manifold"


def manifolds_in(state: Any) -> dict[str, str]:
    """Which manifolds of fixed curvature a state dict comes from, by the names of their modules.

    >>> from horosphere.geometry import Lorentz
    >>> manifolds_in(nn.ModuleDict({"space": Lorentz(c=0.5)}).state_dict())
    {'space': 'Lorentz(c=0.5)'}
    """
    return {name: about[MARK] for name, about in getattr(state, "_metadata", {}).items() if MARK in about}


class Curved(Manifold):
    """Constant curvature sign·c, fixed (a float) or learned (`learned_curvature`)."""

    sign = -1
    c0: Tensor

    def __init__(self, c: float = 1.0, learn: bool = False):
        super().__init__()
        c = as_curvature(c)
        # as text: torch.compile would take a float for an input, which it cannot pass to autograd functions
        self._fixed_c = repr(c)
        self.learn = learn
        if learn:
            self.register_buffer("c0", torch.full((1,), c))
            self.log_ratio = nn.Parameter(torch.zeros(1))  # shape (1,): sharding cannot cut a scalar

    def reset_parameters(self) -> None:
        if self.learn:
            nn.init.constant_(self.c0, float(self._fixed_c))
            nn.init.zeros_(self.log_ratio)

    @property
    def c(self) -> float | Tensor:
        if not self.learn:
            return float(self._fixed_c)
        return learned_curvature(self.c0, self.log_ratio)

    # A fixed c is no tensor. It travels in the state dict's metadata, where torch keeps the versions of modules: so
    # nothing is added to files, checkpoints or shards, and a state without it (older, or from safetensors) still loads.

    @property
    def _mark(self) -> str | None:
        return None if self.learn else f"{type(self).__name__}(c={self._fixed_c})"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._mark is not None and hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]][MARK] = self._mark

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, *found: list[str]
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *found)
        errors, saved, here = found[-1], local_metadata.get(MARK), self._mark
        if None not in (saved, here) and saved != here:
            how = f"build the model with {saved}, or pass dict(state) to load the numbers as they are"
            message = f"weights saved on {saved}, loaded on {here}: {how}"
            if message not in errors:  # layers share a manifold: said once
                errors.append(message)

    def extra_repr(self) -> str:
        return f"c={float(torch.as_tensor(self.c).detach()):g}" + (", learn=True" if self.learn else "")

    @full_precision
    def component_sqnorm(self, g: Tensor, r: Tensor) -> Tensor:
        return dot(g, r)
