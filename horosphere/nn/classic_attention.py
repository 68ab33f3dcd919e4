"""Attention of the classics, on points: several heads that look at once, and the additive form of recurrent decoders.

Between layers a point is its free coordinates, as wide as in flat space. Within a head it lies in slots, one of which
holds the time (`geometry/slots.py`), so kernels see the width that they are made for.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold
from horosphere.nn.attention import FULL, Mask, Temperature, attend, slot_centre, slot_heads
from horosphere.nn.axes import require_width
from horosphere.nn.first_call import settle
from horosphere.nn.linear import Linear
from horosphere.nn.slots import SlotLinear

KeysValues = tuple[Tensor, Tensor]  # each (B, S, heads, dim/heads)


class MultiHeadAttention(nn.Module):
    """Heads side by side, then W_O; torch's nn.MultiheadAttention in flat space.   (B, T, dim) -> (B, T, dim)

    memory: what is looked at, (B, S, dim); the tokens themselves by default. mask: FULL, CAUSAL, booleans that are True
    where a token sees another, or numbers that are added to the scores; it broadcasts to (B, heads, T, S).
    On the hyperboloid a head weighs by softmax(-d_L²/τ), and its value is the centroid of the points it sees.
    For c -> 0 the scores become -|q - k|²/τ. At first τ = 2√n: those of flat space, less half the key's square.
    Weights have the names of torch's, so its state dicts load. There is no dropout of attention weights: a centroid
    needs weights that sum to 1.

    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> attention, x = MultiHeadAttention(8, heads=2, manifold=Lorentz()), torch.ones(3, 5, 8)
    >>> attention(x).shape, attention(x, memory=torch.ones(3, 7, 8)).shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 8]))
    >>> torchs, flat = nn.MultiheadAttention(8, 2, batch_first=True), MultiHeadAttention(8, 2, Euclidean())
    >>> _ = flat.load_state_dict(torchs.state_dict())
    >>> torch.allclose(flat(x), torchs(x, x, x)[0], atol=1e-6)
    True
    """

    def __init__(self, dim: int, heads: int, manifold: Manifold):
        super().__init__()
        self.dim, self.heads, self.manifold = dim, heads, settle(self, manifold)
        if dim % heads:
            raise ValueError(f"{dim} dimensions do not divide into {heads} heads: choose a divisor of {dim}")
        if not manifold.slots.keeps_space:  # points of all layers here have free coordinates
            raise NotImplementedError(
                f"attention of the classics on {type(manifold).__name__}: use Lorentz or Euclidean"
            )
        if dim // heads <= manifold.slots.times:
            raise ValueError(f"{dim} dimensions in {heads} heads leave none beside the time: use fewer heads")
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * dim))
        self.in_proj_time = nn.Parameter(torch.empty(3 * dim, 1)) if manifold.ambient_extra else None
        self.out_proj = _Output(dim, heads, manifold)
        self.temperature = Temperature(None if manifold.flat else 2.0)  # <q, k>/√n: the scale of flat space
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.out_proj.draw()  # first, as torch does: the same seed gives the same weights
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.in_proj_bias)
        if self.in_proj_time is not None:  # time is nearly the same for every point: a random column would align them
            nn.init.zeros_(self.in_proj_time)

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Mask = FULL) -> Tensor:
        if memory is not None:
            return self.look(x, self.keys_values(memory), mask)
        q, k, v = self._read(x, 0, 3)  # one product for all three
        return self._look(q, (self._in_slots(k), self._in_slots(v)), mask)

    def keys_values(self, x: Tensor) -> KeysValues:
        """What tokens show to those that look at them, to be kept while decoding.   (B, S, dim) -> 2 x (B, S, H, n)

        >>> from horosphere.geometry import Lorentz
        >>> attention, x = MultiHeadAttention(8, heads=2, manifold=Lorentz()), torch.ones(3, 5, 8)
        >>> keys, values = attention.keys_values(x)
        >>> keys.shape, torch.allclose(attention.look(x, (keys, values)), attention(x), atol=1e-6)
        (torch.Size([3, 5, 2, 4]), True)
        """
        k, v = self._read(x, 1, 3)
        return self._in_slots(k), self._in_slots(v)

    def look(self, x: Tensor, seen: KeysValues, mask: Mask = FULL) -> Tensor:
        """Attention of x to `keys_values` that are there already.   (B, T, dim) -> (B, T, dim)

        >>> from horosphere.geometry import Euclidean
        >>> attention, x = MultiHeadAttention(8, heads=2, manifold=Euclidean()), torch.randn(3, 5, 8)
        >>> last = attention.look(x[:, -1:], attention.keys_values(x))
        >>> torch.allclose(last, attention(x)[:, -1:], atol=1e-6)
        True
        """
        return self._look(self._read(x, 0, 1)[0], seen, mask)

    def _read(self, x: Tensor, first: int, last: int) -> list[Tensor]:
        """The projections `first` up to `last` of queries, keys, values.   (B, T, dim) -> each (B, T, H, n)"""
        require_width(x, self.dim, self)
        rows = slice(first * self.dim, last * self.dim)
        space, time = self.manifold.ambient(x)
        u = F.linear(space, self.in_proj_weight[rows], self.in_proj_bias[rows])
        if self.in_proj_time is not None and time is not None:  # /√d: as in `Linear`
            u = u + F.linear(time.to(u.dtype) / math.sqrt(self.dim), self.in_proj_time[rows])
        return list(u.unflatten(-1, (last - first, self.heads, -1)).unbind(-3))

    def _in_slots(self, u: Tensor) -> Tensor:
        return slot_heads(u, self.manifold)

    def _look(self, q: Tensor, seen: KeysValues, mask: Mask) -> Tensor:
        q = slot_heads(q, self.manifold, scale=self.temperature(), query=True)
        q, k, v = (points.transpose(1, 2) for points in (q, *seen))
        out = attend(q, k, v, mask, 1 / math.sqrt(self.dim // self.heads))
        return self.manifold.point(self.out_proj(slot_centre(out, self.manifold).flatten(-2)))


class _Output(SlotLinear):
    """W_O, which reads the times of all heads, and a bias that starts at zero."""

    def __init__(self, dim: int, heads: int, manifold: Manifold):
        super().__init__(dim, dim, manifold, points=heads)
        self.bias = nn.Parameter(torch.empty(dim))

    def reset_parameters(self) -> None:
        """Nothing: `MultiHeadAttention` draws its weights in the order in which torch does."""

    def draw(self) -> None:
        nn.Linear.reset_parameters(self)
        nn.init.zeros_(self.bias)
        self.still_time()


class AdditiveAttention(nn.Module):
    """Centroids of values, weighed by softmax_k(vᵀtanh(W_q q + W_k k)).   (B, T, q), (B, S, k), (B, S, d) -> (B, T, d)

    score: "additive", or "distance": -β·dist(W_q q, W_k k) with a learned β > 0. The matrices read times; queries and
    keys may differ in width. values: the keys by default. visible: booleans that broadcast to (B, T, S).

    >>> from horosphere.geometry import Poincare
    >>> P = Poincare()
    >>> attention = AdditiveAttention(4, 6, hidden=8, manifold=P)
    >>> query, keys = P.random(2, 1, 4), P.random(2, 5, 6)
    >>> attention(query, keys).shape
    torch.Size([2, 1, 6])
    >>> attention.weights(query, keys).sum(-1).round(decimals=3)
    tensor([[1.],
            [1.]], grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden: int,
        manifold: Manifold,
        score: Literal["additive", "distance"] = "additive",
    ):
        super().__init__()
        if score not in ("additive", "distance"):
            raise ValueError(f'score "{score}": choose "additive" or "distance"')
        self.manifold = settle(self, manifold)
        hidden_space = Euclidean() if score == "additive" else manifold
        self.query = Linear(query_dim, hidden, manifold, bias=False, out_manifold=hidden_space)
        self.key = Linear(key_dim, hidden, manifold, bias=False, out_manifold=hidden_space)
        self.v = nn.Linear(hidden, 1, bias=False) if score == "additive" else None
        self.log_beta = nn.Parameter(torch.zeros(1)) if score == "distance" else None

    def reset_parameters(self) -> None:
        if self.log_beta is not None:
            nn.init.zeros_(self.log_beta)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor | None = None, visible: Tensor | None = None
    ) -> Tensor:
        values = keys if values is None else values
        return self.manifold.midpoint(values.unsqueeze(-3), self.weights(query, keys, visible).to(values.dtype))

    def weights(self, query: Tensor, keys: Tensor, visible: Tensor | None = None) -> Tensor:
        """How much each query looks at each key; rows sum to 1.   (B, T, q), (B, S, k) -> (B, T, S)

        >>> from horosphere.geometry import Lorentz
        >>> attention = AdditiveAttention(2, 2, hidden=2, manifold=Lorentz(), score="distance")
        >>> for linear in (attention.query, attention.key):
        ...     _ = nn.init.eye_(linear.weight)
        >>> query, keys = torch.zeros(1, 1, 2), torch.tensor([[[0.0, 0.1], [2.0, 2.0]]])
        >>> attention.weights(query, keys).detach().round(decimals=2)  # the near key
        tensor([[[0.8400, 0.1600]]])
        """
        q, k = self.query(query).unsqueeze(-2), self.key(keys).unsqueeze(-3)
        if self.v is not None:
            scores = self.v(torch.tanh(q + k)).squeeze(-1)
        else:
            assert self.log_beta is not None
            scores = -self.log_beta.exp() * self.manifold.dist(q, k)
        if visible is not None:
            scores = scores.masked_fill(~visible, -torch.inf)
        return scores.softmax(-1)
