"""Classifiers of texts: torch's in flat space, blind to padding, one geometry on ball and hyperboloid."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from horosphere.data.vocabulary import PAD
from horosphere.models.text import BiRNN, BiRNNConfig, HyperText, HyperTextConfig, TextCNN, TextCNNConfig

MADE = {
    "textcnn": (TextCNN, TextCNNConfig, {"width": 5, "filters": 3}),
    "birnn": (BiRNN, BiRNNConfig, {"width": 5, "hidden": 3}),
    "birnn, two layers": (BiRNN, BiRNNConfig, {"width": 5, "hidden": 3, "layers": 2}),
    "hypertext": (HyperText, HyperTextConfig, {"width": 5, "buckets": 11}),
    "hypertext, words": (HyperText, HyperTextConfig, {"width": 5, "ngrams": 1}),
    "hypertext, triples": (HyperText, HyperTextConfig, {"width": 5, "ngrams": 3, "buckets": 11}),
}
GEOMETRIES = ["euclidean", "lorentz", "poincare"]
TOKENS = torch.tensor([[4, 5, 6, 7, 8, 4, 5], [7, 4, 8, 6, 5, 5, 0], [8, 4, 0, 0, 0, 0, 0], [0] * 7])
LENGTHS = torch.tensor([7, 6, 2, 0])


def made(name, geometry="euclidean", **more):
    torch.manual_seed(0)
    kind, config, sizes = MADE[name]
    return kind(9, 4, config(geometry=geometry, **{**sizes, **more})).double().eval()


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", MADE)
def test_padding_has_no_say(name, geometry):
    model = made(name, geometry)
    together = model(TOKENS, LENGTHS)
    assert together.isfinite().all()
    assert_close(model(F.pad(TOKENS, (0, 5)), LENGTHS), together)
    for row, length in enumerate(LENGTHS[:3]):
        assert_close(model(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1])[0], together[row])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", MADE)
def test_every_token_counts_and_everything_learns(name, geometry):
    model = made(name, geometry)
    before = model(TOKENS, LENGTHS)
    for place in range(2):
        changed = TOKENS.clone()
        changed[2, place] = 6
        assert not torch.allclose(model(changed, LENGTHS)[2], before[2])
    model.train()(TOKENS, LENGTHS).square().sum().backward()
    for p in model.parameters():
        assert p.grad is not None
        assert p.grad.isfinite().all()
        assert p.grad.any()
    assert not model.points.weight.grad[PAD].any()


@pytest.mark.parametrize("name", MADE)
def test_small_curvature_is_flat(name):
    flat, errors = made(name), []
    for c in (1e-3, 1e-4):
        curved = made(name, "lorentz", curvature=c)
        own = flat.state_dict()
        curved.load_state_dict({key: own.get(key, t) for key, t in curved.state_dict().items()})
        errors.append((curved(TOKENS, LENGTHS) - flat(TOKENS, LENGTHS)).abs().max().item())
    assert errors[0] < 1e-2
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.1)


@pytest.mark.parametrize("name", MADE)
def test_ball_and_hyperboloid_are_one_geometry(name):
    sheet, ball = (made(name, geometry, curvature=0.5) for geometry in ("lorentz", "poincare"))
    state = dict(sheet.state_dict())
    ball.load_state_dict(state | {"points.weight": ball.manifold.point(state["points.weight"])})
    assert_close(ball(TOKENS, LENGTHS), sheet(TOKENS, LENGTHS), rtol=1e-6, atol=1e-8)


# -- whose they are in flat space -------------------------------------------------------------------------------------


def test_textcnn_is_torchs():
    model = made("textcnn")
    for row, length in enumerate(LENGTHS[:2]):
        x = model.points.weight[TOKENS[row, :length]].T[None]
        parts = [F.conv1d(x, c.weight, c.bias).relu().amax(-1) for c in model.convolutions]
        assert [c.weight.shape for c in model.convolutions] == [(3, 5, size) for size in (3, 4, 5)]
        assert_close(F.linear(torch.cat(parts, -1), model.head.weight, model.head.bias)[0], model(TOKENS, LENGTHS)[row])


def test_birnn_is_torchs():
    model = made("birnn, two layers")
    lstm = nn.LSTM(5, 3, 2, batch_first=True, bidirectional=True).double()
    lstm.load_state_dict(model.lstm.state_dict())
    for row, length in enumerate(LENGTHS[:3]):
        out, _ = lstm(model.points.weight[TOKENS[row : row + 1, :length]])
        ends = torch.cat((out[:, 0], out[:, -1]), -1)
        assert ends.shape == (1, 4 * 3)
        assert_close(F.linear(ends, model.head.weight, model.head.bias)[0], model(TOKENS, LENGTHS)[row])


def test_hypertext_is_fasttexts():
    model = made("hypertext")
    for row, length in enumerate(LENGTHS[:3]):
        words = TOKENS[row, :length].tolist()
        pairs = [9 + (a * 116_049_371 + b) % 11 for a, b in itertools.pairwise(words)]
        bag = F.embedding_bag(torch.tensor([words + pairs]), model.points.weight, mode="mean")
        assert_close(F.linear(bag, model.head.weight, model.head.bias)[0], model(TOKENS, LENGTHS)[row])


def test_runs_of_tokens_have_numbers_of_their_own():
    model = made("hypertext, triples")
    numbers = model.numbers(TOKENS)
    assert numbers.shape == (4, 7 + 6 + 5)
    assert (numbers != PAD).sum(1).tolist() == [7 + 6 + 5, 6 + 5 + 4, 2 + 1 + 0, 0]
    assert numbers[:, 7:][numbers[:, 7:] != PAD].min() >= 9
    assert numbers.max() < 9 + 11
    assert model.numbers(TOKENS[:1, :1]).tolist() == [[4]]


def test_without_tokens_a_text_is_at_the_origin():
    for geometry in GEOMETRIES:
        model = made("hypertext", geometry)
        assert_close(model(TOKENS, LENGTHS)[3], model.head.bias)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", MADE)
def test_half_precision(name, geometry):
    model = made(name, geometry).float()
    whole = model(TOKENS, LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(TOKENS, LENGTHS)
    assert_close(half.float(), whole, rtol=0.1, atol=0.05)
    half.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
