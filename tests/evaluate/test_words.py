"""Likeness and analogies: in flat space gensim's to the last digits; curved, by transport."""

import numpy as np
import pytest
import torch

from horosphere.data.corpora import Analogies, WordPairs, read_analogies, read_pairs
from horosphere.errors import UserError
from horosphere.evaluate.words import Lexicon, analogy_accuracy, rank_correlation
from horosphere.geometry import Euclidean, Lorentz, Poincare, lorentz_to_poincare

MANIFOLDS = {"euclidean": Euclidean(), "lorentz": Lorentz(), "poincare": Poincare(0.5)}
manifolds = pytest.mark.parametrize("name", MANIFOLDS)


def some_words():
    pairs, questions = read_pairs("builtin:wordsim353"), read_analogies().questions[:2000]
    words = dict.fromkeys([*pairs.first[:200], *pairs.second[:200], *(word for q in questions[::7] for word in q)])
    return list(words)


@pytest.fixture
def both():
    """Our lexicon and gensim's, of the same vectors."""
    models = pytest.importorskip("gensim.models")
    words = some_words()
    vectors = np.random.default_rng(0).standard_normal((len(words), 8)).astype(np.float32)
    theirs = models.KeyedVectors(8)
    theirs.add_vectors(words, vectors)
    return Lexicon(words, torch.from_numpy(vectors)), theirs


def test_likeness_and_neighbours_are_gensims(both):
    ours, theirs = both
    assert ours.similarity("tiger", "cat") == pytest.approx(float(theirs.similarity("tiger", "cat")), abs=1e-6)
    expected = theirs.most_similar("tiger", topn=5)
    assert [word for word, _ in ours.neighbors("tiger", 5)] == [word for word, _ in expected]
    assert [value for _, value in ours.neighbors("tiger", 5)] == pytest.approx(
        [value for _, value in expected], abs=1e-6
    )


def test_analogies_are_gensims(both):
    ours, theirs = both
    expected = theirs.most_similar(positive=["greece", "cat"], negative=["athens"], topn=4)
    assert [word for word, _ in ours.analogy("athens", "greece", "cat", 4)] == [word for word, _ in expected]


def test_correlation_is_gensims(both):
    from importlib.util import find_spec
    from pathlib import Path

    ours, theirs = both
    folder = Path(find_spec("gensim").origin).parent / "test" / "test_data"
    _, spearman, unknown = theirs.evaluate_word_pairs(str(folder / "wordsim353.tsv"))
    value, share = rank_correlation(ours, read_pairs("builtin:wordsim353"))
    assert value == pytest.approx(spearman[0], abs=1e-6)
    assert share == pytest.approx(1 - unknown / 100)
    right, _ = theirs.evaluate_word_analogies(str(folder / "questions-words.txt"), dummy4unknown=False)
    assert analogy_accuracy(ours, read_analogies())[0] == pytest.approx(right, abs=1e-9)


@manifolds
@pytest.mark.parametrize("likeness", ["cosine", "distance"])
def test_many_at_once_are_one_at_a_time(name, likeness):
    m = MANIFOLDS[name]
    points = m.random(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lexicon = Lexicon(list("abcdef"), points, m, likeness)
    table = lexicon.table(points)
    for i, a in enumerate("abcdef"):
        for j, b in enumerate("abcdef"):
            if i != j:
                assert lexicon.similarity(a, b) == pytest.approx(table[i, j].item(), abs=1e-7)
    near = dict(lexicon.neighbors("a", 9))
    assert list(near) == [lexicon.words[i] for i in table[0, 1:].argsort(descending=True).add(1)]
    question = ("a", "b", "c")
    answer = lexicon.analogy(*question, 1)[0][0]
    assert answer not in question
    wrong = next(word for word in "def" if word != answer)
    asked = Analogies([(*question, answer), (*question, wrong)], ["", ""])
    assert analogy_accuracy(lexicon, asked) == (0.5, 1.0)


@manifolds
def test_a_way_is_carried_along(name):
    """c' is as far from c as b from a; where a and c are one, it is b."""
    m = MANIFOLDS[name]
    a, b, c = m.random(3, 1, 4, std=0.7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lexicon = Lexicon([], torch.empty(0, 4), m, "distance")
    torch.testing.assert_close(m.dist(c, lexicon.carried(a, b, c)), m.dist(a, b))
    torch.testing.assert_close(lexicon.carried(a, b, a), b)


def test_in_flat_space_it_is_a_sum():
    a, b, c = torch.randn(3, 1, 4)
    torch.testing.assert_close(Lexicon([], torch.empty(0, 4), likeness="distance").carried(a, b, c), b - a + c)


def test_the_ball_answers_as_the_hyperboloid():
    L = Lorentz(2.0)
    points = L.random(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    both = (
        Lexicon(list("abcdefghi"), points, L),
        Lexicon(list("abcdefghi"), lorentz_to_poincare(points, 2.0), Poincare(2.0)),
    )
    one, other = (lexicon.analogy("a", "b", "c", 6) for lexicon in both)
    assert [word for word, _ in one] == [word for word, _ in other]
    assert [value for _, value in one] == pytest.approx([value for _, value in other])


def test_unknown_words():
    lexicon = Lexicon(["cat", "dog"], torch.eye(2))
    with pytest.raises(UserError, match=r'"cta" was not learned; .*cat'):
        lexicon.neighbors("cta")
    made = Lexicon(["cat", "dog"], torch.eye(2), unseen=lambda word: torch.ones(2) if len(word) > 3 else None)
    assert made.similarity("cats", "dog") == pytest.approx(0.5**0.5)
    with pytest.raises(UserError, match="not learned"):
        made.point("ca")


def test_too_few_pairs_have_no_correlation():
    lexicon = Lexicon(["a", "b"], torch.eye(2))
    value, share = rank_correlation(lexicon, WordPairs(["a", "x"], ["b", "y"], [1, 2]))
    assert np.isnan(value)
    assert share == 0.5
    assert np.isnan(analogy_accuracy(lexicon, Analogies([("a", "b", "c", "d")], [""]))[0])
