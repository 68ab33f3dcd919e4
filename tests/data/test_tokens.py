"""Tokens on disk are the tokens of the text; windows cover them as they promise; a corpus is prepared once."""

import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from horosphere.data import tokens as module
from horosphere.data.tokenizer import train_tokenizer
from horosphere.data.tokens import (
    TokenFile,
    Windows,
    document_positions,
    prepare,
    tokenise,
    windows_in_order,
)
from horosphere.errors import UserError

pytest.importorskip("transformers")
BOOKS = Path(__file__).parents[3] / "shared" / "data" / "text" / "books-valid.txt.gz"
TEXTS = [
    f"Chapter {i}.\n\nThe cat's hat cost {i * 12345} euros;\n  the dog's, größer, more.\r\n\n\n" * (i % 7 + 1)
    for i in range(120)
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300)


def stream(numbers, bos=0) -> TokenFile:
    return TokenFile(np.asarray(numbers, dtype=np.uint16), bos, 1 << 16, len(numbers), 1)


def entries(cache):
    """All that lies in a cache, but for digests of files that are older than two seconds."""
    return sorted(path.name for path in cache.iterdir() if path.name != "digests")


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- tokens on disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("piece", "batch"), [(1 << 16, 1 << 20), (100, 1000), (40, 1)])
def test_tokens_are_those_of_the_texts_however_they_are_cut(tokenizer, tmp_path, monkeypatch, piece, batch):
    monkeypatch.setattr(module, "PIECE", piece)
    monkeypatch.setattr(module, "BATCH", batch)
    stream = tokenise(iter(TEXTS), tokenizer, tmp_path / "out")
    assert stream.tokens.tolist() == [token for text in TEXTS for token in (0, *tokenizer(text)["input_ids"])]
    assert (stream.bos, stream.vocab_size, stream.documents) == (0, len(tokenizer), len(TEXTS))
    assert stream.text_bytes == len("".join(TEXTS).encode())
    assert stream.tokens.dtype == np.uint16
    again = TokenFile.open(tmp_path / "out")
    assert np.array_equal(again.tokens, stream.tokens)
    assert isinstance(again.tokens, np.memmap)
    assert everything(tmp_path) == ["out", "out/tokens.bin", "out/tokens.json"]


@pytest.mark.parametrize("character", ["x", " ", "\n", "é"])
def test_a_long_text_without_ends_of_lines_comes_back(tokenizer, tmp_path, character):
    text = character * 300_000
    stream = tokenise([text], tokenizer, tmp_path / "out")
    assert stream.tokens[0] == 0
    assert tokenizer.decode(stream.tokens[1:].tolist()) == text


def test_a_foreign_tokenizer(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"a": 5, "b": 70_000, "[UNK]": 1, "[EOS]": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", 3)])
    backend.enable_truncation(2)
    backend.enable_padding(length=9)
    foreign = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", eos_token="[EOS]")
    stream = tokenise(["a b a b", "c"], foreign, tmp_path / "out")
    assert stream.tokens.tolist() == [3, 5, 70_000, 5, 70_000, 3, 1]
    assert stream.tokens.dtype == np.uint32
    assert foreign.backend_tokenizer.truncation is not None  # still its owner's
    with pytest.raises(UserError, match="neither bos nor eos"):
        tokenise(["a"], PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"), tmp_path / "other")


def test_nothing_is_left_of_a_failure(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 10)

    def broken(error):
        yield from TEXTS
        raise error

    for error in (UserError, KeyboardInterrupt):
        with pytest.raises(error):
            tokenise(broken(error), tokenizer, tmp_path / "out")
    with pytest.raises(UserError, match="no text"):
        tokenise([], tokenizer, tmp_path / "out")
    assert everything(tmp_path) == []


def test_progress_counts_megabytes(tokenizer, tmp_path):
    seen = []
    tokenise(
        ["the cat\n" * 200_000] * 2, tokenizer, tmp_path / "out", progress=lambda done, note: seen.append((done, note))
    )
    assert seen == sorted(seen)
    assert seen[-1][0] == 3
    assert seen[-1][1].endswith("M tokens")


@pytest.mark.parametrize(
    "damage", ["truncated", "longer", "empty", "no tokens", "no about", "foreign", "list", "cut", "words", "more"]
)
def test_a_damaged_folder_is_refused(tokenizer, tmp_path, damage):
    folder = tmp_path / "out"
    tokenise(TEXTS, tokenizer, folder)
    data, about = folder / "tokens.bin", folder / "tokens.json"
    whole = json.loads(about.read_text())
    match damage:
        case "truncated":
            data.write_bytes(data.read_bytes()[:-1])
        case "longer":
            data.write_bytes(data.read_bytes() + b"12")
        case "empty":
            data.write_bytes(b"")
            about.write_text(json.dumps(whole | {"tokens": 0}))
        case "no tokens":
            data.unlink()
        case "no about":
            about.unlink()
        case "foreign":
            about.write_text('{"name": "x"}')
        case "list":
            about.write_text("[1]")
        case "cut":
            about.write_text(about.read_text()[:-9])
        case "words":
            about.write_text(json.dumps(whole | {"vocab_size": "many"}))
        case "more":
            about.write_text(json.dumps(whole | {"colour": 1}))
    with pytest.raises(UserError, match="no folder of tokens" if damage == "no about" else "damaged tokens") as error:
        TokenFile.open(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["tokens", "bos", "vocab_size", "text_bytes", "documents"])
@pytest.mark.parametrize("value", ['"8"', "1.5", "true", "null", "[]", "-1", "NaN", "1e999", "9" * 30, "9" * 5000])
def test_counts_of_another_kind_are_refused(tmp_path, name, value):
    np.arange(4, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    about = dict.fromkeys(["tokens", "bos", "vocab_size", "text_bytes", "documents"], 4) | {"bos": 0}
    (tmp_path / "tokens.json").write_text(json.dumps(about | {name: "?"}).replace('"?"', value))
    with pytest.raises(UserError, match="damaged tokens") as error:
        TokenFile.open(tmp_path)
    assert str(error.value).isprintable()


@pytest.mark.skipif(not BOOKS.is_file(), reason=f"no books at {BOOKS}")
def test_books_are_tokenised_fast(tokenizer, tmp_path):
    with gzip.open(BOOKS, "rt", encoding="utf-8") as file:
        text = file.read()
    start = time.perf_counter()
    tokenise([text], tokenizer, tmp_path / "out")
    assert time.perf_counter() - start < 20  # 2.7 MB; ten times the time it takes on one core


# -- windows ----------------------------------------------------------------------------------------------------------

sizes = {
    "size": st.integers(2, 200),
    "length": st.integers(1, 30),
    "rows": st.integers(1, 7),
    "seed": st.integers(0, 2**32 - 1),
}


@settings(max_examples=100, deadline=None)
@given(**sizes)
def test_an_epoch_covers_the_stream_once(size, length, rows, seed):
    if size <= length:
        with pytest.raises(UserError, match=rf"{size} tokens are too few .* Use shorter windows, or more text"):
            Windows(stream(range(size)), length, rows, seed)
        return
    windows = Windows(stream(range(size)), length, rows, seed)
    steps = range(2 * windows.count // rows + 1)
    batches = torch.cat([windows.batch(step) for step in steps])
    assert batches.dtype == torch.int64
    assert batches.shape == (len(steps) * rows, length + 1)
    assert (batches.diff(dim=1) == 1).all()  # tokens in a row
    for epoch in range(2):
        inputs = batches[epoch * windows.count : (epoch + 1) * windows.count, :-1]
        if len(inputs) == windows.count:
            assert inputs.flatten().sort().values.diff().eq(1).all()  # each once, without a gap
            assert inputs.numel() > size - 2 * length
    assert windows.epochs_at(0) == 0
    assert windows.epochs_at(windows.count) == rows


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 99))
def test_a_batch_depends_on_seed_and_step_only(steps, seed):
    tokens = stream(range(61))
    one = Windows(tokens, 10, 4, seed)
    for step in steps:  # any order, and any division among processes
        batch = one.batch(step)
        halves = [Windows(tokens, 10, 4, seed).batch(step, rows) for rows in (range(3), range(3, 4))]
        assert torch.equal(batch, torch.cat(halves))
        assert one.batch(step, range(0)).shape == (0, 11)


@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("size", [9, 10, 17, 40])
def test_an_epoch_has_the_windows_that_fit_at_every_offset(size, length):
    """From offset s there are ⌊(S - s - 1)/T⌋: a window takes T + 1 tokens, and none hangs over the end."""
    windows = Windows(stream(range(size)), length, rows=1, seed=0)
    fitting = min((size - s - 1) // length for s in range(length))
    assert windows.count == max(1, fitting)
    for step in range(3 * windows.count):
        (window,) = windows.batch(step)
        assert torch.equal(window, window[0] + torch.arange(length + 1))  # y is x, shifted by one


def test_epochs_and_seeds_differ_in_order_and_offset():
    def order(seed, epoch):
        windows = Windows(stream(range(1000)), 10, 99, seed)
        return windows.batch(epoch)[:, 0]

    orders = [order(seed, epoch) for seed in range(3) for epoch in range(10)]
    assert len({tuple(starts.tolist()) for starts in orders}) == 30
    assert len({int(starts[0]) % 10 for starts in orders}) > 5


@settings(max_examples=100, deadline=None)
@given(**sizes)
def test_in_order_every_token_but_the_first_is_predicted_once(size, length, rows, seed):
    tokens = stream(np.random.default_rng(seed).integers(1, 999, size), bos=0)
    batches = list(windows_in_order(tokens, length, rows))
    assert all(
        windows.shape == (len(mask), length + 1) and mask.shape == (len(mask), length) for windows, mask in batches
    )
    assert all(len(mask) == rows for _, mask in batches[:-1])
    assert 0 < len(batches[-1][1]) <= rows
    targets = torch.cat([windows[:, 1:][mask] for windows, mask in batches])
    inputs = torch.cat([windows[:, :-1][mask] for windows, mask in batches])
    assert targets.tolist() == tokens.tokens[1:].tolist()
    assert inputs.tolist() == tokens.tokens[:-1].tolist()
    assert all((windows[:, 1:][~mask] == 0).all() for windows, mask in batches)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=4), st.integers(0, 3))
def test_positions_restart_with_each_document(rows, bos):
    expected = []
    for row in rows:
        position, positions = -1, []
        for token in row:
            position = 0 if token == bos else position + 1
            positions.append(position)
        expected.append(positions)
    assert document_positions(torch.tensor(rows), bos).tolist() == expected


# -- a corpus ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return str(path)


def texts_of(tokens, tokenizer):
    return [text for text in tokenizer.decode(tokens.tokens.tolist()).split("<|endoftext|>") if text]


def test_every_fiftieth_document_is_held_out(source, tmp_path):
    corpus = prepare(source, None, 300, None, tmp_path / "cache")
    assert texts_of(corpus.valid, corpus.tokenizer) == [TEXTS[49], TEXTS[99]]
    assert texts_of(corpus.train, corpus.tokenizer) == [text for i, text in enumerate(TEXTS) if i not in (49, 99)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab \n", min_size=1, max_size=300), min_size=1, max_size=120))
@example(["a text"] * 49)
@example(["a"] * 49 + ["longer text"])
@example(["a text"] * 51)
@example(["a" * 4908, " a" * 46])
def test_holding_out_loses_nothing(texts):
    parts = list(module._hold_out(texts))
    assert "".join(text for _, text in parts) == "".join(texts)
    held = [text for part, text in parts if part == "valid"]
    assert held
    if len(texts) >= 50:
        assert held == texts[49::50]
    else:
        assert parts[-1] == ("valid", held[0])
        assert len(held) == 1
        assert len(held[0]) >= min(len(texts[-1]), len("".join(texts)) // 50)
        assert len(held[0]) <= max(1, len("".join(texts)) // 50 * 9 // 8 + 1)


def test_of_one_document_the_end_is_held_out(tmp_path):
    text = "".join(f"Paragraph {i}.\n\n" for i in range(5000))
    [(train, head), (valid, tail)] = module._hold_out([text])
    assert (train, valid, head + tail) == ("train", "valid", text)
    assert head.endswith("\n\n")
    assert 0.02 <= len(tail) / len(text) < 0.025
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match=r"a\.txt, train: no text for it"):
        prepare(str(tmp_path / "a.txt"), None, 300, None, tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_validation_text_of_its_own(source, tmp_path):
    (tmp_path / "v.txt").write_text("Chapter 7.\fThe hat.")
    corpus = prepare(source, None, 300, str(tmp_path / "v.txt"), tmp_path / "cache")
    assert texts_of(corpus.valid, corpus.tokenizer) == ["Chapter 7.", "The hat."]
    assert corpus.train.documents == len(TEXTS)


def test_a_corpus_is_made_once_for_each_question(source, tmp_path, tokenizer, monkeypatch):
    cache = tmp_path / "cache"
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "v.txt").write_text("The hat.")
    questions = [
        (None, 300, None),
        (None, 290, None),
        (None, 300, str(tmp_path / "v.txt")),
        (str(tmp_path / "tokenizer"), 300, None),
    ]
    made = [prepare(source, *question, cache) for question in questions]
    assert len(entries(cache)) == 4
    assert [corpus.train.vocab_size for corpus in made] == [300, 290, 300, 300]
    monkeypatch.setattr(module, "_parts", None)  # nothing is read again
    for question, corpus in zip(questions, made, strict=True):
        again = prepare(source, *question, cache)
        assert np.array_equal(again.train.tokens, corpus.train.tokens)
        assert np.array_equal(again.valid.tokens, corpus.valid.tokens)
        assert again.tokenizer.backend_tokenizer.to_str() == corpus.tokenizer.backend_tokenizer.to_str()
    monkeypatch.undo()
    Path(source).write_text(json.dumps({"text": "the cat\n" * 99}))
    assert prepare(source, None, 300, None, cache).train.documents == 1


def test_a_failure_leaves_the_cache_as_it_was(source, tmp_path):
    with open(source, "a") as file:
        file.write("{broken")
    for question, message in (
        ((None, 300), "line 121: no valid JSON"),
        ((None, 100), "too small"),
        ((str(tmp_path / "none"), 300), "no tokenizer"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(source, *question, None, tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_ctrl_c_leaves_the_cache_as_it_was(source, tmp_path):
    def stop(done, note):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, None, 300, None, tmp_path / "cache", progress=stop)
    assert entries(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="HOROSPHERE_CACHE"):
        prepare(source, None, 300, None, tmp_path / "file")


def _prepare(source, cache, barrier, queue):
    barrier.wait()
    corpus = prepare(source, None, 300, None, cache)
    queue.put((len(corpus.train), int(corpus.train.tokens.sum(dtype=np.int64)), len(corpus.tokenizer)))


def test_processes_may_prepare_at_once(source, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=_prepare, args=(source, tmp_path / "cache", barrier, queue), daemon=True)
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    corpora = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(timeout=60)
    assert len(corpora) == 1
    assert len(entries(tmp_path / "cache")) == 1


def test_another_text_of_the_same_name_size_and_time_is_another_text(tmp_path):
    for folder, word in (("a", "the cat "), ("b", "the dog ")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text.txt").write_text(word * 200)
        os.utime(tmp_path / folder / "text.txt", ns=(1, 1))
    first, second, again = (prepare(str(tmp_path / name), None, 260, None, tmp_path / "cache") for name in "aba")
    assert first.tokenizer.decode(first.train.tokens[1:3]) != second.tokenizer.decode(second.train.tokens[1:3])
    np.testing.assert_array_equal(first.train.tokens, again.train.tokens)


def test_a_text_that_changes_while_it_is_read_is_not_kept(source, tmp_path):
    def change(done, note):
        with open(source, "a") as file:
            file.write(json.dumps({"text": "more"}) + "\n")

    with pytest.raises(UserError, match="changed while it was read; start again"):
        prepare(source, None, 300, None, tmp_path / "cache", progress=change)
    assert entries(tmp_path / "cache") == []


PREPARE = """
import sys, time
from pathlib import Path
from horosphere.data import tokens
from horosphere.data.tokens import prepare

def progress(done, note):
    print("making", flush=True)
    time.sleep(float(sys.argv[3]))

print(len(prepare(sys.argv[1], None, 300, None, Path(sys.argv[2]), progress).train), flush=True)
"""


def preparing(source, cache, seconds):
    command = [sys.executable, "-c", PREPARE, source, str(cache), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_nothing_and_of_two_one_prepares(source, tmp_path):
    cache = tmp_path / "cache"
    killed = preparing(source, cache, 60)
    assert killed.stdout.readline() == "making\n"
    killed.kill()
    killed.communicate(timeout=20)
    assert len(entries(cache)) == 2  # half of an entry, and its lock
    two = [preparing(source, cache, 0) for _ in range(2)]
    said = sorted(process.communicate(timeout=120)[0].split() for process in two)
    assert [process.returncode for process in two] == [0, 0]
    assert "making" not in said[0]
    assert said[1][0] == "making"
    assert said[0][-1] == said[1][-1]
    assert [len(name) for name in entries(cache)] == [32]


def test_the_sample_is_spread_evenly(monkeypatch):
    texts = [f"{i:03d}" for i in range(1000)]
    assert list(module._sample(texts)) == texts
    monkeypatch.setattr(module, "SAMPLE", 300)
    kept = [int(text) for text in module._sample(texts)]
    assert 50 <= len(kept) <= 100
    assert len(set(np.diff(kept))) == 1
    assert kept[0] == 0
    assert kept[-1] > 1000 - 2 * (kept[1] - kept[0])
    monkeypatch.setattr(module, "SAMPLED", 900)
    assert max(int(text) for text in module._sample(texts)) < 300
