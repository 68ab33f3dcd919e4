"""CoOp: the words before the name of a class are learned (Zhou et al. 2022).

    [V]_1 [V]_2 … [V]_M NAME.          M vectors in the place of words, the same for all classes

The towers stay as they are. A forward hook on their table of tokens puts the learned vectors in the places of the words
that stand before the name. It works for every text tower that looks its tokens up in one `nn.Embedding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.models.towers import Towers
from horosphere.settings import Few

PLACE = "x"  # the word that keeps a place for a vector that begins at random
START_STD = 0.02  # of vectors that begin at random


@dataclass(frozen=True)
class ContextConfig:
    context: Few | None = None  # learned vectors that begin at random; none: the words before {} in the template


def filled(template: str, names: Sequence[str]) -> list[str]:
    """The texts of classes.

    >>> filled("a photo of a {}.", ["cat", "maple_tree"])
    ['a photo of a cat.', 'a photo of a maple tree.']
    """
    before, braces, after = template.partition("{}")
    if not braces:
        raise UserError(f"template={template}: where does the name go? Write {{}} there, as in a photo of a {{}}.")
    return [f"{before}{spoken(name)}{after}" for name in names]


def spoken(name: str) -> str:
    """A class as people call it: of groups/of/classes the last, without underscores.

    >>> spoken("trees/maple_tree")
    'maple tree'
    """
    return name.rpartition("/")[2].replace("_", " ")


class LearnedContext(nn.Module):
    """The vectors in place of the words before a name, and the texts of the classes around them.

    `vectors` None: as many as the words of the template before {} have tokens, and they begin as those words. Else so
    many, which begin at random.
    """

    def __init__(self, towers: Towers, names: Sequence[str], template: str, vectors: int | None = None):
        super().__init__()
        before, _, after = template.partition("{}")
        words = before.rstrip() if vectors is None else " ".join([PLACE] * vectors)
        texts = filled(f"{words} {{}}{after}", names)
        self.tokens = towers.tokens(texts)
        self.places = _places(towers, words, self.tokens)
        count = len(self.places)
        if not count:
            raise UserError(f"template={template}: no words before {{}} to begin with; add some, or set context=4")
        if vectors is not None and count != vectors:
            raise UserError(f"context={vectors}: the tokenizer makes {count} tokens of {words!r}; leave context out")
        self.table = token_table(towers, self.tokens)
        table = cast(nn.Embedding, towers.get_submodule(self.table))
        if vectors is None:
            ids = _ids(self.tokens)[0, list(self.places)]
            begin = table.weight.detach()[ids.to(table.weight.device)].clone()
        else:
            begin = START_STD * torch.randn(count, table.embedding_dim)
        self.vectors = nn.Parameter(begin)

    def forward(self, towers: Towers, which: slice = slice(None)) -> Tensor:
        """Vectors of the classes `which`, with a gradient to the context.   -> (C, width)"""
        tokens = {name: t[which].to(self.vectors.device) for name, t in self.tokens.items()}
        with replaced(towers.get_submodule(self.table), self.places, self.vectors):
            return towers.text(tokens)


@contextmanager
def replaced(table: nn.Module, places: range, vectors: Tensor) -> Iterator[None]:
    """Meanwhile the table says these vectors at these places of every text, whatever token is there.   (M, D)"""

    def put(module: nn.Module, args: Any, rows: Tensor) -> Tensor:  # (N, T, D)
        middle = vectors.to(rows.dtype).expand(len(rows), -1, -1)
        return torch.cat([rows[:, : places.start], middle, rows[:, places.stop :]], 1)

    handle = table.register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def token_table(towers: Towers, tokens: dict[str, Tensor]) -> str:
    """The name of the table that the text tower looks its tokens up in: the one that is asked for them."""
    ids = _ids(tokens)[:1]
    asked: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, args: Any) -> None:
        asked[module] = args[0].cpu()

    tables = {name: module for name, module in towers.named_modules() if isinstance(module, nn.Embedding)}
    handles = [table.register_forward_pre_hook(note) for table in tables.values()]
    try:
        towers.text({name: t[:1].to(towers.logit_scale.device) for name, t in tokens.items()})
    finally:
        for handle in handles:
            handle.remove()
    for name, table in tables.items():
        if table in asked and torch.equal(asked[table], ids):
            return name
    raise UserError("the text tower looks its tokens up in no table of torch's; use a model without learned context")


def _ids(tokens: dict[str, Tensor]) -> Tensor:
    """(N, T): of what a tower reads the first are numbers of tokens."""
    return next(iter(tokens.values()))


def _places(towers: Towers, words: str, tokens: dict[str, Tensor]) -> range:
    """Where the tokens of the words stand in every text: behind what all texts begin with."""
    nothing, alone = (_ids(towers.tokens([text]))[0] for text in ("", words))
    start, stop = _agree(nothing, alone), max(_agree(alone, row) for row in _ids(tokens))
    if stop == len(alone):
        raise UserError(f"{words!r}: the text tower has no room for names behind so many words; take fewer")
    return range(start, stop)


def _agree(a: Tensor, b: Tensor) -> int:
    """How many tokens two texts have in common from the beginning."""
    length = min(len(a), len(b))
    different = (a[:length] != b[:length]).nonzero()
    return int(different[0]) if len(different) else length
