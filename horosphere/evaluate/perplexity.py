"""How well a language model predicts a text: nats a token, perplexity, bits a byte."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.progress import Update

ENTRIES = 2**26  # logits in fp32 at once, 256 MB: a batch of a 128k vocabulary would need gigabytes


@dataclass(frozen=True)
class Perplexity:
    """What a text costs a model. Bits a byte compare models of different tokenizers; perplexity and loss do not."""

    nats: float  # in total
    tokens: int  # that were predicted
    bytes: int | None  # of the text they spell
    stderr: (
        float | None
    )  # of the loss, over windows; neighbouring ones are not independent, so it is on the small side. None: only one window

    @property
    def loss(self) -> float:
        return self.nats / self.tokens

    @property
    def per_token(self) -> float:
        return (
            torch.tensor(self.loss, dtype=torch.float64).exp().item()
        )  # math.exp refuses the infinity a hopeless model earns

    @property
    def bits_per_byte(self) -> float | None:
        return self.nats / math.log(2) / self.bytes if self.bytes else None


def perplexity(
    model: nn.Module,
    windows: Iterable[tuple[Tensor, Tensor]],
    text_bytes: int | None = None,
    device: torch.device | str = "cpu",
    inputs: Callable[[Tensor], dict[str, Any]] = lambda tokens: {"input_ids": tokens},
    progress: Update | None = None,
) -> Perplexity:
    """Σ -log p(token | tokens before it in its window) over windows of tokens (B, L+1) and which of the L predictions count (B, L) bool.

    `inputs` maps tokens (B, L) on the device to the model's arguments, where position_ids and masks can keep documents apart.
    `progress(windows done, note)` after each batch.
    """
    costs: list[Tensor] = []  # (B, 2): nats and predictions of each window
    with evaluating(model):
        for tokens, counted in windows:
            tokens, counted = tokens.to(device), counted.to(device)
            logits = model(**inputs(tokens[:, :-1])).logits
            nats = torch.zeros(counted.shape, dtype=torch.float64)
            nats[counted.cpu()] = -log_probabilities(logits, counted.nonzero(as_tuple=True), tokens[:, 1:][counted])
            costs.append(torch.stack([nats.sum(-1), counted.sum(-1).cpu().double()], -1))
            if progress:
                progress(sum(map(len, costs)), f"loss {costs[-1][:, 0].sum() / costs[-1][:, 1].sum():.3f}")
    return _summary(torch.cat(costs) if costs else torch.zeros(0, 2), text_bytes)


def _summary(costs: Tensor, text_bytes: int | None) -> Perplexity:
    """From nats and predictions of each window (N, 2). The loss is a ratio of two sums, and its error that of a ratio estimator."""
    nats, counts = costs[costs[:, 1] > 0].unbind(-1)
    n, tokens = len(counts), counts.sum()
    if not n:
        raise UserError("the text is too short to predict anything in it: give one of at least two tokens")
    residuals = nats - nats.sum() / tokens * counts
    stderr = ((residuals.square().sum() * n / (n - 1)).sqrt() / tokens).item() if n > 1 else None
    return Perplexity(nats.sum().item(), int(tokens), text_bytes, stderr)


# -- shared by all that asks a model for probabilities ---------------------------------------------------------------


def log_probabilities(logits: Tensor, places: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    """log p(target) at each place.   logits (..., V), places: indices (n,) of each leading dimension, targets (n,) -> (n,) float64 on the CPU

    Softmax in fp32 whatever the logits are in, a few rows at a time; float64, so that sums of many keep their digits.
    """
    rows = max(1, ENTRIES // logits.shape[-1])
    chunks = zip(*(index.split(rows) for index in (*places, targets)), strict=True)
    found = [
        -nn.functional.cross_entropy(logits[tuple(at)].float(), target, reduction="none").cpu()
        for *at, target in chunks
    ]
    result = torch.cat(found).double()
    if result.isnan().any():
        raise UserError("the model's logits are NaN: evaluate an earlier checkpoint, or in a wider dtype")
    return result


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; afterwards every module has its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
