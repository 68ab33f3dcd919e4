"""Optimizers that know where a parameter lives."""

from horosphere.optim.choice import OPTIMIZERS, make_optimizer
from horosphere.optim.groups import param_groups
from horosphere.optim.riemannian import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD

__all__ = [
    "OPTIMIZERS",
    "RiemannianAdagrad",
    "RiemannianAdam",
    "RiemannianRMSprop",
    "RiemannianSGD",
    "make_optimizer",
    "param_groups",
]
