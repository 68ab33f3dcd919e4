"""Restricted Boltzmann machines, trained by contrastive divergence. They live in flat space: no curved one is known."""

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.tables import Scaling
from horosphere.models.table_model import Sizes, TableModel
from horosphere.settings import Few, Size, check

AT_ONCE = 2**23  # numbers that a pseudo-likelihood holds at once
GRID, FARTHEST = 49, 12.0  # points that a Gaussian column is integrated over, out to this many standard deviations


@dataclass(frozen=True, kw_only=True)
class RBMConfig:
    hidden: Size = 32  # units
    chain: Few = 1  # k: Gibbs steps from the data to what the model makes of them

    def __post_init__(self) -> None:
        check(self)


class RBM(TableModel):
    """p(v, h) ∝ exp(aᵀv + bᵀh + hᵀWv) of units that are 0 or 1.   forward: P(h = 1 | v), (B, V) -> (B, H)

    >>> machine = RBM(Sizes(columns=4, answers=0, rows=100), RBMConfig(hidden=8))
    >>> machine(torch.zeros(2, 4)).shape, machine.free_energy(torch.zeros(2, 4)).shape
    (torch.Size([2, 8]), torch.Size([2]))
    """

    answer = "none"

    def __init__(self, sizes: Sizes, config: RBMConfig):
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(config.hidden, sizes.columns))
        self.a = nn.Parameter(torch.zeros(sizes.columns))
        self.b = nn.Parameter(torch.zeros(config.hidden))

    @staticmethod
    def scaling(x: np.ndarray) -> Scaling:
        return Scaling.ranged(x)

    @classmethod
    def noise(cls, columns: int, config: Any) -> tuple[int, ...]:
        """A number for each hidden and each visible unit, in each step of the chain."""
        return int(config.chain), int(config.hidden + columns)

    def forward(self, v: Tensor) -> Tensor:
        """P(h = 1 | v) = σ(Wv + b)"""
        return torch.sigmoid(F.linear(v, self.weight, self.b))

    def free_energy(self, v: Tensor) -> Tensor:
        """F(v) = -aᵀv - Σ_i softplus(b_i + W_i v), with p(v) ∝ exp(-F(v)).   (..., V) -> (...)"""
        return -(v @ self.a) - F.softplus(F.linear(v, self.weight, self.b)).sum(-1)

    def visible(self, h: Tensor) -> Tensor:
        """E(v | h) = σ(Wᵀh + a)   (..., H) -> (..., V)"""
        return torch.sigmoid(h @ self.weight + self.a)

    def drawn(self, mean: Tensor, noise: Tensor) -> Tensor:
        """Visible units of this mean, from uniform numbers."""
        return (noise < mean).to(mean.dtype)

    @torch.no_grad()
    def chained(self, v: Tensor, noise: Tensor) -> Tensor:
        """v_k of Gibbs sampling that starts at v: hidden units, then visible ones, k times.

        (B, V), (B, k, H + V) -> (B, V)
        """
        for numbers in noise.unbind(1):
            for_hidden, for_visible = numbers.split([len(self.b), len(self.a)], -1)
            h = (for_hidden < self(v)).to(v.dtype)
            v = self.drawn(self.visible(h), for_visible)
        return v

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """CD-k: the mean of F(v_0) - F(v_k), v_k taken as given. Its gradient has hidden units as probabilities."""
        return (self.free_energy(x) - self.free_energy(self.chained(x, noise))).mean()

    def pseudo_likelihood(self, v: Tensor) -> Tensor:
        """Σ_i log p(v_i | all others), the likelihood that can be had: F(v) and its partition cannot.   (B, V) -> (B,)

        log σ(F(v with v_i flipped) - F(v)), for every i.
        """
        size = max(1, AT_ONCE // (self.weight.numel() * self.grid))
        return torch.cat([self._pseudo_likelihood(part) for part in v.split(size)])

    grid = 1  # values of a column that are looked at beside its own

    def _pseudo_likelihood(self, v: Tensor) -> Tensor:
        turned = (1 - 2 * v).unsqueeze(-1)  # (B, V, 1): what is added to v_i when it is flipped
        rest = F.linear(v, self.weight, self.b).unsqueeze(1)  # (B, 1, H)
        flipped = -(self.a * turned.squeeze(-1)) - F.softplus(rest + turned * self.weight.T).sum(-1)
        return F.logsigmoid(flipped + F.softplus(rest).sum(-1)).sum(-1)

    def independent(self, x: Tensor) -> None:
        """Become the model without hidden units whose columns have the means of x: what any RBM should surpass."""
        mean = x.mean(0).clamp(1e-3, 1 - 1e-3)  # a column of zeros would forbid any other value
        self._fill(mean.log() - (1 - mean).log())

    @torch.no_grad()
    def _fill(self, a: Tensor) -> None:
        for parameter in (self.weight, self.b):
            parameter.zero_()
        self.a.copy_(a)


class GaussianRBM(RBM):
    """Visible units are numbers, v | h ~ N(Wᵀh + a, 1); columns are standardised."""

    grid = GRID

    @staticmethod
    def scaling(x: np.ndarray) -> Scaling:
        return Scaling.standard(x)

    def free_energy(self, v: Tensor) -> Tensor:
        """F(v) = ½|v - a|² - Σ_i softplus(b_i + W_i v)"""
        return (v - self.a).square().sum(-1) / 2 - F.softplus(F.linear(v, self.weight, self.b)).sum(-1)

    def visible(self, h: Tensor) -> Tensor:
        """E(v | h) = Wᵀh + a"""
        return h @ self.weight + self.a

    def drawn(self, mean: Tensor, noise: Tensor) -> Tensor:
        return mean + torch.special.ndtri(noise)

    def _pseudo_likelihood(self, v: Tensor) -> Tensor:
        """log p(v_i | others), normalised by an integral over v_i.

        The integrand is a mixture of Gaussians of width 1, and the trapezoid rule is exact on it to every digit.
        """
        rest = F.linear(v, self.weight, self.b).unsqueeze(1) - v.unsqueeze(-1) * self.weight.T  # (B, V, H), without v_i
        nodes = torch.linspace(-FARTHEST, FARTHEST, GRID, dtype=v.dtype, device=v.device)
        energies = self._column(nodes.expand(*v.shape, GRID), rest)
        normaliser = (-energies).logsumexp(-1) + log(2 * FARTHEST / (GRID - 1))
        return (-self._column(v.unsqueeze(-1), rest).squeeze(-1) - normaliser).sum(-1)

    def _column(self, values: Tensor, rest: Tensor) -> Tensor:
        """F as a function of one column alone.   (B, V, G), (B, V, H) -> (B, V, G)"""
        inner = rest.unsqueeze(2) + values.unsqueeze(-1) * self.weight.T.unsqueeze(1)
        return (values - self.a.unsqueeze(-1)).square() / 2 - F.softplus(inner).sum(-1)

    def independent(self, x: Tensor) -> None:
        self._fill(x.mean(0))
