"""CLIPs of a few thousand parameters, as transformers and open_clip make them."""

import pytest
import torch


class Words:
    """A tokenizer: a number a character, between two ends."""

    def __call__(self, texts, padding=True, truncation=True, max_length=16, return_tensors="pt"):
        rows = [[98, *[ord(c) % 90 + 1 for c in text][: max_length - 2], 99] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [99] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": mask}


def huggingface_clip(text=32, image=48, layers=2):
    pytest.importorskip("transformers")
    from transformers import CLIPConfig, CLIPModel

    from horosphere.models.towers import HuggingFaceClip

    torch.manual_seed(0)
    common = {"num_hidden_layers": layers, "num_attention_heads": 4, "projection_dim": 24}
    words = {"vocab_size": 100, "max_position_embeddings": 16, "eos_token_id": 99, "bos_token_id": 98}
    config = CLIPConfig(
        text_config={"hidden_size": text, "intermediate_size": 2 * text, **common, **words},
        vision_config={
            "hidden_size": image,
            "intermediate_size": 2 * image,
            "image_size": 32,
            "patch_size": 8,
            **common,
        },
        projection_dim=24,
    )
    return HuggingFaceClip(CLIPModel(config).eval(), Words())


def open_clip(text=32, image=48, layers=2):
    pytest.importorskip("open_clip")
    from open_clip.model import CLIP

    from horosphere.models.towers import OpenClip

    torch.manual_seed(0)
    vision = {"image_size": 32, "layers": layers, "width": image, "head_width": 12, "patch_size": 8}
    words = {"context_length": 16, "vocab_size": 100, "width": text, "heads": 4, "layers": layers}

    def tokens(texts):
        ids = Words()(texts)["input_ids"]
        return torch.nn.functional.pad(ids, (0, 16 - ids.shape[1]))

    return OpenClip(CLIP(24, vision, words).eval(), tokens)


CLIPS = {"transformers": huggingface_clip, "open_clip": open_clip}


def write_clip(folder, words):
    """A folder as transformers writes it: a tiny CLIP, and a tokenizer that knows these words."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"?": 0, **{word: number for number, word in enumerate(words, 1)}, "<s>": 98, "</s>": 99}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 98), ("</s>", 99)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="?", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    huggingface_clip().model.save_pretrained(folder)
    made.save_pretrained(folder)
    return str(folder)
