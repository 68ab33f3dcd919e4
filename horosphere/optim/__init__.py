"""Optimizers that know where a parameter lives."""

from horosphere.optim.choice import OPTIMIZERS, make_optimizer
from horosphere.optim.groups import param_groups
from horosphere.optim.riemannian import (
    RiemannianAdagrad,
    RiemannianAdam,
    RiemannianRMSprop,
    RiemannianSGD,
    gradient_lengths,
)

__all__ = [
    "OPTIMIZERS",
    "RiemannianAdagrad",
    "RiemannianAdam",
    "RiemannianRMSprop",
    "RiemannianSGD",
    "gradient_lengths",
    "make_optimizer",
    "param_groups",
]
