"""Word vectors: skip-gram, CBOW, fastText and GloVe, in any geometry.

Two tables. A row of the first is the point of a word as a centre. A row of the second is the word as a context: with
`score=hyperplane` a hyperplane through the origin, and the score of a pair is |w| times the signed distance to it, in
flat space the inner product of word2vec; with `score=distance` a point, and the score is b - distance².

    skip-gram   Σ over pairs of  softplus(-s(centre, context)) + Σ over noise words of  softplus(s(centre, noise))
    CBOW        the same of one pair a centre: the midpoint of its contexts, and the centre itself
    fastText    skip-gram in which a word is the midpoint of its own row and those of its n-grams
    GloVe       Σ over pairs of  min((x/100)^¾, 1)·(s(i, j) + b_i - log x_ij)²
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.windows import huffman
from horosphere.geometry import Manifold
from horosphere.models.config import InAnyGeometry
from horosphere.nn import Embedding, distinct, hyperplane_logits, hyperplane_pairs
from horosphere.settings import Count, Few, Natural, Size

START = 0.3  # std of a start, over the dimensions: that of word2vec's U(±1/2d)
FULL_WEIGHT, WEIGHT_POWER = 100, 0.75  # of GloVe: pairs seen so often count fully


# -- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WordsConfig(InAnyGeometry):
    dim: Size = 100  # dimensions
    score: Literal["hyperplane", "distance"] = "hyperplane"  # of two words; in flat space hyperplane is x·w
    window: Few = 5  # words to each side


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig(WordsConfig):
    output: Literal["noise", "tree"] = "noise"  # tree: hierarchical softmax over a Huffman tree
    negatives: Count = 5  # noise words for each pair
    shared: Natural = 0  # noise words for a whole step, weighed as `negatives` a pair; 0: each pair draws its own


@dataclass(frozen=True, kw_only=True)
class FastTextConfig(SkipGramConfig):
    shortest: Few = 3  # letters of an n-gram
    longest: Few = 6
    buckets: Size = 30000  # rows that the n-grams share


@dataclass(frozen=True, kw_only=True)
class GloVeConfig(WordsConfig):
    window: Few = 10  # words to each side; a word k away counts 1/k


# -- the second table -------------------------------------------------------------------------------------------------


class Hyperplanes(nn.Module):
    """Contexts as hyperplanes, through the origin where they have no bias."""

    def __init__(self, count: int, dim: int, manifold: Manifold, bias: bool, std: float):
        super().__init__()
        self.manifold = manifold
        self.weight = nn.Parameter(torch.empty(count, dim).normal_(std=std) if std else torch.zeros(count, dim))
        self.bias = nn.Parameter(torch.zeros(count)) if bias else None

    def rows(self, rows: Tensor) -> SomePlanes:
        """(K,)"""
        bias = None if self.bias is None else self.bias[rows]
        return SomePlanes(self.manifold, F.embedding(rows, self.weight), bias)

    def whole(self) -> SomePlanes:
        return SomePlanes(self.manifold, self.weight, self.bias)


class SomePlanes(NamedTuple):
    """Rows of the table that a step needs, each once: so each has one gradient."""

    manifold: Manifold
    weight: Tensor  # (K, d)
    bias: Tensor | None  # (K,)

    def pairs(self, x: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Scores of points with contexts, pair by pair.   (N, d), (P,), (P,) -> (P,)"""
        return hyperplane_pairs(x, self.weight, self.bias, self.manifold, row, column)

    def against(self, x: Tensor, columns: Tensor) -> Tensor:
        """Scores of all points with all these contexts.   (N, d), (C,) -> (N, C)"""
        bias = None if self.bias is None else self.bias[columns]
        return hyperplane_logits(x, F.embedding(columns, self.weight), bias, self.manifold)


class Centres(nn.Module):
    """Contexts as points: scores are b - distance²."""

    def __init__(self, count: int, dim: int, manifold: Manifold, std: float):
        super().__init__()
        self.manifold, self.table = manifold, Embedding(count, dim, manifold, std=std)
        self.bias = nn.Parameter(torch.zeros(count))

    def rows(self, rows: Tensor) -> SomeCentres:
        return SomeCentres(self.manifold, self.table(rows), self.bias[rows])

    def whole(self) -> SomeCentres:
        return SomeCentres(self.manifold, self.table.weight, self.bias)


class SomeCentres(NamedTuple):
    manifold: Manifold
    points: Tensor  # (K, d)
    bias: Tensor  # (K,)

    def pairs(self, x: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return self.bias[column] - self.manifold.sqdist(x[row], self.points[column])

    def against(self, x: Tensor, columns: Tensor) -> Tensor:
        return self.bias[columns] - self.manifold.pairwise(x, self.points[columns]).square()


def contexts(
    count: int, config: WordsConfig, manifold: Manifold, bias: bool = False, std: float = 0.0
) -> Hyperplanes | Centres:
    """The second table. word2vec begins it at 0."""
    if config.score == "distance":
        return Centres(count, config.dim, manifold, START / config.dim)
    return Hyperplanes(count, config.dim, manifold, bias, std)


# -- models -----------------------------------------------------------------------------------------------------------


class SkipGram(nn.Module):
    """Each word predicts the words around it (Mikolov et al. 2013).

    words, counts: the vocabulary, and how often each word was seen.

    >>> model = SkipGram(["the", "cat", "sat"], [9, 3, 2], SkipGramConfig(geometry="lorentz", dim=4))
    >>> batch = torch.tensor([1, 0]), torch.tensor([[0, 2], [1, -1]])
    >>> round(model(*batch, noise=torch.tensor([0, 2])).item(), 2)  # 3 pairs with 5 noise words each: 3·6·log 2
    12.48
    """

    learns: ClassVar[Literal["windows", "counts"]] = "windows"
    context: Hyperplanes | Centres
    nodes: Tensor  # (V, L): the way to each word in the tree
    signs: Tensor  # (V, L)

    def __init__(self, words: Sequence[str], counts: Sequence[int] | np.ndarray, config: SkipGramConfig):
        super().__init__()
        self.config, self.manifold, self.size = config, config.manifold(), len(words)
        self.centre = Embedding(self.rows(words, config), config.dim, self.manifold, std=START / config.dim)
        if config.output == "tree":
            nodes, signs = huffman(counts)
            self.register_buffer("nodes", torch.from_numpy(nodes), persistent=False)
            self.register_buffer("signs", torch.from_numpy(signs).float(), persistent=False)
        self.context = contexts(self.size - (config.output == "tree"), config, self.manifold)

    @staticmethod
    def rows(words: Sequence[str], config: SkipGramConfig) -> int:
        """Of the first table."""
        return len(words)

    def points(self, words: Tensor) -> Tensor:
        """(N,) -> (N, d)"""
        return self.centre(words)

    def forward(self, centre: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        """The sum of the losses of all pairs. A context of -1 is none.

        centre (R,), context (R, C), noise (K,) for all or (P, K), one row for each of the P contexts -> ()
        """
        there = context >= 0
        words, row = distinct(centre.repeat_interleave(there.sum(-1)), self.size)
        return self.loss(self.points(words), row, context[there], noise)

    def loss(self, x: Tensor, row: Tensor, target: Tensor, noise: Tensor) -> Tensor:
        """Of points x that should score high with targets, pair by pair.   (N, d), (P,), (P,), (K,) or (P, K) -> ()"""
        if self.config.output == "tree":
            return self.tree_loss(x, row, target)
        return self.shared_loss(x, row, target, noise) if noise.ndim == 1 else self.own_loss(x, row, target, noise)

    def own_loss(self, x: Tensor, row: Tensor, target: Tensor, noise: Tensor) -> Tensor:
        """Noise (P, K) for each pair: targets and noise side by side with a mask, by softplus(-s) = softplus(s) - s.

        So many words meet most rows of the table. The whole of it is read in place: a copy of them costs more.
        """
        words = torch.cat([target.unsqueeze(-1), noise], -1)
        counts = words != words[:, :1]  # word2vec leaves out noise that is the target
        counts[:, 0] = True
        row = row.repeat_interleave(words.shape[1])
        scores = self.context.whole().pairs(x, row, words.flatten()).view_as(words)
        return (F.softplus(scores) * counts).sum() - scores[:, 0].sum()

    def shared_loss(self, x: Tensor, row: Tensor, target: Tensor, noise: Tensor) -> Tensor:
        """Noise (K,) for all pairs: each word stands for several, and scores are one matrix product."""
        rows, place = distinct(torch.cat([target, noise]), self.size)
        context, right, wrong = self.context.rows(rows), place[: len(target)], place[len(target) :]
        weight = torch.bincount(row, minlength=len(x)) * (self.config.negatives / max(len(noise), 1))
        loss = (F.softplus(context.against(x, wrong)).sum(-1) * weight.to(x.dtype)).sum()
        return loss + F.softplus(-context.pairs(x, row, right)).sum()

    def tree_loss(self, x: Tensor, row: Tensor, target: Tensor) -> Tensor:
        """-log P of the targets: Π σ(±s) along the way from the root, + where it goes left."""
        nodes, signs = self.nodes[target], self.signs[target]
        there = nodes >= 0
        rows, column = distinct(nodes[there], self.size)
        scores = self.context.rows(rows).pairs(x, row.unsqueeze(-1).expand_as(nodes)[there], column)
        return F.softplus(-signs[there] * scores).sum()

    def tree_log_probabilities(self, x: Tensor) -> Tensor:
        """log P of every word.   (N, d) -> (N, V)"""
        inner = torch.arange(self.size - 1, device=x.device)
        scores = self.context.rows(inner).against(x, inner)
        steps = F.logsigmoid(self.signs * scores[:, self.nodes.clamp_min(0)])
        return (steps * (self.signs != 0)).sum(-1)

    def vectors(self) -> Tensor:
        """The points of all words.   -> (V, d)"""
        return torch.cat([self.points(part) for part in torch.arange(self.size, device=self.device).split(4096)])

    @property
    def device(self) -> torch.device:
        return self.centre.weight.device


class CBOW(SkipGram):
    """The words around a word predict it: a pair of their midpoint and the word (Mikolov et al. 2013).

    >>> model = CBOW(["the", "cat", "sat"], [9, 3, 2], SkipGramConfig(dim=4))
    >>> batch = torch.tensor([1, 0]), torch.tensor([[0, 2], [1, -1]])
    >>> round(model(*batch, noise=torch.tensor([0, 2])).item(), 2)  # 2 pairs with 5 noise words each: 2·6·log 2
    8.32
    """

    def forward(self, centre: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        there = context >= 0
        full = there.any(-1)
        near, target, many = context[full], centre[full], there[full].sum(-1)
        x = self.manifold.midpoint(self.centre(near.clamp_min(0)), there[full].to(self.centre.weight.dtype))
        row = torch.arange(len(target), device=target.device)
        return self.loss(x, row, target, noise if noise.ndim == 1 else noise[many.cumsum(0) - many])  # of the first


class FastText(SkipGram):
    """Skip-gram in which words share their n-grams (Bojanowski et al. 2017). So it has points for words never seen.

    >>> config = FastTextConfig(dim=4, buckets=50)
    >>> model = FastText(["where", "there"], [2, 1], config)
    >>> model.centre.weight.shape, model.point_of("nowhere").shape  # rows of words, then those of n-grams
    (torch.Size([52, 4]), torch.Size([4]))
    """

    config: FastTextConfig
    subwords: Tensor  # (V, S): the rows of a word, -1 for none

    def __init__(self, words: Sequence[str], counts: Sequence[int] | np.ndarray, config: FastTextConfig):
        super().__init__(words, counts, config)
        parts = [[number, *self.parts(word)] for number, word in enumerate(words)]
        table = np.full((len(words), max(map(len, parts))), -1, dtype=np.int64)
        for row, own in zip(table, parts, strict=True):
            row[: len(own)] = own
        self.register_buffer("subwords", torch.from_numpy(table), persistent=False)

    @staticmethod
    def rows(words: Sequence[str], config: SkipGramConfig) -> int:
        return len(words) + config.buckets if isinstance(config, FastTextConfig) else len(words)

    def parts(self, word: str) -> list[int]:
        """The rows of its n-grams."""
        grams = n_grams(word, self.config.shortest, self.config.longest)
        return [self.size + fnv1a(gram) % self.config.buckets for gram in grams]

    def points(self, words: Tensor) -> Tensor:
        rows = self.subwords[words]
        rows = rows[:, : int((rows >= 0).sum(-1).max()) if len(rows) else 0]
        return self.manifold.midpoint(self.centre(rows.clamp_min(0)), (rows >= 0).to(self.centre.weight.dtype))

    def point_of(self, word: str) -> Tensor | None:
        """Of a word that was never seen, by its n-grams; None where it has none.   -> (d,)"""
        rows = self.parts(word)
        return self.manifold.midpoint(self.centre(torch.tensor(rows, device=self.device))) if rows else None


class GloVe(nn.Module):
    """Scores of words with contexts are the logarithms of how often they meet (Pennington et al. 2014).

    >>> model = GloVe(["the", "cat", "sat"], [9, 3, 2], GloVeConfig(dim=100))
    >>> loss = model(torch.tensor([0]), torch.tensor([1]), torch.tensor([100.0]))
    >>> round(loss.item(), 1)  # (log 100)², all scores being nearly 0
    21.2
    """

    learns: ClassVar[Literal["windows", "counts"]] = "counts"
    context: Hyperplanes | Centres

    def __init__(self, words: Sequence[str], counts: Sequence[int] | np.ndarray, config: GloVeConfig):
        super().__init__()
        self.config, self.manifold, self.size = config, config.manifold(), len(words)
        std = START / config.dim
        self.centre = Embedding(self.size, config.dim, self.manifold, std=std)
        self.bias = nn.Parameter(torch.zeros(self.size))
        self.context = contexts(self.size, config, self.manifold, bias=True, std=std)

    def forward(self, word: Tensor, context: Tensor, count: Tensor) -> Tensor:
        """The sum of the losses of pairs that met so often.   3 x (P,) -> ()"""
        (words, row), (rows, column) = distinct(word, self.size), distinct(context, self.size)
        scores = self.context.rows(rows).pairs(self.centre(words), row, column) + self.bias[word]
        weight = (count / FULL_WEIGHT).pow(WEIGHT_POWER).clamp_max(1)
        return (weight * (scores - count.log()).square()).sum()

    def vectors(self) -> Tensor:
        """Both tables in one: in flat space their sum, as the paper has it; elsewhere the sum of vectors at the origin.

        With points as contexts, the midpoint of the two.   -> (V, d)
        """
        own = self.centre.weight
        if isinstance(self.context, Centres):
            return self.manifold.midpoint(torch.stack([own, self.context.table.weight], -2))
        return self.manifold.lift(self.manifold.lower(own) + self.context.weight)

    @property
    def device(self) -> torch.device:
        return self.centre.weight.device


WordModel = SkipGram | GloVe


# -- n-grams ----------------------------------------------------------------------------------------------------------


def n_grams(word: str, shortest: int = 3, longest: int = 6) -> Iterator[str]:
    """The n-grams of <word>, but for the whole, which has a row of its own.

    >>> list(n_grams("where", 3, 3))
    ['<wh', 'whe', 'her', 'ere', 're>']
    """
    marked = f"<{word}>"
    for length in range(shortest, longest + 1):
        for start in range(len(marked) - length + 1):
            if length < len(marked):
                yield marked[start : start + length]


@cache  # words share most of theirs
def fnv1a(text: str) -> int:
    """The hash of fastText, 32 bits. It reads bytes as signed, as published models expect.

    >>> fnv1a("a")
    3826002220
    """
    value = 2166136261
    for byte in text.encode():
        signed = byte if byte < 128 else byte | 0xFFFFFF00
        value = (value ^ signed) * 16777619 & 0xFFFFFFFF
    return value
