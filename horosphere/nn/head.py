"""From the stream to a vocabulary."""

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


class TokenHead(SlotLinear):
    """forward(x) gives logits, forward(x, labels) the mean cross-entropy over labels that are not -100.

    (..., d) -> (..., V), or with labels (...) -> ().   "ambient": a linear map of space and time. "hyperplane": signed
    distances to one hyperplane a token. In flat space both are W x.

    >>> from horosphere.geometry import Lorentz
    >>> head = TokenHead(8, 100, Lorentz())
    >>> x, labels = head.manifold.slots.reading(torch.ones(2, 5, 8)), torch.zeros(2, 5, dtype=torch.long)
    >>> head(x).shape, head(x, labels).shape
    (torch.Size([2, 5, 100]), torch.Size([]))
    """

    def __init__(
        self, dim: int, vocabulary: int, manifold: Manifold, form: Literal["ambient", "hyperplane"] = "ambient"
    ):
        super().__init__(dim, vocabulary, manifold)
        self.manifold, self.form = manifold, form

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        require_width(x, self.in_features, self)
        if labels is None:
            return self._logits(x)
        x, labels = x.flatten(0, -2), labels.flatten()
        pieces = -(-x.shape[0] * self.out_features // LOGITS_AT_ONCE)
        if pieces == 1:
            total = self._nats(x, labels)
        else:
            batches = zip(x.tensor_split(pieces), labels.tensor_split(pieces), strict=True)
            total = torch.stack([checkpoint(self._nats, *batch, use_reentrant=False) for batch in batches]).sum()
        return total / (labels != -100).sum().clamp_min(1)

    def _logits(self, x: Tensor) -> Tensor:
        if self.form == "hyperplane":  # space parts of L^(n-1) inside L^n: on both sides the slot of the time is empty
            slots = self.manifold.slots
            return hyperplane_logits(slots.space(x), slots.space(self.weight), None, self.manifold)
        return super().forward(x)

    def _nats(self, x: Tensor, labels: Tensor) -> Tensor:
        """The sum of the cross-entropies."""
        return F.cross_entropy(self._logits(x).float(), labels, reduction="sum")
