"""N-grams: what they say sums to 1, and on Python's help it is as good as published."""

import math

import numpy as np
import pytest

from horosphere.data.text import documents
from horosphere.errors import UserError
from horosphere.models.ngram import NGram


def test_probabilities_sum_to_one_after_anything():
    random = np.random.default_rng(0)
    model = NGram(random.integers(0, 5, 200), size=6)  # the last token never occurs
    for before in [(0, 1), (4, 4), (5, 0), (0, 5), (5, 5)]:
        sums = [sum(model.probabilities(np.array([*before, x]))[n][-1] for x in range(6)) for n in range(3)]
        assert sums == pytest.approx([1, 1, 1], abs=1e-12)


def test_the_formula_by_hand():
    """P(x'' | x, x') = (n + ε₃ P(x'' | x'))/(n(x, x') + ε₃)"""
    tokens = [0, 1, 2, 0, 1, 1, 0, 1, 2]
    uni = {x: (tokens.count(x) + 1 / 3) / (9 + 1) for x in range(3)}
    pairs = [tuple(tokens[i : i + 2]) for i in range(8)]
    triples = [tuple(tokens[i : i + 3]) for i in range(7)]
    followed = [a for a, _ in pairs].count(1)
    bi = (pairs.count((1, 2)) + 5 * uni[2]) / (followed + 5)
    tri = (triples.count((0, 1, 2)) + 5 * bi) / (len([t for t in triples if t[:2] == (0, 1)]) + 5)
    got = NGram(np.array(tokens), 3).probabilities(np.array([0, 1, 2]))
    assert (got[0][2], got[1][1], got[2][0]) == pytest.approx((uni[2], bi, tri))


def test_pythons_help_costs_what_it_should():
    (known,), (held_out,) = (list(documents(name)) for name in ("topics", "topics-held-out"))
    text = known + held_out
    if len(text) != 464_970:
        pytest.skip("another version of Python's help")
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    assert len(numbers) == 103
    tokens = np.array([numbers[c] for c in text])
    found = NGram(tokens[: len(known)], 103).perplexities(tokens[len(known) :])
    assert found == pytest.approx({"unigram": 25.47, "bigram": 10.18, "trigram": 5.625}, abs=0.01)


def test_wrong_tokens_are_refused_in_one_line():
    for tokens, size in (([], 3), ([0, 3], 3), ([-1, 0], 3)):
        with pytest.raises(UserError, match="give some, numbered from 0"):
            NGram(np.array(tokens, dtype=np.int64), size)
    with pytest.raises(UserError, match="too many to number"):
        NGram(np.array([0, 1]), 10**7)
    assert math.isfinite(NGram(np.array([0]), 2).perplexities(np.array([0, 1, 1]))["trigram"])
