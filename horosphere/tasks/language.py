"""Next-token prediction on text: windows of tokens, bits per byte, and a folder that is a Hugging Face model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.cache import cache_folder
from horosphere.data import tokens as streams
from horosphere.data.order import Part
from horosphere.data.tokenizer import CHARACTERS, load_tokenizer, special_tokens, token_numbers
from horosphere.data.tokens import Corpus, SequentialWindows, Windows, packed_positions, text_tokens
from horosphere.errors import UserError
from horosphere.evaluate.choice import evaluate_task, read_task
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.text import validate
from horosphere.extras import require
from horosphere.files import digest
from horosphere.geometry import Manifold
from horosphere.geometry.manifold import learned_curvature
from horosphere.measure.language import (
    TokenStudy,
    first_rows,
    study,
    token_columns,
    token_counts,
    token_labels,
    token_points,
    told_apart,
)
from horosphere.models.carried import Carried
from horosphere.models.ngram import WEIGHTS as NGRAMS
from horosphere.models.ngram import NGram
from horosphere.models.pretrained import CONFIG, put_files, read_language_model
from horosphere.models.weights import begin_with
from horosphere.models.writing import autocast, packed_inputs, write
from horosphere.nn import Experts, Router
from horosphere.progress import progress
from horosphere.runs import RUN, Run
from horosphere.settings import Count, Size
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import whole
from horosphere.train.task import CompareOptions, Task
from horosphere.train.vectors import Vectors

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

    from horosphere.models.helm import HelmForCausalLM
    from horosphere.train.recipe import Recipe

# vocabularies are filled up to a multiple of it: kernels like that, and unused tokens are never predicted for long
ROUND = 64
CARD = "README.md"
MODEL_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [{tags}]
---

# {name}

A language model made by horosphere.

| | |
|---|---|
{table}

Its code is the package horosphere (`pip install 'horosphere[language]'`). In this folder:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".", trust_remote_code=True)  # runs modeling_horosphere.py
tokenizer = AutoTokenizer.from_pretrained(".")
```
"""
COUNTED = 1 << 24  # tokens, evenly spread, whose frequencies are taken: sorting them takes two seconds
SAMPLE = 48  # tokens that a model in training writes for people to look at
INNER = 16  # in a study, the dense models' intermediate_size is a multiple of it


@dataclass(frozen=True)
class LanguageOptions(CompareOptions):
    blimp: str | None = None  # judge the models on BLiMP's minimal pairs too: the .jsonl file


class TrainedLanguage(NamedTuple):
    """A model on the CPU and in eval mode, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast


@dataclass(kw_only=True)
class Language(Task[Corpus]):
    """Documents that share a window do not see each other."""

    kind = "language"
    unit = "tokens"
    floor = "unigram"
    counts_work = True
    mark = CONFIG
    then = 'horosphere generate {run} "Once upon"'
    options = LanguageOptions
    metrics = (
        Metric("bits_per_byte", "bits/byte", 4, "low", "judged"),
        Metric("perplexity", "perplexity", 2, "low", "detail"),
        Metric("blimp", "BLiMP", 3, "high"),
    )

    data: str = "python"  # "python", "topics": its documentation; a file or folder of text; hf:NAME
    valid: str | None = None  # a source of its own; none: a fiftieth of the data is held out
    field: str = "text"  # of .jsonl and of datasets
    # a folder; characters: a token for each; none: one of `vocab` tokens is trained on the data
    tokenizer: str | None = None
    vocab: Size = 4096  # tokens of a tokenizer that is trained
    length: Size = 256  # tokens of a window
    # of the text into windows; sequential: each row goes on where it stopped in the step before, with its state
    partition: Literal["random", "sequential"] = "random"
    eval_rows: Count = 256  # windows scored while training; at the end all are

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        require("language")
        if self.partition == "sequential" and not hasattr(self._maker(), "state_shape"):
            how = "use partition=random, or a recurrent one: rnn-lm, gru-lm, lstm-lm"
            raise UserError(f"partition=sequential: {self.model} has no state to carry from step to step; {how}")

    def open_data(self) -> Corpus:
        """The tokens, made at the first call."""
        chosen, cache = (self.data, self.tokenizer, self.vocab, self.valid), cache_folder()
        with progress("reading text, MB", streams.megabytes(self.data), self.quiet) as update:
            return streams.prepare(*chosen, cache, update, self.field)

    def parted(self, data: Corpus, part: Part) -> Corpus:
        return data.parted(part)

    def rows(self, data: Corpus) -> int:
        return len(data.train) // self.length

    def facts(self, data: Corpus) -> dict[str, Any]:
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        same = digest(data.tokenizer.backend_tokenizer.to_str(), *(part.sampled() for part in (data.train, data.valid)))
        return {"tokens": sizes, "digest": same}

    def model_config(self, tokenizer: PreTrainedTokenizerFast) -> PretrainedConfig:
        """The configuration of the model for the tokens of this tokenizer."""
        known = token_numbers(tokenizer)
        size = self.config.get("vocab_size", -(-known // ROUND) * ROUND)
        if size < known:
            how = f"leave vocab_size out, or give at least {known}"
            raise UserError(f"vocab_size={size}: the tokenizer has {known} tokens; {how}")
        places = {"vocab_size": size, "max_position_embeddings": self.length}
        changed = {**self.config, **special_tokens(tokenizer), **places}
        return cast("PretrainedConfig", replace(self, config=changed).configuration())

    def network_for(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The model, with new weights, for the tokens of this tokenizer."""
        return cast("PreTrainedModel", self._maker()(self.model_config(tokenizer)))

    def _maker(self) -> Any:
        return catalogue.resolve(self.network(self.model).build)

    def build(self, data: Corpus) -> nn.Module:
        if self.partition == "sequential" and self.world.size > 1:
            raise UserError("partition=sequential: one process carries the states; start it without torchrun")
        model = self.network_for(data.tokenizer)
        if self.start is not None:
            begin_with(model, load(self.start).model.state_dict(), self.start)
        return self._carrying(model, self.engine.batch)

    def _carrying(self, model: PreTrainedModel, rows: int) -> nn.Module:
        return Carried(model, rows) if self.partition == "sequential" else model

    def ready(self, data: Corpus) -> None:
        self.corpus = data
        windows = SequentialWindows if self.partition == "sequential" else Windows
        self.windows = windows(data.train, self.length, self.engine.batch, self.engine.seed)

    def begin(self, folder: Path) -> None:
        """From the first step on, who loads a checkpoint finds its tokenizer."""
        put_files(folder, folder / RUN, self.corpus.tokenizer.save_pretrained)

    # -- the training -----------------------------------------------------------------------------------------------

    @property
    def units_per_row(self) -> int:
        return self.length

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """tokens (B, length + 1); position_ids (B, length) where a row holds more than one document.

        Of a sequential partition, slots (B,) too, the numbers of the rows, and begins (B,): they go on from nothing.
        """
        tokens, bos = self.windows.batch(step, rows), self.corpus.train.bos
        batch = {"tokens": tokens}
        # decided here, on the CPU: no word from the accelerator is needed
        positions = packed_positions(tokens[:, :-1], bos)
        if positions is not None:
            batch["position_ids"] = positions
        if isinstance(self.windows, SequentialWindows):
            begins = (tokens[:, 0] == bos) | self.windows.begins_at(step)
            batch |= {"slots": torch.arange(rows.start, rows.stop), "begins": begins}
        return batch

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = batch["tokens"]
        inputs = packed_inputs(tokens[:, :-1], batch.get("position_ids"))
        inputs |= {name: batch[name] for name in ("slots", "begins") if name in batch}
        loss = model(**inputs, shift_labels=tokens[:, 1:]).loss
        loads = [module.load for module in model.modules() if isinstance(module, Router)]
        if not loads:
            return loss, {}
        load = torch.stack(loads)
        # of the busiest expert: times its fair share
        return loss, {"expert_imbalance": (load.amax(-1) / load.mean(-1)).max()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        # a mask of documents is another one for each batch; what is carried would be changed when a graph is recorded
        return not batch.keys() & {"position_ids", "slots"}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        model = self.answering(model)
        cost = validate(model, self.corpus.valid, self.length, self.world, None if last else self.eval_rows)
        assert cost.bits_per_byte is not None
        scores = {"loss": cost.loss, "perplexity": cost.per_token, "bits_per_byte": cost.bits_per_byte}
        return {**scores, **_curvatures(model)}

    def baselines(self) -> dict[str, dict[str, float]]:
        """What counting alone predicts: frequencies of tokens; of characters, of three in a row too."""
        train, valid = self.corpus.train, self.corpus.valid
        if self.tokenizer == CHARACTERS:
            found = NGram(train.tokens, train.vocab_size).perplexities(valid.tokens)
        else:
            some = [np.asarray(part.tokens[:: -(-len(part) // COUNTED)]) for part in (train, valid)]
            found = NGram(some[0], train.vocab_size, NGRAMS[:1]).perplexities(some[1])
        per_byte = len(valid) / valid.text_bytes
        return {name: {"perplexity": x, "bits_per_byte": math.log2(x) * per_byte} for name, x in found.items()}

    def sample(self, model: nn.Module) -> str:
        tokens = min(SAMPLE, self.length - 1)
        # as many tokens in every process, whatever they are: a sharded model needs all of them at each
        return write(self.answering(model), self.corpus.tokenizer, "", tokens, min_new_tokens=tokens) if tokens else ""

    # -- the model of a run -----------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        return self._carrying(self.network_for(load_tokenizer(run.folder)), run.about.recipe["engine"]["batch"])

    def answering(self, model: nn.Module) -> nn.Module:
        """What is carried from step to step is of no use to others."""
        return model.network if isinstance(model, Carried) else model

    def export(self, folder: Path, network: nn.Module) -> None:
        """model.safetensors, generation_config.json, the tokenizer's files, code and card, and last config.json."""
        model, tokenizer = cast("PreTrainedModel", network), load_tokenizer(folder)
        tokenizer.model_max_length = model.config.max_position_embeddings
        card = self.card(Run.open(folder), model)
        savers = (model.save_pretrained, tokenizer.save_pretrained, lambda aside: Path(aside, CARD).write_text(card))
        put_files(folder, folder / RUN, *savers)

    def card(self, run: Run, model: PreTrainedModel) -> str:
        """What Hugging Face shows of a model: what it is, how it is opened, how well it predicts."""
        tags = ["horosphere", *["hyperbolic"] * (model.config.geometry != "euclidean")]
        source = self.data if self.data.startswith("hf:") else Path(self.data).name  # not where it lies on a disk
        rows = [["geometry", model.config.geometry], ["data", source], *self.summary(run)]
        table = "\n".join(f"| {name} | {value} |" for name, value in rows)
        return MODEL_CARD.format(tags=", ".join(tags), name=self.model, table=table)

    def network_of(self, run: Run) -> PreTrainedModel:
        return load(run.folder).model

    @classmethod
    def load(cls, run: Run) -> TrainedLanguage:
        return load(run.folder)

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        """The tokens, where the stream begins."""
        model, tokenizer = load(run.folder)
        if _has_attention(model.config):
            return token_vectors(*token_points(cast("HelmForCausalLM", model)), tokenizer)
        return token_vectors(model.embed_tokens.weight, model.manifold, tokenizer)

    # -- for people and studies -------------------------------------------------------------------------------------

    def sections(self) -> dict[str, dict[str, Any]]:
        """Without a size of the vocabulary that nobody asked for: the tokenizer decides it."""
        sections = super().sections()
        if "vocab_size" not in self.config:
            del sections["model"]["vocab_size"]
        return sections

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        tokens = facts["tokens"]
        return [*super().about(facts), ["text", f"{tokens['train']:,} tokens to learn, {tokens['valid']:,} to judge"]]

    @classmethod
    def evened(cls, recipes: Mapping[str, Recipe]) -> dict[str, list[str]]:
        """The intermediate_size with which dense models have as many parameters as the mixtures beside them."""
        kinds = {name: _has_experts(recipe) for name, recipe in recipes.items()}
        if len(set(kinds.values())) < 2:
            return {}
        of_kind = {kinds[name]: cast(Language, recipe.task) for name, recipe in recipes.items()}
        dense, mixture = of_kind[False], of_kind[True]
        tokenizer = dense.open_data().tokenizer
        target = dense_parameters(mixture, tokenizer)
        least, more = (dense_parameters(dense, tokenizer, intermediate_size=INNER * times) for times in (1, 2))
        inner = INNER * max(1, 1 + round((target - least) / (more - least)))
        return {name: [f"intermediate_size={inner}"] for name, is_mixture in kinds.items() if not is_mixture}

    def check_study(self, options: CompareOptions, data: Corpus) -> None:
        if isinstance(options, LanguageOptions) and options.blimp is not None:
            read_task("blimp", options.blimp)

    @classmethod
    def judge(cls, run: Run, options: CompareOptions, device: str) -> dict[str, float]:
        if not isinstance(options, LanguageOptions) or options.blimp is None:
            return {}
        model, tokenizer = load(run.folder)
        with autocast(device):
            result = evaluate_task("blimp", options.blimp, model.to(device), tokenizer, device)
        return {"blimp": result.score.acc.value}

    @classmethod
    def examine(cls, runs: Mapping[str, Run]) -> TokenStudy | None:
        return token_study(runs) if all(_has_attention(cls.of(run).configuration()) for run in runs.values()) else None


def dense_parameters(task: Language, tokenizer: PreTrainedTokenizerFast, **changes: Any) -> int:
    """How many parameters a model has, without making it."""
    with torch.device("meta"):
        return int(replace(task, config={**task.config, **changes}).network_for(tokenizer).num_parameters())


def _has_experts(recipe: Recipe) -> bool:
    return bool(getattr(recipe.task.configuration(), "n_routed_experts", 0))


def _has_attention(config: PretrainedConfig) -> bool:
    return hasattr(config, "num_attention_heads")


def _curvatures(model: nn.Module) -> dict[str, float]:
    """The least and the most curved of the experts; all processes must ask."""
    experts = [m for m in model.modules() if isinstance(m, Experts) and m.spread is not None]
    if not experts:
        return {}
    c = torch.cat([learned_curvature(m.c0, whole(m.log_ratio)) for m in experts])
    return {"curvature_min": c.min().item(), "curvature_max": c.max().item()}


# -- runs, and folders that hold a model ------------------------------------------------------------------------------


def load(folder: str | Path) -> TrainedLanguage:
    """The model in the folder of a run (of one under way its last checkpoint's), or in one of Hugging Face's making."""
    folder = Path(folder)
    require("language")
    if (folder / CONFIG).is_file():
        model = read_language_model(folder)
    else:
        run = Run.open(folder, Language.kind)
        model = cast("PreTrainedModel", Language.of(run).from_checkpoint(run))
    tokenizer = load_tokenizer(folder)
    known = token_numbers(tokenizer)
    if known > model.config.vocab_size:
        sizes = f"{known} tokens, the model only {model.config.vocab_size}"
        raise UserError(f"{folder}: the tokenizer has {sizes}; put back its own")
    if broken := next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), None):
        raise UserError(f"{folder}: its {broken} is not finite; delete its config.json to use the last checkpoint")
    return TrainedLanguage(model.eval(), tokenizer)


def token_vectors(
    table: Tensor, manifold: Manifold, tokenizer: PreTrainedTokenizerFast, more: Sequence[str] = ()
) -> Vectors:
    """Rows of a table (V, d) as people read them: the tokenizer's tokens, then `more` special ones.

    What a vocabulary is filled up with stands for nothing, and is left out.
    """
    known = token_numbers(tokenizer)
    columns = token_columns(tokenizer, known)
    for number, name in enumerate(more, start=known):
        for column, value in (("kind", "special"), ("length", len(name)), ("number", number)):
            columns[column].append(value)
    labels = told_apart([*token_labels(tokenizer, known), *more])
    return Vectors(labels, table[: len(labels)].detach(), manifold.requires_grad_(False), columns=columns)


def run_corpus(folder: str | Path, tokenizer: PreTrainedTokenizerFast) -> Corpus:
    """What a run was trained on, and what was held out."""
    run = Run.open(folder, Language.kind)
    task = cast(Language, Language.of(run))
    corpus = task.in_part(task.open_data())
    same = corpus.tokenizer.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    if not same or task.facts(corpus)["tokens"] != run.about.facts.get("tokens"):
        raise UserError(f"{task.data} has changed since {folder} was trained on it: name a text with --data")
    return corpus


def token_study(
    runs: Mapping[str, Run] | Mapping[str, Path], text: str | None = None, seed: int = 0, quiet: bool = True
) -> TokenStudy:
    """The first model under every instrument, and the others, which must share its tokenizer, under those that compare.

    text: what they read; by default what was held out for the first, with counts of what it was trained on.
    """
    folders = {name: run.folder if isinstance(run, Run) else run for name, run in runs.items()}
    loaded = {name: load(folder) for name, folder in folders.items()}
    (name, (model, tokenizer)), *others = loaded.items()
    for which, trained in loaded.items():
        if not _has_attention(trained.model.config):
            raise UserError(f"{which}: these instruments look at attention, and this model has none; name a HELM")
    for other, (_, theirs) in others:
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise UserError(f"{other} has another tokenizer than {name}: their tokens cannot be compared")
    if text is None:
        corpus = run_corpus(folders[name], tokenizer)
        counted, read = corpus.train, corpus.valid
    else:
        counted = read = text_tokens(text, tokenizer)
    size = model.config.vocab_size
    rows = first_rows(read, min(trained.model.config.max_position_embeddings for trained in loaded.values()))
    models = {name: trained.model for name, trained in loaded.items()}
    labels, counts = token_labels(tokenizer, size), token_counts(counted, size)
    with progress("looking inside", len(rows) * len(models), quiet) as update:
        return study(models, labels, counts, rows, seed=seed, progress=update)
