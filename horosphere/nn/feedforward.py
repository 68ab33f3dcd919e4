"""The gated feed-forward layer."""

import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Manifold
from horosphere.nn.slots import SlotLinear, fused, kernels, side_by_side


class SwiGLU(nn.Module):
    """W_d (silu(W_g x) · W_u x) on slots.   (..., dim) -> (..., dim)

    On the hyperboloid W_d reads the time of the gated product as well.

    >>> import torch
    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.ones(5, 8), SwiGLU(8, 32, Euclidean())
    >>> torch.equal(flat(x), flat.down_proj(F.silu(flat.gate_proj(x)) * flat.up_proj(x)))
    True
    >>> SwiGLU(8, 32, Lorentz())(x).shape
    torch.Size([5, 8])
    """

    def __init__(self, dim: int, inner: int, manifold: Manifold):
        super().__init__()
        self.manifold = manifold
        self.gate_proj = SlotLinear(dim, inner, manifold)
        self.up_proj = SlotLinear(dim, inner, manifold)
        self.down_proj = SlotLinear(inner, dim, manifold)

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.gate_proj, self.up_proj)
        if fused(x, self.manifold):
            joint = side_by_side(x, layers)
            return self.down_proj(kernels.gate(joint, None, self.manifold.c))  # type: ignore[arg-type]
        gate, up = (layer(x) for layer in layers)
        return self.down_proj(self.manifold.slots.reading(F.silu(gate) * up))
