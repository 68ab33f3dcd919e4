"""BERT: transformers' BertForPreTraining with copied weights; its size; what it may not see."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.bert import Bert, BertConfig

VOCABULARY, SIZES = 20, {"width": 16, "heads": 2, "layers": 2, "inner": 24, "positions": 10}
TOKENS = torch.randint(VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(0))
SEGMENTS = torch.tensor([[0] * 5 + [1] * 3, [0] * 3 + [1] * 5, [0] * 4 + [1] * 4])
LENGTHS = torch.tensor([8, 6, 7])
PLACES = torch.tensor([[0, 3, 7], [1, 2, 5], [6, 4, 0]])
both = pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])


def model(geometry="euclidean"):
    torch.manual_seed(0)
    made = Bert(VOCABULARY, BertConfig(geometry=geometry, **SIZES)).double().eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    return made


def copied(theirs):
    """The state of transformers' model by our names."""
    state = theirs.state_dict()
    names = {
        "bert.embeddings.word_embeddings": "tokens",
        "bert.embeddings.token_type_embeddings": "segments",
        "bert.embeddings.position_embeddings": "positions",
        "bert.embeddings.LayerNorm": "norm",
        "bert.pooler.dense": "pooler.0",
        "cls.predictions.transform.dense": "filler.linear",
        "cls.predictions.transform.LayerNorm": "filler.norm",
        "cls.seq_relationship": "follows",
    }
    for i in range(SIZES["layers"]):
        here, ours = f"bert.encoder.layer.{i}", f"layers.{i}"
        names |= {
            f"{here}.attention.output.dense": f"{ours}.self_attn.out_proj",
            f"{here}.attention.output.LayerNorm": f"{ours}.norm1",
            f"{here}.intermediate.dense": f"{ours}.linear1",
            f"{here}.output.dense": f"{ours}.linear2",
            f"{here}.output.LayerNorm": f"{ours}.norm2",
        }
    made = {"filler.bias": state["cls.predictions.bias"]}
    for name, ours in names.items():
        made |= {f"{ours}.{part}": state[f"{name}.{part}"] for part in ("weight", "bias") if f"{name}.{part}" in state}
    for i in range(SIZES["layers"]):
        for part in ("weight", "bias"):
            parts = [
                state[f"bert.encoder.layer.{i}.attention.self.{which}.{part}"] for which in ("query", "key", "value")
            ]
            made[f"layers.{i}.self_attn.in_proj_{part}"] = torch.cat(parts)
    return made


def test_flat_it_is_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        intermediate_size=24,
        max_position_embeddings=10,
    )
    theirs = transformers.BertForPreTraining(config).double().eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    ours = model()
    ours.load_state_dict(copied(theirs))
    seen = torch.arange(8) < LENGTHS[:, None]
    expected = theirs(TOKENS, attention_mask=seen.long(), token_type_ids=SEGMENTS)
    filled, follows = ours(TOKENS, SEGMENTS, LENGTHS, PLACES)
    wanted = expected.prediction_logits.gather(1, PLACES.unsqueeze(-1).expand(-1, -1, VOCABULARY))
    assert_close(filled, wanted, rtol=0, atol=1e-10)
    assert_close(follows, expected.seq_relationship_logits, rtol=0, atol=1e-10)


def test_the_base_model_has_its_size():
    config = BertConfig(width=768, heads=12, layers=12, inner=3072, positions=512)
    with torch.device("meta"):
        made = Bert(30522, config)
    assert sum(p.numel() for p in made.parameters()) == 110_106_428


@both
def test_padding_is_not_seen(geometry):
    made, other = model(geometry), TOKENS.clone()
    other[1, 6:] = 7
    places = torch.tensor([[0, 3], [1, 5], [6, 4]])
    for a, b in zip(made(TOKENS, SEGMENTS, LENGTHS, places), made(other, SEGMENTS, LENGTHS, places), strict=True):
        assert torch.equal(a, b)
    row = slice(1, 2)
    alone = made(TOKENS[row, :6], SEGMENTS[row, :6], LENGTHS[row], places[row])
    assert_close(made(TOKENS, SEGMENTS, LENGTHS, places)[0][row], alone[0])


@both
def test_both_sides_are_seen(geometry):
    """What BERT is for: a token changes what is said of those before and after it."""
    made, other = model(geometry), TOKENS.clone()
    other[0, 4] = (other[0, 4] + 1) % VOCABULARY
    places = torch.tensor([[1, 7]] * 3)
    before, after = (made(tokens, SEGMENTS, LENGTHS, places)[0][0] for tokens in (TOKENS, other))
    assert (before - after).abs().amax(-1).min() > 0


@both
def test_every_parameter_learns(geometry):
    made = model(geometry).train()
    filled, follows = made(TOKENS, SEGMENTS, LENGTHS, PLACES)
    (filled.square().sum() + follows.square().sum()).backward()
    assert not [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]


@both
def test_made_on_the_meta_device_it_is_the_same(geometry):
    config = BertConfig(geometry=geometry, **SIZES)
    torch.manual_seed(0)
    fresh = Bert(VOCABULARY, config)
    with torch.device("meta"):
        made = Bert(VOCABULARY, config)
    made = made.to_empty(device="cpu")
    torch.manual_seed(0)
    for module in made.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), made.parameters(), strict=True))


def test_the_ball_is_refused():
    with pytest.raises(UserError, match="geometry=poincare: choose from euclidean, lorentz"):
        BertConfig(geometry="poincare")
