"""Layers of deep stacks, on slots (`geometry/slots.py`), at the speed of flat space: shapes and products are its own.

`SlotNorm` writes the time beside the normalised space part. `SlotLinear` reads both with one plain matrix.
`SlotResidual` joins the result to the stream. On Euclidean() they are RMSNorm, Linear and addition.
On Sphere() there is no time: what they give is brought back to one length.
"""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz, Manifold, Sphere
from horosphere.nn.axes import require_width

if torch.cuda.is_available() and find_spec("triton"):  # torch brings it along on Linux
    from horosphere.nn import kernels
else:
    kernels = None  # type: ignore[assignment]


FLAT = Euclidean()
Residual = Literal["centroid", "additive", "interpolate"]
STEP = 0.05  # share of the way to a layer's output that an interpolating stream goes at first (nGPT: Loshchilov+ 2024)


def room(dim: int) -> float:
    """4√n, the length of the stream: what a centroid is multiplied by where no matrix follows that could do it.

    The centroid of points that disagree lies about 1 from the origin, however far out they are.
    """
    return 4 * math.sqrt(dim)


CURVED = (Lorentz, Sphere)
ALL = (*CURVED, Euclidean)


def fused(x: Tensor, manifold: Manifold, kinds: tuple[type[Manifold], ...] = (Lorentz,)) -> bool:
    """Whether `nn.kernels` serves: on CUDA, for the kinds of manifold that a kernel knows, in less than fp64.

    Not where the curvature is learned, and not in compiled decoding: there the compiler joins many small operations
    across the borders of our kernels.
    """
    if torch.compiler.is_compiling() and not torch.is_grad_enabled():
        return False
    return (
        kernels is not None
        and x.is_cuda
        and x.dtype != torch.float64
        and isinstance(manifold, kinds)
        and not getattr(manifold, "learn", False)
    )


class SlotLinear(nn.Linear):
    """W u on slots made by `Slots.reading`.   (..., in) -> (..., out)

    points: how many lie side by side in the input, such as the heads of attention.
    Columns of times start at zero. Time is nearly the same for every token, and a random column would align them all.
    lengths: whether each row has a learned length, from 1, beside its direction. For rows that are kept at length 1 by
    `unit_rows` after each step of an optimizer. In training they go into the matrix: a pass over it and its gradient
    costs less than one over the output and its gradient.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> SlotLinear(4, 2, Lorentz()).weight[:, 0].tolist()  # the column of the time
    [0.0, 0.0]
    >>> layer, x = SlotLinear(4, 2, Euclidean()), torch.ones(4)
    >>> torch.equal(layer(x), F.linear(x, layer.weight))
    True
    """

    def __init__(self, in_features: int, out_features: int, manifold: Manifold, points: int = 1, lengths: bool = False):
        self.points, self.times = points, manifold.slots.times
        super().__init__(in_features, out_features, bias=False)
        self.lengths = nn.Parameter(torch.ones(out_features)) if lengths else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.still_time()
        if getattr(self, "lengths", None) is not None:  # nn.Linear calls this before they are there
            nn.init.ones_(self.lengths)  # type: ignore[arg-type]

    def forward(self, u: Tensor) -> Tensor:
        require_width(u, self.in_features, self)
        if self.lengths is not None and torch.is_grad_enabled():
            return F.linear(u, self.rows)
        out = super().forward(u)
        return out if self.lengths is None else out * self.lengths.to(out.dtype)

    @property
    def rows(self) -> Tensor:
        """The matrix, its rows as long as they are.

        >>> from horosphere.geometry import Euclidean
        >>> layer = SlotLinear(2, 2, Euclidean(), lengths=True)
        >>> with torch.no_grad():
        ...     layer.weight[:] = torch.eye(2)
        ...     layer.lengths[1] = 3
        >>> layer.rows.detach()
        tensor([[1., 0.],
                [0., 3.]])
        """
        return self.weight if self.lengths is None else self.weight * self.lengths.unsqueeze(-1).to(self.weight.dtype)

    @torch.no_grad()
    def still_time(self) -> None:
        """Set the columns of times to zero.

        >>> from horosphere.geometry import Lorentz
        >>> layer = SlotLinear(4, 2, Lorentz())
        >>> _ = nn.init.ones_(layer.weight)
        >>> layer.still_time()
        >>> layer.weight[0].tolist()
        [0.0, 1.0, 1.0, 1.0]
        """
        self.weight.unflatten(1, (self.points, -1))[..., : self.times] = 0


def plain(layer: nn.Module, x: Tensor) -> bool:
    """Whether the matrix of a layer (`rows`) is here and is all that it computes; if not, the layer must be called.

    Adapters replace or wrap a layer, quantisers its matrix, and offloading brings the matrix when the layer is called.

    >>> from horosphere.geometry import Lorentz
    >>> layer = SlotLinear(4, 2, Lorentz())
    >>> plain(layer, torch.ones(4)), plain(nn.Sequential(layer), torch.ones(4))
    (True, False)
    """
    if type(layer) is not SlotLinear:
        return False
    return type(layer.weight) in (nn.Parameter, Tensor) and layer.weight.device == x.device


@torch.no_grad()
def unit_rows(weight: Tensor) -> None:
    """Bring the rows of a matrix to length 1: each is a direction.

    >>> weight = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    >>> unit_rows(weight)
    >>> weight
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    if type(weight) in (nn.Parameter, Tensor) and fused(weight, FLAT, ALL) and weight.is_contiguous():
        return kernels.unit_rows(weight)
    weight /= torch.linalg.vector_norm(weight, dim=-1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny)


def side_by_side(x: Tensor, layers: Sequence[SlotLinear]) -> Tensor:
    """The outputs of several layers in a row, for a kernel that reads them all.   (..., n) -> (..., Σ out)

    In training this is one product, and so is its gradient; the gradients of several would have to be added up.
    In inference joining the weights would cost more than it saves.
    """
    require_width(x, layers[0].in_features, layers[0])
    if torch.is_grad_enabled() and all(plain(layer, x) for layer in layers):
        return F.linear(x, torch.cat([layer.rows for layer in layers]))
    return torch.cat([layer(x) for layer in layers], -1)


class SlotNorm(nn.RMSNorm):
    """RMSNorm of the space part, ready to be read.   (..., n) -> (..., n)

    fork=True gives the normed point and u itself. Read u from there afterwards: on CUDA both gradients then meet in
    one pass.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> u = torch.tensor([9.0, 2.0, 2.0, 2.0])
    >>> SlotNorm(4, Lorentz())(u).detach().round(decimals=3)  # time/√n, and a space part of mean square 1
    tensor([1., 1., 1., 1.])
    >>> torch.equal(SlotNorm(4, Euclidean())(u), F.rms_norm(u, (4,), eps=1e-6))
    True
    >>> normed, same = SlotNorm(4, Lorentz())(u, fork=True)
    >>> same is u
    True
    """

    eps: float

    def __init__(self, dim: int, manifold: Manifold, eps: float = 1e-6):
        super().__init__(dim, eps)
        self.manifold = manifold

    def forward(self, u: Tensor, fork: bool = False) -> Any:
        require_width(u, self.normalized_shape[0], self)
        if fused(u, self.manifold):
            both = kernels.norm(u, self.weight, self.manifold.slots.kernel_c, self.eps)
            return both if fork else both[0]
        return (self._norm(u), u) if fork else self._norm(u)

    def _norm(self, u: Tensor) -> Tensor:
        return self.manifold.slots.normed(u, self.weight, self.eps)


class SlotResidual(nn.Module):
    """The stream x joined by a layer's output y; x + y in flat space.   (..., n), (..., n) -> (..., n)

    "centroid": s·N(x + w·y), w learned from 1, s = `room`. N alone would shrink the stream to length about 1, and each
    layer would overwrite it. On the sphere, where every point has one length, there is no s.
    "additive": space parts add up, an identity path as in flat space.
    "interpolate": a share of the way from x to the direction of y, learned slot by slot from `STEP` (`Slots.towards`).

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, y = torch.tensor([0.0, 3.0, 4.0]), torch.tensor([0.0, 1.0, -1.0])
    >>> SlotResidual(3, Euclidean())(x, y)
    tensor([0., 4., 3.])
    >>> SlotResidual(3, Euclidean(), "interpolate")(x, y).detach()
    tensor([0.0000, 2.9112, 3.7388])
    >>> SlotResidual(3, Lorentz())(x, y).shape
    torch.Size([3])
    """

    def __init__(self, dim: int, manifold: Manifold, form: Residual = "centroid"):
        super().__init__()
        self.manifold, self.dim = manifold, dim
        self.form: Residual = "additive" if manifold.flat and form == "centroid" else form
        self.scale = room(dim) if manifold.slots.times else 1.0
        weights = {"centroid": 1, "interpolate": dim}
        self.weight = None if self.form == "additive" else nn.Parameter(torch.empty(weights[self.form]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.constant_(self.weight, self.start)

    @property
    def start(self) -> float:
        """What `weight` begins with.

        >>> from horosphere.geometry import Lorentz
        >>> SlotResidual(3, Lorentz()).start, SlotResidual(3, Lorentz(), "interpolate").start
        (1.0, 0.05)
        """
        return STEP if self.form == "interpolate" else 1.0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        require_width(x, self.dim, self)
        require_width(y, self.dim, self)
        if self.weight is None:
            return x + y
        if self.form == "interpolate":
            return self.manifold.slots.towards(x, y, self.weight)
        if fused(x, self.manifold):
            return kernels.residual(x, y.to(x.dtype), self.weight, self.scale, self.manifold.slots.kernel_c)
        return (self.scale * self.manifold.slots.join([(x, 1.0), (y, self.weight)])).to(x.dtype)


def residual_norm(x: Tensor, y: Tensor, residual: SlotResidual, norm: SlotNorm) -> tuple[Tensor, Tensor]:
    """x joined by y: its norm, and itself. It comes between two layers of a block; one pass where there is a kernel.

    Not where the weights are elsewhere: offloading brings them to a layer that is called.
    """
    w, c = residual.weight, residual.manifold.slots.kernel_c
    if w is not None and w.device == norm.weight.device == x.device:
        if residual.form == "centroid" and fused(x, residual.manifold):
            return kernels.residual_norm(x, y.to(x.dtype), w, norm.weight, residual.scale, c, norm.eps)
        if residual.form == "interpolate" and fused(x, residual.manifold, ALL):
            return kernels.towards_norm(x, y.to(x.dtype), w, norm.weight, c, norm.eps)
    both: tuple[Tensor, Tensor] = norm(residual(x, y), fork=True)
    return both
