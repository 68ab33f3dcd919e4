"""How much a distribution tells: entropy, joint and conditional, mutual information, divergence. In nats.

Distributions are tables of shares: p (..., K), a joint one p_xy (..., X, Y). All functions are batched and
differentiable; 0·log 0 is 0. Divide by `BIT` for bits. Shares are taken as they are: what does not sum to 1 is the
caller's to divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

BIT = math.log(2)  # in nats


def self_information(p: Tensor) -> Tensor:
    """-log p of an event of probability p: it adds up over independent events.   (...) -> (...)

    >>> self_information(torch.tensor(0.5) ** 8) / BIT  # eight fair bits
    tensor(8.)
    """
    return -p.log()


def entropy(p: Tensor) -> Tensor:
    """-Σ p log p, from 0 to log K.   (..., K) -> (...)

    >>> entropy(torch.tensor([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])) / BIT
    tensor([1., 0.])
    """
    return 0 - _p_log(p, p).sum(-1)  # not a bare minus: a certain event has entropy 0, not -0


def joint_entropy(p_xy: Tensor) -> Tensor:
    """H(X, Y) = -ΣΣ p_xy log p_xy, at least H(X), at most H(X) + H(Y).   (..., X, Y) -> (...)

    >>> joint_entropy(torch.full((2, 2), 0.25)) / BIT
    tensor(2.)
    """
    return entropy(p_xy.flatten(-2))


def conditional_entropy(p_xy: Tensor) -> Tensor:
    """H(Y|X) = -ΣΣ p_xy log(p_xy/p_x) = H(X, Y) - H(X): what Y still tells to who knows X.   (..., X, Y) -> (...)

    >>> conditional_entropy(torch.tensor([[0.5, 0.0], [0.0, 0.5]]))  # X says it all
    tensor(0.)
    """
    return joint_entropy(p_xy) - entropy(p_xy.sum(-1))


def pmi(p_xy: Tensor) -> Tensor:
    """log(p_xy/(p_x p_y)): 0 where x and y meet as often as by chance, -∞ where never.   (..., X, Y) -> (..., X, Y)

    >>> pmi(torch.tensor([[0.25, 0.25], [0.25, 0.25]]))
    tensor([[0., 0.],
            [0., 0.]])
    """
    return p_xy.log() - p_xy.sum(-1, keepdim=True).log() - p_xy.sum(-2, keepdim=True).log()


def mutual_information(p_xy: Tensor) -> Tensor:
    """I(X; Y) = Σ p_xy pmi = KL(p_xy ‖ p_x p_y): 0 exactly where X and Y are independent.   (..., X, Y) -> (...)

    >>> mutual_information(torch.tensor([[0.5, 0.0], [0.0, 0.5]])) / BIT
    tensor(1.)
    """
    apart = p_xy.sum(-1, keepdim=True) * p_xy.sum(-2, keepdim=True)
    return kl(p_xy.flatten(-2), apart.flatten(-2))


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ p log(p/q), at least 0, and ∞ where q has none of what p has.   (..., K), (..., K) -> (...)

    No distance: KL(p ‖ q) ≠ KL(q ‖ p).

    >>> kl(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).round(decimals=3)
    tensor(0.1440)
    """
    return (_p_log(p, p) - _p_log(p, q)).sum(-1)


def kl_of_gaussians(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(μ', σ'²)) = log(σ'/σ) + (σ² + (μ-μ')²)/(2σ'²) - ½.   (...) each -> (...)

    Between near ones it is ½d²: d is the distance of (μ/√2, σ) and (μ'/√2, σ') in the half-plane with the metric
    2|dy|²/y₂², which is hyperbolic of curvature -½ (Fisher's).

    >>> kl_of_gaussians(*torch.tensor([0.0, 1.0, 0.0, 1.0]))
    tensor(0.)
    """
    return (other_std / std).log() + (std.square() + (mean - other_mean).square()) / (2 * other_std.square()) - 0.5


def entropy_by_sampling(log_prob: Callable[[Tensor], Tensor], sample: Tensor) -> Tensor:
    """-E log p over a sample of its own: differential entropy, which may be negative.   (N, ...) -> ()

    >>> from horosphere.geometry import Lorentz, WrappedNormal
    >>> normal = WrappedNormal(Lorentz(), torch.zeros(2), std=0.1)
    >>> z = normal.sample(20_000, generator=torch.Generator().manual_seed(0))
    >>> entropy_by_sampling(normal.log_prob, z).round(decimals=1)  # 1 + log 2π + 2 log 0.1, and a little for curvature
    tensor(-1.8000)
    """
    return -log_prob(sample).mean()


def _p_log(p: Tensor, q: Tensor) -> Tensor:
    """p log q, where 0·log 0 is 0, and so is its gradient in p: xlogy's would be -∞ there."""
    empty = p == 0
    return p * torch.where(empty, 1.0, q).log()
