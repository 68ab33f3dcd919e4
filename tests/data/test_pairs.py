"""Pairs of sentences: every source, what is held out, and mistakes in files."""

import gettext
from pathlib import Path

import numpy as np
import pytest

from horosphere.data.messages import read_messages, read_po
from horosphere.data.pairs import PairOptions, open_pairs, read_pairs, unrepeated
from horosphere.data.vocabulary import BEGIN, END, PAD, UNKNOWN
from horosphere.errors import UserError
from horosphere.extras import package_folder

HOW = PairOptions("words", least=1, length=32)


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def numbered(count):
    return "".join(f"word {n}\tmot {n} fin\n" for n in range(count))


# -- arrays -----------------------------------------------------------------------------------------------------------


def test_rows_are_the_sentences(put):
    data = open_pairs(put("a.tsv", numbered(30)), None, HOW)
    source, target = (data.vocabularies[side] for side in ("source", "target"))
    assert sorted([*data.train, *data.valid]) == list(range(30))
    assert len(data.valid) == 3
    for row in data.train:
        assert source.decode(data.source[row]) == f"word {row}"
        assert target.decode(data.target[row]) == f"mot {row} fin"
        assert (data.target[row][0], data.source[row][-1], data.target[row][-1]) == (BEGIN, END, END)
    assert all(UNKNOWN in data.source[row] for row in data.valid)  # its number was never learned
    assert data.lengths(np.arange(30)).tolist() == [3] * 30


def test_padding_comes_last_and_long_pairs_are_left_out(put):
    text = "a b c d e\tx\na\tx y z v w\na b\tx y\nb\ty\nc\ta\n"
    data = open_pairs(put("a.tsv", text), None, PairOptions("words", 1, 4))
    assert (len(data.source), data.too_long) == (3, 2)
    assert data.source.shape[1] == 3
    padding = data.source == PAD
    assert (padding[:, 1:] >= padding[:, :-1]).all()


def test_what_is_held_out_was_not_learned_and_is_the_same_always(put):
    file = put("a.tsv", numbered(40) + numbered(40).upper() + "Word  3\tother\n")
    first, second = (open_pairs(file, None, HOW) for _ in range(2))
    assert len(first.source) == 40
    assert np.array_equal(first.valid, second.valid)
    assert set(first.valid).isdisjoint(first.train)


def test_other_pairs_to_judge_by_are_read_in_the_same_tokens(put):
    data, other = put("a.tsv", numbered(30)), put("b.tsv", "word 5 word\tfin mot\nstrange\tfin\n")
    alone = open_pairs(data, None, HOW)
    both = open_pairs(data, other, HOW)
    assert (len(both.train), len(both.valid)) == (30, 2)
    again = open_pairs(data, other, HOW, alone.vocabularies)
    assert again.vocabularies == alone.vocabularies != both.vocabularies
    assert again.source[again.valid[1]].tolist()[:2] == [UNKNOWN, END]


def test_characters(put):
    data = open_pairs(put("a.tsv", "ab\tba\nbc\tcb\n"), None, PairOptions("characters", 1, 9))
    assert data.source.shape == (2, 3)
    assert set(data.vocabularies["source"].tokens[4:]) <= set("abc")


# -- made up ----------------------------------------------------------------------------------------------------------


def test_copies_and_reversals():
    copies, reversals = (read_pairs(f"builtin:{name}") for name in ("copy", "reverse"))
    assert all(a == b for a, b in copies)
    assert all(a.split() == b.split()[::-1] for a, b in reversals)
    assert [a for a, _ in copies] == [a for a, _ in reversals]
    assert {len(a.split()) for a, _ in copies} == set(range(2, 9))
    assert len(unrepeated(copies)) > 4000


# -- messages ---------------------------------------------------------------------------------------------------------

PO = r"""# somebody
msgid ""
msgstr ""
"Language: fr\n"

msgctxt "a name"
msgid "May"
msgstr "mai"

#, python-format
msgid ""
"Two \"quoted\" "
"lines"
msgstr "Deux lignes\n"

msgid "one %(count)d"
msgid_plural "many %(count)d"
msgstr[0] "un"
msgstr[1] "plusieurs"
msgstr[2] "tous"

msgid "untranslated"
msgstr ""

#, fuzzy
msgid "guessed"
msgstr "au hasard"

#~ msgid "gone"
#~ msgstr "parti"
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_messages_of_a_po(ends):
    assert read_po(PO.replace("\n", ends)) == [
        ("May", "mai"),
        ('Two "quoted" lines', "Deux lignes\n"),
        ("one %(count)d", "un"),
        ("many %(count)d", "plusieurs"),
    ]


def test_one_form_for_all_numbers_is_that_of_many():
    assert read_po('msgid "a cat"\nmsgid_plural "cats"\nmsgstr[0] "猫"\n') == [("cats", "猫")]


@pytest.mark.parametrize(("language", "least"), [("fr", 800), ("es", 800), ("de", 800), ("ja", 700), ("zh", 700)])
def test_django_in_five_languages(language, least):
    pytest.importorskip("django")
    pairs = unrepeated(read_messages(["django"], language))
    assert len(pairs) > least
    assert (
        dict(pairs)["Monday"]
        == {"fr": "lundi", "es": "lunes", "de": "Montag", "ja": "月曜日", "zh": "星期一"}[language]
    )
    assert not any("%(" in text or "{" in text for pair in pairs for text in pair)
    assert all(" ".join(text.split()) == text for pair in pairs for text in pair)


@pytest.mark.parametrize("name", ["fr", "ja"])
def test_messages_are_those_that_gettext_finds(name):
    """In the compiled file beside each .po."""
    pytest.importorskip("django")
    for path in sorted(package_folder("django").glob(f"contrib/*/locale/{name}/LC_MESSAGES/*.po")):
        with path.with_suffix(".mo").open("rb") as file:
            compiled = gettext.GNUTranslations(file)._catalog
        known = set(compiled.values())
        assert {target for _, target in read_po(path.read_text(encoding="utf-8"))} <= known


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """django and sphinx as two folders of messages, one of which both have."""
    messages = {
        "django/conf/locale/fr/LC_MESSAGES": {"Save": "Enregistrer", "%(n).2f days left": "reste %(n).2f jours"},
        "django/contrib/auth/locale/fr/LC_MESSAGES": {"Log in": "Connexion"},
        "django/conf/locale/zh_Hans/LC_MESSAGES": {"Save": "保存"},
        "sphinx/locale/fr/LC_MESSAGES": {"save": "sauver", "unknown role: %r": "rôle inconnu : %r"},
        "sphinx/locale/zh_CN/LC_MESSAGES": {"Contents": "目录"},
    }
    for name, pairs in messages.items():
        folder = tmp_path / name
        folder.mkdir(parents=True)
        text = "\n\n".join(f'msgid "{a}"\nmsgstr "{b}"' for a, b in pairs.items())
        (folder / "messages.po").write_text(text, encoding="utf-8")
        (tmp_path / name.split("/")[0] / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.setattr("horosphere.data.messages.package_folder", tmp_path.joinpath)


def test_messages_of_several_packages(packages):
    """Every part of a package is read; a source that two of them have is kept once, so it cannot be held out too."""
    pairs = read_pairs("builtin:django+sphinx-fr")
    assert pairs == [
        ("Save", "Enregistrer"),
        ("days left", "reste jours"),
        ("Log in", "Connexion"),
        ("save", "sauver"),
        ("unknown role:", "rôle inconnu :"),
    ]
    assert unrepeated(pairs) == [*pairs[:3], pairs[4]]
    assert read_pairs("builtin:django+sphinx-zh") == [("Save", "保存"), ("Contents", "目录")]
    with pytest.raises(UserError, match="builtin:sphinx-zh_Hans: sphinx has no such language; choose from fr, zh_CN"):
        read_pairs("builtin:django+sphinx-zh_Hans")


def test_messages_of_sphinx():
    pytest.importorskip("sphinx")
    assert len(unrepeated(read_pairs("builtin:django+sphinx-fr"))) > 1500


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_two_files(put):
    one, two = put("a.en", "good\nbad\n\n"), put("a.fr", "bon\nmauvais\nrien\n")
    assert read_pairs(f"{one},{two}") == [("good", "bon"), ("bad", "mauvais")]
    odd = put("c.en", "good\u2028day\r\nbad\x0cday\x85\r\n")  # marks within a line, which end none
    other = put("c.fr", "bon\nmauvais")
    assert [source for source, _ in read_pairs(f"{odd},{other}")] == ["good day", "bad day"]
    shorter = put("b.fr", "bon\nmauvais\n")
    with pytest.raises(UserError, match=r"a\.en has 3 lines, .*b\.fr 2: line i of one must be the translation of line"):
        read_pairs(f"{one},{shorter}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("good\n", "line 1: a source and a target, separated by a tab, not 1 columns"),
        ("good\tbon\nbad\tmauvais\tmal\n", "line 2: a source and a target, separated by a tab, not 3 columns"),
        ("good\tbon\n\t\n", "line 2: a source and a target"),
        ("good\tbon\n", "1 pairs of at most 32 tokens; give at least 2"),
        ("", "0 pairs of at most 32 tokens"),
        ("a b\tc d\n" * 3, "1 pairs of at most 32 tokens"),
    ],
)
def test_a_wrong_file_is_named(put, text, said):
    with pytest.raises(UserError) as error:
        open_pairs(put("a.tsv", text), None, HOW)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_pairs_to_judge_by_are_told_by_their_file(put):
    with pytest.raises(UserError, match=r"b\.tsv: 0 pairs of at most 32 tokens"):
        open_pairs(put("a.tsv", numbered(9)), put("b.tsv", ""), HOW)


def test_quotation_marks_belong_to_sentences(put):
    assert read_pairs(put("a.tsv", 'say "hello\tdis "salut"\nb\tc\n'))[0] == ('say "hello', 'dis "salut"')


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("builtin:cop", "did you mean builtin:copy"),
        ("builtin:django", "did you mean builtin:django-"),
        ("builtin:django+spinx-fr", "or builtin:django+sphinx"),
        ("builtin:weather", "no such pairs come with a package"),
        ("none.tsv", "no such file"),
        ("pairs.xml", "no .tsv; give a .tsv file of two columns"),
        ("none.en,none.fr", "no such file"),
    ],
)
def test_a_wrong_name(name, said):
    with pytest.raises(UserError) as error:
        read_pairs(name)
    assert said in str(error.value)


def test_a_language_that_django_has_not():
    pytest.importorskip("django")
    with pytest.raises(UserError, match=r"builtin:django-frr: django has no such language; did you mean fr"):
        read_pairs("builtin:django-frr")


def test_an_empty_vocabulary(put):
    with pytest.raises(UserError, match="an empty vocabulary: no token occurs 9 times"):
        open_pairs(put("a.tsv", "a\tb\nc\td\n"), None, PairOptions("words", 9, 32))


def test_packed_files_are_read(tmp_path):
    import gzip

    Path(tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n"))
    assert read_pairs(str(tmp_path / "a.tsv.gz")) == [("a", "b")]
