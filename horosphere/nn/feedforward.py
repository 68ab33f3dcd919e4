"""The gated feed-forward layer."""

import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.nn.slots import SlotLinear, fused, kernels


class SwiGLU(nn.Module):
    """W_d (silu(W_g x) · W_u x) on slots; on the hyperboloid W_d reads the time of the product as well.   (..., dim) -> (..., dim)"""

    def __init__(self, dim: int, inner: int, manifold: Manifold):
        super().__init__()
        self.manifold = manifold
        self.gate_proj = SlotLinear(dim, inner, manifold)
        self.up_proj = SlotLinear(dim, inner, manifold)
        self.down_proj = SlotLinear(inner, dim, manifold)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if fused(gate, self.manifold):
            return self.down_proj(kernels.gate(gate, up, self.manifold.c))  # type: ignore[arg-type]
        return self.down_proj(self.manifold.reading(F.silu(gate) * up))
