"""Every way to adapt towers has the same verbs, begins as nothing, and merges into what it was unmerged."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.adapters import Adaptation, Learner, adapt, attention_weights, load_adapter
from tests.models.tiny_clip import CLIPS, huggingface_clip, open_clip

TEXTS = ["a cat", "a dog on a mat", ""]
METHODS = ("projection", "hyperclip", "lora", "oft", "full")
PAIRS = [(kind, method) for kind in CLIPS for method in METHODS if (kind, method) != ("open_clip", "oft")]


def made(kind, method, sides="text"):
    if method in ("lora", "oft"):
        pytest.importorskip("peft")
    towers = CLIPS[kind]()
    return towers, adapt(towers, Adaptation(method, sides, block=8, rank=2))


def answers(towers):
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return torch.cat([towers.encode(TEXTS), towers.image(pixels)])


def disturb(adapter, size=0.1):
    torch.manual_seed(3)
    with torch.no_grad():
        for p in adapter.trainable():
            p += size * torch.randn_like(p)


@pytest.mark.parametrize(("kind", "method"), PAIRS)
def test_an_adapter_begins_as_nothing_and_can_be_turned_off_kept_saved_and_merged(kind, method, tmp_path):
    before = answers(CLIPS[kind]())
    towers, adapter = made(kind, method)
    close = {"rtol": 1e-4, "atol": 1e-5}
    assert_close(answers(towers), before, **close)
    assert adapter.count() == sum(p.numel() for p in towers.parameters() if p.requires_grad) > 0

    disturb(adapter)
    after = answers(towers)
    assert not torch.allclose(after[: len(TEXTS)], before[: len(TEXTS)], atol=1e-3)
    assert_close(after[len(TEXTS) :], before[len(TEXTS) :], **close)  # the other side is as it was
    with adapter.disabled():
        assert_close(answers(towers), before, **close)
    assert_close(answers(towers), after, **close)

    adapter.keep("first")
    disturb(adapter)
    assert not torch.allclose(answers(towers), after, atol=1e-3)
    adapter.use("first")
    assert_close(answers(towers), after, **close)
    with pytest.raises(UserError, match="no adapter is kept as second; there are first"):
        adapter.use("second")

    adapter.save(tmp_path / "adapter")
    other = CLIPS[kind]()
    load_adapter(other, tmp_path / "adapter")
    assert_close(answers(other), after, **close)
    size = (tmp_path / "adapter/adapter.safetensors").stat().st_size
    assert size < 4 * adapter.count() + 20_000

    with adapter.disabled(), pytest.raises(UserError, match="the adapter is disabled, and would be lost"):
        adapter.merge()
    merged = adapter.merge()
    assert_close(answers(merged), after, **close)
    assert {name for name, _ in merged.named_parameters()} == {name for name, _ in CLIPS[kind]().named_parameters()}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_of_the_adapter_gets_no_gradient(method):
    towers, adapter = made("transformers", method)
    towers.text(towers.tokens(TEXTS)).square().sum().backward()
    learned = {id(p) for p in adapter.trainable()}
    assert all((p.grad is None) or id(p) in learned for p in towers.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in adapter.trainable())


@pytest.mark.parametrize("method", ["hyperclip", "lora", "full"])
def test_the_image_side_alone(method):
    before = answers(huggingface_clip())
    towers, adapter = made("transformers", method, "image")
    disturb(adapter)
    after = answers(towers)
    assert_close(after[: len(TEXTS)], before[: len(TEXTS)], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(after[len(TEXTS) :], before[len(TEXTS) :], atol=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 10**12},
        {"rank": "many"},
        {"rank": None},
        {"method": "\x1b[2J"},
        {"method": ["lora"]},
        {"colour\x1b": 1},
        {"block": 1.5},
        {"shared": "perhaps"},
    ],
    ids=str,
)
def test_adapters_of_another_kind_are_named(tmp_path, change):
    pytest.importorskip("peft")
    adapt(CLIPS["transformers"](), Adaptation("lora", rank=2)).save(tmp_path / "a")
    about = json.loads((tmp_path / "a" / "adapter.json").read_text())
    (tmp_path / "a" / "adapter.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(UserError) as error:
        load_adapter(CLIPS["transformers"](), tmp_path / "a")
    assert str(error.value).isprintable()


def test_attention_has_all_three_projections_or_is_none():
    layers = nn.ModuleDict({"whole": nn.Module(), "lonely": nn.Module(), "odd": nn.Module()})
    for name, kinds in {"whole": "qkv", "lonely": "k", "odd": "qkv"}.items():
        for kind in kinds:
            setattr(layers[name], f"{kind}_proj", nn.Linear(2, 2))
    layers["odd"].v_proj = nn.Conv1d(2, 2, 1)
    found = [(path, weight, parts) for path, _, weight, parts in attention_weights(layers)]
    assert found == [(f"whole.{kind}_proj", "weight", 1) for kind in "qkv"]
    layers["in_one"] = nn.MultiheadAttention(2, 1)
    layers["apart"] = nn.MultiheadAttention(2, 1, kdim=3)  # three weights that are no layers
    joined = [path for path, _, weight, parts in attention_weights(layers) if (weight, parts) == ("in_proj_weight", 3)]
    assert joined == ["in_one"]


def test_a_second_adapter_and_a_foreign_one_are_refused(tmp_path):
    pytest.importorskip("peft")
    towers, adapter = made("transformers", "lora")
    for method in ("lora", "hyperclip"):
        with pytest.raises(UserError, match="the text tower has an adapter already; merge it first"):
            adapt(towers, Adaptation(method, block=8))
    adapter.save(tmp_path / "a")
    with pytest.raises(UserError, match="an adapter of other towers"):
        load_adapter(huggingface_clip(text=64), tmp_path / "a")
    with pytest.raises(UserError, match="no adapter"):
        load_adapter(huggingface_clip(), tmp_path / "nowhere")
    with pytest.raises(UserError, match="OFT cannot adapt torch's MultiheadAttention; use method=hyperclip"):
        adapt(open_clip(), Adaptation("oft", block=8))
    with pytest.raises(UserError, match="block=5 does not divide the width 32"):
        adapt(huggingface_clip(), Adaptation("oft", block=5))


def test_a_merged_adapter_says_so_and_a_broken_one_leaves_no_trace(tmp_path):
    towers, adapter = made("transformers", "hyperclip")
    adapter.save(tmp_path / "a")
    adapter.merge()
    for verb in (lambda: adapter.save(tmp_path / "b"), lambda: adapter.use("first"), adapter.disabled().__enter__):
        with pytest.raises(UserError, match="the adapter is merged"):
            verb()
    weights = load_file(tmp_path / "a/adapter.safetensors")
    save_file({name: t * float("nan") for name, t in weights.items()}, tmp_path / "a/adapter.safetensors")
    with pytest.raises(UserError, match="weights that are not finite"):
        load_adapter(towers, tmp_path / "a")
    assert not any("parametrizations" in name for name, _ in towers.named_parameters())
    for wrong in ({"method": "hypr"}, {"sides": "sound"}):
        with pytest.raises(UserError, match="choose from"):
            Adaptation(**wrong)


@pytest.mark.parametrize("kind", CLIPS)
def test_full_means_all_of_a_side(kind):
    text, image = (made(kind, "full", side)[1].learned() for side in ("text", "image"))
    assert not set(text) & set(image)
    rest = {name for name, _ in CLIPS[kind]().named_parameters()} - set(text) - set(image)
    assert rest == {"model.logit_scale"}


def test_the_state_of_a_learner_is_what_learns():
    class Model(Learner):
        def __init__(self):
            super().__init__()
            self.towers = huggingface_clip()
            self.adapter = adapt(self.towers, Adaptation("hyperclip", block=8))

    model, other = Model(), Model()
    state = model.state_dict()
    assert sum(t.numel() for t in state.values()) == model.adapter.count()
    disturb(model.adapter)
    other.load_state_dict(model.state_dict())
    assert torch.equal(answers(other.towers), answers(model.towers))
    name = next(iter(state))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({key: value for key, value in state.items() if key != name})


def test_adapters_begin_with_the_sizes_of_the_papers():
    how = Adaptation()
    assert (how.method, how.sides, how.block, how.rank, how.shared) == ("none", "text", 32, 8, False)
    assert [Adaptation(sides=sides).towers for sides in ("text", "image", "both")] == [
        ("text",),
        ("image",),
        ("text", "image"),
    ]
