"""Encoder and decoder: a sentence becomes a state, and the state another sentence, in any geometry.

    h_i = GRU(x_i, h_{i-1})                  reads the source; its last state is where the decoder begins
    s_t = GRU([y_{t-1}, c_t], s_{t-1})       writes the target; while it learns, y_{t-1} is the true token
    P(y_t | y_<t, x) = softmax(head(tanh(W [s_t, y_{t-1}, c_t] + b)))

The context c_t is the last state of the source (Cho et al. 2014), or with attention the centroid of all its states,
weighed by how well they fit s_{t-1} (Bahdanau et al. 2015); these come from two GRUs, one from each end. As in both
papers the output reads the context itself: without it, attention learns where to look only through the GRU.
In flat space the layers are torch's own.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from horosphere.data.vocabulary import PAD
from horosphere.errors import UserError
from horosphere.models.config import InAnyGeometry
from horosphere.nn import GRU, Activation, AdditiveAttention, Classifier, Dropout, Embedding, Linear, concat
from horosphere.settings import Decay, Few, Size


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(InAnyGeometry):
    """The sizes of both sides."""

    width: Size = 64  # of the points of tokens
    hidden: Size = 128  # of states; even
    layers: Few = 1  # of the encoder, and of the decoder
    dropout: Decay = 0.2  # of tokens, and of states before the head

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % 2:
            raise UserError(f"hidden={self.hidden}: half of a state comes from each end; use an even number")


class State(NamedTuple):
    """What a decoder remembers. The batch comes first everywhere, so that beams can be chosen."""

    hidden: Tensor  # (B, layers, h)
    memory: Tensor  # states of the source (B, S, h)
    visible: Tensor  # which of them are no padding (B, S)


class Seq2Seq(nn.Module):
    """Tokens of a source and of a target, shifted -> logits.   (B, S), (B,), (B, T) -> (B, T, V)

    >>> model = Seq2Seq(source=9, target=7, config=Seq2SeqConfig(geometry="lorentz", width=4, hidden=6)).eval()
    >>> source, lengths, target = torch.tensor([[4, 5, 3], [8, 3, 0]]), torch.tensor([3, 2]), torch.tensor([[2, 4]] * 2)
    >>> model(source, lengths, target).shape
    torch.Size([2, 2, 7])
    >>> state = model.encode(source, lengths)
    >>> logits, state = model.step(target[:, 0], state)  # the same, token by token
    >>> torch.allclose(logits, model(source, lengths, target)[:, 0], atol=1e-6)
    True
    """

    ways = 1  # in which the source is read

    def __init__(self, source: int, target: int, config: Seq2SeqConfig):
        super().__init__()
        width, hidden, manifold = config.width, config.hidden, config.manifold()
        options: dict[str, Any] = {"batch_first": True, "dropout": config.dropout * (config.layers > 1)}
        # as torch's tables begin, where that is no further from the origin than the radius of curvature, 1/√c
        near = 1 / max(1.0, math.sqrt(width * manifold.c))
        self.manifold = manifold
        self.source_points = Embedding(source, width, manifold, std=near, padding_idx=PAD)
        self.target_points = Embedding(target, width, manifold, std=near, padding_idx=PAD)
        both = self.ways == 2
        self.encoder = GRU(width, hidden // self.ways, manifold, config.layers, bidirectional=both, **options)
        self.decoder = GRU(width + hidden, hidden, manifold, config.layers, **options)
        self.readout = nn.Sequential(Linear(2 * hidden + width, hidden, manifold), Activation("tanh", manifold))
        self.dropout = Dropout(config.dropout, manifold)
        self.head = Classifier(hidden, target, manifold)

    def encode(self, source: Tensor, lengths: Tensor) -> State:
        """What `step` begins with.   (B, S), (B,)"""
        points = self.dropout(self.source_points(source))
        packed = pack_padded_sequence(points, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(out, batch_first=True, total_length=source.shape[1])
        ends = last.transpose(0, 1).unflatten(1, (-1, self.ways)).unbind(2)  # of each way
        return State(concat(ends, self.manifold), memory, source != PAD)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        state, points = self.encode(source, lengths), self.dropout(self.target_points(target))
        return self.head(self.dropout(self._write(points, state)[0]))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits of what follows these tokens.   (B,) -> (B, V)"""
        out, state = self._write(self.dropout(self.target_points(tokens[:, None])), state)
        return self.head(self.dropout(out))[:, 0], state

    def _write(self, points: Tensor, state: State) -> tuple[Tensor, State]:
        """What the head reads after each of the points, all at once: the context is the same for all.   (B, T, d)"""
        context = self._context(state).expand(-1, points.shape[1], -1)
        out, last = self.decoder(concat((points, context), self.manifold), state.hidden.transpose(0, 1).contiguous())
        read = self.readout(concat((out, points, context), self.manifold))
        return read, state._replace(hidden=last.transpose(0, 1))

    def _context(self, state: State) -> Tensor:
        """The last state of the source, which padding does not reach.   -> (B, 1, h)"""
        last = state.visible.sum(1, keepdim=True) - 1
        return state.memory.gather(1, last[..., None].expand(-1, -1, state.memory.shape[-1]))


class Seq2SeqAttention(Seq2Seq):
    """The decoder looks at another part of the source before each token.   (B, S), (B,), (B, T) -> (B, T, V)

    >>> model = Seq2SeqAttention(source=9, target=7, config=Seq2SeqConfig(width=4, hidden=6))
    >>> model(torch.tensor([[4, 5, 3], [8, 3, 0]]), torch.tensor([3, 2]), torch.tensor([[2, 4], [2, 5]])).shape
    torch.Size([2, 2, 7])
    """

    ways = 2

    def __init__(self, source: int, target: int, config: Seq2SeqConfig):
        super().__init__(source, target, config)
        self.attention = AdditiveAttention(config.hidden, config.hidden, config.hidden, self.manifold)

    def _write(self, points: Tensor, state: State) -> tuple[Tensor, State]:
        """Each context depends on the state before it: one token after the other."""
        outs = []
        for point in points.split(1, dim=1):
            out, state = super()._write(point, state)
            outs.append(out)
        return torch.cat(outs, 1), state

    def _context(self, state: State) -> Tensor:
        """softmax_i(vᵀtanh(W s_{t-1} + U h_i)) weighs the states h_i.   -> (B, 1, h)"""
        return self.attention(state.hidden[:, -1:], state.memory, visible=state.visible[:, None])
