"""What the optimizer tests range over."""

import math

import torch
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Lorentz, Manifold, Poincare, Product, Sphere
from horosphere.nn import Classifier, Embedding, Linear, RMSNorm
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD

DIM = 6
CURVATURES = [0.1, 1.0, 4.0]
CURVED = ["lorentz", "poincare", "product", "sphere"]
OPTIMIZERS = [
    (RiemannianSGD, {"lr": 0.05, "momentum": 0.9}),
    (RiemannianAdam, {"lr": 0.1, "amsgrad": True}),
    (RiemannianAdagrad, {"lr": 0.4, "lr_decay": 0.02}),
    (RiemannianRMSprop, {"lr": 0.01, "momentum": 0.9}),
]


def manifold(name: str, c: float = 1.0) -> Manifold:
    if name == "product":
        return Product((Lorentz(c), 2), (Poincare(c), 2), (Euclidean(), 2), weights=(1.0, 2.0, 0.5))
    return {"lorentz": Lorentz, "poincare": Poincare, "sphere": Sphere}[name](c)


def points(
    m: Manifold, n: int = 5, seed: int = 0, std: float = 1.0, c: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """A wrapped normal, std in units of 1/√c."""
    generator = torch.Generator().manual_seed(seed)
    return m.random(n, DIM, std=std / math.sqrt(c), generator=generator, dtype=torch.float64).to(dtype)


def group(p: nn.Parameter | list[nn.Parameter], m: Manifold) -> list[dict]:
    return [{"params": p, "manifold": m}]


def gradient(m: Manifold, x: Tensor, target: Tensor) -> Tensor:
    """of Σ dist²(x, target)"""
    x = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(m.sqdist(x, target).sum(), x)
    return g


class Net(nn.Module):
    """A table of points, a matrix, a norm, a head."""

    def __init__(self, m: Manifold, rows: int = 7, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.table = Embedding(rows, 4, m, std=0.5)
        self.linear = Linear(4, 3, m)
        self.norm = RMSNorm(3, m)
        self.head = Classifier(3, 2, m)
        self.to(dtype)

    def forward(self, i: Tensor) -> Tensor:
        return self.head(self.norm(self.linear(self.table(i))))


def make_net(m: Manifold | None = None, rows: int = 7, seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net(Lorentz() if m is None else m, rows)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, rows: int = 7, begin: int = 0) -> float:
    """Deterministic: the same nodes and labels at the same step."""
    loss = torch.zeros(())
    for t in range(begin, begin + steps):
        i = torch.arange(3 + t % 2) * (t + 1) % rows
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(i), i % 2)
        loss.backward()
        optimizer.step()
    return loss.item()


def values(net: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
