"""Activation and dropout of points: functions of their free coordinates."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError, choices
from horosphere.geometry import Manifold
from horosphere.nn.axes import through
from horosphere.nn.first_call import settle

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
}


class Activation(nn.Module):
    """φ of the free coordinates, P(φ(u)); torch's φ(x) in flat space. Points lie along `dim`.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x = torch.tensor([[-1.0, 2.0]])
    >>> Activation("relu", Lorentz())(x)  # the time follows: the point moves
    tensor([[0., 2.]])
    >>> torch.equal(Activation("tanh", Euclidean())(x), x.tanh())
    True
    """

    def __init__(self, name: str, manifold: Manifold, dim: int = -1):
        super().__init__()
        if name not in ACTIVATIONS:
            raise UserError(f'activation "{name}": there is none of this name; {choices(name, ACTIVATIONS)}')
        self.name, self.manifold, self.dim = name, settle(self, manifold, dim=dim), dim

    def forward(self, x: Tensor) -> Tensor:
        return through(ACTIVATIONS[self.name], x, self.manifold, self.dim)

    def extra_repr(self) -> str:
        return self.name


class Dropout(nn.Dropout):
    """Dropout of free coordinates; torch's in flat space. Points lie along `dim`.

    What is left is divided by 1 - p, so the mean stays; nothing happens outside training.

    >>> from horosphere.geometry import Lorentz
    >>> dropout, x = Dropout(0.5, Lorentz()), torch.ones(1, 4)
    >>> dropout(x).unique().tolist() in ([0.0], [2.0], [0.0, 2.0]), torch.equal(dropout.eval()(x), x)
    (True, True)
    """

    def __init__(self, p: float, manifold: Manifold, dim: int = -1):
        if not 0 <= p <= 1:
            raise UserError(f"dropout {p}: a probability lies between 0 and 1")
        super().__init__(p)
        self.manifold, self.dim = settle(self, manifold, dim=dim), dim

    def forward(self, x: Tensor) -> Tensor:
        return through(super().forward, x, self.manifold, self.dim)
