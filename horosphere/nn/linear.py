"""Linear maps and hyperplane classifiers."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold, Product
from horosphere.geometry._scalar import asinh, sq
from horosphere.nn.axes import require_width
from horosphere.nn.first_call import settle
from horosphere.nn.pairs import pair_products


class Linear(nn.Linear):
    """y = W x + w_t·time(x)/√d + b, read off as a point; W x + b in flat space.   (..., in) -> (..., out)

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> flat, curved, x = Linear(3, 2, Euclidean()), Linear(3, 2, Lorentz()), torch.ones(5, 3)
    >>> torch.equal(flat(x), F.linear(x, flat.weight, flat.bias))  # in flat space torch's own
    True
    >>> curved(x).shape  # points of Lorentz(), by their space components
    torch.Size([5, 2])
    """

    time_weight: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        manifold: Manifold,
        bias: bool = True,
        out_manifold: Manifold | None = None,
    ):
        super().__init__(in_features, out_features, bias)
        self.manifold, self.out_manifold = settle(self, manifold, out_manifold), out_manifold or manifold
        self.time_weight = None
        if (
            manifold.ambient_extra
        ):  # zero: time is nearly the same for every point, a random column would align them all
            self.time_weight = nn.Parameter(self.weight.new_zeros(out_features, manifold.ambient_extra))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if getattr(self, "time_weight", None) is not None:  # nn.Linear.__init__ calls this before there is one
            nn.init.zeros_(self.time_weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.in_features, self)
        space, time = self.manifold.ambient(x)
        u = F.linear(space, self.weight, self.bias)
        if self.time_weight is not None and time is not None:
            # /√d: the time of a normalised point is about √d, and Adam would move this column √d times faster
            u = u + F.linear(time.to(u.dtype) / math.sqrt(self.in_features), self.time_weight)
        return self.out_manifold.point(u)


class Classifier(nn.Linear):
    """Multinomial logistic regression: logits are |w| times signed distances to hyperplanes; W x + b in flat space.

    (..., in) -> (..., out)

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> head = Classifier(2, 1, L, bias=False)
    >>> _ = head.weight.data.copy_(torch.tensor([[2.0, 0.0]]))
    >>> head(L.exp0(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))).detach().round(decimals=3)  # |w| · distance to the plane
    tensor([[6.],
            [0.]])
    """

    def __init__(self, in_features: int, out_features: int, manifold: Manifold, bias: bool = True):
        super().__init__(in_features, out_features, bias)
        self.manifold = settle(self, manifold, makes=Euclidean())

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.in_features, self)
        return hyperplane_logits(x, self.weight, self.bias, self.manifold)


MAX_OFFSET = 20.0  # beyond it sinh = cosh = exp/2 to every digit of fp64; squares of x_t·cosh fit fp32 out to radius 24


def hyperplane_logits(x: Tensor, weight: Tensor, bias: Tensor | None, manifold: Manifold) -> Tensor:
    """|w| times the signed distance from x to the hyperplane across w at distance -b/|w| from the origin.

    (..., d), (K, d), (K,) -> (..., K).   For x on the hyperboloid (|w|/√c)·asinh(√c (ŵ·x cosh α - x_t sinh α)) with
    α = -√c b/|w|, computed as b + (|w|/√c)(asinh(…) + α). The bias is the logit at the origin. For c -> 0 the logits
    are w·x + b. On a product the factors' logits add up, and each has an equal share of the bias.
    One matrix product, with its noise: right within √c r = log(1/ε)/2 (8 in fp32), and farther out for points that do
    not lie straight along w.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, weight, bias = torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]), torch.tensor([0.5])
    >>> [hyperplane_logits(x, weight, bias, m) for m in (Euclidean(), Lorentz())]  # at the origin the bias
    [tensor([[0.5000]]), tensor([[0.5000]])]
    """
    return _scores(x, weight, bias, manifold, TABLE)


def hyperplane_scores(x: Tensor, weight: Tensor, bias: Tensor | None, manifold: Manifold) -> Tensor:
    """`hyperplane_logits` where each point has hyperplanes of its own, rows gathered from a table.

    (..., d), (..., K, d), (..., K) -> (..., K).   In flat space x·w + b: the twin of every dot product of two tables.

    >>> from horosphere.geometry import Lorentz
    >>> x, weight, bias = Lorentz().exp0(torch.randn(5, 2)), torch.randn(9, 2), torch.randn(9)
    >>> rows = torch.randint(9, (5, 3))
    >>> scores = hyperplane_scores(x, weight[rows], bias[rows], Lorentz())
    >>> torch.allclose(scores, hyperplane_logits(x, weight, bias, Lorentz()).gather(1, rows), atol=1e-5)
    True
    """
    return _scores(x, weight, bias, manifold, OWN_ROWS)


def hyperplane_pairs(
    x: Tensor, weight: Tensor, bias: Tensor | None, manifold: Manifold, row: Tensor, column: Tensor
) -> Tensor:
    """Entries (row, column) of `hyperplane_logits`, without the others.   (N, d), (K, d), (K,), (P,), (P,) -> (P,)

    >>> from horosphere.geometry import Lorentz
    >>> x, weight, row, column = Lorentz().exp0(torch.randn(5, 2)), torch.randn(9, 2), torch.arange(5), torch.arange(5)
    >>> scores = hyperplane_pairs(x, weight, None, Lorentz(), row, column)
    >>> torch.allclose(scores, hyperplane_logits(x, weight, None, Lorentz())[row, column], atol=1e-5)
    True
    """

    def products(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        entries = pair_products(x, weight, row, column)
        return entries if bias is None else entries + bias[column]

    return _scores(x, weight, bias, manifold, Form(products, lambda time: time[row, 0], lambda a: a[column]))


def _own_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear with rows of its own for each x.   (..., d), (..., K, d), (..., K) -> (..., K)"""
    product = (weight @ x.unsqueeze(-1)).squeeze(-1)
    return product if bias is None else product + bias


class Form(NamedTuple):
    """Which points meet which hyperplanes."""

    linear: Callable[..., Tensor]  # points, rows of weights, biases -> scores, as F.linear
    of_points: Callable[[Tensor], Tensor]  # a number of each point (..., 1), as scores have it
    of_planes: Callable[[Tensor], Tensor]  # a number of each hyperplane (..., K), as scores have it


TABLE = Form(F.linear, lambda number: number, lambda number: number)
OWN_ROWS = TABLE._replace(linear=_own_rows)


def _scores(x: Tensor, weight: Tensor, bias: Tensor | None, manifold: Manifold, form: Form) -> Tensor:
    """`hyperplane_logits`, for any way in which points meet hyperplanes."""
    if isinstance(manifold, Product):
        shared = None if bias is None else bias / len(manifold.dims)
        by_factor = zip(manifold.split(x), manifold.split(weight), manifold.factors, strict=True)
        return sum((_scores(x, w, shared, m, form) for x, w, m in by_factor), x.new_zeros(()))
    space, time = manifold.ambient(x)
    return form.linear(space, weight, bias) if time is None else scores_of(space, time, weight, bias, manifold.c, form)


def scores_of(
    space: Tensor, time: Tensor, weight: Tensor, bias: Tensor | None, c: float | Tensor, form: Form = TABLE
) -> Tensor:
    """The formula of `hyperplane_logits`, of points whose coordinates and time are known."""
    linear, of_points, of_planes = form
    root = c**0.5
    root = root.to(weight.dtype) if isinstance(root, Tensor) else root  # a learned c stays fp32 in a bf16 model
    # a row of zeros has no hyperplane: its logit is its bias. Clamped under the root, whose gradient at 0 is NaN
    length = sq(weight).squeeze(-1).clamp_min(torch.finfo(weight.dtype).tiny).sqrt()
    unit = weight / length.unsqueeze(-1)
    if bias is None:
        return of_planes(length / root) * asinh(root * linear(space, unit))
    near = (-root * bias / length).clamp(-MAX_OFFSET, MAX_OFFSET)  # asinh(…) + α no longer changes with α out there
    s = linear(space, root * near.cosh().unsqueeze(-1) * unit) - of_points(root * time) * of_planes(near.sinh())
    return of_planes(bias) + of_planes(length / root) * (asinh(s) + of_planes(near))
