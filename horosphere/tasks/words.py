"""Word vectors from text: which words stand near each other, judged by what people say about words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.corpora import Corpus, are_bundled, read_analogies, read_corpus, read_pairs
from horosphere.data.windows import Noise, Windows, cooccurrence
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.words import Lexicon, analogy_accuracy, rank_correlation
from horosphere.files import digest, write_whole
from horosphere.foreign import LARGE, read_json
from horosphere.memory import keep_what_is_freed
from horosphere.models.weights import begin_with
from horosphere.models.words import FastText, SkipGramConfig, WordModel, WordsConfig
from horosphere.runs import Run
from horosphere.settings import Amount, Count
from horosphere.train.answers import Answers, Said
from horosphere.train.task import Task
from horosphere.train.vectors import Vectors

WORDS, VECTORS = "words.json", "vectors.safetensors"
PROBES = 4  # batches that an evaluation's loss is taken over
PROBED = 2**40  # the first of them, far beyond the steps of a training
SHOWN = (50, 100, 200, 400, 800)  # ranks of the words whose neighbours are shown
JUDGES = {"wordsim": "builtin:wordsim353", "simlex": "builtin:simlex999"}

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class TrainedWords(Lexicon):
    """What was learned, on the CPU: `neighbors`, `similarity`, `analogy`.

    Of fastText also words that were never seen have points.
    """

    network: WordModel | None = None

    def answer(self, inputs: list[str], k: int = 10) -> Answers:
        """The words most like these."""
        sign, score = (-1, "distance") if self.likeness == "distance" else (1, "cosine")
        near: list[list[Said]] = [
            [(other, sign * alike) for other, alike in self.neighbors(word.strip(), k)] for word in inputs
        ]
        return Answers("neighbor", score, inputs, near)


@dataclass(kw_only=True)
class Words(Task[Corpus]):
    """A row is a word of the text with the words around it; for GloVe, a pair of words that meet."""

    kind = "words"
    alone = "the tables of words lie in one process"
    then = "horosphere predict {run} WORD"
    asks = "words"
    best = 10
    metrics = (
        Metric("wordsim", "WordSim-353 ρ", 3, "high", "judged"),
        Metric("simlex", "SimLex-999 ρ", 3, "high"),
        Metric("analogies", "analogies right", 4, "high"),
        Metric("loss", "loss", 4, "low", "detail"),
        Metric("wordsim_share", "pairs of WordSim that are known", 3, "high", "detail"),
        Metric("simlex_share", "pairs of SimLex that are known", 3, "high", "detail"),
        Metric("analogies_share", "analogies that are known", 3, "high", "detail"),
    )

    data: str  # a file or folder of text; builtin:enwiki, builtin:lee
    least: Count = 5  # times that a word must occur; rarer ones are left out
    subsample: Amount = 1e-3  # t: a word whose share f of the text is larger is dropped with 1 - √(t/f); 0: none is

    # -- data and model ---------------------------------------------------------------------------------------------

    def open_data(self) -> Corpus:
        return read_corpus(self.data, self.least)

    def rows(self, data: Corpus) -> int:
        return self._source(data).count

    def facts(self, data: Corpus) -> dict[str, Any]:
        same = digest(*data.words, data.tokens.tobytes(), data.starts.tobytes())
        sizes = {"words": data.read, "kept": len(data), "vocabulary": len(data.words), "sentences": len(data.starts)}
        return {**sizes, "digest": same}

    def build(self, data: Corpus) -> nn.Module:
        model = self.network_for(data.words, data.counts)
        if self.start is not None:
            given = Run.open(self.start, self.kind).load()
            if list(given.words) != data.words:
                raise UserError(f"start={self.start}: a run of other words; give one of the same text and least=")
            begin_with(model, given.network.state_dict(), self.start)
        return model

    def network_for(self, words: list[str], counts: np.ndarray) -> nn.Module:
        make = catalogue.resolve(self.network(self.model).build)
        return cast(nn.Module, make(words, counts, self.configuration()))

    def ready(self, data: Corpus) -> None:
        super().ready(data)
        self.source = self._source(data)
        keep_what_is_freed()  # the gradients of both tables, step by step

    def _source(self, data: Corpus) -> Source:
        config = self.configuration()
        if isinstance(config, SkipGramConfig):
            return WindowSource(data, config, self.subsample)
        return CountSource(data, config, lambda step, rows, count: self.drawn(step, rows, count))

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "words" if isinstance(self.configuration(), SkipGramConfig) else "pairs"

    def begin(self, folder: Path) -> None:
        content = {"words": self.opened.words, "counts": self.opened.counts.tolist()}
        write_whole(folder / WORDS, json.dumps(content, ensure_ascii=False).encode())

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> Batch:
        return self.source.batch(step, rows, self.engine.batch, self.engine.seed)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum over pairs, divided by the number of rows: so it does not depend on how a batch is cut."""
        return model(**batch) / len(next(iter(batch.values()))), {}

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """All rows of both tables take part in a step: one fused pass over them is several times as fast."""
        made = super().optimizer(model)
        for group in made.param_groups:
            if "fused" in group:
                group["fused"] = True
        return made

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """The loss on a few more batches; what people say of words, where gensim's test data are installed."""
        whole = range(self.engine.batch)
        batches = [self.batch(PROBED + probe, whole) for probe in range(PROBES)]
        at = [{name: t.to(self.world.device) for name, t in batch.items()} for batch in batches]
        scores = {"loss": sum(self.loss(model, batch)[0].item() for batch in at) / PROBES}
        if not are_bundled():
            return scores
        lexicon = self.lexicon(cast(WordModel, model), self.opened.words)
        for name, source in JUDGES.items():
            scores[name], scores[f"{name}_share"] = rank_correlation(lexicon, read_pairs(source))
        if last:
            scores["analogies"], scores["analogies_share"] = analogy_accuracy(lexicon, read_analogies())
        return {name: value for name, value in scores.items() if not math.isnan(value)}

    def sample(self, model: nn.Module) -> str | None:
        """Words, from frequent to rare, and their neighbours."""
        lexicon = self.lexicon(cast(WordModel, model), self.opened.words)
        shown = [lexicon.words[rank] for rank in SHOWN if rank < len(lexicon.words)]
        return "\n".join(f"{word}: {', '.join(near for near, _ in lexicon.neighbors(word, 5))}" for word in shown)

    def lexicon(self, model: WordModel, words: list[str]) -> TrainedWords:
        """What a model has learned so far."""
        config: WordsConfig = self.configuration()
        likeness: Any = "distance" if config.score == "distance" else "cosine"
        unseen = model.point_of if isinstance(model, FastText) else None
        with torch.no_grad():
            points = model.vectors().detach()
        return TrainedWords(words, points, model.manifold, likeness, unseen, model)

    # -- a finished run ---------------------------------------------------------------------------------------------

    def export(self, folder: Path, network: nn.Module) -> None:
        with torch.no_grad():
            vectors = cast(WordModel, network).vectors().detach().cpu().contiguous()
        write_whole(folder / VECTORS, save({"vectors": vectors}))
        super().export(folder, network)

    def rebuild(self, run: Run) -> nn.Module:
        return self.network_for(*read_words(run.folder / WORDS))

    def trained(self, network: nn.Module, run: Run) -> TrainedWords:
        model = cast(WordModel, network.requires_grad_(False))
        return self.lexicon(model, read_words(run.folder / WORDS)[0])

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        lexicon: TrainedWords = cls.load(run)
        counts = {"count": read_words(run.folder / WORDS)[1].tolist()}
        return Vectors(lexicon.words, lexicon.points, lexicon.manifold, columns=counts)

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        text = (
            f"{facts['words']:,} words, {facts['vocabulary']:,} of them different and seen {self.least} times or more"
        )
        return [*super().about(facts), ["text", text]]


def read_words(file: Path) -> tuple[list[str], np.ndarray]:
    """The words of a run, and how often each was seen."""
    try:
        content = read_json(file, most=LARGE)
        words, counts = content["words"], content["counts"]
        if len(words) != len(counts) or not all(isinstance(word, str) for word in words):
            raise ValueError("no list of words with their counts")
        return words, np.array([int(count) for count in counts])
    except (ValueError, TypeError, LookupError) as error:
        raise UserError(f"{file}: damaged ({one_line(error)}); train the model again") from error


# -- where batches come from ------------------------------------------------------------------------------------------


class WindowSource:
    """Words with their neighbours, and noise."""

    def __init__(self, corpus: Corpus, config: SkipGramConfig, threshold: float):
        self.count, self.config = len(corpus), config
        self.windows, self.noise = Windows(corpus, config.window, threshold), Noise(corpus.counts)

    def batch(self, step: int, rows: range, size: int, seed: int) -> Batch:
        """centre (R,), context (R, 2·window), noise (K,) for all of them or (P, K), a row for each context."""
        centre, context = self.windows.batch(step * size, range(size), size, (seed, step))
        own, random = slice(rows.start, rows.stop), np.random.default_rng((seed, step, 1))
        if self.config.shared:
            noise = self.noise.draw(random, (self.config.shared,))
        else:  # drawn for the whole batch, so that it does not depend on how a batch is cut
            there = context >= 0
            before, inside = there[: rows.start].sum(), there[own].sum()
            noise = self.noise.draw(random, (there.sum(), self.config.negatives))[before : before + inside]
        arrays = {"centre": centre[own], "context": context[own], "noise": noise}
        return {name: torch.from_numpy(values) for name, values in arrays.items()}


class CountSource:
    """Pairs of words, and how often they meet."""

    def __init__(self, corpus: Corpus, config: WordsConfig, drawn: Callable[[int, range, int], np.ndarray]):
        met = cooccurrence(corpus, config.window).tocoo()
        if not met.nnz:
            raise UserError(
                "no two words of the vocabulary stand near each other; give a longer text, or a smaller least="
            )
        self.word, self.context, self.times = met.row, met.col, met.data.astype(np.float32)
        self.count, self.drawn = met.nnz, drawn

    def batch(self, step: int, rows: range, size: int, seed: int) -> Batch:
        """word (B,), context (B,), count (B,)"""
        chosen = self.drawn(step, rows, self.count)
        arrays = {"word": self.word[chosen].astype(np.int64), "context": self.context[chosen].astype(np.int64)}
        return {name: torch.from_numpy(values) for name, values in {**arrays, "count": self.times[chosen]}.items()}


Source = WindowSource | CountSource
