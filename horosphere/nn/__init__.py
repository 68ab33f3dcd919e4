"""Layers on a manifold. On Euclidean() each is its torch counterpart."""

from horosphere.nn.activation import Activation, Dropout
from horosphere.nn.attention import Attention, document_mask
from horosphere.nn.conv import (
    AvgPool2d,
    Conv1d,
    Conv2d,
    Flatten,
    GlobalAvgPool2d,
    MaxOverTime,
    MaxPool1d,
    MaxPool2d,
    concat,
)
from horosphere.nn.embedding import Embedding, Lift, Lower
from horosphere.nn.experts import Experts, MixtureOfExperts, Router
from horosphere.nn.feedforward import SwiGLU
from horosphere.nn.head import TokenHead
from horosphere.nn.latent_attention import LatentAttention, LatentSizes
from horosphere.nn.linear import Classifier, Linear, hyperplane_logits
from horosphere.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from horosphere.nn.rotary import rotary_angles, rotate
from horosphere.nn.slots import SlotLinear, SlotNorm, SlotResidual
from horosphere.nn.stream import Residual, RMSNorm

__all__ = [
    "Activation",
    "Attention",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Classifier",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Experts",
    "Flatten",
    "GlobalAvgPool2d",
    "LatentAttention",
    "LatentSizes",
    "LayerNorm",
    "Lift",
    "Linear",
    "Lower",
    "MaxOverTime",
    "MaxPool1d",
    "MaxPool2d",
    "MixtureOfExperts",
    "RMSNorm",
    "Residual",
    "Router",
    "SlotLinear",
    "SlotNorm",
    "SlotResidual",
    "SwiGLU",
    "TokenHead",
    "concat",
    "document_mask",
    "hyperplane_logits",
    "rotary_angles",
    "rotate",
]
