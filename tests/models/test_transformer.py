"""The Transformer: nn.Transformer in flat space; causal, blind to padding, and the same token by token."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.transformer import Transformer, TransformerConfig
from horosphere.nn import Embedding, sinusoids

SIZES = {"width": 16, "heads": 2, "layers": 2, "inner": 24}
both = pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
SOURCE, LENGTHS = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([4, 2])
TARGET = torch.tensor([[2, 5, 9, 10, 4], [2, 7, 6, 5, 4]])


def model(geometry="euclidean", **changes):
    torch.manual_seed(0)
    made = Transformer(11, 12, TransformerConfig(geometry=geometry, **{**SIZES, **changes})).double().eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    return made


def torchs(ours):
    """nn.Transformer of the same sizes, with these weights; as in the paper, no norm follows the last layer."""
    sizes = {"dim_feedforward": SIZES["inner"], "batch_first": True, "dtype": torch.float64}
    d, h, n = SIZES["width"], SIZES["heads"], SIZES["layers"]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, h, **sizes), n, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, h, **sizes), n)
    made = nn.Transformer(d, h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for part in ("encoder", "decoder"):
        getattr(made, part).layers.load_state_dict(getattr(ours, part).state_dict())
    return made.eval()


def test_flat_it_is_torchs():
    ours = model()
    embedded = [
        4 * table(tokens) + sinusoids(tokens.shape[1], 16).double()
        for table, tokens in ((ours.source, SOURCE), (ours.target, TARGET))
    ]
    padding = torch.arange(4) >= LENGTHS[:, None]
    hidden = torchs(ours)(
        *embedded,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    expected = nn.functional.linear(hidden, ours.head.weight, ours.head.bias)
    assert_close(ours(SOURCE, LENGTHS, TARGET), expected, rtol=0, atol=1e-12)


@both
def test_no_token_sees_those_after_it(geometry):
    made, other = model(geometry), TARGET.clone()
    other[:, 3:] = 1
    assert torch.equal(made(SOURCE, LENGTHS, TARGET)[:, :3], made(SOURCE, LENGTHS, other)[:, :3])
    assert not torch.equal(made(SOURCE, LENGTHS, TARGET)[:, 3:], made(SOURCE, LENGTHS, other)[:, 3:])


@both
def test_padding_is_not_seen(geometry):
    made, other = model(geometry), SOURCE.clone()
    other[1, 2:] = 9
    assert torch.equal(made(SOURCE, LENGTHS, TARGET), made(other, LENGTHS, TARGET))
    alone = made(SOURCE[1:, :2], LENGTHS[1:], TARGET[1:])
    assert_close(made(SOURCE, LENGTHS, TARGET)[1:], alone)


@both
def test_steps_are_the_whole(geometry):
    made = model(geometry)
    state, logits = made.encode(SOURCE, LENGTHS), []
    for tokens in TARGET.T:
        step, state = made.step(tokens, state)
        logits.append(step)
    assert_close(torch.stack(logits, 1), made(SOURCE, LENGTHS, TARGET))


@both
def test_every_parameter_learns(geometry):
    made = model(geometry).train()
    made(SOURCE, LENGTHS, TARGET).square().sum().backward()
    idle = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle
    assert sum(isinstance(module, Embedding) for module in made.modules()) == 2


@both
def test_made_on_the_meta_device_it_is_the_same(geometry):
    config = TransformerConfig(geometry=geometry, **SIZES)
    torch.manual_seed(0)
    fresh = Transformer(11, 12, config)
    with torch.device("meta"):
        made = Transformer(11, 12, config)
    made = made.to_empty(device="cpu")
    torch.manual_seed(0)
    for module in made.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), made.parameters(), strict=True))


def test_bf16_autocast_stays_near():
    made = model("lorentz").float()
    expected = made(SOURCE, LENGTHS, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        logits = copy.deepcopy(made)(SOURCE, LENGTHS, TARGET)
    assert (logits.float() - expected).abs().max() < 0.1 * expected.abs().max()


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="geometry=poincare: choose from euclidean, lorentz"):
        TransformerConfig(geometry="poincare")
    with pytest.raises(UserError, match=r"heads=3: width=16 .* use heads=2"):
        TransformerConfig(width=16, heads=3)
    with pytest.raises(UserError, match=r"width=9: .* even"):
        TransformerConfig(width=9, heads=3)
