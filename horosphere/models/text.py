"""Classifiers of texts in any geometry: convolutions, a recurrent layer in both directions, and a bag of words."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from horosphere.data.vocabulary import PAD
from horosphere.models.config import InAnyGeometry
from horosphere.nn import LSTM, Activation, Classifier, Conv1d, Dropout, Embedding, MaxOverTime, concat
from horosphere.settings import Decay, Few, Size

# fastText's: the number of a run of tokens is the number of its beginning times this, plus the next token
HASH = 116_049_371


def near(width: int) -> float:
    """Standard deviation of points that begin about 1 from the origin."""
    return float(width**-0.5)


# -- TextCNN (Kim 2014) -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TextCNNConfig(InAnyGeometry):
    """Sizes as in table 1 of the paper, but for narrower tokens."""

    width: Size = 64  # of the points of tokens
    kernels: tuple[Few, ...] = (3, 4, 5)  # tokens that a filter sees
    filters: Size = 100  # of each kind
    dropout: Decay = 0.5  # of what the classifier reads


class TextCNN(nn.Module):
    """Filters over runs of tokens, the largest answer of each over the text.   (B, T), (B,) -> (B, classes)

    >>> model = TextCNN(9, 2, TextCNNConfig(geometry="lorentz", width=4, filters=3))
    >>> model(torch.tensor([[4, 5, 6, 7, 8, 4], [4, 5, 0, 0, 0, 0]]), torch.tensor([6, 2])).shape
    torch.Size([2, 2])
    """

    def __init__(self, tokens: int, classes: int, config: TextCNNConfig):
        super().__init__()
        self.manifold, self.kernels = (manifold := config.manifold()), config.kernels
        self.points = Embedding(tokens, config.width, manifold, std=near(config.width), padding_idx=PAD)
        self.convolutions = nn.ModuleList(
            Conv1d(config.width, config.filters, size, manifold) for size in config.kernels
        )
        self.relu, self.largest = Activation("relu", manifold, dim=1), MaxOverTime(manifold)
        self.dropout = Dropout(config.dropout, manifold)
        self.head = Classifier(config.filters * len(config.kernels), classes, manifold)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        tokens = nn.functional.pad(tokens, (0, max(0, max(self.kernels) - tokens.shape[1])), value=PAD)
        x, found = self.points(tokens).mT, []
        for size, convolution in zip(self.kernels, self.convolutions, strict=True):
            windows = (lengths - size + 1).clamp_min(1)  # without padding; a short text has one with
            found.append(self.largest(self.relu(convolution(x)), windows))
        return self.head(self.dropout(concat(found, self.manifold)))


# -- BiRNN ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BiRNNConfig(InAnyGeometry):
    """Two LSTMs, one from each end."""

    width: Size = 64  # of the points of tokens
    hidden: Size = 64  # of the states of each direction
    layers: Few = 1  # of the LSTMs
    dropout: Decay = 0.5  # of tokens, and of what the classifier reads


class BiRNN(nn.Module):
    """The states at the first and at the last token, of both directions, side by side: 4h, classified.

    (B, T), (B,) -> (B, classes)

    >>> model = BiRNN(9, 2, BiRNNConfig(geometry="lorentz", width=4, hidden=3))
    >>> model(torch.tensor([[4, 5, 6], [4, 5, 0]]), torch.tensor([3, 2])).shape
    torch.Size([2, 2])
    """

    def __init__(self, tokens: int, classes: int, config: BiRNNConfig):
        super().__init__()
        self.manifold = manifold = config.manifold()
        self.points = Embedding(tokens, config.width, manifold, std=near(config.width), padding_idx=PAD)
        between = config.dropout * (config.layers > 1)
        self.lstm = LSTM(config.width, config.hidden, manifold, config.layers, True, between, bidirectional=True)
        self.dropout = Dropout(config.dropout, manifold)
        self.head = Classifier(4 * config.hidden, classes, manifold)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        lengths = lengths.clamp_min(1)
        points = self.dropout(self.points(tokens))
        packed = pack_padded_sequence(points, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        last = states[torch.arange(len(states), device=states.device), lengths - 1]
        return self.head(self.dropout(concat((states[:, 0], last), self.manifold)))


# -- HyperText (Zhu et al. 2020); in flat space fastText's classifier (Joulin et al. 2017) ----------------------------


@dataclass(frozen=True, kw_only=True)
class HyperTextConfig(InAnyGeometry):
    """A bag of words, and of runs of words."""

    width: Size = 32  # of points
    ngrams: Few = 2  # longest run of tokens that has a point of its own
    buckets: Size = 65536  # points for all runs together, found by hashing
    dropout: Decay = 0.5  # of tokens and runs


class HyperText(nn.Module):
    """The centroid of the points of tokens and of runs of tokens, classified.   (B, T), (B,) -> (B, classes)

    >>> model = HyperText(9, 2, HyperTextConfig(geometry="lorentz", width=4, buckets=16))
    >>> model(torch.tensor([[4, 5, 6], [4, 5, 0]]), torch.tensor([3, 2])).shape
    torch.Size([2, 2])
    """

    def __init__(self, tokens: int, classes: int, config: HyperTextConfig):
        super().__init__()
        self.manifold, self.ngrams, self.buckets = config.manifold(), config.ngrams, config.buckets
        self.dropped = config.dropout
        rows = tokens + config.buckets * (config.ngrams > 1)
        self.points = Embedding(rows, config.width, self.manifold, std=near(config.width), padding_idx=PAD)
        self.head = Classifier(config.width, classes, self.manifold)
        self.tokens = tokens

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        numbers = self.numbers(tokens)
        weights = (numbers != PAD).to(self.points.weight.dtype)
        if self.training:  # a token that is dropped has no weight
            weights = nn.functional.dropout(weights, self.dropped)
        return self.head(self.manifold.midpoint(self.points(numbers), weights))

    def numbers(self, tokens: Tensor) -> Tensor:
        """Rows of the table for all tokens, then for all pairs of neighbours, …; PAD where there is none.

        (B, T) -> (B, T + (T - 1) + …)
        """
        found, run, whole = [tokens], tokens, tokens != PAD
        for size in range(2, min(self.ngrams, tokens.shape[1]) + 1):
            run = run[:, :-1] * HASH + tokens[:, size - 1 :]
            whole = whole[:, :-1] & (tokens[:, size - 1 :] != PAD)
            found.append(torch.where(whole, self.tokens + run % self.buckets, PAD))
        return torch.cat(found, 1)
