"""Batch and layer normalisation of points."""

import functools
from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.geometry._scalar import (
    asinhc,
    coshm1,
    plain_asinhc,
    plain_asinhc_slope,
    plain_sinhc,
    plain_sinhc_slope,
    sinhc,
)
from horosphere.geometry.manifold import HALF, full_precision
from horosphere.nn.axes import free_along, one_geometry, point_along, require_width, sq_along
from horosphere.nn.once import once

CACHED = 1 << 18  # numbers of a piece that is worked on
NO_SECOND = 'the centred batch norm has no second derivative in training; use form="free" or eval()'


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
        self.manifold, self.form = one_geometry(manifold, type(self).__name__), form

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
        if not (self.training and _several()):
            return super().forward(u)
        from torch.distributed.nn.functional import all_reduce

        x = u.float() if u.dtype in HALF else u
        sums = all_reduce(torch.cat((x.sum(_positions(x)), x.new_full((1,), x.numel() // x.shape[1]))))
        count, mean = sums[-1], sums[:-1] / sums[-1]
        centred = x - _column(mean, x)
        variance = all_reduce(centred.square().sum(_positions(x))) / count
        y = centred * _column(self.weight * (variance + self.eps).rsqrt(), x) + _column(self.bias, x)
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


# -- the curved form, on free coordinates (B, C, …) --------------------------------------------------------------------
#
# Two steps around v, the batch seen from its centroid. Each is a few numbers for every point (time, k, …) and passes
# over memory of the form a·u + b·μ. Their gradients are written by hand: autograd would make 6 times as many passes.


@full_precision
def batch_norm(
    u: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> Tensor:
    """translate(lift(v·γ/√(var + ε)), β) of v = lower(translate(u, -mean)).   (B, C, …), 4 x (C,) -> (B, C, …)"""
    root, mean_time = c**0.5, (1 / c + sq_along(mean, 0)).sqrt()
    k = root * (1 / c + sq_along(u, 1)).sqrt() - c * _dot(mean, u) / (1 + root * mean_time)
    y = u - k * _column(mean, u)
    w = asinhc(c * sq_along(y, 1)) * y * _column(weight * (variance + eps).rsqrt(), u)
    q, bias_time = c * sq_along(w, 1), (1 / c + sq_along(bias, 0)).sqrt()
    lifted = sinhc(q) * w
    return lifted + (c * _dot(bias, lifted) / (1 + root * bias_time) + 1 + coshm1(q)) * _column(bias, u)


def batch_norm_of_batch(
    u: Tensor, weight: Tensor, bias: Tensor, c: float | Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`batch_norm` by the centroid and the variance of the batch itself; those two, and how many points there are."""
    with torch.autocast(u.device.type, enabled=False):
        x, weight, bias = (t.float() if t.dtype in HALF else t for t in (u, weight, bias))
        v, mean, count = _Centred.apply(x, c)
        y, variance = _Restored.apply(v, weight, bias, count, c, eps)
    return y.to(u.dtype), mean, variance, count


class _Centred(torch.autograd.Function):
    """v = lower(translate(x, -μ)) of the centroid μ of all points; μ; and how many points there are.

    z, e: the mean of x and of its `rise`;  μ = n·z, n = 1/√(-c<z, z>)
    translate(x, -μ) = y = x - k·μ,  k = √c·time(x) - c·h·μ·x,  h = 1/(1 + √c·time(μ))
    v = s·y,  s = asinhc(c|y|²)
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, c: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        root = c**0.5
        squares = _per_point(x, x)
        time = (1 / c + squares).sqrt()
        rises = (squares / (time + 1 / root)).sum().view(1)
        sums = _over_processes(torch.cat((x.sum(_positions(x)), rises, x.new_full((1,), x.numel() // x.shape[1]))))
        count = sums[-1]
        z, e = sums[:-2] / count, sums[-2] / count
        above = (2 * root * e + c * (e.square() - z @ z)).clamp_min(0)
        n = (1 + above).rsqrt()
        mean = n * z
        h = 1 / (1 + root * (1 / c + mean @ mean).sqrt())
        along = _dot(mean, x)
        k = root * time - c * h * along
        y = torch.addcmul(x, k, _column(mean, x), value=-1)
        distance2 = _per_point(y, y)
        s = plain_asinhc(c * distance2)
        v = y.mul_(s)
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.save_for_backward(
            x, v, time, along, k, distance2, s, z, e, above, n, mean, h, count, c if isinstance(c, Tensor) else None
        )
        ctx.mark_non_differentiable(mean, count)
        return v.view_as(x), mean, count  # a view: as in geometry/lorentz.py, for torch.compile

    @staticmethod
    @functools.partial(once, refusal=NO_SECOND)
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, Tensor | None]:
        x, v, time, along, k, distance2, s, z, e, above, n, mean, h, count, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        root = c**0.5
        mean2 = mean @ mean
        mean_time = (1 / c + mean2).sqrt()
        of_s = _per_point(grad, v) / s
        of_scaled = plain_asinhc_slope(c * distance2, of_s)  # of c|y|²
        twice = 2 * c * of_scaled
        of_k = -(s * _dot(mean, grad) + twice * (along - k * mean2))
        of_mean = mean * (twice * k * k + (c * h * h * root / mean_time) * along * of_k).sum()
        of_mean = of_mean - _per_channel(grad, k * s) - _per_channel(x, twice * k + (c * h) * of_k)
        common = _over_processes(of_mean)  # every process moved the centroid of all
        is_open = (above > 0).to(n.dtype)
        of_n = (common @ z) * n**3 * is_open
        of_z = n * common + c * of_n * z
        of_rise = -of_n * (root + c * e) / count
        gx = grad * s
        gx.addcmul_(x, twice + (root * of_k + of_rise) / time)
        gx.addcmul_(_column(mean, x), twice * k + (c * h) * of_k, value=-1)
        gx.add_(_column(of_z / count, x))
        gc = None
        if tensor_c is not None and ctx.needs_input_grad[1]:
            of_time, of_mean_time = -1 / (2 * c * c * time), -1 / (2 * c * c * mean_time)  # by c
            of_h = -h * h * (mean_time / (2 * root) + root * of_mean_time)
            by_k = time / (2 * root) + root * of_time - h * along - c * along * of_h
            by_above = -0.5 * (of_mean @ z) * n**3 * is_open * (e / root + e.square() - z @ z)
            by_rise = of_rise * (of_time + 1 / (2 * c * root)).sum()
            gc = ((of_scaled * distance2 + of_k * by_k).sum() + by_above + by_rise).sum_to_size(c.shape)
        return gx.view_as(x), gc


class _Restored(torch.autograd.Function):
    """translate(lift(w), β) of w = v·γ/√(var + ε), var the mean of v² for each coordinate; and var.

    lift(w) = l·w, l = sinhc(c|w|²);  translate(y, β) = y + k·β,  k = cosh(√c|w|) + c·h·l·β·w,  h = 1/(1 + √c·time(β))
    """

    @staticmethod
    def forward(
        ctx: Any, v: Tensor, weight: Tensor, bias: Tensor, count: Tensor, c: float | Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        variance = _over_processes(_per_channel(v, v)) / count
        inverse = (variance + eps).rsqrt()
        w = v * _column(weight * inverse, v)
        q = c * _per_point(w, w)
        lengthened = plain_sinhc(q)
        h = 1 / (1 + c**0.5 * (1 / c + bias @ bias).sqrt())
        along = _dot(bias, w)
        k = (c * h) * lengthened * along + 1 + q / 2 * plain_sinhc(q / 4).square()
        y = w.mul_(lengthened).addcmul_(_column(bias, v), k)
        ctx.c = None if isinstance(c, Tensor) else c
        ctx.save_for_backward(
            v, weight, bias, inverse, q, lengthened, h, along, k, count, c if isinstance(c, Tensor) else None
        )
        ctx.mark_non_differentiable(variance)
        return y.view_as(v), variance

    @staticmethod
    @functools.partial(once, refusal=NO_SECOND)
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        v, weight, bias, inverse, q, lengthened, h, along, k, count, tensor_c = ctx.saved_tensors
        c = ctx.c if tensor_c is None else tensor_c
        root, bias_time = c**0.5, (1 / c + bias @ bias).sqrt()
        w = v * _column(weight * inverse, v)
        of_k = _dot(bias, grad)
        of_l = _per_point(grad, w) + (c * h) * of_k * along
        of_q = plain_sinhc_slope(q, of_l) + of_k * lengthened / 2
        of_along = (c * h) * of_k * lengthened
        by_h = c * (of_k * lengthened * along).sum()
        gbias = _per_channel(grad, k) + _per_channel(w, of_along) - bias * (h * h * root / bias_time * by_h)
        gw = w.mul_(2 * c * of_q).addcmul_(grad, lengthened).addcmul_(_column(bias, v), of_along)
        of_scale = _per_channel(gw, v)
        of_variance = _over_processes(-0.5 * of_scale * weight * inverse**3)
        gv = gw.mul_(_column(weight * inverse, v)).addcmul_(v, _column(2 * of_variance / count, v))
        gc = None
        if tensor_c is not None and ctx.needs_input_grad[4]:
            of_h = -h * h * (bias_time / (2 * root) - root / (2 * c * c * bias_time))
            gc = ((of_q * q / c + h * of_k * lengthened * along).sum() + by_h * of_h).sum_to_size(c.shape)
        return gv.view_as(v), of_scale * inverse, gbias, None, gc, None


def _positions(u: Tensor) -> list[int]:
    """All axes but that of the channels."""
    return [axis for axis in range(u.dim()) if axis != 1]


def _column(per_channel: Tensor, u: Tensor) -> Tensor:
    """(C,) -> (C, 1, …), to stand beside (B, C, …)"""
    return per_channel.view(-1, *(1 for _ in u.shape[2:]))


def _dot(a: Tensor, u: Tensor) -> Tensor:
    """a·u of every point, by a product of matrices.   (C,), (B, C, …) -> (B, 1, …)"""
    if torch.compiler.is_compiling():  # a sum becomes one with what comes before and after it; a product does not
        return (u * _column(a, u)).sum(1, keepdim=True)
    return (a.view(1, -1) @ u.reshape(*u.shape[:2], -1)).view(u.shape[0], 1, *u.shape[2:])


def _per_point(a: Tensor, b: Tensor) -> Tensor:
    """a·b of every point.   2 x (B, C, …) -> (B, 1, …)"""
    return torch.cat([(p * q).sum(1, keepdim=True) for p, q in _in_cache(a, b)])


def _per_channel(u: Tensor, by: Tensor) -> Tensor:
    """Σ u·by of every channel.   (B, C, …), (B, 1 or C, …) -> (C,)"""
    return torch.stack([(p * q).sum(_positions(p)) for p, q in _in_cache(u, by)]).sum(0)


def _in_cache(a: Tensor, b: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
    """Both whole, where they are compiled or on an accelerator. On the CPU pieces: a product of all would be fresh
    memory, which takes the system longer than the product."""
    if a.device.type != "cpu" or torch.compiler.is_compiling():
        return [(a, b)]
    rows = max(1, CACHED * len(a) // a.numel())
    return zip(a.split(rows), b.split(rows), strict=True)


def _over_processes(sums: Tensor) -> Tensor:
    """The sum over all processes; as it is where there is one."""
    if not _several():
        return sums
    total = sums.clone()
    dist.all_reduce(total)
    return total


def _several() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
