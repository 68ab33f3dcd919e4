"""BERT (Devlin et al. 2019): an encoder that fills in hidden tokens, and says whether one text follows the other.

In flat space it is transformers' BertForPreTraining. On the hyperboloid tokens are points, attention is by distance,
its values are centroids, and logits are distances to hyperplanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold
from horosphere.models.config import FlatOrHyperboloid, require_heads
from horosphere.nn import (
    Activation,
    Classifier,
    Dropout,
    Embedding,
    EncoderLayer,
    LayerNorm,
    Linear,
    hyperplane_logits,
    visible,
)
from horosphere.settings import Decay, Few, Size

EPS, STD = 1e-12, 0.02  # of every norm, and of the tables at first


@dataclass(frozen=True, kw_only=True)
class BertConfig(FlatOrHyperboloid):
    """By itself BERT-Tiny (Turc et al. 2019). BERT-Base: width 768, 12 heads, 12 layers, inner 3072, positions 512.

    >>> BertConfig(geometry="lorentz").manifold()
    Lorentz(c=1)
    """

    no_settings: ClassVar[frozenset[str]] = frozenset({"positions"})  # of the data

    width: Size = 128  # of a token
    heads: Few = 2
    layers: Few = 2
    inner: Size = 512  # width of the feed-forward layers
    positions: Size = 512  # most tokens of a row
    dropout: Decay = 0.1  # of what each sublayer adds, and of the embeddings

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self.width, self.heads)


class Bert(nn.Module):
    """Tokens, segments (0 or 1), lengths, places -> logits of the tokens there, and of "follows", "does not follow".

    (B, T), (B, T), (B,), (B, M) -> (B, M, V), (B, 2).   The first token of a row stands for the row: [CLS].

    >>> model = Bert(vocabulary=30, config=BertConfig(width=16))
    >>> tokens, segments = torch.ones(2, 8, dtype=torch.long), torch.tensor([[0] * 5 + [1] * 3] * 2)
    >>> filled, follows = model(tokens, segments, torch.tensor([8, 6]), places=torch.tensor([[1, 4], [2, 5]]))
    >>> filled.shape, follows.shape
    (torch.Size([2, 2, 30]), torch.Size([2, 2]))
    """

    layers: Sequence[EncoderLayer]

    def __init__(self, vocabulary: int, config: BertConfig):
        super().__init__()
        m, width = config.manifold(), config.width
        self.manifold = m
        # tables of coordinates, which add up before there is a point: they learn as in flat space
        self.tokens = Embedding(vocabulary, width, Euclidean(), std=STD)
        self.segments = Embedding(2, width, Euclidean(), std=STD)
        self.positions = Embedding(config.positions, width, Euclidean(), std=STD)
        self.norm = LayerNorm(width, m, EPS)
        self.dropout = Dropout(config.dropout, m)
        self.layers = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(width, config.heads, config.inner, m, config.dropout, "gelu", EPS)
            for _ in range(config.layers)
        )
        self.filler = Filler(vocabulary, width, m)
        self.pooler = nn.Sequential(Linear(width, width, m), Activation("tanh", m))
        self.follows = Classifier(width, 2, m)

    def forward(self, tokens: Tensor, segments: Tensor, lengths: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        x = self.read(tokens, segments, lengths)
        asked = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        return self.filler(asked, self.tokens.weight), self.follows(self.row(x))

    def read(self, tokens: Tensor, segments: Tensor, lengths: Tensor) -> Tensor:
        """(B, T), (B, T), (B,) -> (B, T, width)"""
        order, seen = torch.arange(tokens.shape[1], device=tokens.device), visible(lengths, tokens.shape[1])
        u = self.tokens(tokens) + self.segments(segments) + self.positions(order)
        x = self.dropout(self.norm(self.manifold.point(u)))
        for layer in self.layers:
            x = layer(x, seen)
        return x

    def row(self, x: Tensor) -> Tensor:
        """What stands for a row.   (B, T, width) -> (B, width)"""
        return self.pooler(x[:, 0])

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return list(self.layers)


class Filler(nn.Module):
    """Logits of hidden tokens: W, gelu, norm, then the table of the tokens, whose rows serve as hyperplanes.

    (..., width), (V, width) -> (..., V)
    """

    def __init__(self, vocabulary: int, width: int, manifold: Manifold):
        super().__init__()
        self.manifold = manifold
        self.linear = Linear(width, width, manifold)
        self.activation = Activation("gelu", manifold)
        self.norm = LayerNorm(width, manifold, EPS)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = self.norm(self.activation(self.linear(x)))
        return hyperplane_logits(x, table, self.bias, self.manifold)
