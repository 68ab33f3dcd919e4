"""Skip-gram: words a second beside gensim, one and two threads, on the same text in one run; and how good each is.

    python benchmarks/words.py [--rounds 3] [--epochs 8]

Both learn from the Wikipedia that comes with gensim: 100 dimensions, windows of 5, 5 noise words a pair, the same
words dropped as often. Ours is the recipe as it stands, through the engine with its checks and logs. Times are those of
training alone. Rounds take turns, and the best of each is shown: others on the machine only ever slow it down.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from gensim.models import Word2Vec
from scipy.optimize import brentq

from horosphere.data.corpora import Corpus, corpus_of, read_pairs, sentences
from horosphere.data.windows import keep_probability
from horosphere.evaluate.words import Lexicon, rank_correlation
from horosphere.runs import Run
from horosphere.tables import table_lines
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

TEXT = "builtin:enwiki"
THREADS = (1, 2)
GENSIM = "gensim"
OURS = {"horosphere": (), "horosphere, own noise": ("shared=0",), "horosphere, lorentz": ("geometry=lorentz",)}


def ours(epochs: int, seed: int, *more: str) -> tuple[float, float]:
    """Words a second, and Spearman's ρ on WordSim-353."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"epochs={epochs}", f"seed={seed}", "save_every=100000", *more]
        train(Recipe.read("skip-gram", settings), Place(Path(folder, "run"), quiet=True), "cpu")
        run = Run.open(Path(folder, "run"))
        paces = [line["words_per_second"] for line in run.lines() if "words_per_second" in line]
        return statistics.harmonic_mean(paces[1:]), run.scores()["wordsim"]  # the first has the start in it


def theirs(texts: list[list[str]], corpus: Corpus, epochs: int, seed: int, threads: int) -> tuple[float, float]:
    model = Word2Vec(vector_size=100, window=5, negative=5, min_count=5, sg=1, workers=threads, seed=seed)
    model.sample = sample_of_gensim(corpus)
    model.build_vocab(texts)
    begin = time.perf_counter()
    model.train(texts, total_examples=model.corpus_count, epochs=epochs)
    seconds = time.perf_counter() - begin
    lexicon = Lexicon(model.wv.index_to_key, torch.from_numpy(model.wv.vectors))
    return epochs * len(corpus) / seconds, rank_correlation(lexicon, read_pairs("builtin:wordsim353"))[0]


def sample_of_gensim(corpus: Corpus, threshold: float = 1e-3) -> float:
    """The threshold with which gensim, whose rule is √(t/f) + t/f, keeps as many words as our √(t/f)."""
    counts = corpus.counts
    kept = (counts * keep_probability(counts, threshold)).sum()

    def excess(t: float) -> float:
        ratio = t * counts.sum() / counts
        return float((counts * (ratio**0.5 + ratio).clip(max=1)).sum() - kept)

    return float(brentq(excess, threshold / 100, threshold))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    asked = parser.parse_args()
    texts = list(sentences(TEXT))
    corpus = corpus_of(texts, least=5)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for seed in range(asked.rounds):
        for threads in THREADS:
            torch.set_num_threads(threads)
            for name, more in OURS.items():
                found.setdefault((name, threads), []).append(ours(asked.epochs, seed, *more))
            found.setdefault((GENSIM, threads), []).append(theirs(texts, corpus, asked.epochs, seed, threads))
    rows = []
    for (name, threads), values in found.items():
        paces, scores = zip(*values, strict=True)
        base = max(pace for pace, _ in found[GENSIM, threads])
        spread = f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
        rows.append(
            [
                name,
                str(threads),
                f"{max(paces):,.0f}",
                f"{max(paces) / base:.2f}",
                f"{statistics.fmean(scores):.3f}{spread}",
            ]
        )
    print(f"{len(corpus):,} words of {len(corpus.words):,}, {asked.epochs} epochs, the best of {asked.rounds} rounds")
    print("\n".join(table_lines(["", "threads", "words/s", "to gensim", "WordSim ρ"], rows)))


if __name__ == "__main__":
    main()
