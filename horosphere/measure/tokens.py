"""Inside a language model: where tokens live, how far heads look back, how experts share the work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure.ranks import rank_correlation, ranks

ROWS = 4096  # tokens at once: 134 MB in float64 for vectors of 4096
BINS = 10
DEAD = 0.01  # an expert is dead below this part of its fair share


@dataclass(frozen=True)
class FrequencyBin:
    """Radius of tokens that are about equally frequent."""

    tokens: int
    lowest: int  # count of the rarest
    highest: int  # count of the most frequent
    mean: float
    std: float


@dataclass(frozen=True, eq=False)
class TokenRadius:
    """Distance of tokens from the origin, against how often each was seen.

    In a good embedding frequent, generic tokens are near: correlation < 0.

    >>> radius = TokenRadius(np.array([2.0, 0.5, 3.0]), np.array([20, 90, 3]), correlation=-1.0, bins=[])
    >>> radius.examples(["cat", "the", "lynx"], n=1, seen=10)
    (['the'], ['cat'])
    """

    radius: np.ndarray  # (V,)
    counts: np.ndarray  # (V,)
    correlation: float  # Spearman's, of radius with frequency or its logarithm, over tokens seen
    # about a tenth of the tokens seen each, rarest first; equal counts stay together, so there may be fewer bins
    bins: list[FrequencyBin]

    def examples(self, labels: Sequence[str], n: int = 10, seen: int = 10) -> tuple[list[str], list[str]]:
        """The n tokens nearest to the origin, nearest first, and the n farthest, farthest first.

        Only tokens seen at least `seen` times count.
        """
        if len(labels) != len(self.radius):
            raise UserError(
                f"{len(labels)} labels for {len(self.radius)} tokens. Give one for each, in the order of the embedding."
            )
        known = np.flatnonzero(self.counts >= seen)
        order = known[self.radius[known].argsort(kind="stable")]
        return [labels[i] for i in order[:n]], [labels[i] for i in order[::-1][:n]]


@torch.no_grad()
def token_radius(points: Tensor, manifold: Manifold, counts: np.ndarray | Tensor) -> TokenRadius:
    """Distance of each token from the origin, and how it goes with the token's count.   (V, d), (V,) -> TokenRadius

    >>> from horosphere.geometry import Lorentz
    >>> radius = token_radius(torch.tensor([[0.1], [0.5], [2.0]]), Lorentz(), np.array([900, 50, 10]))
    >>> round(radius.correlation, 3), radius.examples(["the", "cat", "lynx"], n=1)
    (-1.0, (['the'], ['lynx']))
    """
    counts = torch.as_tensor(counts).cpu().numpy()
    if counts.shape != (len(points),):
        raise UserError(
            f"{len(points)} tokens need as many counts, shape ({len(points)},); these have shape {counts.shape}."
        )
    radius = torch.cat([manifold.dist0(rows.double()).cpu() for rows in points.split(ROWS)]).numpy()
    seen, count = radius[counts > 0], counts[counts > 0]
    if not len(seen) or np.ptp(seen) == 0 or np.ptp(count) == 0:
        raise UserError(
            "the tokens seen all have the same count or the same radius: "
            "a correlation needs two different ones of each."
        )
    bin_of = ((ranks(count) - 0.5) * BINS / len(count)).astype(int)
    bins = [_frequency_bin(seen[bin_of == i], count[bin_of == i]) for i in np.unique(bin_of)]
    return TokenRadius(radius, counts, rank_correlation(count, seen), bins)


def _frequency_bin(radius: np.ndarray, counts: np.ndarray) -> FrequencyBin:
    return FrequencyBin(len(radius), int(counts.min()), int(counts.max()), float(radius.mean()), float(radius.std()))


@torch.no_grad()
def attention_distance(weights: Tensor | Iterable[Tensor], mask: Tensor | None = None) -> Tensor:
    """How many tokens back each head looks: Σ_j p_ij (i - j), averaged over queries.   -> (layers, H)

    weights: (B, H, T, T), of one layer or of each. An iterator is read layer by layer: one is in memory at a time.
    mask (B, T): true for real tokens; queries of padding are left out.

    >>> to_the_first = torch.tensor([[1.0, 0, 0], [1, 0, 0], [1, 0, 0]])
    >>> attention_distance(torch.stack([torch.eye(3), to_the_first])[None])
    tensor([[0., 1.]])
    """
    layers = [weights] if isinstance(weights, Tensor) else weights
    distances = [_looks_back(layer, mask) for layer in layers]
    if not distances:
        raise UserError("there are no attention weights. Give one tensor (B, H, T, T) for each layer.")
    return torch.stack(distances)


def _looks_back(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Mean distance of one layer's heads.   (B, H, T, T) -> (H,)"""
    if weights.dim() != 4 or weights.shape[2] != weights.shape[3]:
        raise UserError(f"attention weights of one layer have shape (B, H, T, T); these have {tuple(weights.shape)}.")
    place = torch.arange(weights.shape[-1], device=weights.device, dtype=torch.float32)
    back = (weights.float() * (place[:, None] - place)).sum(-1)
    if mask is None:
        return back.mean((0, 2))
    if mask.shape != (weights.shape[0], weights.shape[2]):
        raise UserError(
            f"a mask of shape {tuple(mask.shape)} for weights {tuple(weights.shape)}: "
            "it says of each token (B, T) whether it is real."
        )
    real = mask.to(weights.device).bool()
    if not real.any():
        raise UserError("the mask leaves no token: it is true for the real ones.")
    return back.where(real[:, None], 0).sum((0, 2)) / real.sum()  # not a product: padding may have nan


@dataclass(frozen=True, eq=False)
class ExpertLoad:
    """How a layer's tokens spread over its experts. Perfect balance: imbalance 1, entropy 1, none dead."""

    shares: Tensor  # (layers, E), rows add to 1
    imbalance: Tensor  # (layers,) largest share over the mean one, 1 to E
    entropy: Tensor  # (layers,) -Σ p log p / log E, 0 to 1
    dead: Tensor  # (layers,) experts with less than a hundredth of the fair share 1/E


def expert_load(counts: Tensor) -> ExpertLoad:
    """How evenly tokens spread over experts, from how many each expert got.   (layers, E) -> ExpertLoad

    >>> load = expert_load(torch.tensor([[5, 5, 5, 5], [20, 0, 0, 0]]))
    >>> load.imbalance, load.dead
    (tensor([1., 4.], dtype=torch.float64), tensor([0, 3]))
    """
    if counts.dim() != 2 or counts.shape[1] < 2:
        raise UserError(
            "counts have shape (layers, experts), with at least 2 experts to share the work; "
            f"these have {tuple(counts.shape)}."
        )
    counts = counts.double()
    if not (counts >= 0).all() or not (counts.sum(1) > 0).all():
        raise UserError(
            "some layer counted no tokens, or a negative number of them. "
            "Count while the model reads at least one batch."
        )
    shares, experts = counts / counts.sum(1, keepdim=True), counts.shape[1]
    return ExpertLoad(
        shares=shares,
        imbalance=shares.amax(1) * experts,
        entropy=torch.special.entr(shares).sum(1) / np.log(experts),
        dead=(shares * experts < DEAD).sum(1),
    )


@torch.no_grad()
def token_cosine(hidden: Tensor) -> float:
    """Mean cosine between the vectors of two tokens: 1 when all are aligned, about 0 when they are independent.

    (N, d) -> float: (|Σ u_i|² - Σ |u_i|²)/(N (N - 1)) with u = h/|h|, so no pair is visited. A zero vector counts as
    orthogonal to all.

    >>> token_cosine(torch.eye(3)), token_cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    (0.0, 1.0)
    """
    if hidden.dim() != 2 or len(hidden) < 2:
        raise UserError(
            f"a cosine is between two tokens: give vectors (N, d) with N at least 2; "
            f"these have shape {tuple(hidden.shape)}."
        )
    unit = torch.nn.functional.normalize(hidden.double(), dim=1, eps=torch.finfo(torch.float64).tiny)
    return float(unit.sum(0).square().sum() - unit.square().sum()) / (len(unit) * (len(unit) - 1))
