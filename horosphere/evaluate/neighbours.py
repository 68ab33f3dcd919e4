"""The nearest of known points, in any geometry: what a trained model should surpass."""

import torch
from torch import Tensor

from horosphere.geometry import Manifold

AT_ONCE = 2**22  # distances


def nearest(x: Tensor, known: Tensor, manifold: Manifold, k: int) -> Tensor:
    """Numbers of the k known points nearest to each x, the nearest first.   (B, d), (N, d) -> (B, k)

    Give fp64: `pairwise` tells near neighbours apart only there.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> known = L.exp0(torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]], dtype=torch.float64))
    >>> nearest(L.exp0(torch.tensor([[4.0, 0.0]], dtype=torch.float64)), known, L, k=2)
    tensor([[2, 1]])
    """
    parts = x.split(max(1, AT_ONCE // len(known)))
    return torch.cat([manifold.pairwise(part, known).topk(min(k, len(known)), largest=False).indices for part in parts])


def voted(labels: Tensor, classes: int) -> Tensor:
    """The commonest of each row of labels, among equals the lowest.   (B, k) -> (B,)

    >>> voted(torch.tensor([[2, 1, 2], [1, 0, 2]]), classes=3)
    tensor([2, 0])
    """
    return torch.nn.functional.one_hot(labels, classes).sum(1).argmax(1)
