"""Who finds whom: the share of queries whose match is among the first k."""

from torch import Tensor


def recall_at(alike: Tensor, match: Tensor, *ks: int) -> list[float]:
    """alike (N, M): how well query n fits item m; match (N,): its own item. A tie counts against the query, and so
    does what is no number.

    >>> import torch
    >>> alike = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.3, 0.8]])
    >>> recall_at(alike, torch.tensor([0, 1]), 1, 2)
    [0.5, 1.0]
    """
    own = alike.gather(1, match[:, None])
    ahead = (~(alike < own)).sum(1) - 1
    return [float((ahead < k).double().mean()) for k in ks]
