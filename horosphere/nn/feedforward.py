"""Layers that look at one position: gated, plain, and the maximum of several linear maps."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Euclidean, Manifold
from horosphere.nn.first_call import settle
from horosphere.nn.linear import Linear
from horosphere.nn.slots import CURVED, SlotLinear, fused, kernels, side_by_side


class SwiGLU(nn.Module):
    """W_d (silu(W_g x) · W_u x) on slots.   (..., dim) -> (..., dim)

    On the hyperboloid W_d reads the time of the gated product as well, on the sphere its direction.
    lengths: of the rows of W_g and W_u, learned (`SlotLinear`).

    >>> import torch
    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.ones(5, 8), SwiGLU(8, 32, Euclidean())
    >>> torch.equal(flat(x), flat.down_proj(F.silu(flat.gate_proj(x)) * flat.up_proj(x)))
    True
    >>> SwiGLU(8, 32, Lorentz())(x).shape
    torch.Size([5, 8])
    """

    def __init__(self, dim: int, inner: int, manifold: Manifold, lengths: bool = False):
        super().__init__()
        self.manifold = manifold
        self.gate_proj = SlotLinear(dim, inner, manifold, lengths=lengths)
        self.up_proj = SlotLinear(dim, inner, manifold, lengths=lengths)
        self.down_proj = SlotLinear(inner, dim, manifold)

    def forward(self, x: Tensor) -> Tensor:
        layers = (self.gate_proj, self.up_proj)
        if fused(x, self.manifold, CURVED):
            joint = side_by_side(x, layers)
            return self.down_proj(kernels.gate(joint, None, self.manifold.slots.kernel_c))
        gate, up = (layer(x) for layer in layers)
        return self.down_proj(self.manifold.slots.reading(F.silu(gate) * up))


class FeedForward(nn.Module):
    """W_2 φ(W_1 x + b_1) + b_2, by itself with φ = relu.   (..., dim) -> (..., dim)

    On a curved manifold φ acts on the free coordinates, and both maps read the time, as `Linear` does.

    >>> import torch
    >>> from horosphere.geometry import Euclidean, Lorentz
    >>> x, flat = torch.ones(5, 8), FeedForward(8, 32, Euclidean())
    >>> torch.equal(flat(x), flat.linear2(F.relu(flat.linear1(x))))
    True
    >>> FeedForward(8, 32, Lorentz())(x).shape
    torch.Size([5, 8])
    """

    def __init__(
        self,
        dim: int,
        inner: int,
        manifold: Manifold,
        activation: Callable[[Tensor], Tensor] = F.relu,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.manifold, self.activation = settle(self, manifold), activation
        self.linear1 = Linear(dim, inner, manifold, out_manifold=Euclidean())  # free coordinates: φ comes next
        self.linear2 = Linear(inner, dim, manifold)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.manifold.point(self.dropout(self.activation(self.linear1(x)))))


class Maxout(Linear):
    """The largest of k affine maps, coordinate by coordinate.   (..., in) -> (..., out)

    max over i of (W_i x + b_i); on a curved manifold of their free coordinates. Piece i has the rows from i·out on.

    >>> import torch
    >>> from horosphere.geometry import Euclidean
    >>> layer = Maxout(1, 1, 2, Euclidean(), bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> layer(torch.tensor([[-3.0], [2.0]])).detach()  # max(x, -x)
    tensor([[3.],
            [2.]])
    """

    def __init__(self, in_features: int, out_features: int, pieces: int, manifold: Manifold, bias: bool = True):
        super().__init__(in_features, out_features * pieces, manifold, bias, out_manifold=Euclidean())
        self.pieces = pieces
        settle(self, manifold)

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.point(super().forward(x).unflatten(-1, (self.pieces, -1)).amax(-2))
