"""HyperCLIP: adapt a CLIP by scaling the hyperbolic radius of its attention weights.

    W'_p = log0(S_p ⊗_c exp0(W_p))   row by row, p in {q, k, v}, S_p block-diagonal, the identity at the start

The Möbius product with a matrix is exp0(S·log0(x)) by definition, so W' = W·Sᵀ for every curvature: one batched product
of blocks. (tests/models/test_hyperclip.py has the literal path.) What is left of the geometry is what S does to radii:
the point exp0(z) has radius 2|z|, and σ_min(S)·2|z| <= 2|S z| <= σ_max(S)·2|z|.

    adapter = adapt(towers, Adaptation("hyperclip", sides="both", block=128))   # horosphere.models.adapters
    adapter.trainable()                                                         # train these
    adapter.save("adapter"); adapter.merge()      # W' takes the place of W: no cost at inference
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from horosphere.models.adapters import Adaptation, Adapter, attention_of, require_divides, tower_of
from horosphere.models.towers import Towers


class BlockScale(nn.Module):
    """W·Sᵀ, for each of `parts` weights stacked on another: a parametrization of torch's.   (parts·O, d) -> the same

    >>> scale = BlockScale(width=4, block=2)
    >>> torch.equal(scale(torch.eye(4)), torch.eye(4))  # S starts as the identity
    True
    """

    def __init__(self, width: int, block: int, parts: int = 1, shared: bool = False, where: str = "the attention"):
        super().__init__()
        require_divides(block, width, where)
        self.block, self.enabled = block, True
        # S - 1, so that weight decay leads back to the identity.   (parts, d/n, n, n); shared: one block for all
        self.change = nn.Parameter(torch.zeros(parts, 1 if shared else width // block, block, block))

    @property
    def blocks(self) -> Tensor:
        """Of S.   (parts, d/n or 1, n, n)"""
        return self.change + torch.eye(self.block, device=self.change.device, dtype=self.change.dtype)

    def forward(self, weight: Tensor) -> Tensor:
        if not self.enabled:
            return weight
        parts, count = self.change.shape[0], weight.shape[1] // self.block
        rows = weight.unflatten(0, (parts, -1)).unflatten(-1, (count, self.block))
        blocks = self.blocks.to(weight.dtype).expand(parts, count, -1, -1)
        return torch.einsum("pokj,pkij->poki", rows, blocks).reshape(weight.shape)


class HyperClip(Adapter):
    """S on the queries, keys and values of every attention."""

    def __init__(self, towers: Towers, how: Adaptation):
        super().__init__(towers, how)
        self.scales: dict[str, BlockScale] = {}
        self.owners: list[tuple[nn.Module, str]] = []
        for side in how.towers:
            for path, module, weight, parts in attention_of(tower_of(towers, side), side):
                owner = getattr(module, weight)
                scale = BlockScale(owner.shape[1], how.block, parts, how.shared, f"{side}.{path}")
                self.scales[f"{side}.{path}.{weight}"] = scale.to(owner.device)
                self.owners.append((module, weight))
        towers.requires_grad_(False)
        for (module, weight), scale in zip(self.owners, self.scales.values(), strict=True):
            parametrize.register_parametrization(module, weight, scale)

    def learned(self) -> dict[str, nn.Parameter]:
        return {name: scale.change for name, scale in self.scales.items()}

    def _switch(self, on: bool) -> None:
        for scale in self.scales.values():
            scale.enabled = on

    def _merge(self) -> None:
        """W' takes the place of W."""
        for module, weight in self.owners:
            parametrize.remove_parametrizations(module, weight, leave_parametrized=True)
        self.scales, self.owners = {}, []


def radius_loss(vectors: Tensor, target: float) -> Tensor:
    """How far radii are from a target, relative to it, squared.   (N, D) -> ()"""
    return (2 * vectors.norm(dim=-1) / target - 1).square().mean()
