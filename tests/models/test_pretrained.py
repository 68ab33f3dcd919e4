"""Folders of models made by others: what transformers would obey or ignore without a word is refused in one line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file

from horosphere.data.tokenizer import train_tokenizer
from horosphere.errors import UserError
from horosphere.foreign import Unreadable
from horosphere.models.helm import HelmForCausalLM, helm_config
from horosphere.models.pretrained import files_in, read_language_model, require_plain
from horosphere.models.recurrent import RecurrentForCausalLM, recurrent_config
from horosphere.models.towers import load_towers
from horosphere.models.writing import write
from tests.models.tiny_clip import write_clip

SIZES = {"vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32, "head_dim": 8}


def tiny(**changes):
    torch.manual_seed(0)
    return HelmForCausalLM(helm_config("helm-d-tiny", **SIZES, max_position_embeddings=16, **changes)).eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm")
    tiny().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["the cat and the dog"] * 9, 300)


def refusal(work, *args):
    with pytest.raises(UserError) as error:
        work(*args)
    told = str(error.value)
    assert told.isprintable()
    return told


def change(file, **changes):
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in content.items() if value != "absent"}))


def sharded(folder, name="a.safetensors"):
    """The weights under another name, and an index that says it."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "a.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def encoder(folder):
    """A text encoder of transformers."""
    from transformers import BertConfig, BertModel

    words = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=100, **words)).save_pretrained(folder)
    return folder


# -- every model that transformers opens for us -----------------------------------------------------------------------


@pytest.fixture(params=["helm", "clip", "text"])
def opened(request, tmp_path):
    """(folder, what opens it)"""
    folder = tmp_path / "model"
    if request.param == "helm":
        tiny().save_pretrained(folder)
        return folder, lambda: read_language_model(folder)
    write_clip(folder, ["cat", "dog"])
    if request.param == "clip":
        return folder, lambda: load_towers(str(folder))
    return encoder(folder), lambda: load_towers(f"text:{folder}")


def test_a_folder_as_it_was_written_opens(opened):
    opened[1]()


def test_an_index_names_safetensors_beside_it(opened):
    folder, work = opened
    sharded(folder)
    work()
    outside = folder.parent / "outside.safetensors"
    shutil.copy(folder / "a.safetensors", outside)
    torch.save(load_file(outside), folder / "a.bin")
    for name in ("a.bin", "../outside.safetensors", str(outside)):
        (folder / "model.safetensors.index.json").unlink()
        shutil.copy(outside, folder / "model.safetensors")
        sharded(folder, name)
        assert "is no .safetensors beside it" in refusal(work)


def test_an_adapter_that_lies_about_is_refused(opened):
    folder, work = opened
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "target_modules": ["q_proj"]}')
    assert "adapter_config.json" in refusal(work)


@pytest.mark.parametrize(
    "keys",
    [
        {"auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}, "model_type": "unheard"},
        {"auto_map": {"AutoModel": "evil.Model"}},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
        {"transformers_weights": "../other.safetensors"},
        {"attn_implementation": "someone/kernel"},
        {"text_config": {"_attn_implementation": "someone/kernel"}},
        {"num_hidden_layers": 10**9, "text_config": {"num_hidden_layers": 10**9}},
        {"hidden_size": 10**7, "text_config": {"hidden_size": 10**7}},
        {"hidden_size": 10**15, "text_config": {"hidden_size": 10**15}},
        {"hidden_size": "wide", "text_config": {"hidden_size": "wide"}},
        {"hidden_size": None, "text_config": {"hidden_size": None}},
        {"hidden_size": -8, "text_config": {"hidden_size": -8}},
        {"model_type": ["bert"]},
        {"model_type": "\x1b[2J"},
    ],
    ids=str,
)
def test_a_configuration_that_asks_for_more_is_refused(opened, keys, monkeypatch):
    folder, work = opened
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked whether to run code"))
    (folder / "evil.py").write_text("raise SystemExit('code was run')")
    before = json.loads((folder / "config.json").read_text())
    if "text_config" in keys:
        keys = {**keys, "text_config": {**before.get("text_config", {}), **keys["text_config"]}}
    change(folder / "config.json", **keys)
    refusal(work)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff", b"[" * 10**5, b'{"a": NaN}'])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_settings_that_are_none(opened, name, content):
    folder, work = opened
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    refusal(work)


def test_weights_without_tensors_promise_nothing(opened):
    folder, work = opened
    (folder / "model.safetensors").unlink()
    change(folder / "config.json", num_hidden_layers=10**9, text_config={"num_hidden_layers": 10**9})
    assert "there are no tensors" in refusal(work)
    save_file({}, folder / "model.safetensors", {"format": "pt"})
    assert "there are no tensors" in refusal(work)


def test_damaged_weights_and_what_is_no_file(opened):
    folder, work = opened
    whole = (folder / "model.safetensors").read_bytes()
    for content in (b"", whole[:100], whole[:-1], b"x" * 200):
        (folder / "model.safetensors").write_bytes(content)
        refusal(work)
    (folder / "model.safetensors").write_bytes(whole)
    os.mkfifo(folder / "chat_template.jinja")
    assert "chat_template.jinja is no regular file" in refusal(work)


def test_a_model_of_the_hub_is_looked_at_before_it_is_opened(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    write_clip(folder, ["cat", "dog"])
    (folder / "adapter_config.json").write_text("{}")

    def cached(name, file, **_):
        assert name == "someone/clip"
        return str(folder / file) if (folder / file).is_file() else None

    monkeypatch.setattr("transformers.utils.cached_file", cached)
    monkeypatch.setattr("transformers.CLIPModel.from_pretrained", lambda *_, **__: pytest.fail("it was opened"))
    assert "adapter_config.json" in refusal(load_towers, "hf:someone/clip")
    (folder / "adapter_config.json").unlink()
    change(folder / "config.json", auto_map={"AutoModel": "evil.Model"})
    assert "auto_map" in refusal(load_towers, "hf:someone/clip")
    change(folder / "config.json", auto_map=None)
    (folder / "model.safetensors").unlink()  # the hub may keep weights under other names
    with pytest.raises(pytest.fail.Exception, match="it was opened"):
        load_towers("hf:someone/clip")
    assert "there are no tensors" in refusal(load_towers, str(folder))


def test_the_hub_may_keep_weights_under_other_names_and_a_folder_may_not(tmp_path):
    """transformers finds those of a branch, for example; their shapes are then not known beforehand."""
    write_clip(tmp_path, ["cat", "dog"])
    files, kind = files_in(tmp_path), "clip"
    config = json.loads((tmp_path / "config.json").read_text())

    def built(config):
        made.append(config)
        return torch.nn.Linear(2, 2)

    for file in ("model.safetensors", "model.safetensors.index.json"):
        made = []
        assert require_plain(files, kind, built, hub=True) == require_plain(files, kind, built) == config
        assert made == [config, config]  # what is claimed is weighed against what is there
        if file == "model.safetensors":
            shutil.copy(tmp_path / file, tmp_path / "part.safetensors")
            named = dict.fromkeys(load_file(tmp_path / file), "part.safetensors")
            (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))
        (tmp_path / file).unlink()
    made = []
    assert require_plain(files, kind, built, hub=True) == config
    assert not made
    with pytest.raises(Unreadable, match="there are no tensors"):
        require_plain(files, kind, built)


# -- HELM -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"curvature": -1},
        {"curvature": "1"},
        {"rms_norm_eps": 0},
        {"rope_theta": True},
        {"tie_word_embeddings": "yes"},
        {"max_position_embeddings": 0},
        {"geometry": "flat"},
        {"bos_token_id": "a"},
        {"bos_token_id": 320},
        {"eos_token_id": [0, -1]},
        {"eos_token_id": {"a": 1}},
        {"pad_token_id": 1.5},
        {"expert_spread": 3},
        {"num_beams": 4},  # transformers would search with four beams
        {"repetition_penalty": 0.1},
    ],
    ids=str,
)
def test_settings_of_another_kind_are_named(folder, wrong):
    change(folder / "config.json", **wrong)
    told = refusal(read_language_model, folder)
    assert told.startswith(f"{folder}: a damaged or foreign model (")
    assert next(iter(wrong)) in told


def test_a_model_of_another_kind_is_named(folder):
    change(folder / "config.json", model_type="llama")
    assert "a model of type llama; this reads helm, horosphere-recurrent" in refusal(read_language_model, folder)


@pytest.mark.parametrize(
    "odd",
    [
        {"num_beams": 10**9},
        {"num_beams": "many"},
        {"max_length": 3},
        {"repetition_penalty": 0.1},
        {"suppress_tokens": [0, 1]},
        {"cache_implementation": "static"},
        {"eos_token_id": 5},
        {"bos_token_id": "x"},
        {"no_such_option": 1},
        {"do_sample": [1]},
        {"watermarking_config": {"bias": 9.0}},
    ],
    ids=str,
)
def test_generation_that_would_go_another_way_is_named(folder, odd):
    change(folder / "generation_config.json", **odd)
    told = refusal(read_language_model, folder)
    assert f"generation_config.json sets {next(iter(odd))}" in told


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"num_beams": NaN}', b"[" * 10**5])
def test_generation_that_is_none(folder, content):
    (folder / "generation_config.json").write_bytes(content)
    assert "generation_config.json" in refusal(read_language_model, folder)


def test_tokens_come_from_the_configuration(folder, tokenizer):
    """Whether generation_config.json is there or not, and what it leaves out."""
    expected = write(read_language_model(folder), tokenizer, "the", 4, greedy=True)
    change(folder / "generation_config.json", eos_token_id="absent", use_cache="absent", do_sample=False)
    assert write(read_language_model(folder), tokenizer, "the", 4, greedy=True) == expected
    (folder / "generation_config.json").unlink()
    model = read_language_model(folder)
    assert write(model, tokenizer, "the", 4, greedy=True) == expected
    assert (model.generation_config.eos_token_id, model.generation_config.bos_token_id) == (0, 0)


# -- a folder that is given away --------------------------------------------------------------------------------------


STRANGER = """
import sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
assert "horosphere" not in sys.modules
folder = sys.argv[1]
model, info = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
assert not any(info.values()), info
assert type(model).__module__.startswith("horosphere.models"), type(model).__module__
assert type(AutoConfig.from_pretrained(folder, trust_remote_code=True)) is type(model.config)
model.save_pretrained(folder + "/again")
AutoModelForCausalLM.from_pretrained(folder + "/again", trust_remote_code=True)
print(type(model).__name__, model.num_parameters())
"""


def opened_by_a_stranger(folder, tmp_path, **environment):
    """By a Python that has not imported horosphere; modules of transformers' own go where nothing is yet."""
    places = {"PYTHONPATH": str(Path(__file__).parents[2]), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **places, **environment}
    command = [sys.executable, "-W", "ignore", "-c", STRANGER, str(folder)]
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize("kind", ["helm", "recurrent"])
def test_a_stranger_opens_it(kind, folder, tmp_path):
    if kind == "recurrent":
        folder = tmp_path / "recurrent"
        RecurrentForCausalLM(recurrent_config("gru-lm", vocab_size=300, hidden_size=16)).save_pretrained(folder)
    done = opened_by_a_stranger(folder, tmp_path)
    assert done.returncode == 0, done.stderr
    model = read_language_model(folder)
    assert done.stdout.split() == [type(model).__name__, str(model.num_parameters())]
    again = sorted(path.name for path in (folder / "again").iterdir())
    assert again == sorted(path.name for path in folder.iterdir() if path.is_file())  # no module of ours is copied
    assert len([name for name in again if name.endswith(".py")]) == 1


def test_without_the_package_a_line_says_what_to_install(folder, tmp_path):
    (tmp_path / "horosphere.py").write_text("raise ImportError('it is not here')")
    done = opened_by_a_stranger(folder, tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told == "ImportError: this model needs the package horosphere: pip install 'horosphere[language]'"


def test_only_our_own_code_may_be_named(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_horosphere.HelmForCausalLM"
    (folder / "modeling_horosphere.py").write_text("raise SystemExit('code was run')")
    read_language_model(folder)  # never runs it
    change(folder / "config.json", auto_map={**config["auto_map"], "AutoModel": "evil.Model"})
    assert "auto_map" in refusal(read_language_model, folder)
