"""Layers on a manifold. On Euclidean() each is its torch counterpart."""

from horosphere.nn.activation import Activation, Dropout
from horosphere.nn.attention import CAUSAL, FULL, Attention, document_mask
from horosphere.nn.classic_attention import AdditiveAttention, MultiHeadAttention
from horosphere.nn.conv import (
    AvgPool2d,
    Conv1d,
    Conv2d,
    ConvClassifier,
    Flatten,
    GlobalAvgPool2d,
    MaxOverTime,
    MaxPool1d,
    MaxPool2d,
    concat,
)
from horosphere.nn.embedding import Embedding, Lift, Lower
from horosphere.nn.experts import Experts, MixtureOfExperts, Router
from horosphere.nn.feedforward import FeedForward, Maxout, SwiGLU
from horosphere.nn.head import TokenHead
from horosphere.nn.latent_attention import LatentAttention, LatentSizes
from horosphere.nn.linear import Classifier, Linear, hyperplane_logits, hyperplane_pairs, hyperplane_scores
from horosphere.nn.losses import against_the_rest, bpr, hinge, masked_bce, perceptron
from horosphere.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from horosphere.nn.pairs import distinct, pair_products
from horosphere.nn.recurrent import GRU, LSTM, RNN
from horosphere.nn.rotary import rotary_angles, rotate
from horosphere.nn.slots import SlotLinear, SlotNorm, SlotResidual
from horosphere.nn.stream import Residual, RMSNorm
from horosphere.nn.transformer import DecoderLayer, EncoderLayer, sinusoids, visible

__all__ = [
    "CAUSAL",
    "FULL",
    "GRU",
    "LSTM",
    "RNN",
    "Activation",
    "AdditiveAttention",
    "Attention",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Classifier",
    "Conv1d",
    "Conv2d",
    "ConvClassifier",
    "DecoderLayer",
    "Dropout",
    "Embedding",
    "EncoderLayer",
    "Experts",
    "FeedForward",
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
    "Maxout",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "RMSNorm",
    "Residual",
    "Router",
    "SlotLinear",
    "SlotNorm",
    "SlotResidual",
    "SwiGLU",
    "TokenHead",
    "against_the_rest",
    "bpr",
    "concat",
    "distinct",
    "document_mask",
    "hinge",
    "hyperplane_logits",
    "hyperplane_pairs",
    "hyperplane_scores",
    "masked_bce",
    "pair_products",
    "perceptron",
    "rotary_angles",
    "rotate",
    "sinusoids",
    "visible",
]
