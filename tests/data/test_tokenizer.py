"""The tokenizer keeps every text to the letter, is the same each time, and survives being saved."""

import json
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.data.tokenizer import (
    END,
    FILES,
    character_tokenizer,
    load_tokenizer,
    special_tokens,
    train_tokenizer,
)
from horosphere.errors import UserError

pytest.importorskip("transformers")
TEXTS = [
    "the cat sat on the mat, and the dog didn't mind; it's 12345 years since 1999.\n\n",
    "Das Mädchen läuft über die Straße 🦄.\r\n",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 400)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text(" \r\n\t'.,a1é🦄<|>", max_size=40))
def test_every_text_comes_back(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert ids.count(0) == text.count(END)  # nothing is added
    assert all(0 <= i < len(tokenizer) for i in ids)


def test_the_special_token(tokenizer):
    assert (
        tokenizer.bos_token_id
        == tokenizer.eos_token_id
        == tokenizer.pad_token_id
        == tokenizer.convert_tokens_to_ids(END)
        == 0
    )
    assert tokenizer.decode([0, *tokenizer("the cat")["input_ids"], 0], skip_special_tokens=True) == "the cat"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ((1, 2, 3), (1, 2, 3)),
        ((None, 2, 3), (2, 2, 3)),
        ((1, None, 3), (1, 1, 3)),
        ((1, 2, None), (1, 2, 1)),
        ((None, 2, None), (2, 2, 2)),
        ((0, 2, 0), (0, 2, 0)),
        ((None, None, None), (None, None, None)),
    ],
)
def test_a_token_that_is_missing_is_stood_in_for(given, used):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    tokenizer = SimpleNamespace(**dict(zip(names, given, strict=True)))
    assert tuple(special_tokens(tokenizer)[name] for name in names) == used


def test_training_finds_words_and_splits_what_it_should(tokenizer):
    def split(text):
        return [tokenizer.decode([i]) for i in tokenizer(text)["input_ids"]]

    assert split("the the") == ["the", " the"]
    assert split("it's") == ["it", "'s"]
    assert all(len(token) <= 3 for token in split("1999123451999"))
    assert (
        max(
            len(tokenizer.decode([i]).strip())
            for i in range(len(tokenizer))
            if tokenizer.decode([i]).strip().isdecimal()
        )
        == 3
    )


def test_the_same_texts_give_the_same_tokenizer(tokenizer):
    assert train_tokenizer(iter(TEXTS), 400).backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert train_tokenizer(TEXTS[:3], 400).backend_tokenizer.to_str() != tokenizer.backend_tokenizer.to_str()


def test_the_vocabulary_is_as_large_as_asked_or_as_the_text_allows(tokenizer):
    assert len(train_tokenizer(TEXTS, 257)) == 257
    assert len(train_tokenizer(TEXTS, 300)) == 300
    assert 257 < len(tokenizer) <= 400
    assert len(train_tokenizer(TEXTS, 10_000)) < 1000
    with pytest.raises(UserError, match=r"256 is too small.* Use 257 or more"):
        train_tokenizer(TEXTS, 256)


def test_progress_and_errors_pass_through(tokenizer):
    seen = []
    train_tokenizer(["word " * 300_000] * 3, 257, progress=lambda done, note: seen.append(done))
    assert seen == [1, 3, 4]

    def broken():
        yield "text"
        raise UserError("line 7 is wrong")

    with pytest.raises(UserError, match="line 7 is wrong"):
        train_tokenizer(broken(), 300)


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path, recwarn, caplog):
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')  # the folder of a model has one
    ours = load_tokenizer(tmp_path)
    assert not caplog.records
    (tmp_path / "config.json").unlink()
    long = "it 's  the cat . Straße\r\n " * 3000
    for loaded in (ours, AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)):
        assert loaded(long)["input_ids"] == tokenizer(long)["input_ids"]
        assert loaded.decode(loaded(long)["input_ids"]) == long
        assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id, len(loaded)) == (0, 0, 0, len(tokenizer))
        assert not loaded.clean_up_tokenization_spaces
    assert not caplog.records  # no word about texts that are too long


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign", "binary"])
def test_a_damaged_folder_is_named(tokenizer, tmp_path, name, damage):
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / name
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        file.write_bytes(b"[1, 2]" if damage == "foreign" else b"\x80\x00")
    with pytest.raises(UserError) as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)
    assert name in str(error.value)
    assert "save_pretrained" in str(error.value)


@pytest.mark.parametrize(
    "model",
    [
        {"type": "BPE", "vocab": {"a": 10**9}, "merges": []},
        {"type": "BPE", "vocab": {}, "merges": []},
        {"type": "BPE", "vocab": {"a": -1}, "merges": []},
        {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]},
        {"type": "BPE", "vocab": {"a": "x"}, "merges": []},
        {"type": "BPE", "vocab": [], "merges": 3},
        {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"},
        {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 7},
        {"type": "none"},
        None,
    ],
    ids=str,
)
def test_vocabularies_that_are_none_are_named(tokenizer, tmp_path, model):
    tokenizer.save_pretrained(tmp_path)
    content = json.loads((tmp_path / FILES[0]).read_text()) | {"model": model, "added_tokens": []}
    (tmp_path / FILES[0]).write_text(json.dumps(content))
    (tmp_path / FILES[1]).write_text("{}")
    with pytest.raises(UserError, match="a damaged tokenizer") as error:
        load_tokenizer(tmp_path)
    assert str(error.value).isprintable()


def test_no_code_that_comes_with_a_tokenizer_is_run(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / FILES[1]).read_text())
    config |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": [None, "evil.Evil"]}}
    (tmp_path / FILES[1]).write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass")
    load_tokenizer(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_nothing_is_fetched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="gpt2: no tokenizer"):
        load_tokenizer("gpt2")


@pytest.mark.parametrize("package", ["tokenizers", "transformers"])
def test_without_the_packages_the_error_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package}: pip install 'horosphere\[language\]'"):
        train_tokenizer(TEXTS, 300)


# -- characters -------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.text("abc é🦄\r\n\t", max_size=40))
def test_every_text_of_known_characters_comes_back(text):
    tokenizer = character_tokenizer(["cab", "é🦄 \n\t\r"])
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_characters_are_numbered_in_order_and_others_are_unknown(tmp_path):
    tokenizer = character_tokenizer(["ba", "c"])
    assert tokenizer.encode("abcz") == [2, 3, 4, 1]
    assert tokenizer.decode(tokenizer.encode("az"), skip_special_tokens=True) == "a"
    assert special_tokens(tokenizer) == {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).encode("cab☃") == [4, 2, 3, 1]


def test_no_characters_are_refused():
    with pytest.raises(UserError, match="there is no character"):
        character_tokenizer([""])
