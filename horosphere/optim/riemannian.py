"""Riemannian SGD, Adam, Adagrad and RMSprop as ordinary torch optimizers.

A parameter group with a `manifold` holds points, one a row of the last axis. Its steps follow geodesics, and carry its
momentum along (`Manifold.flow`). Every other group is stepped by torch's own optimizer.
`horosphere.optim.param_groups(model)` makes the groups. Where none are made, tables of points are found all the same.

Manifolds are kept beside the groups, not in them: state_dict() holds numbers and tensors only, and is saved, loaded and
sharded as torch's is.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from horosphere.errors import one_line
from horosphere.geometry import Euclidean, Manifold
from horosphere.geometry.holders import points_among

FLAT = Euclidean()
SMALL_ROWS = 4096  # below it the launches cost more than the arithmetic: such tensors are stepped together


class _Riemannian(torch.optim.Optimizer):
    """What all optimizers share: groups with manifolds, and a step in two shares, torch's and ours."""

    manifolds: list[Manifold]
    _torch_step: Callable[..., Any]  # torch's own step without its hooks: those run once, around our step

    @classmethod
    def _given(cls, params: Any) -> Iterable[Any]:
        """params, where they can be some: a model can be iterated too, and gives its layers."""
        if isinstance(params, nn.Module) or not isinstance(params, Iterable):
            kind = "None" if params is None else f"a {type(params).__name__}"
            what = "a model" if isinstance(params, nn.Module) else kind
            how = f"give parameters, as in {cls.__name__}(model.parameters()) or {cls.__name__}(param_groups(model))"
            raise TypeError(f"{cls.__name__}: params is {what}; {how}")
        return params

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group without a `manifold` is searched for tables of points: they follow geodesics all the same."""
        param_group = dict(param_group)  # a copy: the next optimizer made from the caller's needs its manifold again
        if "manifold" in param_group:
            if not isinstance(manifold := param_group["manifold"], Manifold | None):
                raise TypeError(f"a group's manifold is {one_line(manifold, 40)}; give one, as in Lorentz(c=1.0)")
            self._add(param_group, param_group.pop("manifold") or Euclidean())
            return
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        points = points_among(p[1] if isinstance(p, tuple) else p for p in params)
        by_manifold: dict[Manifold, list[Any]] = {}
        for p in params:
            manifold = points.get(id(p[1] if isinstance(p, tuple) else p), FLAT)
            by_manifold.setdefault(manifold, []).append(p)
        for manifold, own in by_manifold.items() or [(FLAT, params)]:
            self._add({**param_group, "params": own} | ({} if manifold.flat else {"weight_decay": 0.0}), manifold)

    def _add(self, param_group: dict[str, Any], manifold: Manifold) -> None:
        if self.defaults["differentiable"]:
            raise ValueError(
                "steps are taken in place, without gradient: use differentiable=False, "
                "or Manifold.exp for a step to differentiate"
            )
        if not manifold.flat:
            if param_group.get("weight_decay", self.defaults["weight_decay"]):
                raise ValueError(
                    "weight decay pulls coordinates, not points: "
                    "give the group on a manifold weight_decay=0 (param_groups() does)"
                )
            if param_group.get("nesterov", self.defaults.get("nesterov")):
                raise ValueError(
                    "Nesterov momentum is not defined along geodesics here: use nesterov=False with a manifold"
                )
        super().add_param_group(param_group)
        self.__dict__.setdefault("manifolds", []).append(manifold)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "manifolds": self.manifolds}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad(), self._hidden_from_torch() as ours:
            self._torch_step()
            for group, manifold, params in ours:
                with _gathered(manifold):
                    for batch in _batches(manifold, group, params, self._state):
                        self._move(manifold, group, batch)
                        if batch.origin:
                            batch.write_back()
        return loss

    @contextmanager
    def _hidden_from_torch(self) -> Iterator[list[tuple[dict[str, Any], Manifold, list[tuple[Tensor, Tensor]]]]]:
        """Take away the gradients that torch's step must not see, and give them back afterwards.

        Those are the gradients of points, and sparse ones, which torch refuses.
        """
        ours = []
        for group, manifold in zip(self.param_groups, self.manifolds, strict=True):
            with_grad = [(p, p.grad) for p in group["params"] if p.grad is not None]
            hidden = [(p, grad) for p, grad in with_grad if not manifold.flat or grad.is_sparse]
            if hidden:
                ours.append((group, manifold, hidden))
        try:
            for _, _, params in ours:
                for p, _ in params:
                    p.grad = None
            yield ours
        finally:
            for _, _, params in ours:
                for p, grad in params:
                    p.grad = grad

    def _state(self, manifold: Manifold, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        raise AssertionError("each optimizer says what it keeps")

    def _move(self, manifold: Manifold, group: dict[str, Any], batch: "_Batch") -> None:
        raise AssertionError("each optimizer says how it moves")


@dataclass
class _Batch:
    """Points that move together, in place.

    x, g: points and their gradients (..., d). state: what the optimizer keeps of them.
    origin: where copies came from, a parameter (or its shard) and which of its rows (None: all); empty for views.
    origin_state: what the optimizer keeps there.
    """

    x: Tensor
    g: Tensor
    state: dict[str, Tensor]
    step: int
    origin: list[tuple[Tensor, Tensor | None]]
    origin_state: list[dict[str, Tensor]]

    def write_back(self) -> None:
        """Copy what moved, and its state, to where it came from."""
        sizes = [_count(p) if rows is None else len(rows) for p, rows in self.origin]
        for name, moved in {"": self.x, **self.state}.items():
            for (p, rows), state, own in zip(self.origin, self.origin_state, moved.split(sizes), strict=True):
                storage = state[name] if name else p
                if rows is None:
                    storage.copy_(own.view_as(storage))
                else:
                    storage[rows] = own


def _batches(
    manifold: Manifold,
    group: dict[str, Any],
    params: list[tuple[Tensor, Tensor]],
    state_of: Callable[..., dict[str, Any]],
) -> Iterator[_Batch]:
    """Large tensors as they are; small ones that agree in width, dtype, device and step copied into one.

    Of a tensor with a sparse gradient, only the rows it touches.
    """
    together: dict[Any, list[_Batch]] = {}
    for p, grad in params:
        if grad.is_sparse and (group["weight_decay"] or group.get("nesterov")):
            raise ValueError(
                "sparse gradients move only the rows they touch: "
                "give their group weight_decay=0 (param_groups() does), nesterov=False"
            )
        state = state_of(manifold, group, p)
        state["step"] += 1
        step, x, g = int(state["step"]), _local(p), _local(grad, like=p)
        kept = {name: _local(value) for name, value in state.items() if name != "step"}
        if g.is_sparse:
            g = g.coalesce()
            rows = g.indices()[0]
            kept_rows = {name: value[rows] for name, value in kept.items()}
            batch = _Batch(x[rows], g.values(), kept_rows, step, [(x, rows)], [kept])
        else:
            batch = _Batch(x, g, kept, step, [], [])
        if group["maximize"]:
            batch.g = -batch.g
        if batch.origin or _count(x) >= SMALL_ROWS:
            yield batch
        else:
            together.setdefault((x.shape[-1], x.dtype, x.device, step), []).append(batch)
    for small in together.values():
        yield small[0] if len(small) == 1 else _joined(small)


def _joined(batches: list[_Batch]) -> _Batch:
    return _Batch(
        torch.cat([_rows(b.x) for b in batches]),
        torch.cat([_rows(b.g) for b in batches]),
        {name: torch.cat([_rows(b.state[name]) for b in batches]) for name in batches[0].state},
        batches[0].step,
        [(b.x, None) for b in batches],
        [b.state for b in batches],
    )


def _rows(t: Tensor) -> Tensor:
    """(..., d) -> (R, d)"""
    return t.reshape(_count(t), t.shape[-1])


def _count(t: Tensor) -> int:
    """How many points t holds.   (..., d)"""
    return math.prod(t.shape[:-1])


def _local(t: Tensor, like: Tensor | None = None) -> Tensor:
    """The rows this process holds; for a gradient, the rows it holds of `like`.

    Points are whole rows, so a shard of rows needs no communication.
    """
    if not isinstance(t, DTensor):
        return t
    if isinstance(like, DTensor):  # a gradient may still be a sum to be taken; under FSDP it is not
        t = t.redistribute(placements=like.placements)
    if any(p.is_shard(t.ndim - 1) for p in t.placements):
        raise ValueError("a point is a whole row: shard tables on the first axis, not on the last")
    return t.to_local()


@contextmanager
def _gathered(manifold: Manifold) -> Iterator[None]:
    """Make a sharded learned curvature whole for a while: every process needs it for its rows."""
    sharded: list[tuple[dict[str, Any], str, Any]] = [
        (m._parameters, name, p)
        for m in manifold.modules()
        for name, p in m._parameters.items()
        if isinstance(p, DTensor)
    ]
    try:
        for parameters, name, p in sharded:
            parameters[name] = p.full_tensor()
        yield
    finally:
        for parameters, name, p in sharded:
            parameters[name] = p


@torch.no_grad()
def gradient_lengths(optimizer: torch.optim.Optimizer) -> dict[Tensor, Tensor]:
    """√(g·rgrad) of every point of an optimizer that has a gradient: its length in the metric.   (..., d) -> (...)

    No isometry changes it. The length of g itself grows or shrinks with the place of a point. Parameters that hold no
    points are left out. Of a sharded table it is the lengths of the rows that this process holds.

    >>> from horosphere.geometry import Poincare
    >>> P, p = Poincare(), torch.nn.Parameter(torch.tensor([[0.0, 0.5]]))
    >>> P.dist0(p).sum().backward()
    >>> p.grad.norm(dim=-1), gradient_lengths(RiemannianSGD([{"params": [p], "manifold": P}]))[p]
    (tensor([2.6667]), tensor([1.]))
    """
    found = {}
    manifolds = getattr(optimizer, "manifolds", [Euclidean()] * len(optimizer.param_groups))
    for group, manifold in zip(optimizer.param_groups, manifolds, strict=True):
        given = [] if manifold.flat else [(p, p.grad) for p in group["params"] if p.grad is not None]
        with _gathered(manifold):
            for p, grad in given:
                x, g = _local(p), _local(grad, like=p)
                if g.is_sparse:
                    g = g.coalesce()
                    x, g = x[g.indices()[0]], g.values()
                # far out, x·g = 0 is lost in rounding, and a square may be just below 0
                found[p] = torch.linalg.vecdot(g, manifold.rgrad(x, g)).clamp_min_(0).sqrt_()
    return found


class RiemannianSGD(_Riemannian, torch.optim.SGD):
    """SGD along geodesics: buffer ← μ·buffer + rgrad, x ← exp_x(-lr·buffer), the buffer carried to the new x.

    Sparse gradients move only the rows they touch, and only their buffers decay. torch's SGD moves every row that has a
    buffer.

    >>> from horosphere.geometry import Lorentz
    >>> L, p = Lorentz(), torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> L.sqdist(p, torch.zeros(2)).sum().backward()  # the gradient: twice the way from the origin
    >>> RiemannianSGD([{"params": [p], "manifold": L}], lr=0.5).step()
    >>> L.dist0(p.detach()).round(decimals=3)  # one step, straight to the origin
    tensor([0.])
    """

    _torch_step = inspect.unwrap(torch.optim.SGD.step)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        **torch_options: Any,
    ):
        torch.optim.SGD.__init__(
            self, self._given(params), lr=lr, momentum=momentum, weight_decay=weight_decay, **torch_options
        )
        # fused=True sets it, but would unscale only torch's share: GradScaler unscales both
        self._step_supports_amp_scaling = False

    def _state(self, manifold: Manifold, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        state.setdefault("step", torch.tensor(0.0))
        if group["momentum"] and state.get("momentum_buffer") is None:  # momentum may begin after the first step
            state["momentum_buffer"] = torch.zeros_like(p)
        return state

    def _move(self, manifold: Manifold, group: dict[str, Any], batch: _Batch) -> None:
        velocity = manifold.rgrad(batch.x, batch.g)
        if group["momentum"]:
            # the first buffer is the gradient itself, as in torch
            share = 1.0 if batch.step == 1 else 1 - group["dampening"]
            velocity = batch.state["momentum_buffer"].mul_(group["momentum"]).add_(velocity, alpha=share)
        manifold.flow_(batch.x, velocity, -group["lr"])


class RiemannianAdam(_Riemannian, torch.optim.Adam):
    """Adam along geodesics (Bécigneul & Ganea 2019): one second moment a point, the first moment carried along.

    Sparse gradients move only the rows they touch, and only the moments of those decay, as in torch's SparseAdam.

    >>> from horosphere.geometry import Lorentz
    >>> L, p = Lorentz(), torch.nn.Parameter(Lorentz().exp0(torch.tensor([[3.0, 4.0]])))
    >>> L.sqdist(p, torch.zeros(2)).sum().backward()
    >>> RiemannianAdam([{"params": [p], "manifold": L}], lr=0.5).step()
    >>> L.dist0(p.detach()).round(decimals=3)  # from 5, by a first step of length lr
    tensor([4.5000])
    """

    _torch_step = inspect.unwrap(torch.optim.Adam.step)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **torch_options: Any,
    ):
        torch.optim.Adam.__init__(
            self,
            self._given(params),
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            **torch_options,
        )
        self._step_supports_amp_scaling = False  # as in RiemannianSGD

    def _state(self, manifold: Manifold, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(p)
            for name in ("exp_avg_sq", "max_exp_avg_sq")[: 1 + group["amsgrad"]]:
                state[name] = torch.zeros_like(_second_moment(manifold, p))
        return state

    def _move(self, manifold: Manifold, group: dict[str, Any], batch: _Batch) -> None:
        beta1, beta2 = group["betas"]
        gradient = manifold.rgrad(batch.x, batch.g)
        first = batch.state["exp_avg"].lerp_(gradient, 1 - beta1)
        second = batch.state["exp_avg_sq"].lerp_(manifold.component_sqnorm(batch.g, gradient), 1 - beta2)
        if group["amsgrad"]:
            second = torch.maximum(batch.state["max_exp_avg_sq"], second, out=batch.state["max_exp_avg_sq"])
        scale = (second / (1 - beta2**batch.step)).sqrt_().add_(group["eps"]).reciprocal_()
        manifold.flow_(batch.x, first, scale.mul_(-group["lr"] / (1 - beta1**batch.step)))


class RiemannianAdagrad(_Riemannian, torch.optim.Adagrad):
    """Adagrad along geodesics: sum ← sum + |rgrad|², x ← exp_x(-lr·rgrad/(√sum + ε)), one sum a point.

    >>> from horosphere.geometry import Lorentz
    >>> L, p = Lorentz(), torch.nn.Parameter(Lorentz().exp0(torch.tensor([[3.0, 4.0]])))
    >>> L.sqdist(p, torch.zeros(2)).sum().backward()
    >>> RiemannianAdagrad([{"params": [p], "manifold": L}], lr=0.5).step()
    >>> L.dist0(p.detach()).round(decimals=3)  # from 5, by a first step of length lr
    tensor([4.5000])
    """

    _torch_step = inspect.unwrap(torch.optim.Adagrad.step)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **torch_options: Any,
    ):
        torch.optim.Adagrad.__init__(
            self, self._given(params), lr, lr_decay, weight_decay, initial_accumulator_value, eps, **torch_options
        )
        self._step_supports_amp_scaling = False  # as in RiemannianSGD
        for group, manifold in zip(self.param_groups, self.manifolds, strict=True):
            for p in group["params"] if not manifold.per_coordinate else ():
                self.state.pop(p)  # torch made a sum a coordinate of it

    def _state(self, manifold: Manifold, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = torch.full_like(_second_moment(manifold, p), group["initial_accumulator_value"])
        return state

    def _move(self, manifold: Manifold, group: dict[str, Any], batch: _Batch) -> None:
        gradient = manifold.rgrad(batch.x, batch.g)
        total = batch.state["sum"].add_(manifold.component_sqnorm(batch.g, gradient))
        lr = group["lr"] / (1 + (batch.step - 1) * group["lr_decay"])
        manifold.flow_(batch.x, gradient, (total.sqrt() + group["eps"]).reciprocal_().mul_(-lr))


class RiemannianRMSprop(_Riemannian, torch.optim.RMSprop):
    """RMSprop along geodesics: s ← α s + (1 - α)|rgrad|², one s a point; the buffer of a momentum is carried along.

    >>> from horosphere.geometry import Lorentz
    >>> L, p = Lorentz(), torch.nn.Parameter(Lorentz().exp0(torch.tensor([[3.0, 4.0]])))
    >>> L.sqdist(p, torch.zeros(2)).sum().backward()
    >>> RiemannianRMSprop([{"params": [p], "manifold": L}], lr=0.05, alpha=0.99).step()
    >>> L.dist0(p.detach()).round(decimals=3)  # from 5, by lr/√(1 - α)
    tensor([4.5000])
    """

    _torch_step = inspect.unwrap(torch.optim.RMSprop.step)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **torch_options: Any,
    ):
        torch.optim.RMSprop.__init__(
            self, self._given(params), lr, alpha, eps, weight_decay, momentum, centered, **torch_options
        )
        self._step_supports_amp_scaling = False  # as in RiemannianSGD

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        manifold = param_group.get("manifold")
        if (
            isinstance(manifold, Manifold)
            and not manifold.flat
            and param_group.get("centered", self.defaults["centered"])
        ):
            raise ValueError(
                "centered=True needs a mean gradient, which has no meaning for one length a point: use centered=False"
            )
        super().add_param_group(param_group)

    def _state(self, manifold: Manifold, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        state.setdefault("step", torch.tensor(0.0))
        if "square_avg" not in state:
            state["square_avg"] = torch.zeros_like(_second_moment(manifold, p))
        if group["momentum"] and state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(p)
        return state

    def _move(self, manifold: Manifold, group: dict[str, Any], batch: _Batch) -> None:
        gradient = manifold.rgrad(batch.x, batch.g)
        square = batch.state["square_avg"].lerp_(manifold.component_sqnorm(batch.g, gradient), 1 - group["alpha"])
        velocity = gradient / (square.sqrt() + group["eps"])
        if group["momentum"]:
            velocity = batch.state["momentum_buffer"].mul_(group["momentum"]).add_(velocity)
        manifold.flow_(batch.x, velocity, -group["lr"])


def _second_moment(manifold: Manifold, p: Tensor) -> Tensor:
    """What has the shape of a second moment of p: one number a point, or one a coordinate."""
    return p.detach() if manifold.per_coordinate else p.detach()[..., :1]
