"""What keeps a deep stack of layers trainable: normalisation and residual connections."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold, Product
from horosphere.nn.axes import require_width
from horosphere.nn.slots import room


class RMSNorm(nn.RMSNorm):
    """RMSNorm of the free coordinates of a point; torch's RMSNorm in flat space.   (..., d) -> (..., d)

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x = torch.tensor([3.0, 4.0])
    >>> RMSNorm(2, Lorentz())(x).detach().round(decimals=3)
    tensor([0.8490, 1.1310])
    >>> torch.equal(RMSNorm(2, Euclidean())(x), nn.RMSNorm(2)(x))
    True
    """

    def __init__(self, dim: int, manifold: Manifold, eps: float | None = None):
        super().__init__(dim, eps)
        self.manifold = manifold

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.normalized_shape[0], self)
        space = self.manifold.free(x)
        return self.manifold.point(F.rms_norm(space, self.normalized_shape, self.weight.to(space.dtype), self.eps))


class Residual(nn.Module):
    """x joined by a layer's output y; x + y in flat space.   (..., d), (..., d) -> (..., d)

    "centroid": s·N(x + w·y) on the space part, w learned from 1, s = 4√d. N alone would shrink the stream to length
    about 1, and each layer would overwrite it. "additive": the point with coordinates x + y, an identity path as in
    flat space. A product is joined factor by factor, each with its own w and d.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, y = torch.tensor([3.0, 4.0]), torch.tensor([1.0, -1.0])
    >>> Residual(2, Euclidean())(x, y)
    tensor([4., 3.])
    >>> Residual(2, Lorentz())(x, y).shape
    torch.Size([2])
    """

    def __init__(self, dim: int, manifold: Manifold, form: Literal["centroid", "additive"] = "centroid"):
        super().__init__()
        if form not in ("centroid", "additive"):
            raise ValueError(f'residual form "{form}": choose "centroid" or "additive"')
        self.manifold, self.dim = manifold, dim
        self.scale = room(dim)
        factors = zip(manifold.dims, manifold.factors, strict=True) if isinstance(manifold, Product) else ()
        self.parts = nn.ModuleList(Residual(d, m, form) for d, m in factors)
        weighted = form == "centroid" and not manifold.flat and not self.parts
        self.weight = nn.Parameter(torch.ones(1)) if weighted else None

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        require_width(x, self.dim, self)
        require_width(y, self.dim, self)
        m = self.manifold
        if isinstance(m, Product):
            return torch.cat([part(x, y) for part, x, y in zip(self.parts, m.split(x), m.split(y), strict=True)], -1)
        if self.weight is None:
            return m.point(m.free(x) + m.free(y))
        return m.point(self.scale * m.ambient(m.add(x, y, self.weight))[0])
