"""A recurrent model that goes on in each step where the step before stopped (truncated back-propagation)."""

from typing import Any

import torch
from torch import Tensor, nn


class Carried(nn.Module):
    """A language model with the last state of each row of a batch, which the next batch's row begins with.

    state: (parts, layers, rows, hidden), without a gradient. It is a buffer, so that checkpoints take it along.

    >>> from horosphere.models.recurrent import RecurrentConfig, RecurrentForCausalLM
    >>> model = Carried(RecurrentForCausalLM(RecurrentConfig(vocab_size=9, hidden_size=4)), rows=2)
    >>> tokens, slots = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.arange(2)
    >>> first, second, anew = (model(slots, torch.tensor([new, new]), tokens).logits for new in (True, False, True))
    >>> torch.equal(first, second), torch.equal(first, anew)
    (False, True)
    """

    state: Tensor

    def __init__(self, network: nn.Module, rows: int):
        super().__init__()
        self.network = network
        self.register_buffer("state", torch.zeros(network.state_shape(rows)))  # type: ignore[operator]

    def forward(self, slots: Tensor, begins: Tensor, *inputs: Any, **named: Any) -> Any:
        """slots: (B,), which rows of the batch these are. begins: (B,) bool, who begins anew, at the origin.

        The rest is what the network takes.
        """
        before = self.state[:, :, slots].masked_fill(begins[:, None], 0)
        past = before[0] if len(before) == 1 else tuple(before)
        output = self.network(*inputs, **{**named, "past_key_values": past, "use_cache": True})
        after = output.past_key_values
        after = torch.stack(after if isinstance(after, tuple) else (after,))
        self.state[:, :, slots] = after.detach().to(self.state.dtype)
        return output

    def blocks(self) -> list[nn.Module]:
        """What is compiled and sharded one by one."""
        blocks: list[nn.Module] = self.network.blocks()  # type: ignore[operator]
        return blocks
