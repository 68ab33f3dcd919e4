"""Words and characters as numbers: round trip, least counts, and files that are damaged."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere.data.vocabulary import (
    BEGIN,
    END,
    FILE,
    PAD,
    SPECIALS,
    UNKNOWN,
    Vocabulary,
    joined,
    padded,
    read_vocabularies,
    split,
    write_vocabularies,
)
from horosphere.errors import UserError

TEXTS = ["The cat sat.", "The dog sat on the cat!", "猫が好き。 A cat?"]
UNITS = ["words", "characters"]


@pytest.mark.parametrize("unit", UNITS)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_what_was_seen_comes_back(unit, texts):
    tokens = [split(text, unit) for text in texts]
    if not any(tokens):
        return
    known = Vocabulary.of(texts, unit)
    for text, own in zip(texts, tokens, strict=True):
        numbers = known.encode(text)
        assert [known.tokens[number] for number in numbers] == own
        assert all(number >= len(SPECIALS) for number in numbers)
        assert known.decode([BEGIN, *numbers, END, UNKNOWN, PAD]) == joined(own, unit)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_characters_are_the_text(text):
    assert joined(split(text, "characters"), "characters") == text.lower()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("least", [1, 2, 3])
def test_counts_are_those_of_the_texts(unit, least):
    counted = Counter(token for text in TEXTS for token in split(text, unit))
    known = Vocabulary.of(TEXTS, unit, least)
    kept = dict(zip(known.tokens, known.counts, strict=True))
    assert {token: count for token, count in counted.items() if count >= least} == {
        token: count for token, count in kept.items() if token not in SPECIALS
    }
    assert sum(known.counts) == counted.total()  # the rest is unknown
    assert list(known.counts[4:]) == sorted(known.counts[4:], reverse=True)


def test_the_most_frequent_are_kept():
    known = Vocabulary.of(["b b b a a c c d"], most=2)
    assert known.tokens[4:] == ("b", "a")  # by name where counts are equal
    assert known.encode("d c a b") == [UNKNOWN, UNKNOWN, 5, 4]
    assert len(known) == 6


def test_order_of_texts_does_not_matter():
    assert Vocabulary.of(TEXTS) == Vocabulary.of(TEXTS[::-1])


@pytest.mark.parametrize(("texts", "why"), [([], "there is no text"), (["a b"], "no token occurs 2 times")])
def test_an_empty_one_is_refused(texts, why):
    with pytest.raises(UserError, match=f"an empty vocabulary: {why}; lower least=2, or give more text"):
        Vocabulary.of(texts, least=2)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't stop!", ["don'", "t", "stop", "!"]),
        ("l’été (2024)", ["l’", "été", "(", "2024", ")"]),
        ("东西好，very good", ["东", "西", "好", "，", "very", "good"]),
        ("ひらカタ漢字", list("ひらカタ漢字")),
        ("'quoted' --", ["'", "quoted", "'", "-", "-"]),
        ("<pad>", ["<", "pad", ">"]),  # no text can say a special token
        ("", []),
    ],
)
def test_words(text, tokens):
    assert split(text) == tokens


def test_people_read_few_spaces():
    for text in ("the hat, the cat (both).", "东西好，坏", "qu'il n’a l'air don't", "é è: ok?"):
        assert joined(split(text)) == text


def test_padding():
    assert padded([[5], [6, 7, 8]], 2).tolist() == [[5, PAD], [6, 7]]
    assert padded([], 2).shape == (0, 2)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
def test_files(tmp_path, unit):
    named = {"source": Vocabulary.of(TEXTS, unit), "target": Vocabulary.of(["x\n\u2028\x00 y"], unit)}
    write_vocabularies(tmp_path, named)
    assert read_vocabularies(tmp_path, named) == named
    assert read_vocabularies(tmp_path, named)["source"].digest() == named["source"].digest()
    assert named["source"].digest() != named["target"].digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("tokens"),
        lambda v: v.update(tokens="abc"),
        lambda v: v["tokens"].append(3),
        lambda v: v["tokens"].append("cat"),
        lambda v: v["tokens"].append("\ud800"),
        lambda v: v["tokens"].__setitem__(0, "pad"),
        lambda v: (v["tokens"].append("cat"), v["counts"].append(1)),
        lambda v: v["counts"].__setitem__(0, "1"),
        lambda v: v.update(unit="bytes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, change):
    write_vocabularies(tmp_path, {"text": Vocabulary.of(TEXTS)})
    content = json.loads((tmp_path / FILE).read_text())
    change(content["text"])
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"vocabulary.json: a damaged file \(text .*\); train the model again"):
        read_vocabularies(tmp_path, ["text"])


def test_a_missing_name_or_file(tmp_path):
    with pytest.raises(UserError, match=r"a damaged file \(no such file\)"):
        read_vocabularies(tmp_path, ["text"])
    write_vocabularies(tmp_path, {})
    with pytest.raises(UserError, match="text has no list of tokens"):
        read_vocabularies(tmp_path, ["text"])
