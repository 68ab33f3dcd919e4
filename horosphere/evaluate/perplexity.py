"""How well a language model predicts a text: nats a token, perplexity, bits a byte."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from horosphere.errors import NotFinite, UserError
from horosphere.progress import Update

ENTRIES = 2**26  # logits in fp32 at once, 256 MB: a whole batch with a vocabulary of 128k would need gigabytes


@dataclass(frozen=True)
class Perplexity:
    """What a text costs a model. Bits a byte compare models of different tokenizers; perplexity and loss do not.

    >>> cost = Perplexity(nats=200.0, tokens=100, bytes=400, stderr=None)
    >>> cost.loss, round(cost.per_token, 2), round(cost.bits_per_byte, 3)
    (2.0, 7.39, 0.721)
    """

    nats: float  # in total
    tokens: int  # that were predicted
    bytes: int | None  # of the text they spell
    # of the loss, over windows; a little too small, since neighbouring windows are not independent. None: one window
    stderr: float | None

    @property
    def loss(self) -> float:
        return self.nats / self.tokens

    @property
    def per_token(self) -> float:
        # math.exp would raise where a hopeless model has an infinite perplexity
        return torch.tensor(self.loss, dtype=torch.float64).exp().item()

    @property
    def bits_per_byte(self) -> float | None:
        return self.nats / math.log(2) / self.bytes if self.bytes else None

    def rows(self, length: int, vocabulary: int) -> list[list[str]]:
        """For a table, with what guessing would cost; `length`: of the windows."""
        error = "" if self.stderr is None else f" ± {self.stderr:.4f}"
        rows = [
            ["predictions", f"{self.tokens:,} in windows of {length}"],
            ["nats/token", f"{self.loss:.4f}{error}  (chance {math.log(vocabulary):.4f})"],
            ["perplexity", f"{self.per_token:.2f}  (chance {vocabulary:,})"],
        ]
        if (bits := self.bits_per_byte) is not None:
            error = "" if self.stderr is None else f" ± {self.stderr * bits / self.loss:.4f}"
            rows.append(["bits/byte", f"{bits:.4f}{error}"])
        return rows


def perplexity(
    model: nn.Module,
    windows: Iterable[tuple[Tensor, Tensor]],
    text_bytes: int | None = None,
    device: torch.device | str = "cpu",
    inputs: Callable[[Tensor], dict[str, Any]] = lambda tokens: {"input_ids": tokens},
    progress: Update | None = None,
) -> Perplexity:
    """Σ -log p(token | tokens before it in its window) over windows.

    windows: tokens (B, L+1), and which of the L predictions count (B, L) bool.
    inputs: maps tokens (B, L) on the device to the model's arguments. Position ids and masks can keep documents apart.
    progress(windows done, note) is called after each batch.

    >>> from types import SimpleNamespace
    >>> class Uniform(nn.Module):
    ...     def forward(self, input_ids):
    ...         return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 256))
    >>> window = torch.zeros(1, 9, dtype=torch.long), torch.ones(1, 8, dtype=torch.bool)
    >>> round(perplexity(Uniform(), [window]).per_token)
    256
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
    """From nats and predictions of each window (N, 2). The loss is a ratio of sums, its error that of such a ratio."""
    nats, counts = costs[costs[:, 1] > 0].unbind(-1)
    n, tokens = len(counts), counts.sum()
    if not n:
        raise UserError("the text is too short to predict anything in it: give one of at least two tokens")
    residuals = nats - nats.sum() / tokens * counts
    stderr = ((residuals.square().sum() * n / (n - 1)).sqrt() / tokens).item() if n > 1 else None
    return Perplexity(nats.sum().item(), int(tokens), text_bytes, stderr)


# -- shared by all that asks a model for probabilities ---------------------------------------------------------------


def log_probabilities(logits: Tensor, places: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    """log p(target) at each place.   -> (n,) float64 on the CPU

    logits: (..., V). places: indices (n,) of each leading dimension. targets: (n,). The softmax is in fp32 whatever
    the logits are in, a few rows at a time. The result is in float64, so that sums of many keep their digits.

    >>> logits = torch.zeros(2, 5, 4)
    >>> log_probabilities(logits, (torch.tensor([0, 1]), torch.tensor([4, 2])), torch.tensor([3, 0])).exp()
    tensor([0.2500, 0.2500], dtype=torch.float64)
    """
    rows = max(1, ENTRIES // logits.shape[-1])
    chunks = zip(*(index.split(rows) for index in (*places, targets)), strict=True)
    parts = [
        -nn.functional.cross_entropy(logits[tuple(at)].float(), target, reduction="none").cpu()
        for *at, target in chunks
    ]
    logs = torch.cat(parts).double()
    if logs.isnan().any():
        raise NotFinite("the model's logits are NaN")
    return logs


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; afterwards every module has its own mode back.

    >>> model = nn.Dropout()
    >>> with evaluating(model):
    ...     model.training, torch.is_grad_enabled()
    (False, False)
    >>> model.training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    except NotFinite as error:
        raise NotFinite(f"{error}: {_reason(model)}") from error
    finally:
        for module, training in modes:
            module.training = training


def _reason(model: nn.Module) -> str:
    """What to do about answers that are NaN."""
    for name, t in model.named_parameters():
        if not t.isfinite().all():
            return f"its {name} is not finite; evaluate an earlier checkpoint"
    return "its weights are finite; evaluate it in fp32, or look at its settings, such as the curvature"
