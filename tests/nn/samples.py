"""What the layer tests range over: each layer as a module and an input, on each manifold."""

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz, Manifold, Poincare, Product
from horosphere.nn import (
    AdditiveAttention,
    Classifier,
    Embedding,
    FeedForward,
    Lift,
    Linear,
    Lower,
    Maxout,
    Residual,
    RMSNorm,
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
    "lift": lambda m: Lift(m),
    "lower": lambda m: Lower(m),
    "additive attention": lambda m: Looked(m, "additive"),
    "distance attention": lambda m: Looked(m, "distance"),
}


def layer(kind: str, m: Manifold, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Every parameter in general position: no zeros, no ones, nothing at its start."""
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
