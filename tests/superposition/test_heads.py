"""The head read is the one the model multiplies with, whoever saved it. Overlaps are those of all pairs."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from horosphere.errors import UserError
from horosphere.superposition import heads
from horosphere.superposition.heads import head, head_counts, head_geometry

transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
HELM = {**SIZES, "head_dim": 8}
OPT = {
    "vocab_size": 48,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 32,
    "do_layer_norm_before": False,
}


def build(kind):
    from horosphere.models.helm import HelmConfig, HelmForCausalLM

    t = transformers
    torch.manual_seed(0)
    model = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SIZES)),
        "llama tied": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SIZES, tie_word_embeddings=True)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(vocab_size=48, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        ),
        "opt": lambda: t.OPTForCausalLM(t.OPTConfig(**OPT, word_embed_proj_dim=16)),
        "opt projected": lambda: t.OPTForCausalLM(t.OPTConfig(**OPT, word_embed_proj_dim=8)),
        "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**SIZES)),
        "helm": lambda: HelmForCausalLM(HelmConfig(**HELM)),
        "helm tied": lambda: HelmForCausalLM(HelmConfig(**HELM, tie_word_embeddings=True)),
        "helm hyperplane": lambda: HelmForCausalLM(HelmConfig(**HELM, head="hyperplane")),
        "helm flat": lambda: HelmForCausalLM(HelmConfig(**HELM, geometry="euclidean")),
    }[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def expected(model):
    weight = model.get_output_embeddings().weight.detach()
    projection = getattr(getattr(model.base_model, "decoder", None), "project_out", None)
    if projection is not None:
        return weight @ projection.weight.detach()
    return weight[:, 1:] if getattr(model.config, "geometry", "") == "lorentz" else weight


def gpt2_folder(folder):
    build("gpt2").save_pretrained(folder)
    return folder


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


# -- reading ----------------------------------------------------------------------------------------------------------

KINDS = [
    "llama",
    "llama tied",
    "qwen2",
    "gpt2",
    "opt",
    "opt projected",
    "gpt_neox",
    "helm",
    "helm tied",
    "helm hyperplane",
    "helm flat",
]


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_head_is_the_models_own(tmp_path, kind, shards):
    model = build(kind)
    model.save_pretrained(tmp_path, **({"max_shard_size": "2KB"} if shards else {}))
    assert (tmp_path / "model.safetensors.index.json").is_file() == shards
    read = head(tmp_path)
    torch.testing.assert_close(read.weight, expected(model), rtol=1e-6, atol=1e-6)
    assert read.tied == (model.get_output_embeddings().weight is model.get_input_embeddings().weight)
    assert read.dims == {"opt projected": 8, "helm": 15, "helm tied": 15, "helm hyperplane": 15}.get(kind, 16)
    assert read.padded == 0
    assert bool(read.note) == (read.dims < 16)


def test_the_logits_are_the_head_times_the_stream(tmp_path):
    """OPT's projection is composed the right way around."""
    model = build("opt projected").eval()
    model.save_pretrained(tmp_path)
    stream = []
    model.model.decoder.project_out.register_forward_pre_hook(lambda _, args: stream.append(args[0]))
    logits = model(torch.arange(6)[None]).logits
    torch.testing.assert_close(stream[0] @ head(tmp_path).weight.T, logits, rtol=1e-4, atol=1e-4)


def test_precision_stays_as_it_was_stored(tmp_path):
    model = build("gpt_neox").bfloat16()
    model.save_pretrained(tmp_path)
    weight = head(tmp_path).weight
    assert weight.dtype == torch.bfloat16
    assert torch.equal(weight, model.get_output_embeddings().weight)


def test_only_the_heads_file_is_needed(tmp_path):
    model = build("llama")
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    holder = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]["lm_head.weight"]
    for file in tmp_path.glob("model-*.safetensors"):
        if file.name != holder:
            file.unlink()
    torch.testing.assert_close(head(tmp_path).weight, model.lm_head.weight.detach())


def test_old_names_and_silent_configurations(tmp_path):
    """GPT-2 on Hugging Face has neither a prefix nor a word about tying."""
    model = build("gpt2")
    model.save_pretrained(tmp_path)
    save_file(
        {name.removeprefix("transformer."): t.detach().clone() for name, t in model.transformer.named_parameters()},
        tmp_path / "model.safetensors",
    )
    edit(tmp_path / "config.json", lambda config: config.pop("tie_word_embeddings", None))
    read = head(tmp_path)
    assert (read.tensor, read.tied) == ("wte.weight", True)
    torch.testing.assert_close(read.weight, expected(model))


def test_a_run_under_way_is_read_from_its_last_checkpoint(tmp_path):
    from horosphere.train.checkpoint import save
    from horosphere.train.distributed import World

    for step, kind in ((1, "helm flat"), (2, "helm tied")):
        model = build(kind)
        save(tmp_path / "checkpoints", model, torch.optim.SGD(model.parameters()), World(), {"step": step})
    recipe = {"task": {}, "engine": {}, "model": {**HELM, "tie_word_embeddings": True}}
    about = {"task": "language", "recipe": recipe, "facts": {}, "made_with": {}}
    (tmp_path / "run.json").write_text(json.dumps(about))
    torch.testing.assert_close(head(tmp_path).weight, expected(model))
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint yet"):
        head(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({**about, "task": "pictures"}))
    with pytest.raises(UserError, match="a run of the task pictures; give one of language"):
        head(tmp_path)


@pytest.mark.parametrize(
    "vocabulary", [{f"t{i}": i for i in range(30)}, [[f"t{i}", 0.0] for i in range(30)]], ids=["BPE", "Unigram"]
)
@pytest.mark.parametrize(("added", "known"), [([], 30), ([{"id": 2}, {"id": 33}], 34), ([{"id": 99}], 48)])
def test_rows_that_no_token_has_are_dropped(tmp_path, vocabulary, added, known):
    model = build("llama")
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": added}))
    read = head(tmp_path)
    assert read.padded == 48 - known
    torch.testing.assert_close(read.weight, model.lm_head.weight.detach()[:known])


def test_rows_beyond_the_configuration_are_dropped(tmp_path):
    gpt2_folder(tmp_path)
    edit(tmp_path / "config.json", lambda config: config.update(vocab_size=40))
    assert (head(tmp_path).padded, len(head(tmp_path).weight)) == (8, 40)


# -- Hugging Face -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub in a folder, and the files it was asked for."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    class Missing(EntryNotFoundError):
        def __init__(self):
            Exception.__init__(self, "404")

    asked = []

    def download(repo, name):
        asked.append(name)
        if repo != "org/model":
            raise OSError(f"there is no {repo},\nor no connection")
        if not (tmp_path / name).is_file():
            raise Missing
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return tmp_path, asked


def test_of_a_named_model_only_what_is_needed_is_fetched(hub):
    folder, asked = hub
    model = build("llama")
    model.save_pretrained(folder, max_shard_size="2KB")
    holder = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]["lm_head.weight"]
    torch.testing.assert_close(head("hf:org/model").weight, model.lm_head.weight.detach())
    assert set(asked) == {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json", holder}


def test_a_hub_that_does_not_answer_is_named_in_one_line(hub):
    with pytest.raises(
        UserError, match=r"hf:org/other: config\.json cannot be fetched \(there is no org/other, or no connection"
    ):
        head("hf:org/other")
    with pytest.raises(UserError, match=r"no config\.json"):
        head("hf:org/model")


def test_no_connection_is_not_a_missing_file(hub, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_):
        raise LocalEntryNotFoundError("cannot find the file in the cache")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(UserError, match="Check the name, your access to it and the connection"):
        head("hf:org/model")


def test_a_path_that_is_not_there_asks_nobody(hub):
    with pytest.raises(UserError, match=r"org/model: no such folder.*hf:NAME"):
        head("org/model")
    assert hub[1] == []


# -- what is no head --------------------------------------------------------------------------------------------------


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_are_never_opened(tmp_path):
    gpt2_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful(str(tmp_path / "harm"))))
    with pytest.raises(UserError, match="never opened"):
        head(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("kind", ["LlamaModel", "BertModel"])
def test_a_model_without_a_head(tmp_path, kind):
    config = getattr(transformers, kind.replace("Model", "Config"))(**SIZES)
    getattr(transformers, kind)(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"{kind} has no head"):
        head(tmp_path)


def cut_short(file):
    file.write_bytes(file.read_bytes()[:50])


def save_head(weight, folder):
    save_file({"lm_head.weight": weight}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: cut_short(folder / "model.safetensors"), "a damaged file"),
        (lambda folder: cut_short(folder / "config.json"), "config.json: a damaged file"),
        (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
        (lambda folder: (folder / "config.json").unlink(), "neither config.json nor run.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "a damaged tokenizer"),
        (lambda folder: save_head(torch.ones(4), folder), "has shape"),
        (lambda folder: save_head(torch.ones(4, 4, dtype=torch.int8), folder), "int8, a quantised head"),
        (lambda folder: save_head(torch.full((4, 4), torch.nan), folder), "is not finite"),
    ],
)
def test_a_damaged_model_is_named_in_one_line(tmp_path, harm, said):
    harm(gpt2_folder(tmp_path))
    with pytest.raises(UserError, match=said) as error:
        head(tmp_path)
    assert "\n" not in str(error.value)


def point_to(index, file):
    """Let an index say that the head is in this file."""
    index["weight_map"]["lm_head.weight"] = file


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda index: index.pop("weight_map"), "a damaged index"),
        (lambda index: point_to(index, "../elsewhere.safetensors"), "a damaged index"),
        (lambda index: point_to(index, "none.safetensors"), "none.safetensors is missing, which holds lm_head.weight"),
        (lambda index: point_to(index, index["weight_map"]["model.norm.weight"]), "lm_head.weight is not in it"),
    ],
)
def test_a_damaged_index_is_named_in_one_line(tmp_path, harm, said):
    build("llama").save_pretrained(tmp_path, max_shard_size="2KB")
    files = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert files["lm_head.weight"] != files["model.norm.weight"]
    edit(tmp_path / "model.safetensors.index.json", harm)
    with pytest.raises(UserError, match=said):
        head(tmp_path)


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_are_counted_with_the_models_own_tokenizer(tmp_path):
    from horosphere.data.tokenizer import train_tokenizer

    text = "the cat sat on the mat. " * 9
    tokenizer = train_tokenizer([text], 270)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text(text + "\f" + text)
    counts = head_counts(tmp_path, str(tmp_path / "text.txt"), 300)
    np.testing.assert_array_equal(counts, 2 * np.bincount(tokenizer(text)["input_ids"], minlength=300))
    with pytest.raises(UserError, match="the model knows 5"):
        head_counts(tmp_path, str(tmp_path / "text.txt"), 5)


# -- geometry ---------------------------------------------------------------------------------------------------------


def all_pairs(x):
    """Mean square overlap by the n x n matrix."""
    x = x / x.norm(dim=1, keepdim=True)
    squares = (x @ x.T).square()
    return float((squares.sum() - squares.diagonal().sum()) / (len(x) * (len(x) - 1)))


def crooked(n, d, seed=0):
    """Rows with a common part, a few strong directions, and lengths of all sizes."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=random, dtype=torch.float64) * torch.linspace(3, 0.1, d, dtype=torch.float64) + 0.5
    return x * torch.rand(n, 1, generator=random, dtype=torch.float64).exp()


@pytest.mark.parametrize("at_once", [2**24, 64])
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("n", "d", "components"), [(300, 12, None), (40, 30, 3), (7, 12, 2)])
def test_overlaps_are_those_of_all_pairs(monkeypatch, n, d, components, dtype, digits, at_once):
    monkeypatch.setattr(heads, "NUMBERS", at_once)
    W = crooked(n, d)
    geometry = head_geometry(W.to(dtype), components=components)
    centred = W - W.mean(0)
    axes = torch.linalg.svd(centred, full_matrices=False)[2][: components or 1]
    values = torch.linalg.eigvalsh(centred.T @ centred)
    assert geometry.raw.mean_square == pytest.approx(all_pairs(W), rel=digits)
    assert geometry.centred.mean_square == pytest.approx(all_pairs(centred), rel=digits)
    assert geometry.trimmed.mean_square == pytest.approx(all_pairs(centred - centred @ axes.T @ axes), rel=100 * digits)
    assert geometry.effective_dims == pytest.approx(float(values.sum() ** 2 / values.square().sum()), rel=digits)
    assert (geometry.norm_mean, geometry.norm_std) == pytest.approx(
        (float(W.norm(dim=1).mean()), float(W.norm(dim=1).std(correction=0))), rel=digits
    )
    assert (geometry.raw.dims, geometry.trimmed.dims) == (d, d - (components or 1))


def test_rotations_change_nothing_and_lengths_not_the_raw_overlap():
    W = crooked(100, 10)
    turn = torch.linalg.qr(torch.randn(10, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    plain, turned, stretched = (head_geometry(x) for x in (W, W @ turn, W * torch.arange(1, 101)[:, None]))
    for name in ("raw", "centred", "trimmed"):
        assert getattr(turned, name).mean_square == pytest.approx(getattr(plain, name).mean_square, rel=1e-9)
    assert stretched.raw.mean_square == pytest.approx(plain.raw.mean_square, rel=1e-9)


def test_known_frames():
    assert head_geometry(torch.eye(9)).raw.mean_square == pytest.approx(0, abs=1e-7)
    assert head_geometry(torch.ones(9, 4)).raw.mean_square == pytest.approx(1)
    simplex = (
        torch.eye(9, dtype=torch.float64) - 1 / 9
    )  # nine vectors in eight dimensions: each pair at the Welch bound
    assert head_geometry(simplex, dims=8).raw.mean_square == pytest.approx((9 - 8) / (8 * (9 - 1)))
    noise = head_geometry(torch.randn(5000, 64, generator=torch.Generator().manual_seed(0)))
    for overlap in (noise.raw, noise.centred, noise.trimmed):
        assert overlap.times_isotropic == pytest.approx(1, abs=0.01)
        assert overlap.mean_square == pytest.approx(overlap.isotropic, rel=0.01)


def test_what_all_rows_share_is_gone_when_centred_and_trimmed():
    random = torch.Generator().manual_seed(0)
    isotropic = torch.randn(4000, 32, generator=random)
    shifted = isotropic + 2
    stretched = shifted + 20 * torch.randn(4000, 1, generator=random) * torch.nn.functional.normalize(
        torch.randn(1, 32, generator=random)
    )
    assert head_geometry(shifted).raw.times_isotropic > 10
    assert head_geometry(shifted).centred.times_isotropic == pytest.approx(1, abs=0.02)
    assert head_geometry(stretched).centred.times_isotropic > 10
    assert head_geometry(stretched).trimmed.times_isotropic == pytest.approx(1, abs=0.02)


def test_rows_that_are_zero_or_become_it_count_nowhere():
    W = crooked(50, 6)
    padded = torch.cat([W, torch.zeros(3, 6, dtype=torch.float64)])
    assert head_geometry(padded).raw.mean_square == pytest.approx(head_geometry(W).raw.mean_square)
    assert (head_geometry(padded).empty, head_geometry(padded).rows) == (3, 53)
    line = torch.arange(1.0, 9)[:, None] * torch.tensor([[1.0, 2, 2]])  # one direction only: nothing is left without it
    assert np.isnan(head_geometry(line).trimmed.mean_square)


def test_half_precision_is_summed_in_full():
    W = crooked(3000, 16).bfloat16()
    assert head_geometry(W).raw.mean_square == pytest.approx(head_geometry(W.double()).raw.mean_square, rel=1e-5)


def test_norms_by_frequency():
    W, counts = crooked(200, 8), np.arange(200)
    W *= torch.linspace(1, 50, 200, dtype=torch.float64)[:, None]
    radius = head_geometry(W, counts).by_frequency
    np.testing.assert_allclose(radius.radius, W.norm(dim=1).numpy())
    assert radius.correlation > 0.7
    assert head_geometry(W).by_frequency is None
    with pytest.raises(UserError, match="as many counts"):
        head_geometry(W, counts[:5])


@pytest.mark.parametrize(
    ("W", "options", "said"),
    [
        (torch.ones(5), {}, "has shape"),
        (torch.ones(1, 5), {}, "two rows or more"),
        (torch.zeros(5, 5), {}, "5 of 5 rows are zero"),
        (torch.tensor([[1.0, 2], [3, torch.inf]]), {}, "row 1 of the head is not finite"),
        (torch.ones(5, 5), {"components": 5}, "leave at least one"),
    ],
)
def test_no_geometry(W, options, said):
    with pytest.raises(UserError, match=said):
        head_geometry(W, **options)
