"""HyperCLIP: W·Sᵀ is the literal Möbius path, merged equals unmerged, radii lie between the singular values."""

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import Poincare
from horosphere.models.adapters import Adaptation, adapt, attention_weights, load_adapter
from horosphere.models.hyperclip import BlockScale, radius_loss
from horosphere.models.towers import Towers
from tests.models.tiny_clip import CLIPS, huggingface_clip

TEXTS = ["a cat", "a dog on a mat", ""]


@pytest.fixture(params=CLIPS)
def towers(request) -> Towers:
    return CLIPS[request.param]()


def hyperclip(towers, block, sides="both", shared=False):
    return adapt(towers, Adaptation("hyperclip", sides, block, shared=shared))


def answers(towers):
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return towers.encode(TEXTS), towers.image(pixels)


def disturb(adapter, size=0.1):
    torch.manual_seed(3)
    with torch.no_grad():
        for p in adapter.trainable():
            p += size * torch.randn_like(p)


def moebius(s, w, c):
    """log0(S ⊗_c exp0(w)) of one row, written out: Ganea et al. 2018, equation 27."""
    ball = Poincare(c)
    x = ball.exp0(w)
    sx = s @ x
    product = torch.tanh(sx.norm() / x.norm() * torch.atanh(c**0.5 * x.norm())) * sx / sx.norm() / c**0.5
    return ball.log0(product)


@pytest.mark.parametrize("c", [0.01, 0.1, 1.0, 4.0])
def test_the_product_is_the_literal_moebius_path(c):
    torch.manual_seed(0)
    scale = BlockScale(width=12, block=4).double()
    scale.change.data += 0.3 * torch.randn_like(scale.change)
    weight = 0.1 * torch.randn(5, 12, dtype=torch.float64)
    s = torch.block_diag(*scale.blocks.detach()[0])
    literal = torch.stack([moebius(s, row, c) for row in weight])
    assert_close(scale(weight).detach(), literal, rtol=1e-9, atol=1e-12)


def test_radii_lie_between_the_singular_values():
    torch.manual_seed(0)
    scale = BlockScale(width=12, block=4).double()
    scale.change.data += 0.5 * torch.randn_like(scale.change)
    weight = torch.randn(64, 12, dtype=torch.float64)
    singular = torch.linalg.svdvals(torch.block_diag(*scale.blocks.detach()[0]))
    ball = Poincare(0.01)
    before, after = (ball.dist0(ball.exp0(0.1 * w)) for w in (weight, scale(weight).detach()))
    assert (after <= singular.max() * before * (1 + 1e-9)).all()
    assert (after >= singular.min() * before * (1 - 1e-9)).all()
    assert_close(before, 0.2 * weight.norm(dim=-1))


def test_it_is_the_identity_at_first_and_can_be_turned_off(towers):
    before = answers(towers)
    adapter = hyperclip(towers, block=8)
    for a, b in zip(answers(towers), before, strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6)
    disturb(adapter)
    assert not torch.allclose(answers(towers)[0], before[0], atol=1e-4)
    assert not torch.allclose(answers(towers)[1], before[1], atol=1e-4)
    with adapter.disabled():
        for a, b in zip(answers(towers), before, strict=True):  # torch has another path for plain weights
            assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_train_save_load_merge_give_equal_outputs(towers, tmp_path):
    kind = type(towers)
    adapter = hyperclip(towers, block=8, shared=True)
    assert all(not p.requires_grad for name, p in towers.named_parameters() if "change" not in name)
    optimizer = torch.optim.SGD(adapter.trainable(), lr=0.1)
    text = towers.text(towers.tokens(TEXTS))
    radius_loss(text, 30.0).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in adapter.trainable() if p.grad is not None)
    optimizer.step()
    trained = answers(towers)
    adapter.save(tmp_path / "adapter")
    other = next(make() for make in CLIPS.values() if type(make()) is kind)
    load_adapter(other, tmp_path / "adapter")
    for a, b in zip(answers(other), trained, strict=True):
        assert torch.equal(a, b)
    merged = answers(adapter.merge())
    for a, b in zip(merged, trained, strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert not any("parametrizations" in name for name, _ in towers.named_parameters())


def test_one_side_alone_leaves_the_other_as_it_was(towers):
    before = answers(towers)
    disturb(hyperclip(towers, block=8, sides="text"))
    assert not torch.allclose(answers(towers)[0], before[0], atol=1e-4)
    assert torch.equal(answers(towers)[1], before[1])


@pytest.mark.parametrize(
    ("block", "shared", "count"), [(128, False, 5_898_240), (1, False, 46_080), (128, True, 1_179_648)]
)
def test_the_table_of_parameters(block, shared, count):
    """ViT-B/16's towers, 512 and 768 wide, of twelve layers: the paper's numbers."""
    towers = huggingface_clip(text=512, image=768, layers=1)
    assert 12 * hyperclip(towers, block=block, shared=shared).count() == count


def test_half_precision(towers):
    towers.to(torch.bfloat16)
    disturb(hyperclip(towers, block=8))
    assert towers.text(towers.tokens(TEXTS)).dtype == torch.bfloat16


def test_mistakes_take_one_line(tmp_path):
    towers = huggingface_clip()
    with pytest.raises(UserError, match=r"block=5 does not divide the width 32 of text.*; choose from 1, 2, 4"):
        hyperclip(towers, block=5)
    hyperclip(other := huggingface_clip(), block=8)
    with pytest.raises(UserError, match="the text tower has an adapter already; merge it first"):
        hyperclip(other, block=8)
    towers.model.vision_model.encoder = torch.nn.Identity()
    with pytest.raises(UserError, match="the image tower has no attention with projections"):
        hyperclip(towers, block=8)
    adapter = hyperclip(huggingface_clip(), block=8)
    adapter.save(tmp_path / "a")
    with pytest.raises(UserError, match="exists already"):
        adapter.save(tmp_path / "a")
    with pytest.raises(UserError, match="an adapter of other towers"):
        load_adapter(huggingface_clip(layers=1), tmp_path / "a")
    about = json.loads(Path(tmp_path / "a/adapter.json").read_text())
    Path(tmp_path / "a/adapter.json").write_text(json.dumps({**about, "block": "many"}))
    with pytest.raises(UserError, match="block=many: it should be a whole number"):
        load_adapter(huggingface_clip(), tmp_path / "a")


def test_both_kinds_of_attention_are_found(towers):
    found = [parts for _, _, _, parts in attention_weights(towers.image_tower)]
    assert sum(found) == 6  # two layers, three projections


def test_the_radius_of_a_vector_is_twice_its_length():
    assert radius_loss(torch.tensor([[3.0, 4.0]]), 5.0).item() == pytest.approx(1.0)
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])  # radii 0, 10 and 20; 10 is wanted
    assert radius_loss(rows, 10.0).item() == pytest.approx((1 + 0 + 1) / 3)
    assert radius_loss(rows[2:], 5.0).item() == pytest.approx(9)
