"""Optimizers that know where a parameter lives."""

from horosphere.optim.groups import param_groups
from horosphere.optim.riemannian import RiemannianAdam, RiemannianSGD

__all__ = ["RiemannianAdam", "RiemannianSGD", "param_groups"]
