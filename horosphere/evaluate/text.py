"""What a held-out text costs a language model, the work shared by several processes."""

from typing import Any

import torch
from torch import Tensor, nn

from horosphere.data.tokens import TokenFile, packed_positions, share_of_windows, some_windows
from horosphere.evaluate.perplexity import Perplexity, perplexity
from horosphere.evaluate.sharing import Shared
from horosphere.models.writing import packed_inputs
from horosphere.progress import Update

LOGITS = 2**28  # numbers at once, 1 GB in fp32
ROWS = 64  # most windows at once


def validate(
    model: nn.Module,
    tokens: TokenFile,
    length: int,
    world: Shared,
    limit: int | None = None,
    progress: Update | None = None,
) -> Perplexity:
    """What a text costs a model that reads it in windows of `length`, the work shared by all processes.

    With a limit, that many windows drawn from all of it; their bytes are then the text's in proportion to their tokens.
    """
    rows = max(1, min(ROWS, LOGITS // (length * tokens.vocab_size)))
    windows = some_windows(tokens, length, rows * world.size, limit)
    # with fewer windows than processes all read all, which leaves the ratios as they are
    if min(limit or len(tokens), (len(tokens) - 1) // length) >= world.size:
        windows = share_of_windows(windows, world.rank, world.size)

    def inputs(part: Tensor) -> dict[str, Any]:
        return packed_inputs(part, packed_positions(part, tokens.bos))

    cost = perplexity(model, windows, None, world.device, inputs, progress if world.is_main else None)
    nats, predicted = world.sum(torch.tensor([cost.nats, cost.tokens], dtype=torch.float64)).tolist()
    text_bytes = round(tokens.text_bytes * predicted / (len(tokens) - 1))
    return Perplexity(nats, int(predicted), text_bytes, cost.stderr if world.size == 1 else None)
