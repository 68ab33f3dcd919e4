"""Writing a sequence token by token with any model that has a step: the likeliest token each time, or beam search.

A step takes the last token of each row and a state, and gives logits and the next state. A state is a tensor, None, or
tuples, lists and dictionaries of them; every tensor has its rows first.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

State = Any
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # (R,), state -> (R, V), state
ALPHA = 0.75  # of the length that log P is divided by


class Written(NamedTuple):
    tokens: list[int]  # without the first token and the end
    score: float  # log P/L^α, L with the end


def greedy(step: Step, state: State, begin: Tensor, end: int, most: int, never: Sequence[int] = ()) -> list[list[int]]:
    """The likeliest token after each, until the end or `most` tokens; tokens in `never` are not written.

    begin: (B,), the first tokens. -> B lists, without the first token and the end

    >>> def count(tokens, state):  # the likeliest token is the next number
    ...     return torch.eye(7)[tokens + 1], state
    >>> greedy(count, None, torch.tensor([1, 3]), end=5, most=3)
    [[2, 3, 4], [4]]
    """
    tokens, ended = begin, torch.zeros_like(begin, dtype=torch.bool)
    written: list[Tensor] = []
    while len(written) < most and not bool(ended.all()):
        logits, state = step(tokens, state)
        tokens = _allowed(logits, never).argmax(-1).masked_fill(ended, end)
        ended = ended | (tokens == end)
        written.append(tokens)
    rows = torch.stack(written, 1).tolist() if written else [[] for _ in begin]
    return [row[: row.index(end)] if end in row else row for row in rows]


def beam_search(
    step: Step,
    state: State,
    begin: Tensor,
    end: int,
    most: int,
    beams: int = 4,
    alpha: float = ALPHA,
    never: Sequence[int] = (),
) -> list[Written]:
    """Of sequences that end, or have `most` tokens, the one of highest log P/L^α; `beams` are followed at a time.

    log P falls with every token. Dividing by L^α is what lets long sequences win. With one beam and α = 0 a sequence
    ends as soon as no likelier one can come.
    begin: (B,), the first tokens. -> B results

    >>> def coin(tokens, state):  # after 0 comes 1 for sure; after 1 the end, 2, or rather 0
    ...     table = torch.tensor([[0.0, 1.0, 0.0], [0.6, 0.0, 0.4], [0.0, 0.0, 1.0]])
    ...     return table[tokens].log(), state
    >>> [(found.tokens, round(found.score, 2)) for found in beam_search(coin, None, torch.tensor([0]), end=2, most=4)]
    [([1, 0, 1, 0], -0.36)]
    """
    count, device = len(begin), begin.device
    home = torch.arange(count, device=device).repeat_interleave(beams)  # whose row each beam is
    state, tokens = _rows(state, home), begin.repeat_interleave(beams)
    score = torch.full((count, beams), -torch.inf, device=device)
    score[:, 0] = 0  # one beam at first: the others would be the same again
    paths = tokens.new_empty(count * beams, 0)
    best = [Written([], -torch.inf)] * count
    for length in range(1, most + 1):
        logits, state = step(tokens, state)
        total = score.unsqueeze(-1) + _allowed(logits, never).float().log_softmax(-1).unflatten(0, (count, beams))
        best = _better(best, paths, total[..., end] / length**alpha)
        total[..., end] = -torch.inf
        score, chosen = total.flatten(1).topk(beams)
        parent = (chosen // total.shape[-1] + beams * torch.arange(count, device=device).unsqueeze(1)).flatten()
        tokens = (chosen % total.shape[-1]).flatten()
        state, paths = _rows(state, parent), torch.cat((paths[parent], tokens.unsqueeze(1)), 1)
        # log P only falls, and no L is larger than `most`: what a beam can still reach
        reach = (score.amax(1) / most**alpha).tolist()
        if all(found.score >= most_to_come for found, most_to_come in zip(best, reach, strict=True)):
            return best
    return _better(best, paths, score / most**alpha)


def _better(best: list[Written], paths: Tensor, scores: Tensor) -> list[Written]:
    """The best so far, or the best of these paths.   (B·beams, L), (B, beams) -> B"""
    top, which = scores.max(1)
    found = paths.unflatten(0, scores.shape)[torch.arange(len(which)), which].tolist()
    new = [Written(row, score) for row, score in zip(found, top.tolist(), strict=True)]
    return [b if a.score < b.score else a for a, b in zip(best, new, strict=True)]


def _allowed(logits: Tensor, never: Sequence[int]) -> Tensor:
    return logits.index_fill(-1, logits.new_tensor(never, dtype=torch.long), -torch.inf) if never else logits


def _rows(state: State, rows: Tensor) -> State:
    """A state for these rows of it."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, dict):
        return {name: _rows(part, rows) for name, part in state.items()}
    if isinstance(state, (tuple, list)):
        parts = [_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return state
