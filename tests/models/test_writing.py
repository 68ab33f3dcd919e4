"""Writing: a document begins once, and what `generate` is asked for is what was asked."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from horosphere.models.writing import autocast, hushed, write

pytest.importorskip("transformers")


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

    def __call__(self, text, add_special_tokens=True):
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
        with pytest.raises(RuntimeError), hushed():
            assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.ERROR, False)
            raise RuntimeError
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
    logging.set_verbosity_warning()
    logging.enable_progress_bar()


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_models_write_in_the_precision_they_were_trained_in():
    assert not autocast("cpu")._enabled
    assert autocast("cuda").fast_dtype == torch.bfloat16
