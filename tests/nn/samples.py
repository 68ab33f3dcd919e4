"""What the layer tests range over: each layer as a module and an input, on each manifold."""

import pytest
import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz, Manifold, Poincare, Product
from horosphere.nn import (
    GRU,
    LSTM,
    RNN,
    Activation,
    AdditiveAttention,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Classifier,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    FeedForward,
    Flatten,
    GlobalAvgPool2d,
    LayerNorm,
    Lift,
    Linear,
    Lower,
    Maxout,
    MaxOverTime,
    MaxPool1d,
    MaxPool2d,
    Residual,
    RMSNorm,
    concat,
)

DIM = 6
CURVATURES = [0.1, 1.0, 4.0]
CURVED = ["lorentz", "poincare", "product"]


def manifold(name: str, c: float = 1.0, learn: bool = False) -> Manifold:
    if name == "euclidean":
        return Euclidean()
    if name == "product":
        return Product((Lorentz(c, learn), 2), (Poincare(c, learn), 2), (Euclidean(), 2), weights=(1.0, 2.0, 0.5))
    return {"lorentz": Lorentz, "poincare": Poincare}[name](c, learn)


def points(m: Manifold, n: int = 5, seed: int = 0, std: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return m.random(n, DIM, std=std, generator=generator, dtype=torch.float64).to(dtype)


class Joined(nn.Module):
    """A residual connection as a function of one input."""

    def __init__(self, m: Manifold, form: str):
        super().__init__()
        self.linear, self.residual = Linear(DIM, DIM, m), Residual(DIM, m, form)

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.linear(x))


class States(nn.Module):
    """All states of a recurrent layer, as a function of one input."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class OnMap(nn.Module):
    """A layer of pictures, sequences or rows as a function of points: rows are places.   (…, DIM) -> (N', d)"""

    def __init__(self, inner: nn.Module, axes: int):
        super().__init__()
        self.inner, self.axes = inner, axes

    def forward(self, x: Tensor) -> Tensor:
        places = x.flatten(0, -2).mT
        if self.axes == 0:
            return self.inner(places.mT)
        places = places.unflatten(1, (1,) * (self.axes - 1) + (-1,))
        y = self.inner(torch.stack((places, places.flip(-1))))
        return y.flatten(2).movedim(1, -1).flatten(0, 1) if y.dim() > 2 else y


class Beside(nn.Module):
    """Points beside themselves as a function of one input."""

    def __init__(self, m: Manifold):
        super().__init__()
        self.manifold = m

    def forward(self, x: Tensor) -> Tensor:
        return concat((x, x), self.manifold)


class Looked(nn.Module):
    """Points that look at each other."""

    def __init__(self, m: Manifold, score: str):
        super().__init__()
        self.attention = AdditiveAttention(DIM, DIM, DIM, m, score)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x)


LAYERS = {
    "linear": lambda m: Linear(DIM, DIM, m),
    "linear without bias": lambda m: Linear(DIM, DIM, m, bias=False),
    "linear to flat": lambda m: Linear(DIM, 4, m, out_manifold=Euclidean()),
    "linear to ball": lambda m: Linear(DIM, 4, m, out_manifold=Poincare(0.5)),
    "norm": lambda m: RMSNorm(DIM, m),
    "centroid": lambda m: Joined(m, "centroid"),
    "additive": lambda m: Joined(m, "additive"),
    "classifier": lambda m: Classifier(DIM, 4, m),
    "classifier without bias": lambda m: Classifier(DIM, 4, m, bias=False),
    "feed forward": lambda m: FeedForward(DIM, DIM, m),
    "maxout": lambda m: Maxout(DIM, DIM, 3, m),
    "lift": lambda m: Lift(m, scale=1.0),
    "matched lift": lambda m: Lift(m).fit(2 * torch.ones(DIM)),
    "lower": lambda m: Lower(m),
    "rnn": lambda m: States(RNN(DIM, DIM, m)),
    "gru": lambda m: States(GRU(DIM, DIM, m)),
    "gru, reset before": lambda m: States(GRU(DIM, DIM, m, reset="before")),
    "lstm": lambda m: States(LSTM(DIM, DIM, m)),
    "relu": lambda m: Activation("relu", m),
    "tanh": lambda m: Activation("tanh", m),
    "dropout": lambda m: Dropout(0.5, m).eval(),
    "layer norm": lambda m: LayerNorm(DIM, m),
    "conv1d": lambda m: OnMap(Conv1d(DIM, DIM, 3, m, padding=1), 1),
    "conv2d": lambda m: OnMap(Conv2d(DIM, DIM, 3, m, (1, 2), (1, 2), (1, 2), bias=False), 2),
    "max pool 1d": lambda m: OnMap(MaxPool1d(2, m), 1),
    "max pool 2d": lambda m: OnMap(MaxPool2d((1, 2), m), 2),
    "average pool": lambda m: OnMap(AvgPool2d((1, 2), m, stride=1, padding=(0, 1)), 2),
    "global pool": lambda m: OnMap(GlobalAvgPool2d(m), 2),
    "max over time": lambda m: OnMap(MaxOverTime(m), 1),
    "flatten": lambda m: OnMap(Flatten(m), 2),
    "concat": lambda m: Beside(m),
    "batch norm": lambda m: OnMap(BatchNorm2d(DIM, m), 2),
    "batch norm at rest": lambda m: OnMap(BatchNorm2d(DIM, m), 2).eval(),
    "batch norm of rows": lambda m: OnMap(BatchNorm1d(DIM, m), 0),
    "free batch norm": lambda m: OnMap(BatchNorm1d(DIM, m, form="free"), 0),
    "additive attention": lambda m: Looked(m, "additive"),
    "distance attention": lambda m: Looked(m, "distance"),
}
ONE_GEOMETRY = (  # what a product's coordinates cannot go through
    *("conv1d", "conv2d", "average pool", "global pool", "flatten", "concat"),
    *("batch norm", "batch norm at rest", "batch norm of rows", "free batch norm"),
)
NO_CURVATURE = (  # functions of free coordinates alone
    *("norm", "relu", "tanh", "dropout", "layer norm", "max pool 1d", "max pool 2d", "max over time"),
    *("flatten", "concat", "free batch norm"),
)


def layer(kind: str, m: Manifold, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Every parameter in general position: no zeros, no ones, nothing at its start."""
    if kind in ONE_GEOMETRY and isinstance(m, Product):
        pytest.skip("no layer of products")
    torch.manual_seed(seed)
    made = LAYERS[kind](m)
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.add_(0.1 * torch.randn(p.shape)) if "log_ratio" not in name else p.fill_(0.2)
    return made.to(dtype)


class Stack(nn.Module):
    """Table, two blocks, head: an MLP on a manifold."""

    def __init__(self, m: Manifold, rows: int = 20, width: int = DIM, classes: int = 3, form: str = "centroid"):
        super().__init__()
        self.table = Embedding(rows, width, m, std=0.5)
        self.one, self.two = Linear(width, width, m), Linear(width, width, m)
        self.norm_one, self.norm_two, self.residual = RMSNorm(width, m), RMSNorm(width, m), Residual(width, m, form)
        self.head = Classifier(width, classes, m)

    def forward(self, i: Tensor) -> Tensor:
        x = self.one(self.norm_one(self.table(i)))
        return self.head(self.norm_two(self.residual(x, self.two(x))))
