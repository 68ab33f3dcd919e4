"""The nearest of known points, in any geometry: what a trained model should surpass, and what lies near a node."""

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Manifold

AT_ONCE = 2**20  # distances: 8 MB in float64, which stays in cache


@torch.no_grad()
def nearest(x: Tensor, known: Tensor, manifold: Manifold, k: int, but: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Distances to the k known points nearest to each x, and their numbers, the nearest first; of equals, the lower.

    (B, d), (N, d) -> (B, k), (B, k).   Exactly the order of `dist`: one matrix product (`pairwise`) finds the few that
    may be among them, `pairwise_reach` says how far it may be off, and `dist` decides. Memory stays within blocks.
    but: for each x the number of a known point that does not count, such as itself.   (B,)

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz()
    >>> known = L.exp0(torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]], dtype=torch.float64))
    >>> distances, numbers = nearest(L.exp0(torch.tensor([[3.5, 0.0]], dtype=torch.float64)), known, L, k=2)
    >>> distances.round(decimals=3), numbers
    (tensor([[1.5000, 2.5000]], dtype=torch.float64), tensor([[2, 1]]))
    >>> nearest(known, known, L, k=1, but=torch.arange(3))[1].T  # the nearest other one of each
    tensor([[1, 0, 1]])
    """
    k = max(0, min(k, len(known) - (but is not None)))
    size = max(1, AT_ONCE // max(1, len(known)))
    left_out = [None] * len(x.split(size)) if but is None else but.split(size)
    found = [_block(part, known, manifold, k, out) for part, out in zip(x.split(size), left_out, strict=True)]
    distances, numbers = zip(*found, strict=True)
    return torch.cat(distances), torch.cat(numbers)


def _block(x: Tensor, known: Tensor, manifold: Manifold, k: int, but: Tensor | None) -> tuple[Tensor, Tensor]:
    if k == 0:
        return x.new_empty(len(x), 0), torch.empty(len(x), 0, dtype=torch.long, device=x.device)
    rough = manifold.pairwise(x, known)
    if but is not None:
        rough.scatter_(1, but[:, None], torch.inf)
    guess = rough.topk(k, largest=False).indices
    farthest = manifold.dist(x[:, None], known[guess]).amax(1)  # the k-th nearest is no farther
    if farthest.isnan().any():
        raise UserError("some distances are nan: points are damaged, or lie outside their space. Train them again.")
    may_be = rough <= manifold.pairwise_reach(x, known, farthest)[:, None]
    if but is not None:
        may_be.scatter_(1, but[:, None], False)
    row, number = may_be.nonzero(as_tuple=True)
    pairs = zip(row.split(AT_ONCE), number.split(AT_ONCE), strict=True)
    distance = torch.cat([manifold.dist(x[i], known[j]) for i, j in pairs])
    order = distance.argsort(stable=True)  # rows and numbers come sorted, and stay so among equals
    order = order[row[order].argsort(stable=True)]
    starts = torch.searchsorted(row, torch.arange(len(x), device=x.device))
    first = order[starts[:, None] + torch.arange(k, device=x.device)]
    return distance[first], number[first]


def voted(labels: Tensor, classes: int) -> Tensor:
    """The commonest of each row of labels, among equals the lowest.   (B, k) -> (B,)

    >>> voted(torch.tensor([[2, 1, 2], [1, 0, 2]]), classes=3)
    tensor([2, 0])
    """
    return torch.nn.functional.one_hot(labels, classes).sum(1).argmax(1)
