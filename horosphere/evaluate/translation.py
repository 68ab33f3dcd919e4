"""How close sentences come to those that were expected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

Sentence = Sequence[Hashable]
ORDER = 4  # longest run of tokens that BLEU counts


def exact_match(written: Sequence[Sentence], expected: Sequence[Sentence]) -> float:
    """Share of the sentences that are right from their first token to their last.

    >>> exact_match(["ab", "c"], ["ab", "cd"])
    0.5
    """
    return sum(list(a) == list(b) for a, b in zip(written, expected, strict=True)) / max(1, len(expected))


def bleu(written: Sequence[Sentence], expected: Sequence[Sentence]) -> float:
    """BLEU of a corpus with one reference each (Papineni et al. 2002): min(1, e^{1 - r/c}) · (p₁p₂p₃p₄)^¼.

    p_n is the share of the written runs of n tokens that are expected, each as often as it is expected there. r and c
    are how many tokens are expected and written. 0 where one of the p is 0.

    >>> bleu(["the cat sat on a mat".split()], ["the cat sat on the mat".split()])
    0.537284965911771
    """
    right, runs = [0] * ORDER, [0] * ORDER
    for a, b in zip(written, expected, strict=True):
        for n in range(1, ORDER + 1):
            mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (a, b))
            right[n - 1] += (mine & theirs).total()
            runs[n - 1] += mine.total()
    if not all(right):
        return 0.0
    mean = sum(math.log(r / n) for r, n in zip(right, runs, strict=True)) / ORDER
    shorter = 1 - sum(map(len, expected)) / sum(map(len, written))
    return math.exp(mean + min(0.0, shorter))
