"""Latent attention (HMLA; in flat space DeepSeek's MLA).

Keys and values are read from one small latent per token, and only that is cached.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.nn.attention import (
    AttentionForms,
    CausalHeads,
    Engine,
    Mask,
    Temperature,
    attend,
    slot_centre,
    slot_heads,
)
from horosphere.nn.rotary import Angles, rotate
from horosphere.nn.slots import SlotLinear, SlotNorm, fused, kernels, plain


@dataclass(frozen=True)
class LatentSizes:
    """Widths of latent attention, in slots; in brackets the names in DeepSeek's configuration.

    >>> sizes = LatentSizes(q_latent=None, kv_latent=8, nope=4, rope=4, value=4)
    >>> sizes.nope + sizes.rope  # slots of a query
    8
    """

    q_latent: int | None  # of queries [q_lora_rank]; None: they are read from x
    kv_latent: int  # of keys and values [kv_lora_rank]
    nope: int  # of a head's query and key, without position [qk_nope_head_dim]
    rope: int  # of a head's query and key, rotated [qk_rope_head_dim]; all heads share one such key
    value: int  # of a head's value [v_head_dim]


class KeyNorm(nn.RMSNorm):
    """RMSNorm of the rotated key, which is no point yet, in its own dtype.   (..., n) -> (..., n)

    Under autocast torch's own goes to fp32, and not by its fast kernel.
    """

    def forward(self, key: Tensor) -> Tensor:
        return F.rms_norm(key, key.shape[-1:], self.weight.to(key.dtype), self.eps)


class LatentAttention(CausalHeads):
    """Causal multi-head attention through latents, on slots.   (B, T, dim) -> (B, T, dim)

    q = [W_qb·norm(W_qa x), rotated part], k = [W_kb·z, one rotated key for all heads], v = W_vb·z, z = norm(W_kva x).
    The parts are joined as space components, with one time for the whole, in the first slot.
    forms.qk_norm: RMSNorm of each head's query, and of the one rotated key. The rest of a key is read from a normed
    latent; beside it that key grows as it likes, and on the hyperboloid it moves the time of every key.

    The cache holds z, the rotated key, and the times of each head's key and value: latent + rope + 2·heads numbers a
    token, in flat space latent + rope. A decoding step compares with z itself ("absorbed"): W_kb moves to the query,
    W_vb to the result. Where W_kb and W_vb are not all that their layer computes, and on the sphere, where keys
    are brought to one length, keys and values are made anew.

    >>> from horosphere.geometry import Lorentz
    >>> from horosphere.nn import rotary_angles
    >>> sizes = LatentSizes(q_latent=None, kv_latent=8, nope=4, rope=4, value=4)
    >>> attention = LatentAttention(dim=16, heads=2, manifold=Lorentz(), sizes=sizes)
    >>> attention(torch.ones(1, 5, 16), rotary_angles(torch.arange(5)[None], sizes.rope)).shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        manifold: Manifold,
        sizes: LatentSizes,
        layer: int = 0,
        forms: AttentionForms = AttentionForms(),  # noqa: B008 (frozen)
    ):
        super().__init__()
        self.heads, self.manifold, self.layer_idx = heads, manifold, layer
        self.latent, self.nope, self.rope, self.value = sizes.kv_latent, sizes.nope, sizes.rope, sizes.value
        head_dim = sizes.nope + sizes.rope
        self.scale = 1 / math.sqrt(head_dim)
        if sizes.q_latent is None:
            self.q_proj = SlotLinear(dim, heads * head_dim, manifold, lengths=forms.lengths)
        else:
            self.q_a_proj = SlotLinear(dim, sizes.q_latent, manifold)
            self.q_a_layernorm = SlotNorm(sizes.q_latent, manifold)
            self.q_b_proj = SlotLinear(sizes.q_latent, heads * head_dim, manifold, lengths=forms.lengths)
        self.kv_a_proj_with_mqa = SlotLinear(dim, sizes.kv_latent + sizes.rope, manifold)
        self.kv_a_layernorm = SlotNorm(sizes.kv_latent, manifold)
        self.kv_b_proj = SlotLinear(sizes.kv_latent, heads * (sizes.nope + sizes.value), manifold)
        self.o_proj = SlotLinear(heads * sizes.value, dim, manifold, points=heads)
        self.q_norm = SlotNorm(head_dim, manifold, forms.eps) if forms.qk_norm else None
        self.k_norm = KeyNorm(sizes.rope, forms.eps) if forms.qk_norm else None
        self.temperature = Temperature(manifold.slots.temperature)

    @property
    def cache_width(self) -> int:
        """Numbers cached per token.

        >>> from horosphere.geometry import Euclidean, Lorentz
        >>> sizes = LatentSizes(q_latent=None, kv_latent=8, nope=4, rope=4, value=4)
        >>> [LatentAttention(16, 2, m, sizes).cache_width for m in (Euclidean(), Lorentz())]
        [12, 16]
        """
        return self.latent + self.rope + self.manifold.slots.times * 2 * self.heads

    def forward(
        self, x: Tensor, angles: Angles | None, mask: Mask = None, cache: Any = None, engine: Engine | None = None
    ) -> Tensor:
        q = self._queries(x, angles)
        latent, key = self.kv_a_proj_with_mqa(x).split((self.latent, self.rope), -1)
        if self.k_norm is not None:
            key = self.k_norm(key)
        latent, key = self.kv_a_layernorm(latent), rotate(key.unsqueeze(2), angles)
        k, v = self._keys_values(latent, key)
        if cache is not None:
            past = self._remember(latent, key, k, v, cache)
            absorbs = plain(self.kv_b_proj, x) and self.manifold.slots.keeps_space
            if q.shape[2] == 1 and engine is None and absorbs:
                return self.o_proj(slot_centre(self._absorbed(q, past, mask), self.manifold).flatten(-2))
            if past.shape[1] != q.shape[2]:  # a prompt: expanding costs less than comparing in the wide latent
                latent, key, _ = past.tensor_split((self.latent, self.latent + self.rope), -1)
                k, v = self._keys_values(latent, key.unsqueeze(2))
        out = attend(q, k, v, mask, self.scale) if engine is None else self.by(engine, q, k, v, mask)
        return self.o_proj(slot_centre(out, self.manifold).flatten(-2))

    def _queries(self, x: Tensor, angles: Angles | None) -> Tensor:
        """(B, H, T, nope + rope)"""
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if hasattr(self, "q_a_proj") else self.q_proj(x)
        q, scale = q.unflatten(-1, (self.heads, -1)), self.temperature()
        return slot_heads(q, self.manifold, angles, self.nope, scale, query=True, norm=self.q_norm).transpose(1, 2)

    def _keys_values(self, latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, latent), (B, S, 1, rope) -> (B, H, S, nope + rope), (B, H, S, value)"""
        kv = self.kv_b_proj(latent).unflatten(-1, (self.heads, -1))
        if fused(kv, self.manifold):
            k, v = kernels.keys_values(kv, key.squeeze(2), self.nope, self.manifold.slots.kernel_c)
            return k.transpose(1, 2), v.transpose(1, 2)
        k, v = kv.split((self.nope, self.value), -1)
        k = torch.cat((k, key.expand(-1, -1, self.heads, -1)), -1)
        return slot_heads(k, self.manifold).transpose(1, 2), slot_heads(v, self.manifold).transpose(1, 2)

    # -- the cache: [latent, rotated key, key times, value times] ------------------------------------------------------

    def _remember(self, latent: Tensor, key: Tensor, k: Tensor, v: Tensor, cache: Any) -> Tensor:
        """Append the new tokens and return what the cache holds.   -> (B, S, cache_width)"""
        times = [points[..., : self.manifold.slots.times].transpose(1, 2).flatten(2) for points in (k, v)]
        entry = torch.cat((latent, key.squeeze(2), *times), -1).unsqueeze(1)
        kept: Tensor = cache.update(entry, entry[..., :0], self.layer_idx)[0]
        return kept.squeeze(1)

    def _absorbed(self, q: Tensor, past: Tensor, mask: Mask) -> Tensor:
        """One token against the cache as it is.   (B, H, 1, nope + rope), (B, S, cache_width) -> (B, 1, H, value)

        q·k = (W_kᵀ q)·z + q_r·k_r - q_t k_t and Σ p v = W_v Σ p z. Times differ from head to head, so each head has
        slots of its own for them.
        """
        assert mask is None or isinstance(mask, Tensor), "a decoding step takes a dense mask"
        time = self.manifold.slots.times
        weights = self.kv_b_proj.rows.to(q.dtype).unflatten(0, (self.heads, -1))
        to_key, to_value = weights.split((self.nope, self.value), 1)
        # 1 in the slot of each head; no slots in flat space
        own = torch.eye(self.heads, device=q.device, dtype=q.dtype)[:, : self.heads * time]

        # products take whole aligned widths: what they should not see is zero or thrown away
        still, turned = q.squeeze(2).split((self.nope, self.rope), -1)
        q_time, still = still[..., :time], F.pad(still[..., time:], (time, 0))
        absorbed = (still.transpose(0, 1) @ to_key).transpose(0, 1)
        query = torch.cat((absorbed, turned, q_time * own, torch.zeros_like(own).expand(len(q), -1, -1)), -1)
        scores = self.scale * (query @ past.mT).float()
        if mask is not None:
            mask = mask.squeeze(1)
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        mean = scores.softmax(-1).to(past.dtype) @ past
        value = (mean[..., : self.latent].transpose(0, 1) @ to_value.mT).transpose(0, 1)
        times = (mean[..., self.latent + self.rope + own.shape[1] :] * own).sum(-1, keepdim=True)[..., :time]
        return torch.cat((times, value[..., time:]), -1).unsqueeze(1)
