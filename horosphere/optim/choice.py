"""Optimizers by name, for recipes."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from horosphere.errors import UserError
from horosphere.optim.riemannian import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD

OPTIMIZERS = ("adam", "sgd", "adagrad", "rmsprop", "adadelta")


def make_optimizer(
    name: str,
    groups: Iterable[dict[str, Any]],
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """The optimizer of this name for groups as `param_groups` makes them.

    Adam's weight decay is decoupled (AdamW); elsewhere it is the gradient of λ/2·Σw², as in torch.
    Where a step is divided by the root of a second moment, it moves a row of n numbers by about lr·√n, but a point of
    a table by lr. So groups of points that have no `lr_scale` of their own get √n.

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.nn import Embedding
    >>> from horosphere.optim import param_groups
    >>> optimizer = make_optimizer("rmsprop", param_groups(Embedding(10, 4, Lorentz())), lr=1e-3, momentum=0.9)
    >>> type(optimizer).__name__, optimizer.param_groups[0]["lr_scale"]
    ('RiemannianRMSprop', 2.0)
    """
    groups = [dict(group) for group in groups]
    points = [group for group in groups if "manifold" in group]
    for group in points if name != "sgd" else ():
        group.setdefault("lr_scale", math.sqrt(group["params"][0].shape[-1]))
    if name == "sgd":
        return RiemannianSGD(groups, lr=lr, momentum=momentum)
    if name == "adagrad":
        return RiemannianAdagrad(groups, lr=lr)
    if name == "rmsprop":
        return RiemannianRMSprop(groups, lr=lr, momentum=momentum)
    if name == "adadelta":
        if points:
            raise UserError("optimizer=adadelta: no rule for points of a curved space is known; use adam or sgd")
        return torch.optim.Adadelta(groups, lr=lr)
    return RiemannianAdam(groups, lr=lr, betas=betas, decoupled_weight_decay=True)
