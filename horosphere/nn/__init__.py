"""Layers on a manifold. On Euclidean() each is its torch counterpart."""

from horosphere.nn.attention import Attention, document_mask
from horosphere.nn.embedding import Embedding, Lift, Lower
from horosphere.nn.experts import Experts, MixtureOfExperts, Router
from horosphere.nn.feedforward import SwiGLU
from horosphere.nn.head import TokenHead
from horosphere.nn.latent_attention import LatentAttention, LatentSizes
from horosphere.nn.linear import Classifier, Linear, hyperplane_logits
from horosphere.nn.recurrent import GRU, LSTM, RNN
from horosphere.nn.rotary import rotary_angles, rotate
from horosphere.nn.slots import SlotLinear, SlotNorm, SlotResidual
from horosphere.nn.stream import Residual, RMSNorm

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Attention",
    "Classifier",
    "Embedding",
    "Experts",
    "LatentAttention",
    "LatentSizes",
    "Lift",
    "Linear",
    "Lower",
    "MixtureOfExperts",
    "RMSNorm",
    "Residual",
    "Router",
    "SlotLinear",
    "SlotNorm",
    "SlotResidual",
    "SwiGLU",
    "TokenHead",
    "document_mask",
    "hyperplane_logits",
    "rotary_angles",
    "rotate",
]
