"""What word vectors know: which words are alike, as people say it, and which complete an analogy.

Likeness is the cosine of the angle that two words make at the origin, in every geometry, or minus their distance where
a model was trained on distances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.data.corpora import Analogies, WordPairs
from horosphere.errors import UserError, choices
from horosphere.geometry import Euclidean, Manifold

CHUNK = 256  # words that are compared with all others at once


@dataclass(frozen=True)
class Lexicon:
    """Words and their points.

    >>> lexicon = Lexicon(["king", "queen", "man", "woman"], torch.tensor([[3.0, 1], [3, -1], [1.0, 1], [1, -1]]))
    >>> round(lexicon.similarity("king", "man"), 3)
    0.894
    >>> [word for word, _ in lexicon.neighbors("king", 2)]
    ['man', 'queen']
    >>> lexicon.analogy("man", "king", "woman", 1)[0][0]
    'queen'
    """

    words: Sequence[str]
    points: Tensor  # (V, d)
    manifold: Manifold = field(default_factory=Euclidean)
    likeness: Literal["cosine", "distance"] = "cosine"
    unseen: Callable[[str], Tensor | None] | None = None  # the point of a word that is not there; None: there is none

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", {word: i for i, word in enumerate(self.words)})

    def __contains__(self, word: str) -> bool:
        return word in self.number  # type: ignore[attr-defined]

    def numbers(self, words: Sequence[str]) -> Tensor:
        """(N,)"""
        return torch.tensor([self.number[word] for word in words], dtype=torch.long)  # type: ignore[attr-defined]

    def point(self, word: str) -> Tensor:
        """(d,)"""
        if word in self:
            return self.points[self.numbers([word])[0]]
        made = self.unseen(word) if self.unseen else None
        if made is None:
            raise UserError(f'the word "{word}" was not learned; {choices(word, self.words)}')
        return made

    # -- one at a time ----------------------------------------------------------------------------------------------

    def similarity(self, first: str, second: str) -> float:
        """How alike two words are; the more, the larger."""
        return self.alike(self.point(first)[None], self.point(second)[None]).item()

    def neighbors(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words most like it, and how much."""
        return self._best(self.point(word)[None], [word], count)

    def analogy(self, first: str, second: str, third: str, count: int = 10) -> list[tuple[str, float]]:
        """What is to the third as the second is to the first. The three words themselves are no answers."""
        a, b, c = (self.point(word)[None] for word in (first, second, third))
        return self._best(self.carried(a, b, c), [first, second, third], count)

    def _best(self, x: Tensor, left_out: Sequence[str], count: int) -> list[tuple[str, float]]:
        alike = self.table(x)[0]
        alike[self.numbers([word for word in left_out if word in self])] = -torch.inf
        values, places = alike.topk(min(count, len(alike)))
        found = zip(places.tolist(), values.tolist(), strict=True)
        return [(self.words[place], value) for place, value in found if value > -torch.inf]

    # -- many at once -----------------------------------------------------------------------------------------------

    def alike(self, x: Tensor, y: Tensor) -> Tensor:
        """Pair by pair.   (N, d), (N, d) -> (N,)"""
        if self.likeness == "distance":
            return -self.manifold.dist(x, y)
        return F.cosine_similarity(self.manifold.lower(x), self.manifold.lower(y), dim=-1)

    def table(self, x: Tensor) -> Tensor:
        """With all words.   (N, d) -> (N, V)"""
        if self.likeness == "distance":
            return -self.manifold.pairwise(x, self.points)
        return _directions(self.manifold.lower(x)) @ _directions(self.manifold.lower(self.points)).T

    def carried(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Where the way from a to b leads from c: exp_c of log_a b, carried from a to c; b - a + c in flat space.

        By cosine, all three lie at distance 1 from the origin first: the usual unit vectors.   3 x (N, d) -> (N, d)
        """
        if self.likeness == "cosine":
            a, b, c = (self.manifold.lift(_directions(self.manifold.lower(x))) for x in (a, b, c))
        return self.manifold.exp(c, self.manifold.transport(self.manifold.log(a, b), a, c))


def _directions(v: Tensor) -> Tensor:
    return F.normalize(v, dim=-1)


def rank_correlation(lexicon: Lexicon, pairs: WordPairs) -> tuple[float, float]:
    """Spearman's ρ of likeness and what people say, over the pairs whose words are both there, and their share.

    NaN where fewer than three are.

    >>> lexicon = Lexicon(["a", "b", "c"], torch.tensor([[1.0, 0], [0.9, 0.1], [0, 1]]))
    >>> rank_correlation(lexicon, WordPairs(["a", "a", "b", "x"], ["b", "c", "c", "a"], [9, 1, 3, 5]))
    (1.0, 0.75)
    """
    from scipy.stats import spearmanr

    known = [
        i for i, words in enumerate(zip(pairs.first, pairs.second, strict=True)) if all(w in lexicon for w in words)
    ]
    share = len(known) / len(pairs.scores)
    if len(known) < 3:
        return float("nan"), share
    x, y = (lexicon.points[lexicon.numbers([side[i] for i in known])] for side in (pairs.first, pairs.second))
    return float(spearmanr(lexicon.alike(x, y).cpu().numpy(), [pairs.scores[i] for i in known])[0]), share


def analogy_accuracy(lexicon: Lexicon, analogies: Analogies) -> tuple[float, float]:
    """The share of questions answered, of those whose four words are there, and the share of those. NaN where none is.

    >>> points = torch.tensor([[3.0, 1], [3, -1], [1.0, 1], [1, -1]])
    >>> lexicon = Lexicon(["king", "queen", "man", "woman"], points)
    >>> analogy_accuracy(lexicon, Analogies([("man", "king", "woman", "queen"), ("a", "b", "c", "d")], ["", ""]))
    (1.0, 0.5)
    """
    known = [question for question in analogies.questions if all(word in lexicon for word in question)]
    if not known:
        return float("nan"), 0.0
    words = lexicon.numbers([word for question in known for word in question]).reshape(-1, 4)
    right = 0
    for part in words.split(CHUNK):
        a, b, c = (lexicon.points[part[:, place]] for place in range(3))
        alike = lexicon.table(lexicon.carried(a, b, c))
        alike.scatter_(1, part[:, :3].to(alike.device), -torch.inf)
        right += int((alike.argmax(1).cpu() == part[:, 3]).sum())
    return right / len(known), len(known) / len(analogies.questions)
