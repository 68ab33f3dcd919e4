"""Attention by distance, as stock attention.

softmax(-d_L²/τ) on the hyperboloid is dot-product attention on [x_t, x] with the query's time negated, because
d_L² = -2/c - 2<q, k> and a softmax ignores constants. So flash kernels do it, and no matrix of distances is ever built.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from horosphere.geometry import Manifold, Slots
from horosphere.nn.rotary import Angles, rotate
from horosphere.nn.slots import ALL, CURVED, SlotLinear, SlotNorm, fused, kernels, side_by_side

Mask = Tensor | BlockMask | Literal["full"] | None
CAUSAL: Final = None  # a token sees itself and those before it
FULL: Final = "full"  # every token sees every other
# attention of somebody else: layer, q, k, v, mask, scale -> what `attend` gives, its heads apart or side by side
Engine = Callable[[nn.Module, Tensor, Tensor, Tensor, Mask, float], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float) -> Tensor:
    """softmax(scale·q kᵀ) v.   (B, H, T, n), (B, H, S, n), (B, H, S, m) -> (B, T, H, m)

    mask: booleans, True where a query sees a key; numbers that are added to the scores; CAUSAL; or FULL.
    """
    if isinstance(mask, BlockMask):
        out = flex_attention(q, k, v, block_mask=mask, scale=scale)
    else:
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask if isinstance(mask, Tensor) else None,
            is_causal=mask is CAUSAL and q.shape[2] > 1,
            scale=scale,
        )
    assert isinstance(out, Tensor)
    return out.transpose(1, 2)


def slot_heads(
    u: Tensor,
    manifold: Manifold,
    angles: Angles | None = None,
    start: int = 0,
    scale: Tensor | None = None,
    query: bool = False,
    norm: SlotNorm | None = None,
) -> Tensor:
    """`Slots.heads` with the slots from `start` on turned by the angles.   (B, T, H, n) -> (B, T, H, n)

    norm: comes first, if there is one.
    """
    if fused(u, manifold, CURVED) and _here(u, norm):
        rest = () if norm is None else (norm.weight, norm.eps)
        return kernels.heads(u, angles, scale, query, start, manifold.slots.kernel_c, *rest)
    u = u if norm is None else norm(u)
    if angles is not None:
        u = torch.cat((u[..., :start], rotate(u[..., start:], angles)), -1) if start else rotate(u, angles)
    return manifold.slots.heads(u, scale, query)


def slot_centre(z: Tensor, manifold: Manifold) -> Tensor:
    """`Slots.centre`.   (B, T, H, n) -> (B, T, H, n)"""
    slots = manifold.slots
    return kernels.centre(z, slots.kernel_c) if fused(z, manifold, CURVED) else slots.centre(z)


def _here(x: Tensor, norm: SlotNorm | None) -> bool:
    """Whether a norm's weight lies beside x: offloading brings it when the norm is called."""
    return norm is None or norm.weight.device == x.device


class Temperature(nn.Module):
    """What multiplies a head's queries: 2√n/τ with a learned τ, √n·`start` at first; None where `start` is.

    Scores at scale 1/√n then are 2<q, k>/τ.
    """

    def __init__(self, start: float | None):
        super().__init__()
        self.start = math.log(start or 1.0)
        self.log = None if start is None else nn.Parameter(torch.full((1,), self.start))

    def reset_parameters(self) -> None:
        if self.log is not None:
            nn.init.constant_(self.log, self.start)

    def forward(self) -> Tensor | None:
        return None if self.log is None else 2 * (-self.log).exp()


@dataclass(frozen=True)
class AttentionForms:
    """Parts of attention that can be turned one by one, so that a study can tell them apart.

    >>> AttentionForms(qk_norm=True)  # Qwen3, in flat space
    AttentionForms(score='own', average='centroid', qk_norm=True, lengths=False, eps=1e-06)
    """

    score: Literal["own", "dot", "distance"] = "own"  # own: dot products in flat space, distances on the others
    average: Literal["centroid", "mean"] = "centroid"  # of values; mean: not brought back to the manifold
    qk_norm: bool = False  # RMSNorm of queries and keys, before they are turned
    lengths: bool = False  # rows of the projections of queries and keys have learned lengths
    eps: float = 1e-6  # of the norms


class CausalHeads(nn.Module):
    """What engines look for in a layer of attention, by transformers' names."""

    is_causal, num_key_value_groups = True, 1
    layer_idx: int
    heads: int
    scale: float

    def by(self, engine: Engine, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """`attend`, by an engine."""
        return engine(self, q, k, v, mask, self.scale).reshape(q.shape[0], q.shape[2], self.heads, -1)


class Attention(CausalHeads):
    """Causal multi-head attention on slots.   (B, T, dim) -> (B, T, dim)

    A head has head_dim slots too: on the hyperboloid one time and head_dim - 1 space components. So kernels see the
    width they are made for. `cache` is a Hugging Face cache or None; `engine` takes the place of `attend`.
    `forms` are the parts that ablations turn.

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.nn import rotary_angles
    >>> attention = Attention(dim=16, heads=2, head_dim=8, manifold=Lorentz())
    >>> x, angles = torch.ones(1, 5, 16), rotary_angles(torch.arange(5)[None], 8, still=1)
    >>> attention(x, angles).shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        manifold: Manifold,
        layer: int = 0,
        forms: AttentionForms = AttentionForms(),  # noqa: B008 (frozen)
    ):
        super().__init__()
        self.heads, self.manifold, self.layer_idx, self.forms = heads, manifold, layer, forms
        self.scale = 1 / math.sqrt(head_dim)
        self.q_proj = SlotLinear(dim, heads * head_dim, manifold, lengths=forms.lengths)
        self.k_proj = SlotLinear(dim, heads * head_dim, manifold, lengths=forms.lengths)
        self.v_proj = SlotLinear(dim, heads * head_dim, manifold)
        self.o_proj = SlotLinear(heads * head_dim, dim, manifold, points=heads)
        self.q_norm = SlotNorm(head_dim, manifold, forms.eps) if forms.qk_norm else None
        self.k_norm = SlotNorm(head_dim, manifold, forms.eps) if forms.qk_norm else None
        self.temperature = Temperature(self.slots.temperature)

    @property
    def slots(self) -> Slots:
        """Those of queries and keys.

        >>> from horosphere.geometry import Euclidean
        >>> Attention(16, 2, 8, Euclidean(), forms=AttentionForms(score="distance")).slots.times  # slot 0: -|k|²/2
        1
        """
        return self.manifold.slots.by(self.forms.score)

    def forward(
        self, x: Tensor, angles: Angles | None, mask: Mask = None, cache: Any = None, engine: Engine | None = None
    ) -> Tensor:
        q, k, v = (points.transpose(1, 2) for points in self._points(x, angles))
        if cache is not None:
            k, v = cache.update(k, v, self.layer_idx)
        out = attend(q, k, v, mask, self.scale) if engine is None else self.by(engine, q, k, v, mask)
        return self.o_proj((out if self.forms.average == "mean" else slot_centre(out, self.manifold)).flatten(-2))

    def _points(self, x: Tensor, angles: Angles | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, T, H, head_dim)."""
        layers, scale, of_q, of_k = (
            (self.q_proj, self.k_proj, self.v_proj),
            self.temperature(),
            self.q_norm,
            self.k_norm,
        )
        if self._by_own and fused(x, self.manifold, CURVED if of_q is None else ALL) and _here(x, of_q):
            norms = ((of_q.weight, of_k.weight), of_q.eps) if of_q is not None and of_k is not None else ()
            c = self.manifold.slots.kernel_c
            return kernels.queries_keys_values(side_by_side(x, layers), angles, scale, self.heads, c, *norms)
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)) for layer in layers)
        q = self._turned(q, angles, of_q, scale, query=True)
        return q, self._turned(k, angles, of_k), slot_heads(v, self.manifold)

    @property
    def _by_own(self) -> bool:
        return type(self.slots) is type(self.manifold.slots)

    def _turned(
        self,
        u: Tensor,
        angles: Angles | None,
        norm: SlotNorm | None,
        scale: Tensor | None = None,
        query: bool = False,
    ) -> Tensor:
        """`slot_heads`, compared as the score says."""
        if self._by_own:
            return slot_heads(u, self.manifold, angles, scale=scale, query=query, norm=norm)
        return self.slots.heads(rotate(u if norm is None else norm(u), angles), scale, query)


def document_mask(positions: Tensor) -> Mask:
    """Causal attention that stays within documents packed into one row.   (B, T) -> mask

    positions: of tokens in their documents; 0 begins a new one. On CUDA the mask is a block mask, by which whole blocks
    are skipped; elsewhere (B, 1, T, T) booleans.

    >>> document_mask(torch.tensor([[0, 1, 0]]))[0, 0].int()  # two documents: two tokens, then one
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    document = (positions == 0).cumsum(-1)
    size = positions.shape[1]
    if positions.device.type != "cuda":
        order = torch.arange(size, device=positions.device)
        return ((document.unsqueeze(-1) == document.unsqueeze(-2)) & (order.unsqueeze(-1) >= order)).unsqueeze(1)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (document[b, i] == document[b, j])

    return create_block_mask(visible, positions.shape[0], None, size, size, device=positions.device)
