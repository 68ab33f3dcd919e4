"""A random Llama of two small layers, a byte-level tokenizer whose one special token starts, ends and pads, phrases."""

from functools import cache

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="the evaluation of language models needs transformers")
tokenizers = pytest.importorskip("tokenizers", reason="the evaluation of language models needs tokenizers")

TEXT = [
    "Question: why is the sky blue?\nAnswer: light scatters.",
    "A. the cat sat on the mat",
    "B. dogs chase cats, and cats chase mice",
]
WORDS = [
    "light",
    "dogs",
    "chase",
    "cats",
    "mat",
    "sky",
    "blue",
    "and",
    "the",
    "scatters",
    "mice",
    "sat",
    "on",
    "why",
    "is",
    "猫",
    "é",
]
BOS = "<|endoftext|>"


@cache
def tokenizer():
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    special = {"special_tokens": [BOS], "initial_alphabet": tokenizers.pre_tokenizers.ByteLevel.alphabet()}
    bpe.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False, **special))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=BOS, eos_token=BOS, pad_token=BOS)


def llama(positions: int = 128, seed: int = 0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=positions,
        initializer_range=0.3,  # predictions far from uniform
        bos_token_id=tokenizer().bos_token_id,
        eos_token_id=tokenizer().eos_token_id,
    )
    return transformers.LlamaForCausalLM(config)


def phrase(rng, longest):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, longest)))
