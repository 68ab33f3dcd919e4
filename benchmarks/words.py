"""Skip-gram: words a second beside gensim, one and two threads, on the same text in one run; and how good each is.

    python benchmarks/words.py [--rounds 3] [--epochs 8]

Both learn from the Wikipedia that comes with gensim: 100 dimensions, windows of 5, 5 noise words a pair, the same
words dropped as often. Ours is the recipe as it stands, through the engine with its checks and logs. Times are those of
training alone. Rounds take turns, and the best of each is shown: others on the machine only ever slow it down. On a
machine with others, seconds of the processor say more than those of the clock.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from gensim.models import Word2Vec
from scipy.optimize import brentq

from horosphere.data.corpora import Corpus, corpus_of, read_pairs, sentences
from horosphere.data.windows import keep_probability
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.words import Lexicon, rank_correlation
from horosphere.runs import Run
from horosphere.tables import table_lines
from horosphere.tasks.words import PROBED, WindowSource
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

TEXT = "builtin:enwiki"
THREADS = (1, 2)
GENSIM = "gensim"
OURS = {"horosphere": (), "horosphere, shared noise": ("shared=64",), "horosphere, lorentz": ("geometry=lorentz",)}


@dataclass(frozen=True)
class Result:
    pace: float  # words a second by the clock
    work: float  # words a second of processor time
    rho: float  # of Spearman, on WordSim-353


def ours(epochs: int, seed: int, *more: str) -> Result:
    """Timed from step 50 on, when all is compiled, to the last."""
    stamps: list[tuple[float, float]] = []
    batch = WindowSource.batch

    def timed(source: WindowSource, step: int, *how: Any) -> dict[str, torch.Tensor]:
        if step < PROBED:  # later ones are the evaluation's
            stamps.append((time.perf_counter(), time.process_time()))
        return batch(source, step, *how)

    settings = [f"epochs={epochs}", f"seed={seed}", "save_every=100000", *more]
    with tempfile.TemporaryDirectory() as folder, patch.object(WindowSource, "batch", timed):
        recipe = Recipe.read("skip-gram", settings)
        train(recipe, Place(Path(folder, "run"), quiet=True), "cpu")
        rho = Run.open(Path(folder, "run")).scores()["wordsim"]
    words = recipe.engine.batch * (len(stamps) - 51)
    clock, processor = (words / (last - first) for first, last in zip(stamps[50], stamps[-1], strict=True))
    return Result(clock, processor, rho)


def theirs(texts: list[list[str]], corpus: Corpus, epochs: int, seed: int, threads: int) -> Result:
    model = Word2Vec(vector_size=100, window=5, negative=5, min_count=5, sg=1, workers=threads, seed=seed)
    model.sample = sample_of_gensim(corpus)
    model.build_vocab(texts)
    begin, work = time.perf_counter(), time.process_time()
    model.train(texts, total_examples=model.corpus_count, epochs=epochs)
    clock, processor = time.perf_counter() - begin, time.process_time() - work
    lexicon = Lexicon(model.wv.index_to_key, torch.from_numpy(model.wv.vectors))
    rho, _ = rank_correlation(lexicon, read_pairs("builtin:wordsim353"))
    return Result(epochs * len(corpus) / clock, epochs * len(corpus) / processor, rho)


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
    found: dict[tuple[str, int], list[Result]] = {}
    for seed in range(asked.rounds):
        for threads in THREADS:
            torch.set_num_threads(threads)
            for name, more in OURS.items():
                found.setdefault((name, threads), []).append(ours(asked.epochs, seed, *more))
            found.setdefault((GENSIM, threads), []).append(theirs(texts, corpus, asked.epochs, seed, threads))
    print(f"{len(corpus):,} words of {len(corpus.words):,}, {asked.epochs} epochs, the best of {asked.rounds} rounds")
    heads = ["", "threads", "words/s", "to gensim", "words/s of processor", "to gensim", "WordSim ρ"]
    print("\n".join(table_lines(heads, [row(*who, results, found[GENSIM, who[1]]) for who, results in found.items()])))


def row(name: str, threads: int, results: list[Result], gensim: list[Result]) -> list[str]:
    cells = []
    for what in ("pace", "work"):
        own, other = (max(getattr(result, what) for result in side) for side in (results, gensim))
        cells += [f"{own:,.0f}", f"{own / other:.2f}"]
    return [name, str(threads), *cells, Metric("rho", "", 3, "high").cell([result.rho for result in results])]


if __name__ == "__main__":
    main()
