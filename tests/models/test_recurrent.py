"""The classics' language models: what they see, what they write, and the folders they live in."""

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from horosphere.data.tokenizer import character_tokenizer
from horosphere.errors import UserError
from horosphere.models.pretrained import read_language_model
from horosphere.models.recurrent import (
    RecurrentConfig,
    RecurrentForCausalLM,
    WindowConfig,
    WindowForCausalLM,
    recurrent_config,
)
from horosphere.models.writing import packed_inputs, write
from horosphere.optim import param_groups

GEOMETRIES = ("euclidean", "lorentz", "poincare")
KINDS = ("rnn", "gru", "lstm", "window")
SIZES = {"vocab_size": 11, "embedding_size": 4, "hidden_size": 6}
kinds = pytest.mark.parametrize("kind", KINDS)
geometries = pytest.mark.parametrize("geometry", GEOMETRIES)


def make(kind, geometry="euclidean", seed=0, **more):
    torch.manual_seed(seed)
    if kind == "window":
        return WindowForCausalLM(WindowConfig(**SIZES, context=3, geometry=geometry, **more)).eval()
    return RecurrentForCausalLM(RecurrentConfig(cell=kind, **SIZES, geometry=geometry, **more)).eval()


def tokens(rows=2, length=9, seed=1):
    return torch.randint(1, 11, (rows, length), generator=torch.Generator().manual_seed(seed))


@kinds
@geometries
def test_no_token_sees_a_later_one(kind, geometry):
    model, seen = make(kind, geometry), tokens()
    other = seen.clone()
    other[:, 5:] = 3
    a, b = model(seen).logits, model(other).logits
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 6:], b[:, 6:])
    assert a.shape == (2, 9, 11)


@kinds
@geometries
def test_packed_documents_are_predicted_as_if_apart(kind, geometry):
    model, seen = make(kind, geometry), tokens(2, 12)
    sizes = (4, 1, 7)
    seen[:, [0, 4, 5]] = 0
    positions = torch.cat([torch.arange(n) for n in sizes]).expand(2, -1)
    together = model(**packed_inputs(seen, positions)).logits
    apart = torch.cat([model(part).logits for part in seen.split(sizes, 1)], 1)
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(seen).logits, apart, atol=1e-4)


@kinds
@geometries
def test_reading_on_is_reading_at_once(kind, geometry):
    model, seen = make(kind, geometry), tokens()
    whole = model(seen).logits
    first = model(seen[:, :4], use_cache=True)
    second = model(seen[:, 4:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat((first.logits, second.logits), 1), whole, rtol=1e-4, atol=1e-5)
    assert model(seen).past_key_values is None


@kinds
def test_writing_uses_the_state(kind):
    tokenizer = character_tokenizer(["abcdefghi"])
    model = make(kind, "lorentz")
    texts = [write(model, tokenizer, "ab", 12, greedy=True, use_cache=use) for use in (True, False)]
    assert texts[0] == texts[1]
    assert texts[0].startswith("ab")


@kinds
@geometries
def test_the_loss_is_the_cross_entropy_of_the_next_token(kind, geometry):
    model, seen = make(kind, geometry), tokens()
    labels = seen[:, 1:]
    expected = nn.functional.cross_entropy(model(seen[:, :-1]).logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(model(seen[:, :-1], shift_labels=labels).loss, expected)
    torch.testing.assert_close(model(seen, labels=seen).loss, expected)
    model(seen[:, :-1], shift_labels=labels).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_in_flat_space_it_is_torchs_modules_one_after_another(kind):
    model, seen = make(kind), tokens()
    layer = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](4, 6, batch_first=True)
    layer.load_state_dict(model.recurrent.state_dict())
    states = layer(nn.functional.embedding(seen, model.embed_tokens.weight))[0]
    assert torch.equal(model(seen).logits, nn.functional.linear(states, model.lm_head.weight, model.lm_head.bias))
    assert isinstance(model.recurrent, type(layer))


@kinds
def test_no_curvature_is_the_flat_model(kind):
    """H1, from the table to the logits: the error is O(c)."""
    flat, errors = make(kind).double(), []
    for c in (1e-2, 1e-4):
        curved = make(kind, "lorentz", curvature=c).double()
        curved.load_state_dict(flat.state_dict(), strict=False)
        errors.append((curved(tokens()).logits - flat(tokens()).logits).abs().max().item())
    assert errors[0] < 0.1
    assert errors[1] < 0.02 * errors[0]


@kinds
def test_the_ball_is_the_hyperboloid(kind):
    """H3."""
    L, P = make(kind, "lorentz").double(), make(kind, "poincare").double()
    with torch.no_grad():
        P.embed_tokens.weight.copy_(P.manifold.point(L.embed_tokens.weight))
        for name, p in [*L.named_parameters(), *P.named_parameters()]:
            if "time_weight" in name:
                p.fill_(0.3)
    torch.testing.assert_close(L(tokens()).logits, P(tokens()).logits, rtol=1e-9, atol=1e-9)


@kinds
@geometries
def test_a_folder_holds_all_of_it(kind, geometry, tmp_path):
    model = make(kind, geometry, curvature=0.7)
    model.save_pretrained(tmp_path)
    again = read_language_model(tmp_path)
    assert type(again) is type(model)
    assert again.config.geometry == geometry
    assert torch.equal(again(tokens()).logits, model(tokens()).logits)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"cell": "gru"', '"cell": "hopfield"', "choose from rnn, gru, lstm"),
        ('"geometry": "lorentz"', '"geometry": "flat"', "choose from euclidean, lorentz, poincare"),
        ('"hidden_size": 6', '"hidden_size": "6"', "hidden_size is the text"),
        ('"hidden_size": 6', '"hidden_size": 7', "damaged or foreign"),
        ('"model_type": "horosphere-recurrent"', '"model_type": "gpt2"', "this reads helm, horosphere-recurrent"),
    ],
)
def test_a_damaged_folder_is_told_in_one_line(tmp_path, old, new, complaint):
    make("gru", "lorentz").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=complaint) as error:
        read_language_model(tmp_path)
    assert "\n" not in str(error.value)


def test_a_table_of_points_is_a_group_of_its_own():
    groups = param_groups(make("gru", "lorentz"), 0.1)
    assert [group["params"][0].shape for group in groups if "manifold" in group] == [(11, 4)]


def test_wrong_configurations_are_refused():
    for wrong in (lambda: recurrent_config("gru-lm", geometry="product"), lambda: RecurrentConfig(cell="cnn")):
        with pytest.raises(UserError, match="choose from"):
            wrong()
    with pytest.raises(UserError, match="hidden_size=0"):
        recurrent_config("gru-lm", hidden_size=0)
    assert recurrent_config("rnn-lm", hidden_size=3).cell == "rnn"


def test_parameters_of_a_small_model_are_counted():
    """Table, two matrices and biases of three gates, and the head."""
    count = sum(p.numel() for p in make("gru").parameters())
    assert count == 11 * 4 + 3 * 6 * (4 + 6 + 2) + 11 * 7
    assert sum(p.numel() for p in make("gru", "lorentz").parameters()) == count + 2 * 3 * 6
