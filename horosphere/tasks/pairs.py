"""Translation of sentences, and whatever else becomes another sequence: the true tokens before each go in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.order import Part, evenly, half
from horosphere.data.pairs import SIDES, PairData, PairOptions, open_pairs
from horosphere.data.vocabulary import (
    BEGIN,
    END,
    PAD,
    UNKNOWN,
    Vocabulary,
    padded,
    read_vocabularies,
    write_vocabularies,
)
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.translation import bleu, exact_match
from horosphere.files import digest
from horosphere.models.decode import beam_search, greedy
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.settings import Count, Few, Size
from horosphere.train.answers import Answers, require_one
from horosphere.train.distributed import gather
from horosphere.train.task import Task

AT_ONCE = 256  # pairs that are judged at once
SHOWN = 3  # pairs of a sample
MISSING = -1  # what stands for an unknown token that was expected: nothing that is written equals it


class Translator(Protocol):
    """What every model of pairs is called with: tokens (B, S), (B,), (B, T) -> logits (B, T, V); and step by step."""

    def __call__(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor: ...

    def encode(self, source: Tensor, lengths: Tensor) -> Any:
        """What `step` begins with."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits of the next tokens after these.   (B,), state -> (B, V), state"""


@dataclass(frozen=True, eq=False)
class TrainedPairs:
    """A network on the CPU and in eval mode, and its vocabularies."""

    network: nn.Module
    vocabularies: dict[str, Vocabulary]
    length: int  # most tokens that it was trained to read and to write
    beams: int = 1

    @torch.no_grad()
    def translate(self, texts: Sequence[str]) -> list[str]:
        if isinstance(texts, str):  # a sequence too, of letters
            raise UserError(f'translate("{one_line(texts, 40)}"): texts come in a list; write translate(["…"])')
        if not texts:
            return []
        rows = [[*self.vocabularies["source"].encode(text)[: self.length], END] for text in texts]
        source = torch.from_numpy(padded(rows, max(map(len, rows))))
        written = written_by(cast(Translator, self.network), source, (source != PAD).sum(1), self.length, self.beams)
        return [self.vocabularies["target"].decode(row) for row in written]

    def answer(self, inputs: list[str], k: int = 1) -> Answers:
        """The translation of each text."""
        require_one(k, "translation")
        parts = (inputs[i : i + AT_ONCE] for i in range(0, len(inputs), AT_ONCE))
        written = [text for part in parts for text in self.translate(part)]
        return Answers("translation", None, inputs, [[(text, None)] for text in written])


@dataclass(kw_only=True)
class Pairs(Task[PairData]):
    """A row is a pair. Padding costs nothing."""

    kind = "pairs"
    unit = "pairs"
    then = 'horosphere predict {run} "A TEXT"'
    asks = "texts"
    no_settings = Task.no_settings | {"vocabularies"}
    metrics = (
        Metric("exact", "exact match", 4, "high", "judged"),
        Metric("bleu", "BLEU", 4, "high", "judged"),
        Metric("token_accuracy", "tokens right", 4, "high", "shown", "after the true tokens"),
        Metric("perplexity", "perplexity", 2, "low", "shown"),
    )

    data: str  # a .tsv of two columns; two files, as in a.en,a.fr; builtin:django+sphinx-fr (es, de, …), builtin:copy
    valid: str | None = None  # a source of its own; none: a tenth of the data is held out
    tokens: Literal["words", "characters"] = "words"  # what sentences are made of
    least: Count = 1  # times that a token must occur; what is rarer is unknown
    length: Size = 32  # most tokens of a sentence; longer pairs are left out
    beams: Few = 1  # sentences that are followed at a time when one is written; 1: the likeliest token each time
    eval_rows: Count = 256  # pairs judged while training; at the end all are
    vocabularies: Mapping[str, Vocabulary] | None = field(default=None, repr=False, compare=False)  # of a run

    # -- data and model ---------------------------------------------------------------------------------------------

    def open_data(self) -> PairData:
        how = PairOptions(self.tokens, self.least, self.length)
        return open_pairs(self.data, self.valid, how, self.vocabularies)

    def parted(self, data: PairData, part: Part) -> PairData:
        return replace(data, valid=half(data.valid, part))

    def rows(self, data: PairData) -> int:
        return len(data.train)

    def facts(self, data: PairData) -> dict[str, Any]:
        known = {side: len(vocabulary) for side, vocabulary in data.vocabularies.items()}
        arrays = (data.source, data.target, data.train, data.valid)
        same = digest(*(v.digest() for v in data.vocabularies.values()), *(array.tobytes() for array in arrays))
        sizes = {"train": len(data.train), "valid": len(data.valid), "too_long": data.too_long}
        return {"pairs": sizes, "vocabulary": known, "digest": same}

    def build(self, data: PairData) -> nn.Module:
        model = self.network_for(data.vocabularies)
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def network_for(self, vocabularies: Mapping[str, Vocabulary]) -> nn.Module:
        make = catalogue.resolve(self.network(self.model).build)
        return cast(nn.Module, make(*(len(vocabularies[side]) for side in SIDES), self.configuration()))

    def ready(self, data: PairData) -> None:
        super().ready(data)
        written = (data.target[data.train, 1:] != PAD).sum(1)
        self.mean_length, self.tokens_of_rows = float(written.mean()), data.lengths(data.train) + written

    def begin(self, folder: Path) -> None:
        write_vocabularies(folder, self.opened.vocabularies)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """source (B, S), lengths (B,), target (B, T) with begin and end. S and T are the longest of the whole step."""
        together = self.opened.train[self.drawn_alike(step, self.tokens_of_rows)]
        return self._tensors(together[rows.start : rows.stop], together)

    def _tensors(self, rows: np.ndarray, together: np.ndarray) -> dict[str, Tensor]:
        """Of these rows, as wide as the longest of all that belong `together`."""
        data = self.opened
        read, written = data.lengths(together).max(), (data.target[together] != PAD).sum(1).max()
        arrays = {"source": data.source[rows, :read], "target": data.target[rows, :written]}
        return {name: torch.from_numpy(a) for name, a in (*arrays.items(), ("lengths", data.lengths(rows)))}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over tokens, with a fixed number of them a row: so it does not depend on how a batch is cut."""
        nats = token_costs(model(batch["source"], batch["lengths"], batch["target"][:, :-1]), batch["target"][:, 1:])
        return nats.sum() / (len(nats) * self.mean_length), {}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Every process judges all pairs alike. An unknown token that was expected is never right."""
        rows = self.opened.valid if last else evenly(self.opened.valid, self.eval_rows)
        sums, written = np.zeros(3), list[list[int]]()
        for part in (rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE)):
            batch = {name: t.to(self.world.device) for name, t in self._tensors(part, part).items()}
            logits, labels = model(batch["source"], batch["lengths"], batch["target"][:, :-1]), batch["target"][:, 1:]
            right = (logits.argmax(-1) == labels) & (labels != PAD) & (labels != UNKNOWN)
            counts = (token_costs(logits, labels).sum(), right.sum(), (labels != PAD).sum())
            sums += [float(count) for count in counts]
            written += self._written(model, batch)
        loss, accuracy = sums[0] / sums[2], sums[1] / sums[2]
        scores = {"loss": loss, "perplexity": float(np.exp(min(loss, 700))), "token_accuracy": accuracy}
        return {**scores, **sentence_scores(written, self._expected(rows))}

    def _written(self, model: nn.Module, batch: dict[str, Tensor]) -> list[list[int]]:
        gather(model)
        return written_by(cast(Translator, model), batch["source"], batch["lengths"], self.length, self.beams)

    def _expected(self, rows: np.ndarray) -> list[list[int]]:
        """The targets that belong to rows, without begin, end and padding."""
        targets = self.opened.target[rows, 1:]
        kept = [row[(row != PAD) & (row != END)] for row in targets]
        return [np.where(row == UNKNOWN, MISSING, row).tolist() for row in kept]

    def sample(self, model: nn.Module) -> str:
        """Pairs that were held out, and what becomes of them."""
        rows = evenly(self.opened.valid, SHOWN)
        batch = {name: t.to(self.world.device) for name, t in self._tensors(rows, rows).items()}
        written = self._written(model, batch)
        source, target = (self.opened.vocabularies[side] for side in SIDES)
        read, true = (values[rows].tolist() for values in (self.opened.source, self.opened.target))
        lines = zip(read, written, true, strict=True)
        return "\n".join(f"{source.decode(a)} -> {target.decode(b)}  (true: {target.decode(c)})" for a, b, c in lines)

    def baselines(self) -> dict[str, dict[str, float]]:
        """What can be had without learning: the source itself, the target of the nearest source, the usual target."""
        data, held = self.opened, self.opened.valid
        source, target = (data.vocabularies[side] for side in SIDES)
        numbers = np.array([target.numbers.get(token, UNKNOWN) for token in source.tokens])
        copied = [numbers[row[row != PAD][:-1]].tolist() for row in data.source[held]]
        learned = self._expected(data.train)
        usual = list(Counter(map(tuple, learned)).most_common(1)[0][0])
        nearest = [learned[place] for place in nearest_rows(data.source[held], data.source[data.train])]
        written = {"the nearest source's target": nearest, "the source copied": copied}
        written |= {"the most frequent target": [usual] * len(held)}
        return {name: sentence_scores(rows, self._expected(held)) for name, rows in written.items()}

    # -- the network of a run ---------------------------------------------------------------------------------------

    @classmethod
    def of(cls, run: Run) -> Task[Any]:
        """With the vocabularies of the run: other data are read in them."""
        return replace(cast(Pairs, super().of(run)), vocabularies=read_vocabularies(run.folder, SIDES))

    def rebuild(self, run: Run) -> nn.Module:
        return self.network_for(read_vocabularies(run.folder, SIDES))

    def trained(self, network: nn.Module, run: Run) -> TrainedPairs:
        return TrainedPairs(network, read_vocabularies(run.folder, SIDES), self.length, self.beams)

    # -- for people and studies -------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        pairs, known = facts["pairs"], facts["vocabulary"]
        sizes = f"{pairs['train']:,} to learn, {pairs['valid']:,} to judge, {pairs['too_long']:,} too long"
        tokens = f"{known['source']:,} of the sources, {known['target']:,} of the targets"
        return [*super().about(facts), ["pairs", sizes], [self.tokens, tokens]]


# -- costs and scores -------------------------------------------------------------------------------------------------


def token_costs(logits: Tensor, labels: Tensor) -> Tensor:
    """-log P of each token, 0 of padding.   (B, T, V), (B, T) -> (B, T)"""
    costs = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=PAD, reduction="none")
    return costs.view(labels.shape)


def sentence_scores(written: list[list[int]], expected: list[list[int]]) -> dict[str, float]:
    return {"exact": exact_match(written, expected), "bleu": bleu(written, expected)}


def written_by(model: Translator, source: Tensor, lengths: Tensor, most: int, beams: int) -> list[list[int]]:
    """What a model writes to sources, without begin and end.   (B, S), (B,) -> B lists of at most `most` tokens"""
    begin, never = source.new_full((len(source),), BEGIN), (PAD, UNKNOWN, BEGIN)
    state = model.encode(source, lengths)
    if beams == 1:
        return greedy(model.step, state, begin, END, most, never)
    return [found.tokens for found in beam_search(model.step, state, begin, END, most, beams, never=never)]


def nearest_rows(rows: np.ndarray, others: np.ndarray) -> list[int]:
    """Which of the others has the most tokens in common with each row, by Jaccard.   (m, S), (n, S) -> m numbers"""
    bags = [np.unique(row[row != PAD]) for row in others]
    size, owner = np.array([len(bag) for bag in bags]), np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    tokens = np.concatenate(bags)
    nearest = []
    for row in rows:
        mine = np.unique(row[row != PAD])
        common = np.bincount(owner[np.isin(tokens, mine)], minlength=len(bags))
        nearest.append(int((common / (len(mine) + size - common)).argmax()))
    return nearest
