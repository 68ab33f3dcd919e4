"""Documents from every source, in bounded memory, and a line for every mistake."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horosphere.data import text as module
from horosphere.data.text import cut, documents, fingerprint
from horosphere.errors import UserError

BOOKS = Path(__file__).parents[3] / "shared" / "data" / "text" / "books-valid.txt.gz"


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") and isinstance(content, str) else data)
        return str(path)

    return write


def refusal(source, **options):
    with pytest.raises(UserError) as error:
        list(documents(source, **options))
    assert "\n" not in str(error.value)
    return str(error.value)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 3, 1 << 20])  # characters and separators lie across the borders of blocks
@pytest.mark.parametrize("name", ["a.txt", "a.MD", "a.txt.gz"])
def test_a_form_feed_separates_documents(put, monkeypatch, name, block):
    monkeypatch.setattr(module, "BLOCK", block)
    source = put(name, "\ufeffone\r\nlíne 🦄\n\f\ntwo\f \n\f\fthree\n\n  x")
    assert list(documents(source)) == ["one\nlíne 🦄", "two", "three\n\n  x"]


@settings(max_examples=50, deadline=None)
@given(st.text("ab \n", max_size=200), st.integers(1, 9))
def test_a_long_document_is_cut_and_nothing_visible_is_lost(tmp_path_factory, content, block):
    path = tmp_path_factory.mktemp("long") / "a.txt"
    path.write_text(content, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST", 20)
        patch.setattr(module, "BLOCK", block)
        parts = list(documents(str(path))) if content.strip() else []
    assert all(len(part) <= 20 for part in parts)
    assert "".join("".join(parts).split()) == "".join(content.split())


@settings(max_examples=200, deadline=None)
@given(st.text("ab \n", min_size=1, max_size=60), st.data())
def test_cuts_prefer_blank_lines_to_lines_to_words(text, data):
    high = data.draw(st.integers(1, len(text)))
    low = data.draw(st.integers(0, high - 1))
    at = cut(text, low, high)
    assert low < at <= high
    inside = text[low + 1 : high]
    if "\n\n" in inside:
        assert text[:at].endswith("\n\n")
    elif "\n" in inside:
        assert text[:at].endswith("\n")
    elif " " in inside:
        assert text[at] == " "
    else:
        assert at == high


def test_a_huge_file_is_read_in_little_memory(tmp_path):
    path = tmp_path / "huge.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"a line of text\n" * (1 << 16))
    code = f"""if True:
        import tracemalloc
        from horosphere.data.text import documents
        tracemalloc.start()
        print(sum(len(text) for text in documents({str(path)!r})), tracemalloc.get_traced_memory()[1])"""
    size, peak = map(
        int, subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    assert size > 60e6
    assert peak < 32e6  # of 63 MB


def test_json_lines(put):
    lines = (
        '\ufeff{"text": "one", "id": 1}\n\n{"text": " "}\r\n'
        '{"text": "\\ud83e\\udd84\\n"}\n{"text": "three", "body": "3"}'
    )
    assert (
        list(documents(put("a.jsonl", lines))) == list(documents(put("b.jsonl.gz", lines))) == ["one", "🦄\n", "three"]
    )
    assert list(documents(put("c.jsonl", '{"body": "x"}'), field="body")) == ["x"]


def test_a_folder_is_its_files_in_the_order_of_their_names(put, tmp_path):
    for name, content in {"b.txt": "2", "a/z.md": "1", "c/a.jsonl": '{"text": "3"}', "c/b.txt.gz": "4\f5"}.items():
        put(name, content)
    for name in ("x.py", ".hidden.txt", ".git/a.txt", "c/.checkpoints/b.txt", "noise.gz"):
        put(name, "no")
    assert list(documents(str(tmp_path))) == list("12345")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n\n{"text" "y"}\n', "a.jsonl line 3: no valid JSON"),
        ("a.jsonl", "[" * 100_000, "a.jsonl line 1: no valid JSON"),
        ("a.jsonl", '{"text": "x"}\n{"body": "y", "id": 3}\n', 'a.jsonl line 2: no field "text"; there is body, id.'),
        ("a.jsonl", '{"text": null}\n', 'a.jsonl line 1: the field "text" is null, not text.'),
        ("a.jsonl", '["x"]\n', 'a.jsonl line 1: ["x"] is no object.'),
        ("a.jsonl", '{"text": "\\ud83d"}\n', "a.jsonl line 1: half a character"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xe9"}\n', "a.jsonl line 2: no UTF-8 text at byte 24."),
        ("a.txt", b"abc\xc3\xa9\xe9 d", "a.txt: no UTF-8 text at byte 5."),
        ("a.txt", b"abc\xf0\x9f", "a.txt: no UTF-8 text at byte 3."),
        ("a.txt", "text".encode("utf-16"), "a.txt: no UTF-8 text at byte 0."),
        ("a.txt.gz", gzip.compress(b"text " * 999, mtime=0)[:-12], "a.txt.gz: a broken gzip file"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz: a broken gzip file"),
        ("a.txt", "", "a.txt holds no text"),
        ("a.txt", " \n\f\t\n", "a.txt holds no text"),
        ("a.jsonl", '{"text": ""}', "a.jsonl holds no text"),
        ("a.pdf", "x", "a.pdf: unknown extension .pdf. Known are .txt .md .jsonl,"),
    ],
)
@pytest.mark.parametrize("block", [2, 1 << 20])
def test_mistakes_are_named(put, tmp_path, monkeypatch, name, content, message, block):
    monkeypatch.setattr(module, "BLOCK", block)
    assert refusal(put(name, content)).replace(f"{tmp_path}/", "").startswith(message)


def test_paths_without_text(tmp_path):
    assert "no such file or folder" in refusal(str(tmp_path / "none.txt"))
    assert "a folder without text files" in refusal(str(tmp_path))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(put):
    source = put("a.txt", "x")
    os.chmod(source, 0)
    assert "cannot be read (Permission denied)" in refusal(source)


@pytest.mark.skipif(not BOOKS.is_file(), reason=f"no books at {BOOKS}")
def test_books():
    books = list(documents(str(BOOKS)))
    assert len(books) == 10
    assert all(book.startswith("# Title: ") for book in books)


# -- other sources ----------------------------------------------------------------------------------------------------


def test_python_documents_itself():
    texts = list(documents("python"))
    assert sum(map(len, texts)) > 1e6
    assert any("list comprehension" in text for text in texts)
    assert any("RFC 2822" in text for text in texts)
    assert len(set(texts)) == len(texts)
    "".join(texts).encode()


class Dataset:
    """What the library's load_dataset takes, and rows instead of a dataset."""

    def __init__(self, *rows):
        self.rows = rows

    def __call__(self, name, config, split, streaming):
        self.asked = (name, config, split, streaming)
        return (row() if callable(row) else row for row in self.rows)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hf:a/b", ("a/b", None, "train")),
        ("hf:a/b:c", ("a/b", "c", "train")),
        ("hf:a/b:c:test", ("a/b", "c", "test")),
        ("hf:a/b::test", ("a/b", None, "test")),
    ],
)
def test_a_dataset_of_hugging_face_is_streamed(monkeypatch, source, asked):
    dataset = Dataset({"text": "one"}, {"text": ""}, {"text": "two"})
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=dataset))
    assert list(documents(source)) == ["one", "two"]
    assert dataset.asked == (*asked, True)


def test_the_real_library_takes_these_arguments(put, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    put("data/train.jsonl", '{"body": "one"}\n{"body": "two"}\n')
    assert list(documents(f"hf:{tmp_path / 'data'}", field="body")) == ["one", "two"]
    assert "cannot be read" in refusal(f"hf:{tmp_path / 'data'}::nosuchsplit")


def test_mistakes_with_hugging_face(monkeypatch):
    def lost():
        raise ConnectionError("no\nroute")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=Dataset({"text": "one"}, {"body": 1})))
    assert refusal("hf:a") == 'hf:a row 2: no field "text"; there is body. Choose the one that holds the text.'
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=Dataset({"text": "one"}, lost)))
    assert refusal("hf:a").startswith("hf:a: cannot be read (no route)")
    for source in ("hf:", "hf:a:b:c:d"):
        assert "no name of a dataset" in refusal(source)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'horosphere[language]'" in refusal("hf:a")


# -- fingerprints -----------------------------------------------------------------------------------------------------


@pytest.fixture
def known(tmp_path):
    return lambda source: fingerprint(str(source), tmp_path / "memo.json")


def test_a_fingerprint_follows_content_and_order(put, tmp_path, known):
    a, b = put("in/a.txt", "one"), put("in/b.txt", "two")
    folder = tmp_path / "in"
    seen = [known(folder), known(a), known(b), known("python"), known("hf:x"), known("hf:x:y")]
    assert seen[0] == known(folder)
    times = Path(b).stat()
    put("in/b.txt", "ten")
    os.utime(b, ns=(times.st_atime_ns, times.st_mtime_ns))
    seen.append(known(folder))  # as long and as old as before
    Path(a).rename(folder / "c.txt")
    seen.append(known(folder))  # in another order
    put("in/d.txt", "new")
    seen.append(known(folder))
    Path(folder / "d.txt").rename(folder / "d.jsonl")
    seen.append(known(folder))  # read in another way
    assert len(set(seen)) == len(seen)
    put("in/other.py", "no text")
    os.utime(b, ns=(1, 1))
    Path(b).rename(folder / "bb.txt")  # the order is the same
    assert seen[-1] == known(folder)
    shutil.copytree(folder, tmp_path / "copy")
    assert seen[-1] == known(tmp_path / "copy")
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="no such file"):
        known(folder)


def test_a_dataset_in_a_folder_is_known_by_its_content(tmp_path, monkeypatch, known):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name, rows in (("one", ["a", "b"]), ("two", ["a", "c"])):
        datasets.Dataset.from_dict({"text": rows}).save_to_disk(tmp_path / name)
        assert list(documents(f"hf:{tmp_path / name}")) == rows
    first, second = known(f"hf:{tmp_path / 'one'}"), known(f"hf:{tmp_path / 'two'}")
    assert first != second
    (tmp_path / "one").rename(tmp_path / "three")
    (tmp_path / "two").rename(tmp_path / "one")
    assert known(f"hf:{tmp_path / 'three'}") == first
    assert known(f"hf:{tmp_path / 'one'}") == second


def test_splits_that_were_saved_to_disk_together(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    parts = {name: datasets.Dataset.from_dict({"text": [f"{name} text"]}) for name in ("train", "test")}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both")
    parts["test"].save_to_disk(tmp_path / "alone")
    assert list(documents(f"hf:{tmp_path / 'both'}")) == ["train text"]
    assert list(documents(f"hf:{tmp_path / 'both'}::test")) == ["test text"]
    assert list(documents(f"hf:{tmp_path / 'alone'}")) == ["test text"]
    for name, there in (("both", "train, test"), ("alone", "train")):
        assert refusal(f"hf:{tmp_path / name}::dev").endswith(f"no split dev; there are {there}")


def test_a_file_without_an_extension_is_text(tmp_path):
    (tmp_path / "README").write_text("one\ftwo")
    (tmp_path / "program").write_bytes(b"\x7fELF\0\1")
    (tmp_path / "picture").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "b.txt").write_text("three")
    (tmp_path / "cut").write_text("a" * 1023 + "é")  # a character on both sides of what is looked at
    assert list(documents(str(tmp_path / "README"))) == ["one", "two"]
    assert list(documents(str(tmp_path))) == ["one", "two", "three", "a" * 1023 + "é"]
    assert "no UTF-8 text at byte 0" in refusal(str(tmp_path / "picture"))


def test_what_is_no_file_is_refused_at_once(tmp_path, known):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("pipe.txt", "zero.txt"):
        assert "no regular file (a pipe or a device)" in refusal(str(tmp_path / name))
        with pytest.raises(UserError, match="no regular file"):
            known(tmp_path / name)


def test_names_need_not_be_text(tmp_path, known):
    """Names of files are bytes; those that are no UTF-8 are names too."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"\xff"))
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/a\xfe.txt")).write_text("once")
    assert list(documents(str(folder))) == ["once"]
    assert len(known(folder)) == 64


def test_reading_text_is_light():
    code = "import json, sys, horosphere.data.text, horosphere.data.tokenizer; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert not {"torch", "transformers", "tokenizers", "datasets"}.intersection(chain(loaded))
