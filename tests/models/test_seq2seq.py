"""Encoder and decoder: torch's in flat space, blind to padding, the same all at once and token by token."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.decode import greedy
from horosphere.models.seq2seq import Seq2Seq, Seq2SeqAttention, Seq2SeqConfig

MODELS = [Seq2Seq, Seq2SeqAttention]
GEOMETRIES = ["euclidean", "lorentz", "poincare"]
SOURCE = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0], [8, 4, 3, 0]])
LENGTHS = torch.tensor([4, 2, 3])
TARGET = torch.tensor([[2, 4, 5], [2, 6, 3], [2, 3, 0]])


def made(kind, geometry="euclidean", seed=0, **more):
    torch.manual_seed(seed)
    config = Seq2SeqConfig(geometry=geometry, **{"width": 5, "hidden": 6, **more})
    return kind(9, 7, config).double().eval()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", MODELS)
def test_step_by_step_is_all_at_once(kind, geometry, layers):
    model = made(kind, geometry, layers=layers)
    together, state, apart = model(SOURCE, LENGTHS, TARGET), model.encode(SOURCE, LENGTHS), []
    for tokens in TARGET.unbind(1):
        logits, state = model.step(tokens, state)
        apart.append(logits)
    assert_close(torch.stack(apart, 1), together)
    assert all(len(part) == len(SOURCE) for part in state)  # rows first, as beams need them


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", MODELS)
def test_padding_has_no_say(kind, geometry):
    model = made(kind, geometry, layers=2)
    together = model(SOURCE, LENGTHS, TARGET)
    for row, length in enumerate(LENGTHS):
        alone = model(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1], TARGET[row : row + 1])
        assert_close(alone[0], together[row])


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_token_sees_those_before_it_only_and_all_of_the_source(kind, geometry):
    model = made(kind, geometry)
    other = TARGET.clone()
    other[:, 2] = 5
    before, after = model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, other)
    assert_close(before[:, :2], after[:, :2], rtol=0, atol=0)
    assert not torch.allclose(before[1:, 2], after[1:, 2])
    for place in range(4):
        changed = SOURCE.clone()
        changed[0, place] = 8
        assert not torch.allclose(model(changed, LENGTHS, TARGET)[0], before[0])


def torchs(model, source, target):
    """One pair, by torch's own layers with the weights of a flat model.   (S,), (T,) -> (T, V)"""
    attends = isinstance(model, Seq2SeqAttention)
    encoder = nn.GRU(5, 3, batch_first=True, bidirectional=True) if attends else nn.GRU(5, 6, batch_first=True)
    decoder = nn.GRU(11, 6, batch_first=True)
    for ours, theirs in ((model.encoder, encoder), (model.decoder, decoder)):
        theirs.load_state_dict(ours.state_dict())
        theirs.double()
    memory, hidden = encoder(model.source_points.weight[source][None])
    hidden = hidden.transpose(0, 1).reshape(1, 1, 6)  # what the GRU from the left ends with, then that from the right
    rows = []
    for token in target:
        context = memory[:, -1]
        if attends:
            a = model.attention
            scores = (hidden[-1][:, None] @ a.query.weight.T + memory @ a.key.weight.T).tanh() @ a.v.weight[0]
            context = (scores.softmax(-1)[..., None] * memory).sum(1)
        x = torch.cat((model.target_points.weight[token][None], context), -1)
        out, hidden = decoder(x[:, None], hidden)
        read = torch.cat((out[0, 0], x[0]), -1) @ model.readout[0].weight.T + model.readout[0].bias
        rows.append(read.tanh() @ model.head.weight.T + model.head.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("kind", MODELS)
def test_flat_is_torchs(kind):
    model = made(kind)
    logits = model(SOURCE, LENGTHS, TARGET)
    for row, length in enumerate(LENGTHS):
        assert_close(logits[row], torchs(model, SOURCE[row, :length], TARGET[row]))


@pytest.mark.parametrize("kind", MODELS)
def test_small_curvature_is_flat(kind):
    """H1: the same weights, and times that nobody reads."""
    flat, errors = made(kind), []
    for c in (1e-3, 1e-4):
        curved = made(kind, "lorentz", curvature=c)
        own = flat.state_dict()
        curved.load_state_dict({name: own.get(name, t) for name, t in curved.state_dict().items()})
        errors.append((curved(SOURCE, LENGTHS, TARGET) - flat(SOURCE, LENGTHS, TARGET)).abs().max().item())
    assert errors[0] < 1e-2
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.1)


@pytest.mark.parametrize("kind", MODELS)
def test_ball_and_hyperboloid_are_one_geometry(kind):
    """H3, through the maps between them."""
    sheet, ball = (made(kind, name, curvature=0.5) for name in ("lorentz", "poincare"))
    state = sheet.state_dict()
    for table in ("source_points", "target_points"):
        state[f"{table}.weight"] = ball.manifold.point(state[f"{table}.weight"])
    ball.load_state_dict(dict(state))
    assert_close(ball(SOURCE, LENGTHS, TARGET), sheet(SOURCE, LENGTHS, TARGET), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", MODELS)
def test_everything_learns(kind, geometry):
    model = made(kind, geometry).train()
    model(SOURCE, LENGTHS, TARGET).square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    assert all(grad is not None and grad.isfinite().all() for grad in grads.values())
    assert all(grad.any() for name, grad in grads.items())
    for table in (model.source_points, model.target_points):
        assert not table.weight.grad[0].any()  # padding stays at the origin


@pytest.mark.parametrize("kind", MODELS)
def test_copies_exactly(kind):
    """Overfit a handful of sequences: what is written is what was read."""
    torch.manual_seed(0)
    model = kind(9, 9, Seq2SeqConfig(width=16, hidden=32, dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    source = torch.tensor([[4, 5, 6, 3], [6, 5, 3, 0], [8, 4, 7, 3], [7, 3, 0, 0]])
    target = torch.cat((torch.full((4, 1), 2), source), 1)
    lengths = (source != 0).sum(1)
    for _ in range(150):
        logits = model(source, lengths, target[:, :-1])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0).backward()
        optimizer.step()
    model.eval()
    written = greedy(model.step, model.encode(source, lengths), target[:, 0], end=3, most=6)
    assert written == [[4, 5, 6], [6, 5], [8, 4, 7], [7]]


def test_states_that_cannot_be_halved_are_refused():
    with pytest.raises(UserError, match=r"hidden=7: .* use an even number"):
        Seq2SeqConfig(hidden=7)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", MODELS)
def test_half_precision(kind, geometry):
    model = made(kind, geometry).float()
    whole = model(SOURCE, LENGTHS, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(SOURCE, LENGTHS, TARGET)
        step, _ = model.step(TARGET[:, 0], model.encode(SOURCE, LENGTHS))
    assert_close(half.float(), whole, rtol=0.1, atol=0.05)
    assert_close(step.float(), whole[:, 0], rtol=0.1, atol=0.05)
    half.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
