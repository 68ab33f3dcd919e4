"""Train a language model from a recipe, keep it as Hugging Face does, load it again, and let it write."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.data.text import documents
from horosphere.data.tokenizer import load_tokenizer
from horosphere.data.tokens import (
    Corpus,
    TokenFile,
    Windows,
    cache_folder,
    document_positions,
    prepare,
    tokenise,
    windows_in_order,
)
from horosphere.errors import UserError
from horosphere.evaluate.perplexity import Perplexity, perplexity
from horosphere.extras import require
from horosphere.files import require_new_folder
from horosphere.geometry.manifold import learned_curvature
from horosphere.nn import Experts, Router, document_mask
from horosphere.progress import Update, progress
from horosphere.train import checkpoint
from horosphere.train.distributed import World, whole, world
from horosphere.train.engine import CHECKPOINTS, RUN, EngineConfig, FitResult, fit, last_checkpoint, read_run
from horosphere.train.recipe import build, read_recipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from horosphere.models.helm import HelmConfig, HelmForCausalLM

EXPORTED = "config.json"  # the last file of an export: where it is, all are
ROUND = 64  # vocabularies are filled up to a multiple of it: kernels like that, and unused tokens are never predicted for long
LOGITS = 2**28  # numbers at once in an evaluation, 1 GB in fp32
ROWS = 64  # most windows at once in an evaluation
SAMPLE = 48  # tokens that a model in training writes for people to look at
FROM_DATA = {
    "max_position_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "use_cache",
}  # of HelmConfig: no settings
MAY_BE_ZERO = {"n_routed_experts", "n_shared_experts", "first_k_dense_replace"}


# -- recipes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageRecipe:
    """Every choice of a run. In files and on the command line all of them stand in one flat list: these, EngineConfig's and HelmConfig's."""

    model: str  # a name in HELM or TWINS
    engine: EngineConfig
    data: str = "python"
    valid: str | None = None  # a source of its own; None: a fiftieth of the data is held out
    field: str = "text"  # of .jsonl and of datasets
    tokenizer: str | None = None  # a folder; None: one of `vocab` tokens is trained on the data
    vocab: int = 4096
    length: int = 256  # tokens of a window
    eval_rows: int = 256  # windows scored while training; at the end all are
    config: dict[str, Any] = dataclasses.field(default_factory=dict)  # changes of the model's named configuration

    @staticmethod
    def read(name: str, settings: Sequence[str] = ()) -> LanguageRecipe:
        """A recipe by name or .yaml file, under `key=value` settings."""
        require("language")
        given = read_recipe(name, settings)
        values: Any = build(_settings(), given, where=name)
        own, engine, model = ({key: getattr(values, key) for key in given if key in keys} for keys in _keys())
        recipe = LanguageRecipe(**own, engine=EngineConfig(**engine), config=model)
        recipe.check()
        return recipe

    def check(self) -> None:
        from horosphere.models.helm import helm_config

        self.engine.check()
        sizes = {
            name: size for name, size in self.config.items() if isinstance(size, int) and not isinstance(size, bool)
        }
        for name, size in {"length": self.length, "eval_rows": self.eval_rows, **sizes}.items():
            if size < (name not in MAY_BE_ZERO):
                raise UserError(f"{name}={size}: it must be at least {int(name not in MAY_BE_ZERO)}")
        helm_config(self.model, **self.config)

    def corpus(self, quiet: bool = True) -> Corpus:
        """The tokens, made at the first call."""
        with progress("reading text, MB", _megabytes(self.data), quiet) as update:
            return prepare(self.data, self.tokenizer, self.vocab, self.valid, cache_folder(), update, self.field)

    def model_config(self, corpus: Corpus) -> HelmConfig:
        """The configuration of the model for these tokens."""
        from horosphere.models.helm import helm_config

        known = corpus.train.vocab_size
        size = self.config.get("vocab_size", -(-known // ROUND) * ROUND)
        if size < known:
            raise UserError(
                f"vocab_size={size}: the tokenizer has {known} tokens; leave vocab_size out, or give at least {known}"
            )
        bos, eos, pad = corpus.train.bos, corpus.tokenizer.eos_token_id, corpus.tokenizer.pad_token_id
        ends = {
            "bos_token_id": bos,
            "eos_token_id": bos if eos is None else eos,
            "pad_token_id": bos if pad is None else pad,
        }
        return helm_config(
            self.model, **{**self.config, **ends, "vocab_size": size, "max_position_embeddings": self.length}
        )


@cache
def _keys() -> tuple[list[str], list[str], list[str]]:
    """Settings of the recipe itself, of the engine, of the model."""
    from horosphere.models.helm import HelmConfig

    own = [f.name for f in dataclasses.fields(LanguageRecipe) if f.name not in ("engine", "config")]
    return (
        own,
        [f.name for f in dataclasses.fields(EngineConfig)],
        [key for key in inspect.get_annotations(HelmConfig) if key not in FROM_DATA],
    )


@cache
def _settings() -> type:
    """A dataclass with a field for every key of the flat list: `build` knows all names, types and near misses from it."""
    from horosphere.models.helm import HelmConfig

    own, engine, model = _keys()
    fields: list[Any] = []
    for cls, keys in ((LanguageRecipe, own), (EngineConfig, engine)):
        hints, known = get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}
        fields += [(key, hints[key], dataclasses.field(default=known[key].default)) for key in keys]
    hints = inspect.get_annotations(HelmConfig, eval_str=True)
    fields += [(key, hints[key], dataclasses.field(default=None)) for key in model]  # only what is given is read
    return dataclasses.make_dataclass("Settings", fields, kw_only=True)


def _megabytes(source: str) -> int:
    path = Path(source)
    return sum(f.stat().st_size for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()) // 10**6


# -- the task ---------------------------------------------------------------------------------------------------------


class LanguageTask:
    """Next-token prediction on windows of a corpus, for the engine. Documents that share a window do not see each other."""

    unit_name = "tokens"

    def __init__(self, recipe: LanguageRecipe, corpus: Corpus, world: World, folder: Path):
        self.recipe, self.corpus, self.world, self.folder = recipe, corpus, world, folder
        self.units_per_row = recipe.length
        self.windows = Windows(corpus.train, recipe.length, recipe.engine.batch, recipe.engine.seed)
        self.begun = 0  # the step under way, from 1

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """tokens (B, length + 1); position_ids (B, length) where a row holds more than one document."""
        if (
            not self.begun and self.world.is_main
        ):  # the engine has opened the folder: from now on, who loads a checkpoint finds its tokenizer
            _put(self.folder, self.corpus.tokenizer.save_pretrained)
        self.begun = step + 1
        tokens = self.windows.batch(step, rows)
        positions = packed_positions(
            tokens[:, :-1], self.corpus.train.bos
        )  # decided here, on the CPU: no word from the accelerator is needed
        return {"tokens": tokens} if positions is None else {"tokens": tokens, "position_ids": positions}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = batch["tokens"]
        loss = model(**model_inputs(tokens[:, :-1], batch.get("position_ids")), shift_labels=tokens[:, 1:]).loss
        loads = [module.load for module in model.modules() if isinstance(module, Router)]
        if not loads:
            return loss, {}
        load = torch.stack(loads)
        return loss, {
            "expert_imbalance": (load.amax(-1) / load.mean(-1)).max()
        }  # of the busiest expert: times its fair share

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return "position_ids" not in batch  # a mask of documents is another one for each batch

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        last = self.begun >= self.recipe.engine.steps
        found = validate(
            model, self.corpus.valid, self.recipe.length, self.world, None if last else self.recipe.eval_rows
        )
        assert found.bits_per_byte is not None
        return {
            "loss": found.loss,
            "perplexity": found.per_token,
            "bits_per_byte": found.bits_per_byte,
            **_curvatures(model),
        }

    def sample(self, model: nn.Module) -> str:
        tokens = min(SAMPLE, self.recipe.length - 1)
        # as many tokens in every process, whatever they are: a sharded model needs all of them at each
        return write(model, self.corpus.tokenizer, "", tokens, min_new_tokens=tokens) if tokens else ""

    def units(self, model: nn.Module) -> list[nn.Module]:
        return [*model.model.layers, model.lm_head]  # type: ignore[union-attr, list-item, misc]


def packed_positions(tokens: Tensor, bos: int) -> Tensor | None:
    """Positions that start again with each document, or None where every row is of one: then plain causal attention does.   (B, T) -> (B, T)"""
    return document_positions(tokens, bos) if (tokens[:, 1:] == bos).any() else None


def model_inputs(tokens: Tensor, position_ids: Tensor | None) -> dict[str, Any]:
    """Arguments of the model for windows of tokens (B, T), whose documents `position_ids` (B, T) keep apart."""
    inputs: dict[str, Any] = {"input_ids": tokens, "use_cache": False}
    return (
        inputs
        if position_ids is None
        else {**inputs, "position_ids": position_ids, "attention_mask": document_mask(position_ids)}
    )


def _curvatures(model: nn.Module) -> dict[str, float]:
    """The least and the most curved of the experts; all processes must ask."""
    found = [
        learned_curvature(m.c0, whole(m.log_ratio))
        for m in model.modules()
        if isinstance(m, Experts) and m.spread is not None
    ]
    return (
        {"curvature_min": torch.cat(found).min().item(), "curvature_max": torch.cat(found).max().item()}
        if found
        else {}
    )


# -- validation -------------------------------------------------------------------------------------------------------


def validate(
    model: nn.Module,
    tokens: TokenFile,
    length: int,
    world: World,
    limit: int | None = None,
    progress: Update | None = None,
) -> Perplexity:
    """What a text costs a model that reads it in windows of `length`, the work shared by all processes.

    With a limit, that many windows drawn from all of it; their bytes are then the text's in proportion to their tokens.
    """
    rows = max(1, min(ROWS, LOGITS // (length * tokens.vocab_size)))
    windows = _windows(tokens, length, rows * world.size, limit)
    if (
        min(limit or len(tokens), (len(tokens) - 1) // length) >= world.size
    ):  # else all read all, which leaves the ratios as they are
        windows = _share(windows, world)
    found = perplexity(
        model,
        windows,
        None,
        world.device,
        lambda part: model_inputs(part, packed_positions(part, tokens.bos)),
        progress if world.is_main else None,
    )
    nats, predicted = world.sum(torch.tensor([found.nats, found.tokens], dtype=torch.float64)).tolist()
    text_bytes = round(tokens.text_bytes * predicted / (len(tokens) - 1))
    return Perplexity(nats, int(predicted), text_bytes, found.stderr if world.size == 1 else None)


def _windows(tokens: TokenFile, length: int, rows: int, limit: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    if limit is None or limit * length >= len(tokens) - 1 - length:
        yield from windows_in_order(tokens, length, rows)
        return
    drawn = Windows(tokens, length, limit, seed=0)
    for first in range(0, limit, rows):
        batch = drawn.batch(0, range(first, min(first + rows, limit)))
        yield batch, torch.ones(len(batch), length, dtype=torch.bool)


def _share(windows: Iterable[tuple[Tensor, Tensor]], world: World) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's part of each batch: all take as many, though what one reads last may count for nothing."""
    for tokens, counted in windows:
        mine = slice(world.rank, None, world.size)
        yield (tokens[mine], counted[mine]) if len(tokens) > world.rank else (tokens[:1], torch.zeros_like(counted[:1]))


def autocast(device: torch.device | str) -> torch.autocast:
    """The precision that models are trained in by default: bf16 on CUDA, else that of the weights."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


def run_corpus(run: str | Path, tokenizer: PreTrainedTokenizerFast) -> Corpus:
    """What a run was trained on, and what was held out."""
    about = _about(Path(run))
    corpus = prepare(
        about["data"], about["tokenizer"], about["vocab"], about["valid"], cache_folder(), field=about["field"]
    )
    same = corpus.tokenizer.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    if not same or {"train": len(corpus.train), "valid": len(corpus.valid)} != about["tokens"]:
        raise UserError(f"{about['data']} has changed since {run} was trained on it: name a text with --data")
    return corpus


def text_tokens(source: str, tokenizer: PreTrainedTokenizerFast, field: str = "text") -> TokenFile:
    """Any text, as tokens in memory."""
    with TemporaryDirectory(prefix="horosphere.") as aside:
        found = tokenise(documents(source, field), tokenizer, Path(aside, "tokens"))
        return dataclasses.replace(found, tokens=np.array(found.tokens))


# -- a run ------------------------------------------------------------------------------------------------------------


def train(
    recipe: LanguageRecipe,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    device: str = "auto",
) -> FitResult:
    """Train into the folder `out`, alone or as one process of torchrun's; at the end the folder is also a Hugging Face model."""
    from horosphere.models.helm import HelmForCausalLM

    recipe.check()
    out = Path(out)
    with world(device) as here:
        if not resume:
            here.from_main(lambda: require_new_folder(out, overwrite, mark=RUN))
        if here.size > 1:
            here.from_main(lambda: len(recipe.corpus(quiet).train))  # the others then find it in the cache
        corpus = recipe.corpus(quiet or not here.is_main)
        config = recipe.model_config(corpus)
        torch.manual_seed(recipe.engine.seed)
        model = HelmForCausalLM(config)
        task = LanguageTask(recipe, corpus, here, out)
        about = {
            **{key: value for key, value in asdict(recipe).items() if key not in ("engine", "config")},
            "parameters": model.num_parameters(),
            "tokens": {"train": len(corpus.train), "valid": len(corpus.valid)},
            "config": {key: getattr(config, key) for key in inspect.get_annotations(type(config))},
        }
        result = fit(
            model, task, recipe.engine, out, here, resume=resume, overwrite=overwrite, about=about, quiet=quiet
        )
        del model, task
        here.from_main(lambda: _export(out, result.checkpoint, config, corpus.tokenizer))
        return result


def load(run: str | Path) -> tuple[HelmForCausalLM, PreTrainedTokenizerFast]:
    """The model of a run, on the CPU and in eval mode, and its tokenizer. Of a run under way, or stopped, the last checkpoint."""
    folder = Path(run)
    require("language")
    if (folder / EXPORTED).is_file():
        model = _exported(folder)
    else:
        from horosphere.models.helm import HelmConfig

        about = _about(folder)
        model = _from_checkpoint(last_checkpoint(folder), HelmConfig(**about["config"]))
    tokenizer = load_tokenizer(folder)
    known = max(tokenizer.get_vocab().values()) + 1
    if known > model.config.vocab_size:
        raise UserError(
            f"{folder}: the tokenizer has {known} tokens, the model only {model.config.vocab_size}; put back its own"
        )
    return model.eval(), tokenizer


def _about(folder: Path) -> dict[str, Any]:
    return read_run(folder, "a language model", {"config", "data", "tokens"})


def _exported(folder: Path) -> HelmForCausalLM:
    from horosphere.models.helm import HelmConfig, HelmForCausalLM

    try:
        kind = json.loads((folder / EXPORTED).read_text(encoding="utf-8")).get("model_type")
        if kind != HelmConfig.model_type:
            raise UserError(
                f"{folder}: a model of type {kind}; this reads {HelmConfig.model_type} only, load it with transformers"
            )
        with _hushed():
            model, problems = HelmForCausalLM.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except UserError:
        raise
    except Exception as error:  # what transformers and safetensors raise for a broken file is anyone's guess
        raise _damaged(folder, error) from error
    for what, names in problems.items():
        if names:
            raise _damaged(folder, f"{what.replace('_', ' ')}: {min(map(str, names))}")
    assert isinstance(model, HelmForCausalLM)
    return model


def _damaged(folder: Path, reason: object) -> UserError:
    how = f"; delete its {EXPORTED} to use the last checkpoint" if checkpoint.latest(folder / CHECKPOINTS) else ""
    return UserError(f"{folder}: a damaged or foreign model ({' '.join(str(reason).split())[:160]}){how}")


def _from_checkpoint(path: Path, config: HelmConfig) -> HelmForCausalLM:
    from horosphere.models.helm import HelmForCausalLM

    model = HelmForCausalLM(config)
    checkpoint.restore(path, model, World())
    return model


def _export(folder: Path, path: Path, config: HelmConfig, tokenizer: PreTrainedTokenizerFast) -> None:
    """model.safetensors, generation_config.json, the tokenizer's files and, last, config.json."""
    if not (folder / EXPORTED).is_file():
        _put(folder, _from_checkpoint(path, config).save_pretrained, tokenizer.save_pretrained)


def _put(folder: Path, *savers: Callable[[str], object]) -> None:
    """Files into a folder, each whole, readable for whom run.json is (safetensors' own are not); EXPORTED last."""
    with TemporaryDirectory(dir=folder, prefix=".aside.", ignore_cleanup_errors=True) as aside, _hushed():
        for save in savers:
            save(aside)
        for file in sorted(Path(aside).iterdir(), key=lambda file: file.name == EXPORTED):
            file.chmod((folder / RUN).stat().st_mode)
            file.replace(folder / file.name)


@contextmanager
def _hushed() -> Iterator[None]:
    """Without the bars and reminders of transformers; its errors still come through."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


# -- writing ----------------------------------------------------------------------------------------------------------


def write(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    prompt: str,
    tokens: int,
    temperature: float = 0.8,
    top_k: int = 50,
    greedy: bool = False,
    **options: Any,
) -> str:
    """The prompt, at the start of a document, and how the model goes on: until the document ends, or for so many tokens.

    Further options are those of `generate`: a streamer, for example.
    """
    device = next(model.parameters()).device
    start = [model.config.bos_token_id, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]  # type: ignore[union-attr]
    ids = torch.tensor([start], device=device)
    choice = {"do_sample": False} if greedy else {"do_sample": True, "temperature": temperature, "top_k": top_k}
    with torch.no_grad(), _hushed():
        out = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, **choice, **options
        )  # type: ignore[operator]
    return str(tokenizer.decode(out[0], skip_special_tokens=True))
