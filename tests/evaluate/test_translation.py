"""Scores of sentences against their references, and torchmetrics' on the same ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.evaluate.translation import bleu, exact_match

SENTENCES = st.lists(st.lists(st.sampled_from("abc"), max_size=9), min_size=1, max_size=6)


@given(SENTENCES)
def test_what_is_right_is_perfect(sentences):
    assert exact_match(sentences, sentences) == 1
    assert bleu(sentences, sentences) == (1 if any(len(s) > 3 for s in sentences) else 0)


@settings(deadline=None)  # torchmetrics takes seconds to import
@given(SENTENCES, st.randoms())
def test_bleu_is_that_of_torchmetrics(expected, random):
    text = pytest.importorskip("torchmetrics.functional.text")
    written = [[*random.sample(sentence, random.randint(0, len(sentence))), "a"] for sentence in expected]
    theirs = text.bleu_score([" ".join(s) for s in written], [[" ".join(s)] for s in expected])
    assert bleu(written, expected) == pytest.approx(theirs.item(), abs=1e-6)


def test_exact_match_is_of_whole_sentences():
    assert exact_match([[1, 2], [3], [], [4, 5]], [[1, 2], [3, 4], [], [4, 6]]) == 0.5
    assert exact_match([], []) == 0


def test_as_many_must_be_written_as_expected():
    for score in (bleu, exact_match):
        with pytest.raises(ValueError, match="argument 2 is longer"):
            score([[1]], [[1], [2]])
