"""Recommenders: matrix factorisation, BPR, AutoRec, NeuMF, in any geometry.

Items are points, and a user is a hyperplane: the score of an item is its signed distance to it, on the side of what the
user likes. In flat space that is the inner product p·q + b of the classics. A model says what it `learns`:

    ratings   a rating from a user and an item       scores (B, K) of users (B,) and items (B, K)
    rows      all ratings of an item from its own    ratings (B, U) -> (B, U)
    ranking   what a user takes before the rest      scores, as of ratings: the first item of a row is the one taken
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean
from horosphere.models.config import InAnyGeometry
from horosphere.nn import (
    Activation,
    Classifier,
    Dropout,
    Embedding,
    Linear,
    bpr,
    concat,
    hinge,
    hyperplane_logits,
    hyperplane_scores,
)
from horosphere.settings import Amount, Decay, Positive, Size

START = 0.1  # std of tables at the start


# -- factors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FactorsConfig(InAnyGeometry):
    """Matrix factorisation (Koren et al. 2009); score=distance is HyperML's (Vinh Tran et al. 2020)."""

    dim: Size = 20  # of the factors
    score: Literal["hyperplane", "distance"] = "hyperplane"  # in flat space p·q, or -|p - q|²
    penalty: Amount = 0.1  # λ of λ(|p|² + |q|² + b²), for every rating; of points, their distance from the origin


class MatrixFactorisation(nn.Module):
    """score(u, i) = p_u·q_i + b_u + b_i + μ.   users (B,), items (B, K) -> (B, K)

    Curved: q_i is a point, p_u the normal of a hyperplane and b_u its offset. By distance both are points, and the
    score is -dist(p_u, q_i)² + b_u + b_i + μ.

    >>> model = MatrixFactorisation(3, 5, 3.5, FactorsConfig(dim=4))
    >>> user, item = torch.tensor([0, 2]), torch.tensor([[1, 4], [0, 0]])
    >>> p, q = model.user.weight, model.item.weight  # no bias has been learned yet
    >>> torch.allclose(model(user, item), 3.5 + (p[user][:, None] * q[item]).sum(-1))
    True
    """

    learns: ClassVar[str] = "ratings"

    def __init__(self, users: int, items: int, mean: float, config: FactorsConfig):
        super().__init__()
        self.config, self.manifold = config, config.manifold()
        self.item = Embedding(items, config.dim, self.manifold, std=START)
        by_distance = config.score == "distance"
        self.user = Embedding(users, config.dim, self.manifold if by_distance else Euclidean(), std=START)
        self.user_bias, self.item_bias = (nn.Parameter(torch.zeros(count)) for count in (users, items))
        self.register_buffer("mean", torch.tensor(float(mean)))
        self.mean: Tensor

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        points, own, rest = self.item(item), self.user(user).unsqueeze(1), self.item_bias[item] + self.mean
        offset = self.user_bias[user].unsqueeze(1)
        if self.config.score == "distance":
            return rest + offset - self.manifold.sqdist(own, points)
        return rest + hyperplane_scores(points, own.unsqueeze(1), offset.unsqueeze(1), self.manifold).squeeze(-1)

    def every(self, user: Tensor) -> Tensor:
        """Scores of all items.   (B,) -> (B, I)"""
        points, own, offset = self.item.weight, self.user(user), self.user_bias[user]
        if self.config.score == "distance":
            score = offset.unsqueeze(1) - self.manifold.pairwise(own, points).square()
        else:
            score = hyperplane_logits(points, own, offset, self.manifold).T
        return score + self.item_bias + self.mean

    def loss(self, user: Tensor, item: Tensor, rating: Tensor) -> Tensor:
        """The mean of (r - score)² and of its penalty.   (B,), (B, 1), (B, 1) -> ()"""
        return F.mse_loss(self(user, item), rating) + self.penalty(user, item)

    def penalty(self, user: Tensor, item: Tensor) -> Tensor:
        """λ(|p|² + |q|² + b_u² + b_i²), the mean over rows; of a point the squared distance from the origin."""
        lengths = _squares(self.item, item).sum(1) + _squares(self.user, user)
        biases = self.item_bias[item].square().sum(1) + self.user_bias[user].square()
        return self.config.penalty * (lengths + biases).mean()

    def item_points(self) -> Tensor:
        """(I, d)"""
        return self.item.weight.detach()


def _squares(table: Embedding, rows: Tensor) -> Tensor:
    """dist0² of rows of a table.   (...) -> (...)"""
    return table.manifold.lower(table(rows)).square().sum(-1)


# -- ranking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RankingConfig(FactorsConfig):
    """Bayesian personalised ranking (Rendle et al. 2009)."""

    loss: Literal["bpr", "hinge", "bce"] = "bpr"  # bpr -log σ(ŷ_i - ŷ_j); hinge max(margin - ŷ_i + ŷ_j, 0); bce of each
    margin: Positive = 1.0  # of hinge
    penalty: Amount = 0.01  # λ of λ(|p|² + |q|² + b²), of all items of a row; of points, their distance from the origin


def ranking_loss(scores: Tensor, kind: str, margin: float = 1.0) -> Tensor:
    """The first item of a row was taken, the others were not.   (B, 1 + K) -> ()

    >>> ranking_loss(torch.zeros(2, 5), "bpr"), ranking_loss(torch.zeros(2, 5), "hinge")
    (tensor(0.6931), tensor(1.))
    """
    taken, others = scores[:, :1], scores[:, 1:]
    if kind == "bce":
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, labels)
    return bpr(taken, others) if kind == "bpr" else hinge(taken, others, margin)


class RankedFactors(MatrixFactorisation):
    """The tables of matrix factorisation, for what a user takes before the rest.

    >>> model = RankedFactors(3, 5, 0.0, RankingConfig(dim=4, penalty=0))
    >>> loss = model.loss(torch.tensor([0, 2]), torch.tensor([[1, 4], [0, 3]]))  # item 1 before 4, 0 before 3
    >>> loss.shape
    torch.Size([])
    """

    learns = "ranking"
    config: RankingConfig

    def loss(self, user: Tensor, item: Tensor) -> Tensor:  # type: ignore[override]
        """(B,), (B, 1 + K) -> ()"""
        return ranking_loss(self(user, item), self.config.loss, self.config.margin) + self.penalty(user, item)


@dataclass(frozen=True, kw_only=True)
class NeuMFConfig(InAnyGeometry):
    """Neural matrix factorisation (He et al. 2017)."""

    dim: Size = 16  # of each of the four tables
    hidden: tuple[Size, ...] = (32, 16, 8)  # widths of the perceptron
    dropout: Decay = 0.0  # of what the perceptron reads
    loss: Literal["bpr", "hinge", "bce"] = "bce"  # bce is the paper's
    margin: Positive = 1.0  # of hinge
    penalty: Amount = 0.001  # λ of λ(|p|² + |q|²) of the tables; of points, their distance from the origin


class NeuMF(nn.Module):
    """h·[p ⊙ q, MLP([u, v])]: a product of factors beside a perceptron.   users (B,), items (B, K) -> (B, K)

    Curved, all four tables hold points. Those of the product are lowered, those of the perceptron joined and led
    through layers on the manifold, and lowered for h.

    >>> model = NeuMF(3, 5, 0.0, NeuMFConfig(dim=4, hidden=(6, 2)))
    >>> model(torch.tensor([0, 2]), torch.tensor([[1, 4, 2], [0, 3, 3]])).shape
    torch.Size([2, 3])
    """

    learns: ClassVar[str] = "ranking"

    def __init__(self, users: int, items: int, mean: float, config: NeuMFConfig):
        super().__init__()
        self.config, self.manifold = config, config.manifold()

        def table(rows: int) -> Embedding:
            return Embedding(rows, config.dim, self.manifold, std=START)

        self.user, self.item = table(users), table(items)
        self.user_mlp, self.item_mlp = table(users), table(items)
        widths = [2 * config.dim, *config.hidden]
        layers = [(Linear(a, b, self.manifold), Activation("relu", self.manifold)) for a, b in pairwise(widths)]
        self.mlp = nn.Sequential(Dropout(config.dropout, self.manifold), *(part for pair in layers for part in pair))
        self.h = nn.Linear(config.dim + widths[-1], 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self._scores(self.user(user), self.user_mlp(user), self.item(item), self.item_mlp(item))

    def every(self, user: Tensor) -> Tensor:
        """Scores of all items.   (B,) -> (B, I)"""
        return self._scores(self.user(user), self.user_mlp(user), self.item.weight[None], self.item_mlp.weight[None])

    def _scores(self, user: Tensor, user_mlp: Tensor, item: Tensor, item_mlp: Tensor) -> Tensor:
        """(B, d) of users; (B, K, d) of items, or (1, K, d) for all users."""
        lower = self.manifold.lower
        product = lower(user).unsqueeze(1) * lower(item)
        both = [x.expand_as(product) for x in (user_mlp.unsqueeze(1), item_mlp)]
        x = self.mlp(concat(both, self.manifold))
        return self.h(torch.cat([product, lower(x)], -1)).squeeze(-1)

    def loss(self, user: Tensor, item: Tensor) -> Tensor:
        """(B,), (B, 1 + K) -> ()"""
        lengths = _squares(self.item, item).sum(1) + _squares(self.item_mlp, item).sum(1)
        lengths = lengths + _squares(self.user, user) + _squares(self.user_mlp, user)
        cost = ranking_loss(self(user, item), self.config.loss, self.config.margin)
        return cost + self.config.penalty * lengths.mean()

    def item_points(self) -> Tensor:
        """(I, d) of the product: those of the perceptron mean nothing without it."""
        return self.item.weight.detach()


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AutoRecConfig(InAnyGeometry):
    """Item-based AutoRec (Sedhain et al. 2015); curved as an autoencoder of Mirvakhabova et al. 2020."""

    hidden: Size = 200  # units of the code
    dropout: Decay = 0.05  # of the code


class AutoRec(nn.Module):
    """r̂ = W g(V r + m) + b, g the sigmoid: all ratings of an item from those there are.   (B, U) -> (B, U)

    Curved: the code is the point with free coordinates g(V r + m), and each user a hyperplane.

    >>> model = AutoRec(6, 4, 3.5, AutoRecConfig(hidden=3))
    >>> model(torch.zeros(4, 6)).shape
    torch.Size([4, 6])
    """

    learns: ClassVar[str] = "rows"

    def __init__(self, users: int, items: int, mean: float, config: AutoRecConfig):
        super().__init__()
        self.config, self.manifold = config, config.manifold()
        self.encoder = nn.Linear(users, config.hidden)
        self.dropout = Dropout(config.dropout, self.manifold)
        self.decoder = Classifier(config.hidden, users, self.manifold)
        nn.init.constant_(self.decoder.bias, mean)  # where ratings are, before anything is learned

    def code(self, rows: Tensor) -> Tensor:
        """Items as points.   (B, U) -> (B, hidden)"""
        return self.dropout(self.manifold.point(self.encoder(rows).sigmoid()))

    def forward(self, rows: Tensor) -> Tensor:
        return self.decoder(self.code(rows))

    def loss(self, rows: Tensor, there: Tensor) -> Tensor:
        """Σ (r - r̂)² over the ratings there are, the mean over items.   (B, U), (B, U) bool -> ()"""
        return torch.where(there, self(rows) - rows, 0.0).square().sum(1).mean()
