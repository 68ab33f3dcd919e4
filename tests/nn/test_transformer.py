"""Layers of the Transformer: torch's in flat space; on the hyperboloid causal, resumable step by step, and scaling."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.nn import FULL, DecoderLayer, EncoderLayer, sinusoids, visible
from tests.nn.samples import CURVATURES, manifold

DIM, HEADS, INNER = 8, 2, 20
both = pytest.mark.parametrize("name", ["euclidean", "lorentz"])
LAYERS = {
    "encoder": (EncoderLayer, nn.TransformerEncoderLayer),
    "decoder": (DecoderLayer, nn.TransformerDecoderLayer),
}
kinds = pytest.mark.parametrize("kind", LAYERS)


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def tokens(length, batch=3):
    return torch.randn(batch, length, DIM, dtype=torch.float64)


def moved(module):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn(p.shape))
    return module.double()


def twins(kind, **options):
    made = []
    torchs = {"dim_feedforward": INNER, "batch_first": True, "dropout": 0.0, **options}
    for make in (
        lambda: LAYERS[kind][0](DIM, HEADS, INNER, Euclidean(), **options),
        lambda: LAYERS[kind][1](DIM, HEADS, **torchs),
    ):
        torch.manual_seed(0)
        made.append(make())
    return made


@kinds
def test_a_seed_gives_the_weights_of_torch(kind):
    ours, torchs = (module.state_dict() for module in twins(kind))
    assert ours.keys() == torchs.keys()
    assert all(torch.equal(ours[name], torchs[name]) for name in torchs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_flat_encoder_is_torchs_bit_for_bit(activation, dtype):
    """One sequence, as in test_classic_attention.py; training mode, where torch has no other path."""
    ours, torchs = (module.to(dtype) for module in twins("encoder", activation=activation))
    x = torch.randn(1, 6, DIM).to(dtype)
    assert torch.equal(ours(x), torchs(x))


def test_flat_encoder_is_torchs_with_padding_and_gradients():
    ours, torchs = (module.double() for module in twins("encoder"))
    x, lengths = tokens(5).requires_grad_(), torch.tensor([2, 5, 4])
    seen = visible(lengths, 5)
    results = [ours(x, seen), torchs(x, src_key_padding_mask=~seen[:, 0, 0])]
    real = seen[:, 0, 0].unsqueeze(-1)
    assert_close(*(y * real for y in results), rtol=0, atol=1e-12)
    grads = [
        torch.autograd.grad((y * real).pow(3).sum(), (x, *module.parameters()))
        for y, module in zip(results, (ours, torchs), strict=True)
    ]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b, rtol=0, atol=1e-10)


def test_flat_decoder_is_torchs():
    ours, torchs = (module.double() for module in twins("decoder"))
    x, memory, seen = tokens(5), tokens(7), visible(torch.tensor([2, 7, 4]), 7)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected = torchs(x, memory, tgt_mask=causal, memory_key_padding_mask=~seen[:, 0, 0])
    assert_close(ours(x, memory, memory_mask=seen), expected, rtol=0, atol=1e-12)


@kinds
def test_dropout_is_torchs_rate_and_off_in_evaluation(kind):
    layer = LAYERS[kind][0](DIM, HEADS, INNER, Lorentz(), dropout=0.5).double()
    inputs = (tokens(5),) if kind == "encoder" else (tokens(5), tokens(7))
    assert not torch.equal(layer(*inputs), layer(*inputs))
    layer.eval()
    assert torch.equal(layer(*inputs), layer(*inputs))


@both
def test_padding_changes_nothing(name):
    layer, x = moved(EncoderLayer(DIM, HEADS, INNER, manifold(name))), tokens(5)
    other = x.clone()
    other[0, 2:] = 9
    seen = visible(torch.tensor([2, 5, 5]), 5)
    assert torch.equal(layer(x, seen)[0, :2], layer(other, seen)[0, :2])
    assert_close(layer(x, seen)[:1, :2], layer(x[:1, :2]))


@both
def test_a_decoder_sees_no_token_after_its_own(name):
    layer, x, memory = moved(DecoderLayer(DIM, HEADS, INNER, manifold(name))), tokens(5), tokens(7)
    other = x.clone()
    other[:, 3:] += 1
    assert torch.equal(layer(x, memory)[:, :3], layer(other, memory)[:, :3])
    assert not torch.equal(layer(x, memory, mask=FULL)[:, :3], layer(other, memory, mask=FULL)[:, :3])


@both
def test_steps_are_the_whole(name):
    layer, x, memory = moved(DecoderLayer(DIM, HEADS, INNER, manifold(name))), tokens(5), tokens(7)
    seen, past, outs = visible(torch.tensor([3, 7, 1]), 7), None, []
    kept = layer.multihead_attn.keys_values(memory)
    for token in x.split(1, 1):
        y, past = layer.step(token, past, kept, seen)
        outs.append(y)
    assert_close(torch.cat(outs, 1), layer(x, memory, memory_mask=seen))


@pytest.mark.parametrize("c", CURVATURES)
@kinds
def test_scaling(kind, c):
    """f_c(x) = f₁(√c x)/√c with lengths among the parameters scaled alike; eps 0, since it is a squared length."""
    make, inputs = LAYERS[kind][0], (tokens(5), tokens(7))[: 1 if kind == "encoder" else 2]
    curved, unit = (make(DIM, HEADS, INNER, Lorentz(k), eps=0.0).double() for k in (c, 1.0))
    unit.load_state_dict(dict(moved(curved).state_dict()))
    with torch.no_grad():
        for name, p in unit.named_parameters():
            if "bias" in name or "norm" in name:
                p.mul_(c**0.5)
            elif "temperature" in name:
                p.add_(math.log(c))
    assert_close(unit(*(c**0.5 * x for x in inputs)) / c**0.5, curved(*inputs))


@pytest.mark.parametrize("c", CURVATURES)
def test_gradients(c):
    layer, x, memory = moved(DecoderLayer(4, 2, 6, Lorentz(c))), tokens(2, 1)[..., :4], tokens(3, 1)[..., :4]
    names, leaves = zip(*layer.named_parameters(), strict=True)

    def call(x, memory, *leaves):
        return torch.func.functional_call(layer, dict(zip(names, leaves, strict=True)), (x, memory))

    assert torch.autograd.gradcheck(call, (x.requires_grad_(), memory.requires_grad_(), *leaves))


@both
@kinds
def test_reset_makes_a_layer_anew(kind, name):
    torch.manual_seed(0)
    fresh = LAYERS[kind][0](DIM, HEADS, INNER, manifold(name))
    used = copy.deepcopy(fresh)
    for p in used.parameters():
        nn.init.constant_(p, torch.nan)
    torch.manual_seed(0)
    for module in used.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), used.parameters(), strict=True))


@kinds
def test_the_ball_is_refused(kind):
    with pytest.raises(NotImplementedError, match="use Lorentz or Euclidean"):
        LAYERS[kind][0](DIM, HEADS, INNER, Poincare())


def test_waves():
    """Each pair is on the unit circle, and column 2j + 1 has the frequency of column 2j."""
    waves = sinusoids(50, 6).double()
    assert_close(waves.unflatten(-1, (3, 2)).square().sum(-1), torch.ones(50, 3, dtype=torch.float64))
    p = torch.arange(50, dtype=torch.float64)
    for i in range(6):
        angle = p / 10000 ** (2 * (i // 2) / 6)
        assert_close(waves[:, i], angle.cos() if i % 2 else angle.sin(), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="5 dimensions"):
        sinusoids(3, 5)
