"""Writing: a document begins once, `generate` is asked for what was asked, and what a model cannot take is told."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn

from horosphere.data.tokenizer import train_tokenizer
from horosphere.errors import UserError
from horosphere.models.writing import autocast, hushed, write
from tests.models.test_pretrained import tiny

TABLE = 16  # positions of `tiny`


class Echo(nn.Module):
    """It keeps what it is asked, and goes on with 7."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(bos_token_id=5)

    def generate(self, **asked):
        self.asked, self.learns = asked, torch.is_grad_enabled()
        return torch.cat((asked["input_ids"], torch.full((1, asked["max_new_tokens"]), 7)), 1)


class Letters:
    """Numbers of letters; like many tokenizers, it begins and ends a text by itself where nobody objects."""

    def __call__(self, text, add_special_tokens=True, verbose=True):
        words = [ord(letter) for letter in text]
        return {"input_ids": [5, *words, 6] if add_special_tokens else words}

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(i) for i in ids.tolist() if not (skip_special_tokens and i in (5, 6)))


def test_a_document_begins_once():
    model = Echo()
    assert write(model, Letters(), "ab", 2) == "ab\x07\x07"
    assert model.asked["input_ids"].tolist() == [[5, 97, 98]]
    assert model.asked["attention_mask"].tolist() == [[1, 1, 1]]
    assert not model.learns


def test_words_are_drawn_or_the_likeliest_are_taken():
    model = Echo()
    write(model, Letters(), "", 3, temperature=1.5, top_k=9, min_p=0.1)
    drawn = {name: model.asked[name] for name in ("do_sample", "temperature", "top_k", "max_new_tokens", "min_p")}
    assert drawn == {"do_sample": True, "temperature": 1.5, "top_k": 9, "max_new_tokens": 3, "min_p": 0.1}
    write(model, Letters(), "", 1, greedy=True)
    assert model.asked["do_sample"] is False
    assert not model.asked.keys() & {"temperature", "top_k"}
    write(model, Letters(), "", 1)
    assert (model.asked["temperature"], model.asked["top_k"]) == (0.8, 50)


def test_transformers_speaks_again_afterwards():
    from transformers.utils import logging

    for level, bars in ((logging.INFO, True), (logging.WARNING, False)):
        logging.set_verbosity(level)
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
        with hushed():
            assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.ERROR, False)
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
        with pytest.raises(ZeroDivisionError), hushed():
            1 / 0  # noqa: B018
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
    logging.set_verbosity_warning()
    logging.enable_progress_bar()


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_models_write_in_the_precision_they_were_trained_in():
    assert not autocast("cpu")._enabled
    assert autocast("cuda").fast_dtype == torch.bfloat16


# -- what a model cannot take -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["the cat and the dog"] * 9, 300)


@pytest.mark.parametrize("prompt", ["caf\udce9", "half \ud83d", "\udcff\udcfe"])
def test_a_prompt_that_is_no_text_is_named(tokenizer, prompt):
    with pytest.raises(UserError, match="the prompt is no UTF-8 text") as error:
        write(tiny(), tokenizer, prompt, 3)
    assert str(error.value).isprintable()


def test_the_command_says_it_in_one_line(tokenizer, tmp_path):
    """What a shell hands over need not be text."""
    tiny().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, "-m", "horosphere", "generate", str(tmp_path), b"caf\xe9", "--tokens", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("horosphere: the prompt is no UTF-8 text")
    assert done.stderr.count("\n") == 1


def test_learned_positions_end_where_their_table_does(tokenizer):
    model = tiny(position="learned")
    words = tokenizer("the cat", add_special_tokens=False)["input_ids"]
    most = TABLE - len(words)  # with the token that begins, and without the last that is written
    assert write(model, tokenizer, "the cat", most, greedy=True, min_new_tokens=most)
    with pytest.raises(UserError, match=f"this model learned {TABLE} positions; give --tokens {most} or fewer"):
        write(model, tokenizer, "the cat", most + 1)
    with pytest.raises(UserError, match="give a shorter prompt"):
        write(model, tokenizer, "the cat " * 20, 1)
    assert write(tiny(position="rotary"), tokenizer, "the cat", TABLE + 1, greedy=True)


@torch.no_grad()
def test_a_context_beyond_the_table_is_named_however_it_comes():
    model = tiny(position="learned")
    tokens = torch.zeros(1, TABLE, dtype=torch.long)
    full = model(tokens, use_cache=True)
    told = rf"{TABLE + 1} tokens: this model learned {TABLE} positions"
    with pytest.raises(UserError, match=told):
        model(torch.zeros(1, TABLE + 1, dtype=torch.long))
    with pytest.raises(UserError, match=told):
        model(tokens[:, :1], past_key_values=full.past_key_values)
    with pytest.raises(UserError, match=told):
        model(tokens[:, :1], attention_mask=torch.ones(1, TABLE + 1), position_ids=torch.tensor([[TABLE]]))
    with pytest.raises(UserError, match=told):
        model.generate(tokens[:, :8], max_new_tokens=TABLE - 8 + 2, do_sample=False, min_new_tokens=TABLE - 8 + 2)


def test_the_check_costs_no_graph_break():
    """By shapes alone: compiled, it is gone."""
    model = tiny(position="learned")
    explained = torch._dynamo.explain(lambda x: model(x, use_cache=False).logits)(torch.zeros(1, 4, dtype=torch.long))
    assert explained.graph_break_count == 0
