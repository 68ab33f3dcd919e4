"""Mixture of experts; on the hyperboloid a mixture of curvatures (MiCE).

Tokens are sorted by expert, and one grouped product serves all experts: no loop over them, nothing sent to the host.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.geometry.manifold import learned_curvature
from horosphere.nn.axes import require_width
from horosphere.nn.slots import CURVED, fused, kernels, room


class Router(nn.Module):
    """Which experts a token goes to.   (B, T, dim) -> weights (N, k), experts (N, k), balance loss; N = B·T

    "sigmoid" (DeepSeek-V3): affinity σ(w·x) of the space part. A token goes to the k largest of affinity + bias; their
    weights are the affinities, made to sum to 1. "softmax": the same with softmax affinities.
    The bias only chooses; `rebalance` moves it towards equal load. The loss is DeepSeek's Σ f_i P_i of a sequence.

    >>> from horosphere.geometry import Lorentz
    >>> router = Router(dim=8, experts=4, active=2, manifold=Lorentz())
    >>> weights, experts, balance = router(torch.ones(1, 5, 8))
    >>> weights.shape, experts.shape, weights.sum(-1).detach().round(decimals=3)
    (torch.Size([5, 2]), torch.Size([5, 2]), tensor([1., 1., 1., 1., 1.]))
    """

    load: Tensor
    e_score_correction_bias: Tensor

    def __init__(
        self,
        dim: int,
        experts: int,
        active: int,
        manifold: Manifold,
        form: Literal["sigmoid", "softmax"] = "sigmoid",
        scale: float = 1.0,
    ):
        super().__init__()
        if not 1 <= active <= experts:
            raise ValueError(f"{active} active experts of {experts}: choose 1 to {experts}")
        self.manifold, self.active, self.form, self.scale = manifold, active, form, scale
        self.weight = nn.Parameter(torch.empty(experts, dim))
        self.register_buffer("e_score_correction_bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts))  # tokens sent to each expert since the last `rebalance`
        self.seen: int | None = None  # the version of the weight at the last `rebalance`
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.e_score_correction_bias)
        nn.init.zeros_(self.load)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        require_width(x, self.weight.shape[1], self)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):  # close calls between experts are decided in fp32
            logits = F.linear(x.to(wide), self.manifold.slots.space(self.weight.to(wide)))
        affinity = logits.sigmoid() if self.form == "sigmoid" else logits.softmax(-1)
        chosen = (affinity.detach() + self.e_score_correction_bias).topk(self.active, dim=-1).indices
        weights = affinity.gather(-1, chosen)
        weights = self.scale * weights / weights.sum(-1, keepdim=True)
        sent = (chosen.unsqueeze(-1) == torch.arange(len(self.weight), device=x.device)).sum(-2)  # (B, T, E)
        if self.training:
            self.load += sent.detach().sum((0, 1))
        share = affinity / affinity.sum(-1, keepdim=True)
        fraction = sent.to(share.dtype).mean(1) * (len(self.weight) / self.active)
        balance = (fraction * share.mean(1)).sum(-1).mean()
        return weights.flatten(0, 1), chosen.flatten(0, 1), balance

    @torch.no_grad()
    def rebalance(self, speed: float) -> None:
        """bias += speed · sign(mean load - load), over all processes; the load starts again from zero.

        >>> from horosphere.geometry import Lorentz
        >>> router = Router(dim=8, experts=2, active=1, manifold=Lorentz())
        >>> router.load += torch.tensor([9.0, 1.0])  # the first expert has too much to do
        >>> router.rebalance(speed=0.5)
        >>> router.e_score_correction_bias
        tensor([-0.5000,  0.5000])
        """
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.load)
        self.e_score_correction_bias += speed * (self.load.mean() - self.load).sign()
        self.load.zero_()
        self.seen = self.weight._version

    def follow(self, speed: float) -> None:
        """`rebalance` if the weight has changed since: so an optimizer has made a step, whoever called it.

        For trainings that do not know of `rebalance`. A router that does not learn is left as it is.

        >>> from horosphere.geometry import Lorentz
        >>> router = Router(dim=8, experts=2, active=1, manifold=Lorentz())
        >>> router.follow(speed=0.5)  # the beginning
        >>> router.load += torch.tensor([9.0, 1.0])
        >>> router.follow(speed=0.5)  # no step yet
        >>> router.e_score_correction_bias
        tensor([0., 0.])
        >>> with torch.no_grad():
        ...     _ = router.weight.add_(1)  # as a step does
        >>> router.follow(speed=0.5)
        >>> router.e_score_correction_bias
        tensor([-0.5000,  0.5000])
        """
        if self.seen is None:
            self.seen = self.weight._version
        elif self.weight.requires_grad and self.weight._version != self.seen:
            self.rebalance(speed)


class Experts(nn.Module):
    """SwiGLU experts on slots, each at its own curvature: x enters as √(c/c_e)·x, y comes back as √(c_e/c)·y.

    spread: curvatures are learned, and start at c·spread, geometrically spaced. None: all are fixed at c (MiCE-Const).
    In flat space, and on the sphere, whose points are directions, there is none to learn.
    lengths: of the rows of gates and ups, learned (`SlotLinear`).

    >>> from horosphere.geometry import Lorentz
    >>> experts = Experts(3, dim=8, inner=16, manifold=Lorentz(), spread=(0.1, 10.0))
    >>> experts.c.detach().round(decimals=3)
    tensor([ 0.1000,  1.0000, 10.0000])
    >>> experts(torch.ones(5, 8), chosen=torch.tensor([[0], [2], [0], [1], [1]]))[0].shape
    torch.Size([5, 8])
    """

    c0: Tensor

    def __init__(
        self,
        experts: int,
        dim: int,
        inner: int,
        manifold: Manifold,
        spread: tuple[float, float] | None = None,
        lengths: bool = False,
    ):
        super().__init__()
        self.manifold, self.spread = manifold, spread if manifold.slots.times else None
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, dim))
        self.down_proj = nn.Parameter(torch.empty(experts, dim, inner))
        self.lengths = nn.Parameter(torch.empty(experts, 2 * inner)) if lengths else None
        if self.spread is not None:
            self.register_buffer("c0", torch.empty(experts))
            self.log_ratio = nn.Parameter(torch.empty(experts))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.gate_up_proj, self.down_proj):
            nn.init.normal_(weight, std=0.02)
        self.still_time()
        if self.lengths is not None:
            nn.init.ones_(self.lengths)
        if self.spread is not None:
            with torch.no_grad():
                self.c0.copy_(self.start_curvature())
            nn.init.zeros_(self.log_ratio)

    def no_weight_decay(self) -> set[str]:
        """What must not decay, though it is a matrix: lengths begin at 1.

        >>> from horosphere.geometry import Euclidean
        >>> Experts(3, 8, 16, Euclidean(), lengths=True).no_weight_decay()
        {'lengths'}
        """
        return {"lengths"}

    @torch.no_grad()
    def still_time(self) -> None:
        """Set the columns of times to zero, as in `SlotLinear`.

        >>> from horosphere.geometry import Lorentz
        >>> experts = Experts(3, dim=8, inner=16, manifold=Lorentz())
        >>> experts.still_time()
        >>> bool((experts.down_proj[..., 0] == 0).all())
        True
        """
        for weight in (self.gate_up_proj, self.down_proj):
            weight[..., : self.manifold.slots.times] = 0

    def start_curvature(self) -> Tensor:
        """c·spread, geometrically spaced; a single expert sits in the middle.   (E,)

        >>> from horosphere.geometry import Lorentz
        >>> Experts(3, 8, 16, Lorentz(c=2.0), spread=(0.1, 10.0)).start_curvature().round(decimals=3)
        tensor([ 0.2000,  2.0000, 20.0000])
        """
        assert self.spread is not None
        low, high = (math.log(float(self.manifold.c) * s) for s in self.spread)
        experts = len(self.gate_up_proj)
        return (torch.linspace(low, high, experts) if experts > 1 else torch.tensor([(low + high) / 2])).exp()

    @property
    def c(self) -> Tensor | None:
        """The experts' curvatures (E,); None where all live on the stream's manifold.

        >>> from horosphere.geometry import Lorentz
        >>> print(Experts(3, 8, 16, Lorentz()).c)
        None
        >>> Experts(3, 8, 16, Lorentz(), spread=(0.1, 10.0)).c.shape
        torch.Size([3])
        """
        return None if self.spread is None else learned_curvature(self.c0, self.log_ratio)

    @property
    def _gate_up(self) -> Tensor:
        """The matrices of gates and ups, rows at their lengths."""
        return self.gate_up_proj if self.lengths is None else self.gate_up_proj * self.lengths.unsqueeze(-1)

    def everyone(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """All experts on all tokens, and the factors √(c/c_e) to divide by.   (N, dim) -> (E, N, dim), (E,)

        >>> from horosphere.geometry import Lorentz
        >>> y, factors = Experts(3, 8, 16, Lorentz(), spread=(0.25, 1.0)).everyone(torch.ones(5, 8))
        >>> y.shape, factors.detach().round(decimals=3)
        (torch.Size([3, 5, 8]), tensor([2.0000, 1.4140, 1.0000]))
        """
        require_width(x, self.gate_up_proj.shape[-1], self)
        factor = None if self.c is None else (self.manifold.c / self.c).sqrt()
        joint = x @ self._gate_up.mT
        h = self._swiglu(joint, None if factor is None else factor.view(-1, 1, 1).expand(*joint.shape[:-1], 1))
        return h @ self.down_proj.mT, factor

    def forward(self, x: Tensor, chosen: Tensor | None = None) -> tuple[Any, ...]:
        """The chosen experts of each token.   (N, dim), (N, k) -> (N·k, dim), order (N·k), place (N·k), factors (N, k)

        Rows are sorted by expert. order: which pair of token and choice a row is; place: the row of each pair.
        Without a choice: `everyone`.
        """
        require_width(x, self.gate_up_proj.shape[-1], self)
        if chosen is None:
            return self.everyone(x)
        active, experts = chosen.shape[1], len(self.gate_up_proj)
        expert, order = chosen.flatten().to(torch.int16).sort(stable=True)  # int16: the radix sort makes fewer passes
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        ends = (expert == torch.arange(experts, device=x.device).unsqueeze(-1)).sum(-1).cumsum(0).to(torch.int32)
        dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype

        factor = sorted_factor = None
        if self.c is not None:
            each = (self.manifold.c / self.c).sqrt()
            member = (chosen.unsqueeze(-1) == torch.arange(experts, device=x.device)).to(each.dtype)
            factor = (member * each).sum(-1)  # not each[chosen], whose gradient is a scatter into a few rows
            sorted_factor = _Permute.apply(factor.view(-1, 1), order, place, 1)
        rows = _Permute.apply(x.to(dtype), order, place, active)
        h = self._swiglu(grouped_product(rows, self._gate_up.to(dtype), ends), sorted_factor)
        return grouped_product(h.to(dtype), self.down_proj.to(dtype), ends), order, place, factor

    def _swiglu(self, joint: Tensor, factor: Tensor | None) -> Tensor:
        """silu(gate)·up at the expert's own curvature: the factor √(c/c_e) on the input, the time √(1/c_e + |h|²)."""
        if fused(joint, self.manifold, CURVED):
            by_row = None if factor is None else factor.reshape(-1)
            return kernels.gate(joint, by_row, self.manifold.slots.kernel_c)
        gate, up = joint.chunk(2, -1)
        if factor is None:
            return self.manifold.slots.reading(F.silu(gate) * up)
        factor = factor.to(torch.promote_types(factor.dtype, joint.dtype))
        h = F.silu(factor * gate) * (factor * up)
        return self.manifold.slots.reading(h, floor=factor.square() / self.manifold.c).to(joint.dtype)


class MixtureOfExperts(nn.Module):
    """Shared and routed experts joined in one centroid s·N(Σ y_shared + Σ g_i y_i); their sum in flat space.

    (B, T, dim) -> (B, T, dim), balance loss.   s = `room`; 1 on the sphere.
    Each token goes to `active` of the `routed` experts and to all of the `shared` ones.

    >>> from horosphere.geometry import Lorentz
    >>> layer = MixtureOfExperts(dim=8, inner=16, manifold=Lorentz(), routed=4, active=2, shared=1)
    >>> y, balance = layer(torch.ones(1, 5, 8))
    >>> y.shape, balance.shape
    (torch.Size([1, 5, 8]), torch.Size([]))
    """

    def __init__(
        self,
        dim: int,
        inner: int,
        manifold: Manifold,
        routed: int,
        active: int,
        shared: int,
        spread: tuple[float, float] | None = None,
        lengths: bool = False,
        **router_options: Any,
    ):
        super().__init__()
        self.manifold = manifold
        self.scale = room(dim) if manifold.slots.times else 1.0
        self.gate = Router(dim, routed, active, manifold, **router_options)
        self.experts = Experts(routed, dim, inner, manifold, spread, lengths)
        self.shared_experts = Experts(shared, dim, inner, manifold, spread, lengths) if shared else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen, balance = self.gate(x)
        flat = x.flatten(0, 1)
        y, order, place, factor = self.experts(flat, chosen)
        shared, shared_factor = (None, None) if self.shared_experts is None else self.shared_experts(flat)
        if fused(y, self.manifold):
            c = self.manifold.slots.kernel_c
            mixed = kernels.mixture(y, place, weights, factor, shared, shared_factor, self.scale, c)
            return mixed.to(x.dtype).view_as(x), balance
        y = _Permute.apply(y, place, order, 1).view(*chosen.shape, -1)
        y = y if factor is None else y / factor.unsqueeze(-1)
        weighted: list[tuple[Tensor, Tensor | float]] = list(zip(y.unbind(1), weights.split(1, -1), strict=True))
        if shared is not None:
            shared = shared if shared_factor is None else shared / shared_factor.view(-1, 1, 1)
            weighted += [(y, 1.0) for y in shared.unbind(0)]
        y = self.manifold.slots.join(weighted)
        return (y if self.scale == 1 else self.scale * y).to(x.dtype).view_as(x), balance


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Rows up to ends[0] times weight[0]ᵀ, the next up to ends[1] times weight[1]ᵀ, …

    (M, n), (E, m, n), (E,) -> (M, m)
    """
    if x.dtype == torch.float64:  # torch has no grouped product for it: every expert on every row, then a choice
        row = torch.arange(len(x), device=x.device)
        return (x @ weight.mT)[torch.searchsorted(ends, row, right=True), row]
    if torch.compiler.is_compiling() and x.dtype != torch.bfloat16:  # the compiler refuses it in other precisions
        return _unseen_product(x, weight, ends)
    return _contiguous_gradient(F.grouped_mm(x, weight.mT, offs=ends))


@torch.library.custom_op("horosphere::grouped_product", mutates_args=())
def _unseen_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """torch's grouped product, which the compiler does not look into."""
    return F.grouped_mm(x, weight.mT, offs=ends)


@torch.library.custom_op("horosphere::grouped_product_backward", mutates_args=())
def _unseen_gradients(grad: Tensor, x: Tensor, weight: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    grad = grad.contiguous()
    return F.grouped_mm(grad, weight, offs=ends), F.grouped_mm(grad.mT, x, offs=ends)


_unseen_product.register_fake(lambda x, weight, ends: x.new_empty(x.shape[0], weight.shape[1]))
_unseen_gradients.register_fake(lambda grad, x, weight, ends: (torch.empty_like(x), torch.empty_like(weight)))
_unseen_product.register_autograd(
    lambda ctx, grad: (*_unseen_gradients(grad, *ctx.saved_tensors), None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class _Permute(torch.autograd.Function):
    """x[order // copies]: rows in another order, each `copies` times. place is the inverse of order.

    The gradient is the way back, not the scatter that autograd would take.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, place: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(order, place)
        ctx.copies = copies
        return x[order // copies] if copies > 1 else x[order]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        order, place = ctx.saved_tensors
        back = _Permute.apply(grad, place, order, 1)
        return back.unflatten(0, (-1, ctx.copies)).sum(1) if ctx.copies > 1 else back, None, None, None


class _ContiguousGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.contiguous()


def _contiguous_gradient(x: Tensor) -> Tensor:
    """grouped_mm's backward refuses expanded gradients, such as that of a sum."""
    return _ContiguousGradient.apply(x)
