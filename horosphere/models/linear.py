"""Models of one hyperplane for each answer: perceptron, linear regression, softmax regression, support vectors.

In flat space a score is w·x + b. On a curved manifold a row becomes the point that far from the origin, and a score is
|w| times the signed distance to a hyperplane: so linear regression predicts a number by a distance.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.models.config import InAnyGeometry
from horosphere.models.table_model import Sizes, TableModel
from horosphere.nn import Classifier, Lift, against_the_rest, hinge, perceptron
from horosphere.settings import Positive


class SoftmaxRegression(TableModel):
    """Multinomial logistic regression: cross-entropy of softmax(W x + b).   (B, F) -> (B, K)

    >>> import torch
    >>> SoftmaxRegression(Sizes(columns=4, answers=3, rows=100), InAnyGeometry())(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, sizes: Sizes, config: InAnyGeometry):
        super().__init__()
        self.manifold = config.manifold()
        self.lift, self.planes = Lift(self.manifold, scale=1.0), Classifier(sizes.columns, sizes.answers, self.manifold)
        nn.init.zeros_(self.planes.weight)  # the loss is convex in flat space: nothing is gained by chance
        nn.init.zeros_(self.planes.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.planes(self.lift(x))

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        return F.cross_entropy(self(x), y)


class LinearRegression(SoftmaxRegression):
    """½ mean squares of y - (w·x + b); curved, of y minus a distance to a hyperplane.   (B, F) -> (B,)"""

    answer = "number"

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(-1)

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        return (self(x) - y).square().mean() / 2


class Perceptron(SoftmaxRegression):
    """Rosenblatt's rule: a row on the wrong side of a plane moves it, w += α(y - ŷ)x and b += α(y - ŷ).

    One plane a class, against the rest. With optimizer=sgd, schedule=constant and batch=1 it is the rule to the letter.
    """

    probable = False

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        scores = against_the_rest(self(x), y)
        return perceptron(scores) * scores.shape[-1]  # summed over classes


@dataclass(frozen=True, kw_only=True)
class SVMConfig(InAnyGeometry):
    cost: Positive = 1.0  # C of ½|w|² + C Σ max(0, 1 - y·f(x)), over all rows


class SVM(SoftmaxRegression):
    """Support vectors: ½|w|² + C Σ max(0, 1 - y·f(x)) of each class against the rest, over C and the rows."""

    probable = False

    def __init__(self, sizes: Sizes, config: SVMConfig):
        super().__init__(sizes, config)
        self.shrink = 1 / (config.cost * sizes.rows)

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        scores = against_the_rest(self(x), y)
        return self.shrink * self.planes.weight.square().sum() / 2 + hinge(scores) * scores.shape[-1]
