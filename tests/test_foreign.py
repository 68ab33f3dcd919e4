"""Files made by others: regular files only, within limits, read in one place; what is wrong is said in one line."""

import ast
import gzip
import io
import json
import os
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horosphere import foreign
from horosphere.foreign import Unreadable

PACKAGE = Path(__file__).parents[1] / "horosphere"


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return write


def reason(read, *args, **how):
    with pytest.raises(Unreadable) as error:
        read(*args, **how)
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 300
    return message


# -- what is a file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        foreign.read_bytes,
        foreign.read_text,
        foreign.read_json,
        foreign.read_yaml,
        foreign.read_npz,
        foreign.read_npy,
        foreign.read_tensors,
        foreign.read_index,
        foreign.open_picture,
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, read):
    """A pipe that nobody writes to would be waited for, for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "round").symlink_to("round")
    seen = []
    for name in ("pipe", "/dev/zero", ".", "none", "round", "nul\0"):
        thread = threading.Thread(target=lambda name=name: seen.append(reason(read, tmp_path / name)), daemon=True)
        thread.start()
        thread.join(timeout=20)
        assert not thread.is_alive()
    kinds = ["no regular file", "no regular file", "a directory", "no such file", "cannot be read", "no name of a file"]
    assert [told.partition(" (")[0] for told in seen] == kinds


def test_a_file_is_read_no_further_than_its_limit(put):
    assert foreign.read_text(put("a", "abc"), most=3) == "abc"
    assert reason(foreign.read_text, put("a", "abcd"), most=3) == "more than 3 bytes"


def test_a_packed_file_may_grow_but_not_without_end(put, monkeypatch):
    monkeypatch.setattr(foreign, "FREELY", 1000)
    assert len(foreign.read_bytes(put("a.gz", gzip.compress(bytes(1000))))) == 1000
    bomb = put("b.gz", gzip.compress(bytes(10**7)))
    assert "more than 100 times as large" in reason(foreign.read_bytes, bomb)
    with pytest.raises(Unreadable, match="100 times"), foreign.opened(bomb) as file:
        list(foreign.lines_of(file))
    honest = os.urandom(10**6)
    assert foreign.read_bytes(put("c.gz", gzip.compress(honest))) == honest


def test_a_broken_gzip_is_named(put):
    whole = gzip.compress(b"text" * 100)
    for content in (b"text", whole[:-9], whole[:-8] + b"none" + whole[-4:]):
        assert "a broken gzip file" in reason(foreign.read_bytes, put("a.gz", content))


def test_text_is_utf8_and_the_byte_that_is_not_is_named(put):
    assert foreign.read_text(put("a", "\ufeffgrün")) == "grün"
    assert reason(foreign.read_text, put("a", b"gr\xfcn")) == "no UTF-8 text at byte 2"
    assert reason(foreign.read_text, put("a", b"\xef\xbb\xbfgr\xfcn")) == "no UTF-8 text at byte 5"


def test_no_line_is_longer_than_memory(monkeypatch):
    monkeypatch.setattr(foreign, "LINE", 8)
    assert list(foreign.lines_of(io.StringIO("1234567\nab\r\n"))) == ["1234567\n", "ab\r\n"]
    with pytest.raises(Unreadable, match="a line of more than 8 bytes"):
        list(foreign.lines_of(io.BytesIO(b"123456789")))


def test_names_for_people():
    assert foreign.printable("a\x1b[2J\x00b\ud800\u202ec\u2028d") == "a [2J b c d"
    assert foreign.printable("می\u200cخواهم") == "می\u200cخواهم"  # a joiner belongs to the word
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert foreign.shown(deep) == "[" * 40
    assert foreign.shown({"a\x1b": "b" * 10**6}).isprintable()


# -- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2", "line 1, column 6: Expecting ',' delimiter"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("[1e999]", "the number 1e999 is too large"),
        ("[" + "1" * 400 + ".0]", "the number 11111111111111111111 is too large"),
        ("[9223372036854775808]", "the number 9223372036854775808… has more than 64 bits"),
        ("[" + "1" * 5000 + "]", "Exceeds the limit"),
        ("[" * 501 + "]" * 501, "nested more than 500 deep"),
        ("[" * 10**6, "nested more than 500 deep"),
        ('[{"a": "\\\\"},' + '{"a":[' * 300, "nested more than 500 deep"),
        ('{"a": 1, "b\\u001b": 2, "b\\u001b": 3}', 'the key "b" stands twice in one object'),
        (b'{"a": "\xff"}', "no UTF-8 text at byte 7"),
        ("", "line 1, column 1: Expecting value"),
        ("{}{}", "line 1, column 3: Extra data"),
    ],
)
def test_json_that_is_none(put, content, told):
    path = put("a.json", content)
    assert reason(foreign.read_json, path, object).startswith(told)


def test_json_of_the_wrong_kind(put):
    assert reason(foreign.read_json, put("a.json", "[]")) == "it holds no JSON object"
    assert reason(foreign.read_json, put("a.json", "{}"), list) == "it holds no list"
    assert reason(foreign.read_json, put("a.json", "[" + "1," * 50 + "1]"), list, 100) == "more than 100 bytes"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(values)
@example(["[" * 1000, '"[{' * 400, '\\"[' * 600, "\\" * 7])
@example([1e308, 0.1234567890123456789012345, 5e-324, -(2**63)])
@example([{"a": "]"}] * 300)
def test_json_is_what_was_written(value):
    for ascii_only in (True, False):
        assert foreign.parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


def test_wide_numbers_are_read_where_they_are_expected():
    assert foreign.parse_json(b'{"model_max_length": 1000000000000000019884624838656}', wide=True) == {
        "model_max_length": int(1e30)
    }


def test_a_key_that_stands_twice_is_found_in_time():
    keys = ", ".join(f'"k{i}": 0' for i in range(60_000))
    start = time.process_time()
    assert "k59999" in reason(foreign.parse_json, f'{{{keys}, "k59999": 1}}'.encode())
    assert time.process_time() - start < 2  # looking back from each key takes a minute


# -- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: &x [1]\nb: [*x, *x]", "it has an alias, *x"),
        ("a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: " + "[" * 21 + "]" * 21, "nested more than 20 deep"),
        ("a: " + "[" * 100_000, "nested more than 20 deep"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "a key stands twice, in line 3 or below"),
        ("a: " + "1" * 5000, "Exceeds the limit"),
        ("a: \x1b", "unacceptable character"),
        (b"a: \xff", "no UTF-8 text at byte 3"),
        ("a: " + "x" * 10**6, "more than 1,000,000 bytes"),
    ],
)
def test_yaml_that_is_none(put, content, told):
    assert reason(foreign.read_yaml, put("a.yaml", content)).startswith(told)


# -- arrays -----------------------------------------------------------------------------------------------------------


def header(shape, descr="|u1", version=1):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 * version, "little") + text


def packed(path, *members, how=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members:
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (header((10**13,)) + bytes(10), "a.npy claims 10,000,000,000,000 bytes, and 10 are there"),
        (header((2**32, 2**32)) + bytes(10), "a.npy claims 18,446,744,073,709,551,616 bytes"),
        (header((3,)) + bytes(4), "a.npy claims 3 bytes, and 4 are there"),
        (header((-1,)), "a.npy claims -1 bytes"),
        (header((-1, -4)) + bytes(4), "a.npy claims 4 bytes"),
        (header((1,), "|O") + bytes(8), "a.npy holds Python objects"),
        (header((1,), [("x", "|O")]) + bytes(8), "a.npy holds Python objects"),
        (header("x"), "shape is not valid"),
        (header((1,), "what"), "descr is not a valid dtype descriptor"),
        (header((1,), version=3) + bytes(1), "a.npy has the version (3, 0)"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "EOF"),
        (b"a long text", "the magic string is not correct"),
        (b"", "EOF"),
    ],
)
def test_arrays_that_claim_what_is_not_there(tmp_path, content, told):
    assert told in reason(foreign.read_npz, packed(tmp_path / "a.npz", ("a", content)))
    (tmp_path / "a.npy").write_bytes(content)
    assert told.replace("a.npy", "the array") in reason(foreign.read_npy, tmp_path / "a.npy")


def test_archives_that_are_none(put, tmp_path):
    assert "not a zip file" in reason(foreign.read_npz, put("a.npz", "text"))
    whole = packed(tmp_path / "a.npz", ("a", header((3,)) + b"abc")).read_bytes()
    for at in range(30, len(whole), 3):  # one byte is another
        try:
            foreign.read_npz(put("b.npz", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]))
        except Unreadable as error:
            assert str(error).isprintable()  # noqa: PT017
    many = packed(tmp_path / "many.npz", *((f"a{i}", header((0,))) for i in range(1001)))
    assert reason(foreign.read_npz, many).startswith("1001 arrays")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = packed(tmp_path / "twice.npz", ("a", header((0,))), ("a", header((0,))))
    assert "two of one name" in reason(foreign.read_npz, twice)
    odd = packed(tmp_path / "odd.npz", ("a", header((0,))), how=zipfile.ZIP_LZMA)
    assert "packed in a way" in reason(foreign.read_npz, odd)


def test_a_bomb_of_arrays_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "FREELY", 10**6)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10**8, np.uint8))
    import tracemalloc

    tracemalloc.start()
    assert "its arrays would take more than" in reason(foreign.read_npz, tmp_path / "a.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**7


def test_arrays_are_those_that_were_written(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3).T,
        "b": np.array(["x", "größer"]),
        "c": np.zeros((0, 3), np.int16),
        "d": np.array(3),
        "e": np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        given = foreign.read_npz(tmp_path / "a.npz")
        assert given.keys() == arrays.keys()
        for name, array in arrays.items():
            assert given[name].dtype == array.dtype
            np.testing.assert_array_equal(given[name], array)


# -- tensors ----------------------------------------------------------------------------------------------------------


def test_tensors_are_those_that_were_written_and_damage_is_named(tmp_path):
    import torch
    from safetensors.torch import save_file

    file = tmp_path / "a.safetensors"
    save_file({"a": torch.arange(3.0), "b": torch.zeros(0, 2)}, file)
    given = foreign.read_tensors(file)
    assert {name: t.tolist() for name, t in given.items()} == {"a": [0.0, 1.0, 2.0], "b": []}
    whole = file.read_bytes()
    for content in (b"", whole[:7], whole[:40], whole[:-1], whole + b"x", b"\xff" * 8 + whole[8:], b"x" * 100):
        file.write_bytes(content)
        assert reason(foreign.read_tensors, file)
        assert reason(foreign.open_tensors, file)


@pytest.mark.parametrize(
    "name",
    [
        *("a.bin", "../a.safetensors", "/tmp/a.safetensors", "b/a.safetensors", "..", "", 3, None),
        *("9" * 300 + ".safetensors", "\0.safetensors"),
    ],
)
def test_an_index_names_safetensors_beside_it(put, name):
    assert foreign.read_index(put("i.json", '{"weight_map": {"w": "a-1.safetensors"}}')) == {"w": "a-1.safetensors"}
    told = reason(foreign.read_index, put("i.json", json.dumps({"weight_map": {"w": name}})))
    assert "is no .safetensors beside it" in told


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": 3}'])
def test_an_index_of_nothing(put, content):
    assert reason(foreign.read_index, put("i.json", content)) == "it has no weight_map of tensors to files"


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_every_extension_has_its_format():
    Image = pytest.importorskip("PIL.Image")
    known = Image.registered_extensions()
    assert {known[extension] for extension in foreign.EXTENSIONS} == set(foreign.FORMATS)


def test_a_picture_is_upright(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (6, 4), "red").save(tmp_path / "a.jpg", exif=exif)
    assert foreign.open_picture(tmp_path / "a.jpg").size == (4, 6)


def test_a_picture_that_claims_too_many_pixels_is_not_decoded(tmp_path, monkeypatch):
    Image = pytest.importorskip("PIL.Image")
    assert foreign.PIXELS == 2 * Image.MAX_IMAGE_PIXELS
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr(foreign, "PIXELS", 20)
    assert reason(foreign.open_picture, tmp_path / "a.png") == "6 x 4 pixels are more than 20"


# -- the habit --------------------------------------------------------------------------------------------------------

# whoever opens a file of others in one of these ways does it in `foreign`
OPENERS = {
    *("json.load", "json.loads", "yaml.load", "yaml.safe_load", "csv.reader", "csv.DictReader", "Image.open"),
    *("np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile", "np.memmap", "torch.load", "safe_open", "load_file"),
    *("gzip.open", "zipfile.ZipFile", "tarfile.open", "pickle.load", "pickle.loads"),
}
METHODS = {"read_text", "read_bytes"}  # of a path
THERE = {"foreign.py"}
# what they read is no file of others: sources, the system's own, copies by way of JSON, messages of processes
OURS = {
    *("described.py", "memory.py", "study/jobs.py", "train/distributed.py", "train/recipe.py"),
    "superposition/sweep.py",
}


def openers(tree):
    """(line, name) of each call of an opener."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
            if name in OPENERS or method:
                yield node.lineno, name


def test_an_opener_is_found():
    text = "def f(p):\n    return json.loads(Path(p).read_text()), safe_open(p), read_text(p)"
    assert sorted(name for _, name in openers(ast.parse(text))) == ["Path(p).read_text", "json.loads", "safe_open"]


def test_nobody_else_opens_files_of_others():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        calls = list(openers(ast.parse(path.read_text(encoding="utf-8"))))
        if calls and path.relative_to(PACKAGE).as_posix() not in THERE:
            found[path.relative_to(PACKAGE).as_posix()] = calls
    assert {name: calls for name, calls in found.items() if name not in OURS} == {}
    assert found.keys() >= OURS  # who reads nothing leaves the list
