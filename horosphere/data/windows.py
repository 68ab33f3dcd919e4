"""What word vectors learn from: words and their neighbours, noise, counts of neighbours, a tree over the words.

All of it is vectorised, and what is drawn is a function of the seed and the place.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from horosphere.data.corpora import Corpus
from horosphere.data.order import shuffled

PIECE = 512  # words of a text that are learned from one after the other; word2vec cuts its sentences at 1,000
CHUNK = 1 << 20  # words whose neighbours are counted at once


class Windows:
    """Words of a corpus with their neighbours. Pieces of the text come in a new order in each pass.

    Frequent words are dropped with probability max(1 - √(t/f), 0), f their share of the text, before neighbours are
    looked for. So the window reaches farther where words were dropped. Its size is drawn from 1 to `window`.

    >>> from horosphere.data.corpora import corpus_of
    >>> windows = Windows(corpus_of([["a", "b", "c"]]), window=1)
    >>> windows.batch(first=0, rows=range(3), size=3, seed=(0, 0))
    (array([0, 1, 2]), array([[-1,  1],
           [ 0,  2],
           [ 1, -1]]))
    """

    def __init__(self, corpus: Corpus, window: int, threshold: float = 0.0):
        self.tokens, self.window = corpus.tokens, window
        self.kept = keep_probability(corpus.counts, threshold)
        self.begins = np.zeros(len(corpus), dtype=bool)
        self.begins[corpus.starts] = True
        pieces = -(-len(corpus) // PIECE)
        self.edges = np.arange(pieces + 1) * len(corpus) // pieces  # pieces of as many words, but for one

    def places(self, first: int, last: int, seed: int) -> np.ndarray:
        """Numbers first … last - 1 of the endless stream of places in the text, piece by piece; -1: a filler.

        -> (last - first,)
        """
        pieces = len(self.edges) - 1
        length = int(np.diff(self.edges).max())
        begin, end = first // length, -(-last // length)
        order = shuffled(pieces, begin, end, seed)
        places = self.edges[order][:, None] + np.arange(length)
        places[places >= self.edges[order + 1][:, None]] = -1
        return places.reshape(-1)[first - begin * length : last - begin * length]

    def batch(self, first: int, rows: range, size: int, seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Some rows of a batch of `size` words from the stream: words (R,), neighbours (R, 2·window), -1 for none.

        Where a word was dropped, it is -1 and has no neighbours. What is drawn is drawn for the whole batch.
        """
        random = np.random.default_rng(seed)
        places = self.places(first, first + size, seed[0])
        words = self.tokens[places].astype(np.int64)
        chosen = (random.random(size) < self.kept[words]) & (places >= 0)
        reach = random.integers(1, self.window + 1, size)
        breaks = self.begins[places]
        breaks[1:] |= places[1:] != places[:-1] + 1
        near = _neighbours(words[chosen], np.cumsum(breaks)[chosen], reach[chosen], self.window)
        centre, context = np.full(size, -1), np.full((size, 2 * self.window), -1)
        centre[chosen], context[chosen] = words[chosen], near
        return centre[rows.start : rows.stop], context[rows.start : rows.stop]


def _neighbours(words: np.ndarray, sentence: np.ndarray, reach: np.ndarray, window: int) -> np.ndarray:
    """Words at most `reach` away in the same sentence, -1 elsewhere.   (M,), (M,), (M,) -> (M, 2·window)"""
    offsets = np.concatenate([np.arange(-window, 0), np.arange(1, window + 1)])
    edge = np.full(window, -1)
    padded, of = np.concatenate([edge, words, edge]), np.concatenate([edge, sentence, edge])
    there = np.arange(len(words))[:, None] + (offsets + window)
    found = (of[there] == sentence[:, None]) & (np.abs(offsets) <= reach[:, None])
    return np.where(found, padded[there], -1)


def keep_probability(counts: np.ndarray, threshold: float) -> np.ndarray:
    """min(√(t/f), 1), f the share of a word in the text; 1 without a threshold.   (V,) -> (V,)

    >>> keep_probability(np.array([99, 1]), 0.01).round(2)
    array([0.1, 1. ])
    """
    return np.minimum(np.sqrt(threshold * counts.sum() / counts), 1.0) if threshold else np.ones(len(counts))


class Noise:
    """Draws words with probability ∝ count^power by Walker's alias method: two looks into a table a word.

    >>> Noise(np.array([16, 1])).probability.round(3)
    array([0.889, 0.111])
    """

    def __init__(self, counts: np.ndarray, power: float = 0.75):
        weights = counts.astype(np.float64) ** power
        self.probability = weights / weights.sum()
        share = (self.probability * len(counts)).tolist()
        self.other, self.own = np.arange(len(counts)), np.ones(len(counts))
        small = [i for i, s in enumerate(share) if s < 1]
        large = [i for i, s in enumerate(share) if s >= 1]
        while small and large:
            low, high = small.pop(), large[-1]
            self.own[low], self.other[low] = share[low], high
            share[high] -= 1 - share[low]
            if share[high] < 1:
                small.append(large.pop())

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        place = random.random(shape) * len(self.own)
        word = place.astype(np.int64)
        return np.where(place - word < self.own[word], word, self.other[word])


def cooccurrence(corpus: Corpus, window: int, by_distance: bool = True) -> sparse.csr_array:
    """How often words stand at most `window` apart in a sentence, a pair at distance k as 1/k.   -> (V, V) symmetric

    >>> from horosphere.data.corpora import corpus_of
    >>> cooccurrence(corpus_of([["a", "b", "c"]]), window=2).toarray()
    array([[0. , 1. , 0.5],
           [1. , 0. , 1. ],
           [0.5, 1. , 0. ]])
    """
    size = len(corpus.words)
    begins = np.zeros(len(corpus), dtype=np.int64)
    begins[corpus.starts] = 1
    sentence = np.cumsum(begins)
    total = sparse.csr_array((size, size))
    for start in range(0, len(corpus), CHUNK):
        first = np.arange(start, min(start + CHUNK, len(corpus)))
        for distance in range(1, window + 1):
            i = first[first + distance < len(corpus)]
            i = i[sentence[i] == sentence[i + distance]]
            weight = np.full(len(i), 1 / distance if by_distance else 1.0)
            total = total + sparse.coo_array(
                (weight, (corpus.tokens[i], corpus.tokens[i + distance])), shape=(size, size)
            )
    return sparse.csr_array(total + total.T)


def huffman(counts: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A binary tree over words in which the frequent ones lie high: the way to each word from the root.

    (V,) -> inner nodes (V, L) numbered 0 … V - 2, the root last, and signs (V, L): 1 for left, -1 for right, 0 for none

    >>> nodes, signs = huffman([5, 2, 1])
    >>> nodes, signs
    (array([[ 1, -1],
           [ 1,  0],
           [ 1,  0]]), array([[ 1,  0],
           [-1,  1],
           [-1, -1]]))
    """
    words = len(counts)
    heap = [(int(count), -number) for number, count in enumerate(counts)]  # of equals, the last word first
    heapq.heapify(heap)
    parent, side = np.zeros(2 * words - 1, dtype=np.int64), np.zeros(2 * words - 1, dtype=np.int64)
    for inner in range(words, 2 * words - 1):
        (rare, right), (less, left) = heapq.heappop(heap), heapq.heappop(heap)
        parent[-right], side[-right] = inner, -1
        parent[-left], side[-left] = inner, 1
        heapq.heappush(heap, (rare + less, -inner))
    return _ways(parent, side, words)


def _ways(parent: np.ndarray, side: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    """All words climb to the root together; then each way is turned around."""
    root = 2 * words - 2
    at, nodes, signs = np.arange(words), [], []
    while (climbing := at != root).any():
        signs.append(np.where(climbing, side[at], 0))
        at = np.where(climbing, parent[at], root)
        nodes.append(np.where(climbing, at - words, -1))
    length = np.count_nonzero(np.array(signs), axis=0)
    turned = length[:, None] - 1 - np.arange(len(nodes))
    rows, there = np.arange(words)[:, None], turned >= 0
    ways = [np.array(steps).T[rows, np.maximum(turned, 0)] for steps in (nodes, signs)]
    return np.where(there, ways[0], -1), np.where(there, ways[1], 0)
