"""Prompts and lengths that a model cannot take are told in one line, before anything is computed."""

import subprocess
import sys

import pytest

pytest.importorskip("transformers")

import torch

from horosphere.data.tokenizer import train_tokenizer
from horosphere.errors import UserError
from horosphere.models.writing import write
from tests.models.test_pretrained import tiny

TABLE = 16  # positions of `tiny`


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
