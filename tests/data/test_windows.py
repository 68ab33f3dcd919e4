"""Neighbours, noise, counts and trees, each against the few lines that say what it is."""

import heapq

import numpy as np
import pytest
from scipy.stats import chisquare

from horosphere.data import windows
from horosphere.data.corpora import corpus_of
from horosphere.data.windows import Noise, Windows, cooccurrence, huffman, keep_probability

SENTENCES = [list("abcdefgh"), list("hgfa"), list("b"), list("cabbage")]


@pytest.fixture
def corpus():
    return corpus_of(SENTENCES)


def stream(made, steps, size, seed=0):
    parts = [made.batch(step * size, range(size), size, (seed, step)) for step in range(steps)]
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def test_a_pass_has_each_place_once(corpus, monkeypatch):
    monkeypatch.setattr(windows, "PIECE", 6)
    made = Windows(corpus, 2)
    length = int(np.diff(made.edges).max())
    one = length * (len(made.edges) - 1)
    first, second = made.places(0, one, 0), made.places(one, 2 * one, 0)
    for places in (first, second):
        assert sorted(places[places >= 0]) == list(range(len(corpus)))
        assert (places < 0).sum() < len(made.edges)
    assert not np.array_equal(first, second)
    assert np.array_equal(made.places(3, 11, 0), first[3:11])


def test_neighbours_are_those_of_the_sentence_within_the_window(corpus):
    """By two loops over the sentences."""
    made = Windows(corpus, 3)
    centre, context = made.batch(0, range(len(corpus)), len(corpus), (0, 5))
    reach = np.random.default_rng((0, 5))
    reach.random(len(corpus))
    reach = reach.integers(1, 4, len(corpus))
    expected, place = [], 0
    for sentence in SENTENCES:
        numbers = [corpus.words.index(word) for word in sentence]
        for i in range(len(numbers)):
            there = range(max(0, i - reach[place]), min(len(numbers), i + reach[place] + 1))
            expected.append([numbers[j] for j in there if j != i])
            place += 1
    assert centre.tolist() == corpus.tokens.tolist()
    assert [row[row >= 0].tolist() for row in context] == expected


def test_rows_are_slices_of_the_whole_batch(corpus):
    made = Windows(corpus, 2, threshold=0.05)
    whole = made.batch(7, range(8), 8, (1, 2))
    parts = [made.batch(7, range(i, i + 2), 8, (1, 2)) for i in range(0, 8, 2)]
    for a, b in zip(whole, zip(*parts, strict=True), strict=True):
        assert np.array_equal(a, np.concatenate(b))


def test_window_sizes_are_uniform():
    made = Windows(corpus_of([["a", "b"] * 5000]), 4)
    _, context = stream(made, 4, 2000)
    inner = (context >= 0).sum(1)
    counts = np.bincount(inner // 2, minlength=5)[1:]
    assert chisquare(counts).pvalue > 1e-3


def test_frequent_words_are_dropped_before_windows():
    """Between a and b stand three x. Where all of them are dropped, a and b are neighbours."""
    corpus = corpus_of([(["x"] * 20 + ["a"] + ["x"] * 3 + ["b"]) * 200])
    x, a, b = (corpus.words.index(word) for word in "xab")
    keep = keep_probability(corpus.counts, 0.04)
    assert keep.tolist() == pytest.approx([(0.04 / 0.92) ** 0.5, 1, 1])
    centre, context = stream(Windows(corpus, 1, threshold=0.04), 5, 1000)
    assert (centre == x).sum() == pytest.approx(4600 * keep[x], rel=0.15)
    after = context[centre == a, 1]
    assert (after == b).mean() == pytest.approx((1 - keep[x]) ** 3, abs=0.12)


def test_a_dropped_word_has_no_neighbours_and_is_none():
    corpus = corpus_of([["a"] * 100 + ["b"]])
    centre, context = Windows(corpus, 2, threshold=1e-6).batch(0, range(101), 101, (0, 0))
    assert (centre < 0).sum() > 80
    assert (context[centre < 0] == -1).all()
    assert not set(context[context >= 0]) - {0, 1}


def test_noise_is_drawn_by_counts_to_three_quarters():
    counts = np.array([1000, 400, 120, 35, 10, 3, 1])
    noise = Noise(counts)
    drawn = np.bincount(noise.draw(np.random.default_rng(0), (200, 500)).ravel(), minlength=7)
    expected = counts**0.75 / (counts**0.75).sum()
    assert noise.probability == pytest.approx(expected)
    assert chisquare(drawn, expected * drawn.sum()).pvalue > 1e-3


@pytest.mark.parametrize("counts", [[5], [1, 1, 1], [1, 10**9]])
def test_noise_of_few_words(counts):
    drawn = Noise(np.array(counts)).draw(np.random.default_rng(0), (1000,))
    assert drawn.min() >= 0
    assert drawn.max() < len(counts)


@pytest.mark.parametrize("chunk", [3, 1000])
def test_cooccurrence_is_a_double_loop(corpus, monkeypatch, chunk):
    monkeypatch.setattr(windows, "CHUNK", chunk)
    expected = np.zeros((len(corpus.words),) * 2)
    for sentence in SENTENCES:
        numbers = [corpus.words.index(word) for word in sentence]
        for i, a in enumerate(numbers):
            for j, b in enumerate(numbers):
                if i != j and abs(i - j) <= 3:
                    expected[a, b] += 1 / abs(i - j)
    assert cooccurrence(corpus, 3).toarray() == pytest.approx(expected)


def test_cooccurrence_within_whole_sentences_is_a_product():
    """XᵀX of the counts of words in sentences, without each word with itself."""
    corpus = corpus_of([list("abc"), list("cd"), list("bd")])
    counts = np.zeros((3, 4))
    for row, sentence in enumerate(np.split(corpus.tokens, corpus.starts[1:])):
        counts[row] = np.bincount(sentence, minlength=4)
    product = counts.T @ counts
    np.fill_diagonal(product, 0)
    assert np.array_equal(cooccurrence(corpus, 10, by_distance=False).toarray(), product)


# -- the tree ---------------------------------------------------------------------------------------------------------


def least_cost(counts):
    """Σ count·depth of the best tree: the sum of all inner nodes."""
    heap, cost = list(counts), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    return cost


@pytest.mark.parametrize("counts", [[3, 1], [9, 5, 4, 3, 2, 1, 1], [1] * 8, list(range(40, 0, -1))])
def test_the_tree_is_huffmans(counts):
    nodes, signs = huffman(counts)
    length = (signs != 0).sum(1)
    assert (length * np.array(counts)).sum() == least_cost(counts)
    assert sum(2.0**-length) == 1  # every inner node has two children
    assert (nodes[:, 0] == len(counts) - 2).all()  # the root
    assert ((nodes >= 0) == (signs != 0)).all()
    assert set(nodes[nodes >= 0]) == set(range(len(counts) - 1))
    ways = {tuple(zip(n, s, strict=True)) for n, s in zip(nodes.tolist(), signs.tolist(), strict=True)}
    assert len(ways) == len(counts)
