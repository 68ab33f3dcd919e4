"""The Transformer (Vaswani et al. 2017): an encoder reads a sequence, a decoder writes another and looks at the first.

In flat space it is nn.Transformer between tables of tokens and a linear head. On the hyperboloid tokens are points,
attention is by distance, its values are centroids, and logits are distances to hyperplanes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean
from horosphere.models.config import FlatOrHyperboloid, require_heads
from horosphere.nn import Classifier, DecoderLayer, Dropout, Embedding, EncoderLayer, sinusoids, visible
from horosphere.nn.classic_attention import KeysValues
from horosphere.settings import Decay, Few, Size


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(FlatOrHyperboloid):
    """The paper's base model has width 512, 8 heads, 6 layers and inner 2048.

    >>> TransformerConfig(geometry="lorentz").manifold()
    Lorentz(c=1)
    """

    width: Size = 128  # of a token; even
    heads: Few = 4
    layers: Few = 2  # of the encoder, and as many of the decoder
    inner: Size = 512  # width of the feed-forward layers
    dropout: Decay = 0.1  # of what each sublayer adds, and of the embeddings

    def __post_init__(self) -> None:
        super().__post_init__()
        require_heads(self.width, self.heads)
        if self.width % 2:
            raise UserError(f"width={self.width}: positions are pairs of waves; use an even number")


class Reading(NamedTuple):
    """What decoding goes on from. All tensors have a row for each sequence."""

    seen: Tensor  # (B, 1, 1, S): which tokens of the source are no padding
    memory: tuple[KeysValues, ...]  # the source as each layer of the decoder sees it
    past: tuple[KeysValues, ...] = ()  # what was written so far as each layer sees it, nothing at first


class Transformer(nn.Module):
    """Source, its lengths, target without its last token -> logits of the next.   (B, S), (B,), (B, T) -> (B, T, V)

    Position t sees the target up to t only, so the caller shifts: target[:, :-1] goes in, target[:, 1:] is expected.

    >>> import torch
    >>> model = Transformer(source_tokens=10, target_tokens=20, config=TransformerConfig(width=16))
    >>> source, lengths, target = torch.ones(2, 5, dtype=torch.long), torch.tensor([5, 3]), torch.zeros(2, 4).long()
    >>> model(source, lengths, target).shape
    torch.Size([2, 4, 20])
    """

    encoder: Sequence[EncoderLayer]
    decoder: Sequence[DecoderLayer]

    def __init__(self, source_tokens: int, target_tokens: int, config: TransformerConfig):
        super().__init__()
        self.manifold = config.manifold()
        self.scale = math.sqrt(config.width)
        sizes = (config.width, config.heads, config.inner, self.manifold, config.dropout)
        # Tables of coordinates, which waves are added to before there is a point: they learn as in flat space.
        # √width times as long, an embedding is then about as long as the waves
        self.source = Embedding(source_tokens, config.width, Euclidean(), std=1 / self.scale)
        self.target = Embedding(target_tokens, config.width, Euclidean(), std=1 / self.scale)
        self.dropout = Dropout(config.dropout, self.manifold)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(config.layers))  # type: ignore[assignment]
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(config.layers))  # type: ignore[assignment]
        self.head = Classifier(config.width, target_tokens, self.manifold)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        seen = visible(lengths, source.shape[1])
        memory, x = self.read(source, seen), self._embed(self.target, target)
        for layer in self.decoder:
            x = layer(x, memory, memory_mask=seen)
        return self.head(x)

    def read(self, source: Tensor, seen: Tensor) -> Tensor:
        """The memory.   (B, S), (B, 1, 1, S) -> (B, S, width)"""
        x = self._embed(self.source, source)
        for layer in self.encoder:
            x = layer(x, seen)
        return x

    def _embed(self, table: Embedding, tokens: Tensor, first: int = 0) -> Tensor:
        """√width·embedding + waves, which begin at position `first`.   (B, T) -> (B, T, width)"""
        u = table(tokens)
        waves = sinusoids(first + tokens.shape[1], u.shape[-1], u.device)[first:]
        return self.dropout(self.manifold.point(self.scale * u + waves.to(u.dtype)))

    # -- decoding, token by token ------------------------------------------------------------------------------------

    def encode(self, source: Tensor, lengths: Tensor) -> Reading:
        """What `step` begins with.   (B, S), (B,) -> Reading"""
        seen = visible(lengths, source.shape[1])
        memory = self.read(source, seen)
        return Reading(seen, tuple(layer.multihead_attn.keys_values(memory) for layer in self.decoder))

    def step(self, tokens: Tensor, state: Reading) -> tuple[Tensor, Reading]:
        """Logits of what comes after these tokens, one a sequence.   (B,), Reading -> (B, V), Reading"""
        before: tuple[KeysValues | None, ...] = state.past or (None,) * len(self.decoder)
        x = self._embed(self.target, tokens.unsqueeze(1), first=state.past[0][0].shape[1] if state.past else 0)
        past = []
        for layer, own, memory in zip(self.decoder, before, state.memory, strict=True):
            x, kept = layer.step(x, own, memory, state.seen)
            past.append(kept)
        return self.head(x.squeeze(1)), state._replace(past=tuple(past))

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        return [*self.encoder, *self.decoder]
