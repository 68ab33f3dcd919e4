"""Masked language modelling: guess hidden tokens from both sides, and whether one text follows the other (BERT)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.cache import cache_folder
from horosphere.data import tokens as streams
from horosphere.data.masking import NOT_ASKED, Spans, Special, asked_at_most, hide, joined, spans_of
from horosphere.data.order import Part
from horosphere.data.tokenizer import load_tokenizer, token_numbers
from horosphere.data.tokens import Corpus
from horosphere.errors import UserError, one_line
from horosphere.evaluate.metric import Metric
from horosphere.extras import require
from horosphere.files import digest
from horosphere.models.pretrained import put_files
from horosphere.models.weights import begin_with
from horosphere.progress import progress
from horosphere.runs import RUN, Run
from horosphere.settings import Count, Size
from horosphere.tasks.language import token_vectors
from horosphere.train.answers import Answers
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task
from horosphere.train.vectors import Vectors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

AT_ONCE = 256  # rows that are judged at once
DRAWS = 4  # times that each span is judged at the end, with other tokens hidden
AROUND = 3  # special tokens of a row: one before, one after each span
MASK = "[MASK]"  # what stands for a hidden token in a text
SPECIALS = ("[CLS]", "[SEP]", MASK, "[PAD]")  # as BERT calls those of `Special`


@dataclass(frozen=True, eq=False)
class TrainedMasked:
    """A network on the CPU and in eval mode, and its tokenizer."""

    network: nn.Module
    tokenizer: PreTrainedTokenizerFast

    def fill(self, text: str) -> str:
        """The text with the likeliest token for each [MASK] in it."""
        return self._filled(text, 1)[0][0]

    def answer(self, inputs: list[str], k: int = 5) -> Answers:
        """The k likeliest fillings of every [MASK] of each text, with their probability."""
        for text in inputs:
            if MASK not in text:
                raise UserError(f'"{one_line(text, 40)}": no {MASK} in it; put one where a token is to be guessed')
        return Answers("filled", "probability", inputs, [list(self._filled(text, k)) for text in inputs])

    @torch.no_grad()
    def _filled(self, text: str, k: int) -> list[tuple[str, float]]:
        """Tokens are guessed one by one: the probability of a filling is the product of theirs."""
        special = Special.after(token_numbers(self.tokenizer))
        parts = [self.tokenizer.encode(part) for part in text.split(MASK)]
        row = [special.begin, *parts[0]]
        for part in parts[1:]:
            row += [special.hidden, *part]
        tokens = torch.tensor([[*row, special.end]])
        most = len(cast(Any, self.network).positions.weight)
        if tokens.shape[1] > most:
            what = f'"{one_line(text, 40)}": {tokens.shape[1] - 2} tokens'
            raise UserError(f"{what}; the model reads {most - 2} at once: give a shorter text")
        places = (tokens[0] == special.hidden).nonzero().T
        fillings: list[tuple[list[int], float]] = [([], 1.0)]
        if places.shape[1]:
            filled, _ = self.network(tokens, torch.zeros_like(tokens), torch.tensor([tokens.shape[1]]), places)
            for guess in filled[0, :, : special.begin].double().softmax(-1):
                likely = guess.topk(min(k, len(guess)))
                longer = [
                    ([*before, token], chance * share)
                    for before, share in fillings
                    for token, chance in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
                ]
                fillings = sorted(longer, key=lambda filling: -filling[1])[:k]
        answers = []
        for guessed, chance in fillings:
            tokens[0, places[0]] = torch.tensor(guessed, dtype=torch.long)
            answers.append((str(self.tokenizer.decode(tokens[0, 1:-1].tolist())), chance))
        return answers


@dataclass(kw_only=True)
class Masked(Task[Corpus]):
    """A row is a span of a document, cut in two: its second part is its own, or comes from elsewhere."""

    kind = "masked"
    unit = "tokens"
    floor = "unigram"
    then = 'horosphere predict {run} "a text with a [MASK] in it"'
    asks = f"texts with {MASK} in them"
    best = 5
    one_shape = True
    metrics = (
        Metric("masked_accuracy", "hidden tokens right", 4, "high", "judged"),
        Metric("perplexity", "perplexity", 2, "low", "judged"),
        Metric("next_accuracy", "next text right", 4, "high"),
    )

    data: str = "python"  # "python": its documentation; a file or folder of text; hf:NAME
    valid: str | None = None  # a source of its own; none: a fiftieth of the data is held out
    field: str = "text"  # of .jsonl and of datasets
    tokenizer: str | None = None  # a folder; none: one of `vocab` tokens is trained on the data
    vocab: Size = 4092  # tokens of a tokenizer that is trained; four special ones come on top
    length: Size = 64  # tokens of a row
    eval_rows: Count = 256  # rows judged while training; at the end all are

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        require("language")
        if self.length < 2 + AROUND:
            raise UserError(f"length={self.length}: a row has {AROUND} special tokens; give at least {2 + AROUND}")

    def open_data(self) -> Corpus:
        """The tokens, made at the first call."""
        chosen, cache = (self.data, self.tokenizer, self.vocab, self.valid), cache_folder()
        with progress("reading text, MB", streams.megabytes(self.data), self.quiet) as update:
            return streams.prepare(*chosen, cache, update, self.field)

    def parted(self, data: Corpus, part: Part) -> Corpus:
        return data.parted(part)

    def rows(self, data: Corpus) -> int:
        return len(self._spans(data, "train"))

    def _spans(self, data: Corpus, part: str) -> Spans:
        what = self.data if self.valid is None or part == "train" else self.valid
        return spans_of(getattr(data, part), self.length - AROUND, f"{what}, {part}")

    def facts(self, data: Corpus) -> dict[str, Any]:
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        same = digest(data.tokenizer.backend_tokenizer.to_str(), *(part.sampled() for part in (data.train, data.valid)))
        return {"tokens": sizes, "digest": same}

    def build(self, data: Corpus) -> nn.Module:
        model = self.network_for(data.tokenizer)
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def network_for(self, tokenizer: PreTrainedTokenizerFast) -> nn.Module:
        make = catalogue.resolve(self.network(self.model).build)
        vocabulary = 1 + max(Special.after(token_numbers(tokenizer)))
        return cast(nn.Module, make(vocabulary, replace(self.configuration(), positions=self.length)))

    def ready(self, data: Corpus) -> None:
        super().ready(data)
        self.special = Special.after(token_numbers(data.tokenizer))
        self.learned, self.held = self._spans(data, "train"), self._spans(data, "valid")
        self.asked = asked_at_most(self.length - AROUND)

    def begin(self, folder: Path) -> None:
        put_files(folder, folder / RUN, self.opened.tokenizer.save_pretrained)

    # -- the training -----------------------------------------------------------------------------------------------

    @property
    def units_per_row(self) -> int:
        return self.length

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """tokens, segments (B, T); lengths, apart (B,); places, targets (B, M). Drawn for the whole step, then cut."""
        chosen = self.drawn(step, range(self.engine.batch), len(self.learned))
        whole = self._tensors(self.learned, chosen, np.random.default_rng((self.engine.seed, step)))
        return {name: t[rows.start : rows.stop] for name, t in whole.items()}

    def _tensors(self, spans: Spans, chosen: np.ndarray, random: np.random.Generator) -> dict[str, Tensor]:
        rows = joined(spans, chosen, self.special, self.length, random)
        hidden = hide(rows.tokens, self.special, self.asked, random)
        arrays = {**rows._asdict(), **hidden._asdict()}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Both losses added. The first divides by as many tokens as a full row is asked for, however a batch is cut."""
        filled, follows = answers(model, batch)
        masked = token_costs(filled, batch["targets"]).sum() / batch["targets"].numel()
        apart = F.cross_entropy(follows.float(), batch["apart"])
        return masked + apart, {"masked_loss": masked.detach(), "next_loss": apart.detach()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return True

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Every process judges all rows alike."""
        nats = right = asked = pairs = rows = 0.0
        for part in self._held_rows(last):
            batch = {name: t.to(self.world.device) for name, t in part.items()}
            filled, follows = answers(model, batch)
            nats += token_costs(filled, batch["targets"]).sum().item()
            right += (filled.argmax(-1) == batch["targets"]).sum().item()
            asked += (batch["targets"] != NOT_ASKED).sum().item()
            pairs += (follows.argmax(-1) == batch["apart"]).sum().item()
            rows += len(follows)
        scores = {"loss": nats / asked, "perplexity": float(np.exp(min(nats / asked, 700)))}
        return {**scores, "masked_accuracy": right / asked, "next_accuracy": pairs / rows}

    def _held_rows(self, last: bool) -> Iterator[dict[str, Tensor]]:
        """What is judged: the same rows for every seed."""
        count = len(self.held) if last else min(self.eval_rows, len(self.held))
        chosen = np.random.default_rng(0).permutation(len(self.held))[:count]  # of all documents
        for draw in range(DRAWS if last else 1):
            random = np.random.default_rng((0, draw))
            for first in range(0, count, AT_ONCE):
                yield self._tensors(self.held, chosen[first : first + AT_ONCE], random)

    def baselines(self) -> dict[str, dict[str, float]]:
        """The frequency of a token whatever stands around it, and the more frequent answer on texts."""
        counts = np.bincount(self.opened.train.tokens, minlength=self.special.begin) + 1.0
        counts[self.opened.train.bos] = 1
        rows = list(self._held_rows(last=True))
        targets = torch.cat([part["targets"].flatten() for part in rows]).numpy()
        targets, apart = (
            targets[targets != NOT_ASKED],
            torch.cat([part["apart"] for part in rows]).double().mean().item(),
        )
        nats = -np.log(counts / counts.sum())[targets].mean()
        right = float((targets == counts.argmax()).mean())
        scores = {"masked_accuracy": right, "perplexity": float(np.exp(nats)), "next_accuracy": max(apart, 1 - apart)}
        return {"unigram": scores}

    def sample(self, model: nn.Module) -> str:
        """A row that was held out, hidden tokens as they were guessed, in brackets."""
        batch = self._tensors(self.held, np.array([0]), np.random.default_rng(0))
        filled, _ = answers(model, {name: t.to(self.world.device) for name, t in batch.items()})
        guesses = dict(zip(batch["places"][0].tolist(), filled[0].argmax(-1).tolist(), strict=True))
        words = []
        for place, token in enumerate(batch["tokens"][0, : int(batch["lengths"][0])].tolist()):
            word = self._decoded(guesses.get(place, token))
            words.append(f"[{word.strip()}]" if place in guesses else word)
        return "".join(words)

    def _decoded(self, token: int) -> str:
        return str(self.opened.tokenizer.decode([token])) if token < self.special.begin else " | "

    # -- the network of a run ---------------------------------------------------------------------------------------

    @classmethod
    def of(cls, run: Run) -> Task[Any]:
        """With the tokenizer of the run: other data are read by it."""
        return replace(cast(Masked, super().of(run)), tokenizer=str(run.folder))

    def rebuild(self, run: Run) -> nn.Module:
        return self.network_for(load_tokenizer(run.folder))

    def trained(self, network: nn.Module, run: Run) -> TrainedMasked:
        return TrainedMasked(network, load_tokenizer(run.folder))

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        """The tokens. Their table is flat: rows add up with those of places before there is a point."""
        trained: TrainedMasked = cls.load(run)
        table = cast(Any, trained.network).tokens
        return token_vectors(table.weight, table.manifold, trained.tokenizer, SPECIALS)

    # -- for people and studies -------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        tokens = facts["tokens"]
        return [*super().about(facts), ["text", f"{tokens['train']:,} tokens to learn, {tokens['valid']:,} to judge"]]


def answers(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits of hidden tokens and of "follows", "is apart".   -> (B, M, V), (B, 2)"""
    filled, follows = model(batch["tokens"], batch["segments"], batch["lengths"], batch["places"])
    return filled, follows


def token_costs(filled: Tensor, targets: Tensor) -> Tensor:
    """-log P of each token, 0 where nothing is asked.   (B, M, V), (B, M) -> (B, M)"""
    costs = F.cross_entropy(filled.flatten(0, 1).float(), targets.flatten(), ignore_index=NOT_ASKED, reduction="none")
    return costs.view(targets.shape)
