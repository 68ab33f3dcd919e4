"""Batch and layer normalisation of points."""

from typing import Literal

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.geometry._scalar import asinhc, coshm1, sinhc
from horosphere.geometry.manifold import HALF, full_precision
from horosphere.nn.axes import (
    column,
    dot_along,
    free_along,
    one_geometry,
    point_along,
    positions,
    require_width,
    sq_along,
)
from horosphere.nn.centred import batch_norm_of_batch, several
from horosphere.nn.first_call import settle


class LayerNorm(nn.LayerNorm):
    """LayerNorm of the free coordinates of a point; torch's in flat space.   (..., d) -> (..., d)

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x = torch.tensor([1.0, 3.0])
    >>> LayerNorm(2, Lorentz())(x).detach().round(decimals=3)
    tensor([-1.,  1.])
    >>> torch.equal(LayerNorm(2, Euclidean())(x), nn.LayerNorm(2)(x))
    True
    """

    def __init__(self, dim: int, manifold: Manifold, eps: float = 1e-5):
        super().__init__(dim, eps)
        self.manifold = settle(self, manifold)

    def forward(self, x: Tensor) -> Tensor:
        require_width(x, self.normalized_shape[0], self)
        return self.manifold.point(super().forward(self.manifold.free(x)))


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """What BatchNorm1d and BatchNorm2d share.

    The running mean is kept by its free coordinates, so a state means the same point in every model of a geometry.
    """

    manifold: Manifold
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(
        self,
        features: int,
        manifold: Manifold,
        eps: float = 1e-5,
        momentum: float = 0.1,
        form: Literal["centred", "free"] = "centred",
    ):
        super().__init__(features, eps, momentum)
        if form not in ("centred", "free"):
            raise UserError(f'batch norm form "{form}": choose "centred" or "free"')
        self.manifold, self.form = settle(self, one_geometry(manifold, type(self).__name__), dim=1), form

    @property
    def sums_processes(self) -> bool:
        """Whether several processes share their statistics here. In flat space torch's SyncBatchNorm does it."""
        return not self.manifold.flat

    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        require_width(x, self.num_features, self, dim=1)
        if self.manifold.flat:
            return super().forward(x)
        if self.training and x.numel() == x.shape[1]:
            raise UserError(f"{type(self).__name__}: one point a batch has no variance; give more, or use eval()")
        u = free_along(x, self.manifold, 1)
        y = self._centred(u) if self.form == "centred" else self._free(u)
        return point_along(y, self.manifold, 1)

    def _centred(self, u: Tensor) -> Tensor:
        if not self.training:
            return batch_norm(u, self.running_mean, self.running_var, self.weight, self.bias, self.manifold.c, self.eps)
        y, mean, variance, count = batch_norm_of_batch(u, self.weight, self.bias, self.manifold.c, self.eps)
        self._remember(mean, variance * (count / (count - 1)))
        return y

    def _free(self, u: Tensor) -> Tensor:
        """torch's, of all processes."""
        if not (self.training and several()):
            return super().forward(u)
        from torch.distributed.nn.functional import all_reduce

        x = u.float() if u.dtype in HALF else u
        sums = all_reduce(torch.cat((x.sum(positions(x)), x.new_full((1,), x.numel() // x.shape[1]))))
        count, mean = sums[-1], sums[:-1] / sums[-1]
        centred = x - column(mean, x)
        variance = all_reduce(centred.square().sum(positions(x))) / count
        y = centred * column(self.weight * (variance + self.eps).rsqrt(), x) + column(self.bias, x)
        self._remember(mean, variance * (count / (count - 1)))
        return y.to(u.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, unbiased: Tensor) -> None:
        """A step of the running mean towards this one, of the variance too; `momentum` of the way.

        A centred mean goes along the geodesic, a mean of free coordinates along their line.
        """
        self.num_batches_tracked.add_(1)
        m, step = self.manifold, self.momentum
        if self.form == "centred":
            running, new = m.point(self.running_mean.to(mean.dtype)), m.point(mean)
            self.running_mean.copy_(m.free(m.geodesic(running, new, step)))
        else:
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), step)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), step)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """`BatchNorm2d` of points or sequences of points.   (B, C) or (B, C, T)

    >>> from horosphere.geometry import Lorentz
    >>> BatchNorm1d(3, Lorentz())(torch.randn(8, 3)).shape
    torch.Size([8, 3])
    """


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """Batch normalisation around the centroid μ of a batch; torch's in flat space.   (B, C, H, W) -> (B, C, H, W)

    v = lower(translate(x, -μ)); v·γ/√(var + ε) for each coordinate, var the mean of v²; lift; translate to β.
    μ and var are those of all processes, as SyncBatchNorm's. A point of C normalised coordinates lies √C from the
    origin: wide layers want a small c. form="free" is torch's BatchNorm of the free coordinates, and has no such bound.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, L = torch.randn(8, 3, 4, 4), Lorentz()
    >>> y = BatchNorm2d(3, L)(x).detach()
    >>> L.midpoint(y.movedim(1, -1).flatten(0, 2)).abs().max() < 0.1  # near the origin
    tensor(True)
    >>> torch.equal(BatchNorm2d(3, Euclidean())(x), nn.BatchNorm2d(3)(x))
    True
    """


@full_precision
def batch_norm(
    u: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> Tensor:
    """translate(lift(v·γ/√(var + ε)), β) of v = lower(translate(u, -mean)).   (B, C, …), 4 x (C,) -> (B, C, …)"""
    root, mean_time = c**0.5, (1 / c + sq_along(mean, 0)).sqrt()
    k = root * (1 / c + sq_along(u, 1)).sqrt() - c * dot_along(mean, u) / (1 + root * mean_time)
    y = u - k * column(mean, u)
    w = asinhc(c * sq_along(y, 1)) * y * column(weight * (variance + eps).rsqrt(), u)
    q, bias_time = c * sq_along(w, 1), (1 / c + sq_along(bias, 0)).sqrt()
    lifted = sinhc(q) * w
    return lifted + (c * dot_along(bias, lifted) / (1 + root * bias_time) + 1 + coshm1(q)) * column(bias, u)
