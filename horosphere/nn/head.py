"""From the stream to a vocabulary."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from horosphere.geometry import Manifold
from horosphere.nn.axes import require_width
from horosphere.nn.linear import hyperplane_logits
from horosphere.nn.slots import SlotLinear

HEADS = ("ambient", "hyperplane")
LOGITS_AT_ONCE = 2**30  # numbers; beyond it the loss is taken piece by piece, and the logits never exist at once


def token_loss(
    head: Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    vocabulary: int,
    items: Tensor | int | None = None,
) -> Tensor:
    """The mean cross-entropy of head(x), the logits of so many tokens, over labels that are not -100.

    (..., d), (...) -> ().   items: what the sum is divided by, where these labels are a part of a larger batch.

    >>> head, x, labels = torch.nn.Linear(8, 100), torch.ones(2, 5, 8), torch.zeros(2, 5, dtype=torch.long)
    >>> parts = [token_loss(head, x[i], labels[i], vocabulary=100, items=10) for i in (0, 1)]
    >>> torch.allclose(sum(parts), token_loss(head, x, labels, vocabulary=100))
    True
    """

    def nats(x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(head(x).float(), labels, reduction="sum")

    x, labels = x.flatten(0, -2), labels.flatten()
    pieces = -(-x.shape[0] * vocabulary // LOGITS_AT_ONCE)
    if pieces == 1:
        total = nats(x, labels)
    else:
        batches = zip(x.tensor_split(pieces), labels.tensor_split(pieces), strict=True)
        total = torch.stack([checkpoint(nats, *batch, use_reentrant=False) for batch in batches]).sum()
    if items is None:
        items = (labels != -100).sum().clamp_min(1)
    return total / (items.to(total.device) if isinstance(items, Tensor) else items)


class TokenHead(SlotLinear):
    """Logits of tokens: "ambient", a linear map of space and time, or "hyperplane", signed distances to one hyperplane
    a token.   (..., d) -> (..., V).   In flat space both are W x.

    With labels (...) it gives the `token_loss` of its logits: one call, so that a compiler sees all of it. A head that
    was wrapped or replaced has no such call; its loss is taken from outside.

    >>> from horosphere.geometry import Lorentz
    >>> head = TokenHead(8, 100, Lorentz())
    >>> x, labels = head.manifold.slots.reading(torch.ones(2, 5, 8)), torch.zeros(2, 5, dtype=torch.long)
    >>> head(x).shape, head(x, labels).shape
    (torch.Size([2, 5, 100]), torch.Size([]))
    """

    def __init__(
        self,
        dim: int,
        vocabulary: int,
        manifold: Manifold,
        form: Literal["ambient", "hyperplane"] = "ambient",
        lengths: bool = False,
    ):
        super().__init__(dim, vocabulary, manifold, lengths=lengths)
        self.manifold, self.form = manifold, form

    def forward(self, x: Tensor, labels: Tensor | None = None, items: Tensor | int | None = None) -> Tensor:
        require_width(x, self.in_features, self)
        if labels is None:
            return self._logits(x)
        return token_loss(self._logits, x, labels, self.out_features, items)

    def _logits(self, x: Tensor) -> Tensor:
        if self.form == "hyperplane":  # space parts of L^(n-1) inside L^n: on both sides the slot of the time is empty
            slots = self.manifold.slots
            return hyperplane_logits(slots.space(x), slots.space(self.rows), None, self.manifold)
        return super().forward(x)
