"""Slow, explicit Riemannian optimizers: the metric as a matrix, exp and transport as the papers write them."""

import torch
from torch import Tensor

from horosphere.geometry import Manifold, Product


def riemannian_gradient(m: Manifold, x: Tensor, g: Tensor) -> Tensor:
    """G⁻¹ g with the metric G_ij = <e_i, e_j>_x.   (N, d), (N, d) -> (N, d)"""
    e = torch.eye(x.shape[-1], dtype=x.dtype)
    at, e_i, e_j = torch.broadcast_tensors(x[:, None, None], e[:, None], e)
    return torch.linalg.solve(m.inner(at, e_i, e_j), g)


def squares(m: Manifold, x: Tensor, r: Tensor) -> Tensor:
    """What Adam's second moment collects: |r|² in each curved factor, of each coordinate in flat ones.   -> (N, d)"""
    if isinstance(m, Product):
        by_factor = zip(m.factors, m.weights, m.split(x), m.split(r), strict=True)
        return torch.cat([w * squares(f, x, r) for f, w, x, r in by_factor], -1)
    return r.square() if m.flat else m.inner(x, r, r)[:, None].expand_as(r)


class SGD:
    """One point a row. `rows` says which move: the others keep their place and their momentum."""

    def __init__(self, m: Manifold, lr: float, momentum: float = 0.0, dampening: float = 0.0, maximize: bool = False):
        self.m, self.lr, self.momentum, self.dampening, self.sign = m, lr, momentum, dampening, -1 if maximize else 1
        self.buffer: Tensor | None = None

    def step(self, x: Tensor, g: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        g = riemannian_gradient(self.m, x, self.sign * g)
        first, self.buffer = self.buffer is None, torch.zeros_like(x) if self.buffer is None else self.buffer
        moved, buffer = x.clone(), self.buffer.clone()
        v = self.momentum * buffer + (1.0 if first else 1 - self.dampening) * g
        y = self.m.exp(x, -self.lr * v)
        moved[rows], buffer[rows] = y[rows], self.m.transport(v, x, y)[rows]
        self.buffer = buffer
        return moved


class Adam:
    """Bécigneul & Ganea 2019, algorithm 1a (amsgrad) with bias correction."""

    def __init__(
        self,
        m: Manifold,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        amsgrad: bool = False,
        maximize: bool = False,
    ):
        self.m, self.lr, self.betas, self.eps, self.amsgrad, self.sign = (
            m,
            lr,
            betas,
            eps,
            amsgrad,
            -1 if maximize else 1,
        )
        self.t, self.first, self.second, self.largest = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())

    def step(self, x: Tensor, g: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        g = riemannian_gradient(self.m, x, self.sign * g)
        self.t += 1
        if self.t == 1:
            self.first, self.second, self.largest = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
        first = self.betas[0] * self.first + (1 - self.betas[0]) * g
        second = self.betas[1] * self.second + (1 - self.betas[1]) * squares(self.m, x, g)
        largest = torch.maximum(self.largest, second)
        used = (largest if self.amsgrad else second) / (1 - self.betas[1] ** self.t)
        y = self.m.exp(x, -self.lr * first / (1 - self.betas[0] ** self.t) / (used.sqrt() + self.eps))
        carried = self.m.transport(first, x, y)
        result = []
        for old, new in ((x, y), (self.first, carried), (self.second, second), (self.largest, largest)):
            kept = old.clone()
            kept[rows] = new[rows]
            result.append(kept)
        moved, self.first, self.second, self.largest = result
        return moved


class Adagrad:
    """Duchi et al. 2011 with lengths in place of absolute values."""

    def __init__(self, m: Manifold, lr: float, lr_decay: float = 0.0, eps: float = 1e-10, start: float = 0.0):
        self.m, self.lr, self.lr_decay, self.eps, self.t = m, lr, lr_decay, eps, 0
        self.sum = torch.full((), start)

    def step(self, x: Tensor, g: Tensor) -> Tensor:
        g = riemannian_gradient(self.m, x, g)
        self.sum = self.sum + squares(self.m, x, g)
        rate = self.lr / (1 + self.t * self.lr_decay)
        self.t += 1
        return self.m.exp(x, -rate * g / (self.sum.sqrt() + self.eps))


class RMSprop:
    """Tieleman & Hinton 2012 with lengths in place of absolute values; the momentum is transported."""

    def __init__(self, m: Manifold, lr: float, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0):
        self.m, self.lr, self.alpha, self.eps, self.momentum = m, lr, alpha, eps, momentum
        self.square, self.buffer = torch.zeros(()), torch.zeros(())

    def step(self, x: Tensor, g: Tensor) -> Tensor:
        g = riemannian_gradient(self.m, x, g)
        self.square = self.alpha * self.square + (1 - self.alpha) * squares(self.m, x, g)
        v = self.momentum * self.buffer + g / (self.square.sqrt() + self.eps)
        y = self.m.exp(x, -self.lr * v)
        self.buffer = self.m.transport(v, x, y)
        return y
