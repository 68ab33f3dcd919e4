"""Layers on a manifold. On Euclidean() each is its torch counterpart."""

from horosphere.nn.embedding import Embedding, Lift, Lower
from horosphere.nn.linear import Classifier, Linear, hyperplane_logits
from horosphere.nn.stream import Residual, RMSNorm

__all__ = ["Classifier", "Embedding", "Lift", "Linear", "Lower", "RMSNorm", "Residual", "hyperplane_logits"]
