"""Layers of the Transformer as it was published: a sublayer, its residual, then LayerNorm."""

from typing import Literal

import torch
from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.nn.activation import Activation, Dropout
from horosphere.nn.attention import CAUSAL, FULL, Mask
from horosphere.nn.classic_attention import KeysValues, MultiHeadAttention
from horosphere.nn.linear import Linear
from horosphere.nn.norm import LayerNorm
from horosphere.nn.stream import Residual


def sinusoids(length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Positions as waves: sin and cos of p/10000^(2j/dim) in columns 2j and 2j + 1.   -> (length, dim)

    Computed at each call: a buffer outside the state dict would not survive loading on the meta device.

    >>> sinusoids(3, 4).round(decimals=3)
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8410,  0.5400,  0.0100,  1.0000],
            [ 0.9090, -0.4160,  0.0200,  1.0000]])
    """
    if dim % 2:
        raise ValueError(f"{dim} dimensions: each wave takes two, so use an even number")
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angle = torch.arange(length, device=device, dtype=torch.float32).unsqueeze(-1) * frequency
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def visible(lengths: Tensor, size: int) -> Tensor:
    """A mask for rows that end in padding: True where a token is.   (B,) -> (B, 1, 1, size)

    >>> visible(torch.tensor([1, 3]), 3).squeeze()
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return (torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)).unsqueeze(1).unsqueeze(1)


class _Sublayers(nn.Module):
    """What encoder and decoder layers share: the feed-forward layer, and how a sublayer's output joins the stream.

    LayerNorm follows each residual and undoes any factor. So a centroid, which differs from the sum of coordinates by a
    factor, would be the same point: "additive" is both.
    """

    self_attn: MultiHeadAttention
    multihead_attn: MultiHeadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    attentions: tuple[str, ...]  # by the names that torch gives them

    def __init__(
        self,
        dim: int,
        heads: int,
        inner: int,
        manifold: Manifold,
        dropout: float = 0.0,
        activation: Literal["relu", "gelu"] = "relu",
        eps: float = 1e-5,
    ):
        super().__init__()
        for name in self.attentions:
            self.add_module(name, MultiHeadAttention(dim, heads, manifold))
        self.linear1 = Linear(dim, inner, manifold)
        self.linear2 = Linear(inner, dim, manifold)
        for i in range(len(self.attentions) + 1):
            self.add_module(f"norm{i + 1}", LayerNorm(dim, manifold, eps))
        self.dropout = Dropout(dropout, manifold)
        self.activation = Activation(activation, manifold)
        self.residual = Residual(dim, manifold, "additive")

    def join(self, x: Tensor, y: Tensor, norm: LayerNorm) -> Tensor:
        return norm(self.residual(x, self.dropout(y)))

    def feed(self, x: Tensor) -> Tensor:
        """W₂ φ(W₁ x + b₁) + b₂"""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class EncoderLayer(_Sublayers):
    """Self-attention, then the feed-forward layer; torch's TransformerEncoderLayer.   (B, T, dim) -> (B, T, dim)

    Weights have the names of torch's, so its state dicts load.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x = torch.randn(2, 5, 8)
    >>> EncoderLayer(8, heads=2, inner=32, manifold=Lorentz())(x).shape
    torch.Size([2, 5, 8])
    >>> torchs = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval()
    >>> flat = EncoderLayer(8, 2, 32, Euclidean()).eval()
    >>> _ = flat.load_state_dict(torchs.state_dict())
    >>> torch.allclose(flat(x), torchs(x), atol=1e-5)
    True
    """

    attentions = ("self_attn",)

    def forward(self, x: Tensor, mask: Mask = FULL) -> Tensor:
        x = self.join(x, self.self_attn(x, mask=mask), self.norm1)
        return self.join(x, self.feed(x), self.norm2)


class DecoderLayer(_Sublayers):
    """Causal self-attention, attention to the memory, the feed-forward layer; torch's TransformerDecoderLayer.

    (B, T, dim), (B, S, dim) -> (B, T, dim).   Weights have the names of torch's, so its state dicts load.

    >>> from horosphere.geometry import Lorentz
    >>> layer = DecoderLayer(8, heads=2, inner=32, manifold=Lorentz())
    >>> layer(torch.randn(2, 5, 8), memory=torch.randn(2, 7, 8)).shape
    torch.Size([2, 5, 8])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(self, x: Tensor, memory: Tensor, mask: Mask = CAUSAL, memory_mask: Mask = FULL) -> Tensor:
        x = self.join(x, self.self_attn(x, mask=mask), self.norm1)
        x = self.join(x, self.multihead_attn(x, memory, memory_mask), self.norm2)
        return self.join(x, self.feed(x), self.norm3)

    def step(
        self, x: Tensor, past: KeysValues | None, memory: KeysValues, memory_mask: Mask = FULL
    ) -> tuple[Tensor, KeysValues]:
        """One token more, without computing the others again.   (B, 1, dim) -> (B, 1, dim), keys and values so far

        past: what the step before returned, None at first. memory: `multihead_attn.keys_values` of the memory.

        >>> from horosphere.geometry import Lorentz
        >>> layer = DecoderLayer(8, heads=2, inner=32, manifold=Lorentz())
        >>> x, memory, past = torch.randn(2, 3, 8), torch.randn(2, 7, 8), None
        >>> for token in x.split(1, dim=1):
        ...     y, past = layer.step(token, past, layer.multihead_attn.keys_values(memory))
        >>> torch.allclose(y, layer(x, memory)[:, -1:], atol=1e-5)
        True
        """
        k, v = self.self_attn.keys_values(x)
        if past is not None:
            k, v = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
        x = self.join(x, self.self_attn.look(x, (k, v)), self.norm1)
        x = self.join(x, self.multihead_attn.look(x, memory, memory_mask), self.norm2)
        return self.join(x, self.feed(x), self.norm3), (k, v)
