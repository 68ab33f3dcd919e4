"""Batch and layer normalisation of points."""

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.geometry._scalar import asinhc, coshm1, sinhc
from horosphere.geometry.manifold import HALF, full_precision
from horosphere.nn.axes import free_along, one_geometry, point_along, sq_along
from horosphere.nn.conv import rise, to_centroid


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
        self.manifold = manifold

    def forward(self, x: Tensor) -> Tensor:
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
        self.manifold, self.form = one_geometry(manifold, type(self).__name__), form

    @property
    def sums_processes(self) -> bool:
        """Whether several processes share their statistics here. In flat space torch's SyncBatchNorm does it."""
        return not self.manifold.flat

    def forward(self, x: Tensor) -> Tensor:
        if self.manifold.flat:
            return super().forward(x)
        self._check_input_dim(x)
        if x.shape[1] != self.num_features:
            asked = f"{type(self).__name__} of {self.num_features} features"
            raise UserError(f"{asked}: x is {tuple(x.shape)}; give points along dim 1")
        if self.training and x.numel() == x.shape[1]:
            raise UserError(f"{type(self).__name__}: one point a batch has no variance; give more, or use eval()")
        u = free_along(x, self.manifold, 1)
        y = super().forward(u) if self.form == "free" else self._centred(u)
        return point_along(y, self.manifold, 1)

    def _centred(self, u: Tensor) -> Tensor:
        if not self.training:
            return batch_norm(u, self.running_mean, self.running_var, self.weight, self.bias, self.manifold.c, self.eps)
        y, mean, variance, count = batch_norm_of_batch(u, self.weight, self.bias, self.manifold.c, self.eps)
        self._remember(mean, variance * (count / (count - 1)))
        return y

    @torch.no_grad()
    def _remember(self, mean: Tensor, unbiased: Tensor) -> None:
        """A geodesic step of the running mean towards this one, a step of the variance; `momentum` of the way."""
        self.num_batches_tracked.add_(1)
        m, step = self.manifold, self.momentum
        running, new = m.point(self.running_mean.to(mean.dtype)), m.point(mean)
        self.running_mean.copy_(m.free(m.geodesic(running, new, step)))
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
    μ and var are those of all processes, as SyncBatchNorm's. form="free": torch's BatchNorm of the free coordinates.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, L = torch.randn(8, 3, 4, 4), Lorentz()
    >>> y = BatchNorm2d(3, L)(x).detach()
    >>> L.midpoint(y.movedim(1, -1).flatten(0, 2)).abs().max() < 0.1  # near the origin
    tensor(True)
    >>> torch.equal(BatchNorm2d(3, Euclidean())(x), nn.BatchNorm2d(3)(x))
    True
    """


# -- the curved form, on free coordinates (B, C, …) --------------------------------------------------------------------


@full_precision
def batch_norm(
    u: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> Tensor:
    """translate(lift(v·γ/√(var + ε)), β) of v = lower(translate(u, -mean)).   (B, C, …), 4 x (C,) -> (B, C, …)"""
    return _restored(_centred(u, mean, c), variance, weight, bias, c, eps)


def batch_norm_of_batch(
    u: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`batch_norm` by the centroid and the variance of the batch itself; those two, and how many points there are."""
    with torch.autocast(u.device.type, enabled=False):
        x, weight, bias = (t.float() if t.dtype in HALF else t for t in (u, weight, bias))
        mean, count = _centroid(x, c)
        v = _centred(x, mean, c)
        variance = _over_processes(v.square().sum(_positions(v))) / count
        y = _restored(v, variance, weight, bias, c, eps)
    return y.to(u.dtype), mean.detach(), variance.detach(), count


def _centroid(u: Tensor, c: float | Tensor) -> tuple[Tensor, Tensor]:
    """The centroid of all points, and their number.   (B, C, …) -> (C,), ()"""
    here = u.new_full((1,), u.numel() // u.shape[1])
    sums = _over_processes(torch.cat((u.sum(_positions(u)), rise(u, c, 1).sum().view(1), here)))
    count = sums[-1]
    means = sums[:-1] / count
    return to_centroid(means[:-1], means[-1:], c, 0), count


def _centred(u: Tensor, mean: Tensor, c: float | Tensor) -> Tensor:
    """lower(translate(u, -mean)).   (B, C, …), (C,) -> (B, C, …)

    translate(u, -μ) = u - k·μ, k = √c·time(u) - c·μ·u/(1 + √c·time(μ)): one number a point.
    """
    root, mean_time = c**0.5, (1 / c + sq_along(mean, 0)).sqrt()
    time = (1 / c + sq_along(u, 1)).sqrt()
    k = root * time - c * _dot(mean, u) / (1 + root * mean_time)
    y = u - k * _column(mean, u)
    return asinhc(c * sq_along(y, 1)) * y


def _restored(v: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float) -> Tensor:
    """translate(lift(v·γ/√(var + ε)), β).   (B, C, …), 3 x (C,) -> (B, C, …)"""
    w = v * _column(weight * (variance + eps).rsqrt(), v)
    root, bias_time = c**0.5, (1 / c + sq_along(bias, 0)).sqrt()
    q = c * sq_along(w, 1)
    lifted = sinhc(q) * w
    k = c * _dot(bias, lifted) / (1 + root * bias_time) + 1 + coshm1(q)
    return lifted + k * _column(bias, v)


def _positions(u: Tensor) -> list[int]:
    """All axes but that of the channels."""
    return [axis for axis in range(u.dim()) if axis != 1]


def _column(per_channel: Tensor, u: Tensor) -> Tensor:
    """(C,) -> (C, 1, …), to stand beside (B, C, …)"""
    return per_channel.view(-1, *(1 for _ in u.shape[2:]))


def _dot(a: Tensor, u: Tensor) -> Tensor:
    """a·u of every point, by a product of matrices.   (C,), (B, C, …) -> (B, 1, …)"""
    return (a @ u.reshape(*u.shape[:2], -1)).view(u.shape[0], 1, *u.shape[2:])


def _over_processes(sums: Tensor) -> Tensor:
    """The sum over all processes, through which gradients flow; as it is where there is one."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return sums
    from torch.distributed.nn.functional import all_reduce

    total: Tensor = all_reduce(sums)
    return total
