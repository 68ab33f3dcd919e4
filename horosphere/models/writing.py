"""Feeding a language model, and letting it write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.foreign import is_text
from horosphere.nn import document_mask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def packed_inputs(tokens: Tensor, position_ids: Tensor | None) -> dict[str, Any]:
    """Arguments of the model for windows of tokens (B, T), whose documents `position_ids` (B, T) keep apart."""
    inputs: dict[str, Any] = {"input_ids": tokens, "use_cache": False}
    if position_ids is None:
        return inputs
    return {**inputs, "position_ids": position_ids, "attention_mask": document_mask(position_ids)}


def write(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    prompt: str,
    tokens: int,
    temperature: float = 0.8,
    top_k: int = 50,
    greedy: bool = False,
    **options: Any,
) -> str:
    """The prompt, at the start of a document, and how the model goes on: to its end, or for so many tokens.

    Further options are those of `generate`: a streamer, for example.
    """
    if not is_text(prompt):
        raise UserError("the prompt is no UTF-8 text: give one that is, or set the encoding of the terminal")
    device = next(model.parameters()).device
    words = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    _require_room(model, 1 + len(words), tokens)
    ids = torch.tensor([[model.config.bos_token_id, *words]], device=device)  # type: ignore[union-attr]
    choice = {"do_sample": False} if greedy else {"do_sample": True, "temperature": temperature, "top_k": top_k}
    with torch.no_grad(), hushed():
        out = model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **choice, **options
        )
    return str(tokenizer.decode(out[0], skip_special_tokens=True))


def _require_room(model: nn.Module, given: int, tokens: int) -> None:
    """Learned positions end. The token that is written last needs none."""
    config: Any = model.config
    if getattr(config, "position", None) != "learned":
        return
    most = config.max_position_embeddings - given + 1
    if tokens > most:
        how = f"give --tokens {most} or fewer" if most > 0 else "give a shorter prompt"
        what = f"a prompt of {given} tokens and {tokens} to write"
        raise UserError(f"{what}: this model learned {config.max_position_embeddings} positions; {how}")


@contextmanager
def hushed() -> Iterator[None]:
    """Without the bars and reminders of transformers; its errors still come through."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def autocast(device: torch.device | str) -> torch.autocast:
    """The precision that models are trained in by default: bf16 on CUDA, else that of the weights."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")
