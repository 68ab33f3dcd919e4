"""Language models: packed documents as if apart, validation shared by processes, folders others can load, writing."""

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers", reason="language models need transformers")

from horosphere.data.tokens import TokenFile, Windows, packed_positions, text_tokens, windows_in_order
from horosphere.errors import UserError
from horosphere.evaluate import text as evaluate_text
from horosphere.evaluate.text import validate
from horosphere.models.helm import HELM, TWINS, HelmForCausalLM
from horosphere.models.writing import packed_inputs, write
from horosphere.nn import Router
from horosphere.recipes import read_recipe, recipe_names
from horosphere.runs import Run
from horosphere.tasks.language import Language, load, token_study
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe
from tests.tasks.test_every_task import live, refused, truncate
from tests.tasks.tiny import run_tiny, tiny, write_text
from tests.train.toy_task import lines

MODELS = ("helm-d-tiny", "helm-mice-tiny", "llama-tiny", "deepseek-tiny")
EXPORT = {
    *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    *("modeling_horosphere.py", "README.md"),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "cats.txt")


@pytest.fixture
def recipe(text):
    return lambda name="helm-d-tiny", *more: tiny("language", text, *more, name=name)


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    """A run of HELM-MiCE that is done."""
    folder = tmp_path_factory.mktemp("runs") / "mice"
    run_tiny(tiny("language", text), folder)
    return folder


def untrained(recipe, seed=0):
    """A model whose tokens differ more than at the start of a training."""
    torch.manual_seed(seed)
    corpus = recipe.task.open_data()
    task = replace(recipe.task, config={**recipe.task.config, "initializer_range": 0.2})
    return HelmForCausalLM(task.model_config(corpus.tokenizer)).eval(), corpus


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_a_setting_goes_where_it_belongs_in_its_type(text):
    settings = ["geometry=lorentz", "steps=500", "lr=1e-3", "num_hidden_layers=2", "expert_spread=1,3"]
    read = Recipe.read("helm-d-tiny", [f"data={text}", *settings])
    assert (read.task.data, read.engine.steps, read.engine.lr) == (text, 500, 1e-3)
    assert read.task.config == {"geometry": "lorentz", "num_hidden_layers": 2, "expert_spread": (1.0, 3.0)}
    assert read.task.model_config(read.task.open_data().tokenizer).num_hidden_layers == 2


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("num_hidden_layer=2", "did you mean num_hidden_layers"),
        ("max_position_embeddings=9", "there is no setting max_position_embeddings"),
        ("hidden_size=0", "hidden_size=0: it goes from 1 to 1e6"),
        ("length=0", "length=0: it goes from 1 to 1e6"),
        ("geometry=spherical", "geometry=spherical: choose from lorentz, euclidean"),
        ("model=gpt-tiny", "model=gpt-tiny: there is no such model"),
        ("model=resnet18", "model=resnet18: a model of the task pictures; language has helm-d-tiny"),
    ],
)
def test_a_wrong_setting_is_named(setting, complaint):
    with pytest.raises(UserError) as error:
        Recipe.read("helm-d-tiny", [setting])
    assert complaint in str(error.value)


def test_every_model_has_its_recipe_and_a_twin_differs_in_nothing_else():
    names = {name for name in recipe_names() if read_recipe(name)["task"] == "language"}
    assert names == {*HELM, *TWINS, "rnn-lm", "gru-lm", "lstm-lm", "fflm"}
    for name in names:
        assert Recipe.read(name).task.model == name
    for twin, (helm, _) in TWINS.items():
        assert read_recipe(twin) == {**read_recipe(helm), "model": twin}


def test_the_papers_training():
    recipe = Recipe.read("helm-mice-1b")
    engine = recipe.engine
    assert recipe.task.length * engine.batch == pytest.approx(2.1e6, rel=0.01)
    chosen = (engine.lr, engine.weight_decay, engine.warmup, engine.final, engine.clip, engine.precision)
    assert chosen == (4e-4, 0.01, 0.03, 0.1, 1.0, "bf16")


# -- packed documents -------------------------------------------------------------------------------------------------


def test_positions_are_needed_only_where_documents_meet():
    assert packed_positions(torch.tensor([[0, 5, 6], [7, 5, 6]]), bos=0) is None
    assert packed_positions(torch.tensor([[0, 5, 6], [7, 0, 6]]), bos=0).tolist() == [[0, 1, 2], [0, 0, 1]]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_packed_documents_are_predicted_as_if_apart(recipe, name, position):
    model, corpus = untrained(recipe(name, f"position={position}"))
    sizes = (5, 1, 7, 3)
    packed = torch.randint(1, 300, (2, 16), generator=torch.Generator().manual_seed(0))
    packed[:, [5, 6, 13]] = corpus.train.bos
    with torch.no_grad():
        together = model(**packed_inputs(packed, packed_positions(packed, corpus.train.bos))).logits
        plain = model(**packed_inputs(packed, None)).logits
        apart = torch.cat([model(part, use_cache=False).logits for part in packed.split(sizes, 1)], 1)
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(plain, apart, atol=1e-2)


def test_the_tasks_loss_is_the_mean_over_documents_kept_apart(recipe, text):
    small = recipe("helm-d-tiny", "length=64")
    model, corpus = untrained(small)
    task = live("language", text, "length=64")
    batch = task.batch(0, range(4))
    assert "position_ids" in batch
    nats = []
    for row in batch["tokens"]:
        starts = [0, *(t for t in range(1, 64) if row[t] == corpus.train.bos), 64]
        for start, end in pairwise(starts):
            logits = model(row[None, start:end], use_cache=False).logits[0]
            nats.append(F.cross_entropy(logits, row[start + 1 : end + 1], reduction="sum"))
    loss, _ = task.loss(model, batch)
    assert loss.item() == pytest.approx(sum(nats).item() / (4 * 64), rel=1e-4)


def test_a_window_within_a_document_takes_the_fast_path(text):
    task = live("language", text, "length=4")
    batches = [task.batch(step, range(1)) for step in range(40)]
    inner = [(batch["tokens"][:, 1:-1] == 0).any().item() for batch in batches]
    assert [("position_ids" in batch) for batch in batches] == inner
    assert [not task.graphable(batch) for batch in batches] == inner
    assert len(set(inner)) == 2


# -- validation -------------------------------------------------------------------------------------------------------


def stream(count):
    numbers = np.random.default_rng(0).integers(1, 300, count).astype(np.uint16)
    numbers[::23] = 0
    return TokenFile(numbers, 0, 320, 3 * count, 1)


def test_validation_is_the_mean_cost_of_every_token(recipe):
    model, _ = untrained(recipe())
    tokens = stream(100)
    score = validate(model, tokens, 16, World())
    nats = 0.0
    with torch.no_grad():
        for window, counted in windows_in_order(tokens, 16, 1):
            inputs = packed_inputs(window[:, :-1], packed_positions(window[:, :-1], 0))
            nats += F.cross_entropy(model(**inputs).logits[counted], window[:, 1:][counted], reduction="sum").item()
    assert score.tokens == 99
    assert score.nats == pytest.approx(nats, rel=1e-5)
    assert score.bits_per_byte == pytest.approx(nats / math.log(2) / 300, rel=1e-5)


def test_no_more_logits_at_once_than_memory_is_kept_for(recipe, monkeypatch):
    model, _ = untrained(recipe())
    rows = []
    model.register_forward_hook(lambda _, __, kwargs, out: rows.append(out.logits.shape[0]), with_kwargs=True)
    monkeypatch.setattr(evaluate_text, "LOGITS", 4 * 16 * 320)
    score = validate(model, stream(1000), 16, World())
    assert set(rows) == {4, 3}  # 63 windows
    monkeypatch.setattr(evaluate_text, "LOGITS", 1)
    rows.clear()
    assert validate(model, stream(100), 16, World()).tokens == 99
    assert set(rows) == {1}
    monkeypatch.undo()
    rows.clear()
    assert validate(model, stream(1000), 16, World()).nats == pytest.approx(score.nats, rel=1e-5)
    assert rows == [63]


def test_a_limit_scores_windows_of_the_whole_text_and_counts_bytes_in_proportion(recipe):
    model, _ = untrained(recipe())
    tokens = stream(1000)
    score = validate(model, tokens, 16, World(), limit=10)
    assert score.tokens == 160
    assert score.bytes == round(3000 * 160 / 999)
    drawn = Windows(tokens, 16, 10, seed=0).batch(0)
    expected = [validate(model, replace(tokens, tokens=row.numpy()), 16, World()).nats for row in drawn]
    assert score.nats == pytest.approx(sum(expected), rel=1e-5)
    assert validate(model, tokens, 16, World(), limit=10**6).tokens == 999


@pytest.mark.parametrize(("count", "limit"), [(1000, None), (1000, 7), (100, None), (20, None), (1000, 1)])
@pytest.mark.parametrize("size", [2, 3])
def test_processes_share_a_validation(recipe, monkeypatch, count, limit, size):
    """Each process does as many forwards, and their sums are those of one process, or the same multiple of them."""
    model, _ = untrained(recipe())
    tokens = stream(count)
    alone = validate(model, tokens, 16, World(), limit)
    parts, calls, shown = [], [], []
    monkeypatch.setattr(World, "sum", lambda self, values: parts.append(values.clone()) or values)
    model.register_forward_hook(lambda *_: calls.append(1))
    forwards = []
    for rank in range(size):
        score = validate(model, tokens, 16, World(rank, size), limit, lambda done, note, rank=rank: shown.append(rank))
        assert score.stderr is None  # one process has seen some of the windows only
        forwards.append(len(calls))
        calls.clear()
    nats, predicted = sum(parts).tolist()
    assert len(set(forwards)) == 1
    assert nats / predicted == pytest.approx(alone.loss, rel=1e-5)
    assert predicted % alone.tokens == 0
    assert set(shown) == {0}  # one shows how far all are


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_a_hugging_face_model(run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert {path.name for path in run.iterdir()} == {*EXPORT, "run.json", "metrics.jsonl", "checkpoints"}
    assert {(run / name).stat().st_mode for name in EXPORT} == {(run / "run.json").stat().st_mode}
    model, tokenizer = load(run)
    theirs = AutoModelForCausalLM.from_pretrained(run)
    ids = torch.tensor([[0, *tokenizer("The cat's hat")["input_ids"]]])
    assert torch.equal(theirs(ids).logits, model(ids).logits)
    assert AutoTokenizer.from_pretrained(run)("größer")["input_ids"] == tokenizer("größer")["input_ids"]
    config = model.config
    assert (
        config.vocab_size % 64,
        config.max_position_embeddings,
        config.bos_token_id,
        config.eos_token_id,
        config.pad_token_id,
    ) == (0, 16, 0, 0, 0)
    saved = load_file(run / "checkpoints/step-00000004/model-00001-of-00001.safetensors")
    assert all(torch.equal(model.state_dict()[name], t) for name, t in saved.items())


def test_what_a_run_logs(run):
    training = [line for line in lines(run) if "loss" in line]
    evaluation = [line for line in lines(run) if "eval_loss" in line]
    assert [line["step"] for line in training] == [1, 2, 3, 4]
    assert all(1 < line["expert_imbalance"] <= 2 for line in training)  # two of four experts: twice their share
    assert [line["step"] for line in evaluation] == [2, 4]
    for line in evaluation:
        assert line["eval_perplexity"] == pytest.approx(math.exp(line["eval_loss"]))
        assert 0.09 < line["eval_curvature_min"] < line["eval_curvature_max"] < 2.2
    assert training[-1]["loss"] < training[0]["loss"]


def test_the_imbalance_is_that_of_the_worst_layer(text):
    task = live("language", text, "num_hidden_layers=4")
    model = task.build(task.corpus).train()
    routers = [module for module in model.modules() if isinstance(module, Router)]
    assert len(routers) > 1
    for router in routers:
        router.e_score_correction_bias.zero_()
    routers[0].e_score_correction_bias[:2] = 100.0  # always these two of four, in this layer
    _, numbers = task.loss(model, task.batch(0, range(2)))
    assert numbers["expert_imbalance"] == 2
    assert any(router.load.max() < 2 * router.load.mean() for router in routers[1:])


def test_the_last_evaluation_is_of_all_the_text_and_repeatable(run, text):
    model, _ = load(run)
    task = live("language", text, "eval_rows=2")
    again = validate(model, task.corpus.valid, 16, World())
    assert again.loss == pytest.approx(Run.open(run).scores()["loss"], rel=1e-6)
    assert (again.tokens, again.bytes) == (len(task.corpus.valid) - 1, task.corpus.valid.text_bytes)
    assert task.evaluate(model, last=True)["loss"] == pytest.approx(again.loss, rel=1e-6)
    assert task.evaluate(model, last=False)["loss"] != pytest.approx(again.loss, rel=1e-6)


def test_another_field_is_read(tmp_path):
    rows = [{"text": "never", "body": f"the cat sat on mat {i}"} for i in range(60)]
    (tmp_path / "cats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = tiny("language", tmp_path / "cats.jsonl", "field=body").task.open_data()
    text = corpus.tokenizer.decode(corpus.train.tokens[:200].astype(int))
    assert "the cat sat on mat" in text
    assert "never" not in text


def test_a_tokenizer_of_ones_own(run, recipe, tmp_path):
    assert run_tiny(recipe("llama-tiny", f"tokenizer={run}", "steps=1"), tmp_path / "run").step == 1
    assert json.loads((tmp_path / "run/tokenizer.json").read_text()) == json.loads((run / "tokenizer.json").read_text())


def test_a_run_keeps_what_it_wrote(recipe, tmp_path):
    run_tiny(recipe("helm-d-tiny", "sample_every=2"), tmp_path / "run")
    samples = [line for line in Run.open(tmp_path / "run").lines() if "sample" in line]
    assert [line["step"] for line in samples] == [2, 4]
    assert all(isinstance(line["sample"], str) for line in samples)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_data_that_does_not_do(recipe, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    wrong = {
        "holds no text": [f"data={tmp_path / 'empty.txt'}"],
        "no tokenizer (it has no tokenizer.json)": [f"tokenizer={tmp_path}"],
        "vocab_size=256: the tokenizer has 300 tokens": ["vocab_size=256"],
        "too few for one window": ["length=100000"],
    }
    for complaint, settings in wrong.items():
        refused(tmp_path, lambda more=settings: run_tiny(recipe("helm-d-tiny", *more), tmp_path / "run"), complaint)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


DAMAGE = {
    "no run": (lambda folder: [shutil.rmtree(folder), folder.mkdir()], "no folder of a run"),
    "truncated model": (lambda folder: truncate(folder / "model.safetensors"), "damaged or foreign model"),
    "no model": (lambda folder: (folder / "model.safetensors").unlink(), "damaged or foreign model"),
    "half of the weights": (lambda folder: edit(folder, drop="lm_head.weight"), "missing keys: lm_head.weight"),
    "weights of another": (lambda folder: edit(folder, add="other.weight"), "unexpected keys: other.weight"),
    "foreign configuration": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "llama"}'),
        "a model of type llama",
    ),
    "broken configuration": (lambda folder: truncate(folder / "config.json"), "damaged or foreign model"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer (it has no tokenizer.json)"),
    "another tokenizer": (lambda folder: enlarge(folder), "the tokenizer has 400 tokens, the model only 320"),
    "no checkpoint yet": (
        lambda folder: unfinished(folder, lambda path: shutil.rmtree(path)),
        "the run has no checkpoint yet",
    ),
    "truncated checkpoint": (
        lambda folder: unfinished(folder, lambda path: truncate(path / "model-00001-of-00001.safetensors")),
        "damaged checkpoint",
    ),
    "broken run.json": (lambda folder: unfinished(folder, lambda _: truncate(folder / "run.json")), "damaged file"),
    "another run.json": (
        lambda folder: unfinished(folder, lambda _: widen(folder / "run.json")),
        "a checkpoint of another run",
    ),
}


def edit(folder, drop=None, add=None):
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(drop, None)
    save_file({**tensors, **({add: torch.zeros(2)} if add else {})}, folder / "model.safetensors", {"format": "pt"})


def enlarge(folder):
    from horosphere.data.tokenizer import train_tokenizer

    train_tokenizer(
        ["".join(chr(97 + i % 26) + chr(97 + i // 26 % 26) + " " for i in range(5000))], 400
    ).save_pretrained(folder)


def unfinished(folder, damage):
    (folder / "config.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        damage(path)


def widen(path):
    run = json.loads(path.read_text())
    run["recipe"]["model"]["hidden_size"] = 64
    path.write_text(json.dumps(run))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_named(copy, damage):
    harm, complaint = DAMAGE[damage]
    harm(copy)
    refused(copy, lambda: load(copy), complaint)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_writing_goes_on_from_the_prompt(run):
    model, tokenizer = load(run)

    def say(seed=0, **options):
        torch.manual_seed(seed)
        return write(model, tokenizer, "The cat", 8, **options)

    assert say() == say() != say(1)
    assert say(greedy=True) == say(1, greedy=True) == say(1, top_k=1)
    assert say().startswith("The cat")
    ids = torch.tensor([[0, *tokenizer("The cat")["input_ids"]]])
    while (
        ids.shape[1] < len(tokenizer("The cat")["input_ids"]) + 9 and (ids[0, 1:] != 0).all()
    ):  # so many tokens, or to the document's end
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    assert say(greedy=True) == tokenizer.decode(ids[0], skip_special_tokens=True)


def test_a_sample_has_the_same_length_whatever_comes(run, text, monkeypatch):
    model, _ = load(run)
    seen = []
    generate = model.generate
    monkeypatch.setattr(model, "generate", lambda **options: seen.append(generate(**options)) or seen[-1])
    live("language", text).sample(model)
    assert seen[0].shape == (1, 16)  # the start of a document, and as many as the model has places for
    assert (seen[0][:, 1:] != 0).all()


def test_tokens_of_any_text(run, tmp_path):
    _, tokenizer = load(run)
    path = tmp_path / "other.txt"
    path.write_text("größer\fmore", encoding="utf-8")
    text = text_tokens(str(path), tokenizer)
    assert text.tokens.tolist() == [0, *tokenizer("größer")["input_ids"], 0, *tokenizer("more")["input_ids"]]
    assert (text.text_bytes, text.documents) == (12, 2)


# -- under the instruments --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """Two runs of two steps on a small text."""
    folder = tmp_path_factory.mktemp("twins")
    words = ["the cat sat on a mat", "dogs chase cats", "cats chase mice", "nothing is ever so blue as the sky"]
    (folder / "text.txt").write_text("\f".join(f"{a}, and {b}. " * 9 for a in words for b in words for _ in range(4)))
    for name in ("helm-mice-tiny", "deepseek-tiny"):
        run_tiny(tiny("language", folder / "text.txt", "steps=2", name=name), folder / name)
    return folder


def test_a_run_and_its_twin_are_measured_on_their_own_text(twins):
    both = {name: twins / name for name in ("helm-mice-tiny", "deepseek-tiny")}
    result = token_study(both)
    assert list(result.radius) == list(both)
    assert result.stats["helm-mice-tiny"].length == 16
    assert "cats" in " ".join(result.labels)
    alone = token_study({"alone": Run.open(twins / "helm-mice-tiny")})
    assert alone.radius["alone"].correlation == result.radius["helm-mice-tiny"].correlation


def test_another_text_is_counted_and_read(twins, tmp_path):
    other, run = tmp_path / "other.txt", {"helm": twins / "helm-mice-tiny"}
    other.write_text("the cat chases dogs, quickly: brown fox! " * 50)
    radius = token_study(run, str(other)).radius["helm"]
    assert 50 in radius.counts.tolist()
    assert (radius.counts > 0).sum() < 40
    other.write_text("the " * 50)
    with pytest.raises(UserError, match=r"only \d different tokens occur in the text"):
        token_study(run, str(other))


def test_runs_that_cannot_be_compared(twins, run, tmp_path):
    with pytest.raises(UserError, match="other has another tokenizer than helm"):
        token_study({"helm": twins / "helm-mice-tiny", "other": run})
    with pytest.raises(UserError, match="no folder of a run"):
        token_study({"nothing": tmp_path / "nothing"})


def test_a_text_that_has_changed(twins):
    text = twins / "text.txt"
    before = text.read_text()
    text.write_text(before.replace("cat", "elephant"))
    try:
        with pytest.raises(UserError, match=r"has changed since .* name a text with --data"):
            token_study({"helm": twins / "helm-mice-tiny"})
    finally:
        text.write_text(before)


# -- the classics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rnn-lm", "lstm-lm", "fflm"])
@pytest.mark.parametrize("geometry", ["euclidean", "poincare"])
def test_a_classic_is_trained_loaded_and_writes(text, tmp_path, name, geometry):
    recipe = tiny("characters", text, f"geometry={geometry}", "steps=2", "sample_every=2", name=name)
    run_tiny(recipe, tmp_path / "run")
    model, tokenizer = load(tmp_path / "run")
    assert model.config.geometry == geometry
    assert write(model, tokenizer, "The", 5, greedy=True).startswith("The")


def test_n_grams_stand_beside_models_of_characters(text, tmp_path):
    run_tiny(tiny("characters", text, "steps=1"), tmp_path / "run")
    found = Run.open(tmp_path / "run").baselines()
    assert list(found) == ["unigram", "bigram", "trigram"]
    assert found["unigram"]["perplexity"] > found["trigram"]["perplexity"] > 1
    (alone,) = live("language", text).baselines().items()  # other tokens are too many for pairs of them
    assert alone[0] == "unigram"
    assert alone[1]["perplexity"] > 1


def test_frequencies_alone_cost_what_the_entropy_of_their_code_is(text):
    """-Σ log₂ of (n + 1/V)/(N + 1), by hand, over the bytes of the text."""
    corpus = live("language", text).corpus
    counts = Counter(corpus.train.tokens.tolist())
    total, size = len(corpus.train), corpus.train.vocab_size
    bits = sum(-math.log2((counts[token] + 1 / size) / (total + 1)) for token in corpus.valid.tokens.tolist())
    found = live("language", text).baselines()["unigram"]["bits_per_byte"]
    assert found == pytest.approx(bits / corpus.valid.text_bytes)


def test_instruments_for_attention_refuse_a_model_that_has_none(text, tmp_path):
    run_tiny(tiny("characters", text, "steps=1"), tmp_path / "run")
    with pytest.raises(UserError, match="these instruments look at attention"):
        token_study({"gru": tmp_path / "run"})
    assert Language.examine({"gru": Run.open(tmp_path / "run")}) is None


# -- points -----------------------------------------------------------------------------------------------------------


def test_points_are_the_tokens_of_the_tokenizer(run):
    vectors, (model, tokenizer) = Language.vectors(Run.open(run)), load(run)
    assert len(vectors.labels) == len(set(vectors.labels)) == len(tokenizer) < model.config.vocab_size
    table, manifold = model.model.embed_tokens.weight, model.model.manifold
    assert torch.equal(vectors.points, manifold.slots.space(table)[: len(tokenizer)])
    assert repr(vectors.manifold) == repr(manifold)
    assert not vectors.points.requires_grad
    kinds = dict(zip(vectors.labels, vectors.columns["kind"], strict=True))
    assert (kinds["␣cat"], kinds["a"], kinds["7"], kinds[";"]) == ("word start", "inside", "number", "punctuation")
    assert kinds[tokenizer.bos_token] == "special"
    assert all(len(column) == len(tokenizer) for column in vectors.columns.values())


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_points_of_a_recurrent_model_are_its_characters(text, tmp_path, geometry):
    run_tiny(tiny("characters", text, f"geometry={geometry}"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, model = Language.vectors(run), run.load().model
    assert torch.equal(vectors.points, model.embed_tokens.weight[: len(vectors.labels)])
    assert vectors.manifold.flat == (geometry == "euclidean")
    assert {"␣", "c", "猫"} < set(vectors.labels)
