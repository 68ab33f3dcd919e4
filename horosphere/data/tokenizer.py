"""Tokenizers: byte-level BPE, trained on a corpus or loaded from a folder; or a token for each character."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.errors import UserError, one_line
from horosphere.extras import require
from horosphere.foreign import Unreadable, read_json, require_regular

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"  # id 0: begins every document, and so ends the one before; also pads
CHARACTERS = "characters"  # how a token for each is asked for
UNKNOWN = "<|unknown|>"  # a character that the corpus has not
SMALLEST = 257  # the 256 bytes, and END
FILES = ("tokenizer.json", "tokenizer_config.json")  # what save_pretrained writes
PROBE = "a word, and ☃"  # some fail only when they read what they do not know
GAPS = 10**5  # numbers that no token has, beyond as many as there are tokens: a table of all is made
UNLIMITED = 10**30  # tokens; how transformers says it too
# GPT-4's: contractions; words with the mark or space before them; digits by three; marks; line ends; spaces
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, progress: Callable[[int, str], None] | None = None
) -> PreTrainedTokenizerFast:
    """Byte-level BPE with at most vocab_size tokens: every text comes back from its tokens to the letter.

    The same texts give the same tokenizer. Encoding adds no special tokens. END is bos, eos and pad; a text that spells
    it out has that token too. progress(megabytes, note) is called while texts are read.

    >>> tokenizer = train_tokenizer(["the cat and the dog"] * 9, vocab_size=300)
    >>> tokenizer.decode(tokenizer.encode("the dog and the cat"))
    'the dog and the cat'
    """
    if vocab_size < SMALLEST:
        raise UserError(
            f"a vocabulary of {vocab_size} is too small: "
            f"the bytes and {END} alone are {SMALLEST}. Use {SMALLEST} or more."
        )
    require("language")
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_counted(texts, progress), trainer)
    return _fast(tokenizer)


def character_tokenizer(
    texts: Iterable[str], progress: Callable[[int, str], None] | None = None
) -> PreTrainedTokenizerFast:
    """A token for each character of the texts, in the order of Unicode, after END and one for all other characters.

    >>> tokenizer = character_tokenizer(["the cat", "a hat"])
    >>> tokenizer.encode("a cat"), tokenizer.decode(tokenizer.encode("a cat")), len(tokenizer)
    ([3, 2, 4, 3, 7], 'a cat', 8)
    """
    known = sorted(set().union(*_counted(texts, progress)))
    if not known:
        raise UserError("there is no character to make a tokenizer of: give a text")
    require("language")
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    numbers = {token: number for number, token in enumerate((END, UNKNOWN, *known))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([END, UNKNOWN])
    return _fast(tokenizer, unk_token=UNKNOWN)


def _fast(tokenizer: Tokenizer, **more: str) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=UNLIMITED,
        clean_up_tokenization_spaces=False,
        **more,
    )


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer in a folder made by save_pretrained. Fetches nothing, and runs no code that comes with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train_tokenizer(["the cat and the dog"] * 9, vocab_size=260).save_pretrained(folder)
    ...     len(load_tokenizer(folder))
    260
    """
    folder = Path(path)
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder}: no tokenizer (it has no {name}). Name a folder made by save_pretrained of a fast tokenizer."
            )
        try:
            require_regular(folder)
            read_json(folder / name, wide=True)  # transformers writes 10^30 for no limit
        except Unreadable as error:
            raise _damaged(folder / name, error) from error
    require("language")
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        numbers = sorted(tokenizer.get_vocab().values())
        if not numbers or numbers[-1] > 2 * len(numbers) + GAPS:
            raise ValueError(f"{len(numbers):,} tokens, numbered up to {numbers[-1] if numbers else 0:,}")
        tokenizer.encode(PROBE)
    except BaseException as error:  # the library raises bare Exceptions for what it cannot read, and panics of Rust
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _damaged(folder / FILES[0], error) from error
        raise
    return tokenizer


def _counted(texts: Iterable[str], progress: Callable[[int, str], None] | None) -> Iterator[str]:
    characters = 0
    for text in texts:
        yield text
        characters += len(text)
        if progress:
            progress(characters // 10**6, "training the tokenizer")


def _damaged(file: Path, error: BaseException) -> UserError:
    return UserError(f"{file}: a damaged tokenizer ({one_line(error, 80)}). Save it again with save_pretrained.")


def token_numbers(tokenizer: PreTrainedTokenizerFast) -> int:
    """One more than the largest number of a token: what a table must have room for."""
    return int(max(tokenizer.get_vocab().values())) + 1


def special_tokens(tokenizer: PreTrainedTokenizerFast) -> dict[str, int | None]:
    """The numbers that a model's configuration names. Where one is missing, another stands in for it."""
    bos, eos, pad = tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    bos = eos if bos is None else bos
    eos, pad = (bos if number is None else number for number in (eos, pad))
    return {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
