"""Messages of one line, whatever others say; near misses are named."""

import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere.errors import choices, one_line

NAMES = ["lorentz", "poincare", "euclidean", "product"]


@given(st.text())
def test_one_line_is_one_line_that_a_terminal_does_not_obey(text):
    said = one_line(text)
    assert said
    assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in said)
    assert said.splitlines() == [said]


@given(st.lists(st.text(string.ascii_letters, min_size=1), min_size=1), st.integers(1, 50))
def test_words_are_kept_in_their_order(words, most):
    assert one_line("\n\t ".join(words), most) == " ".join(words)[:most]


def test_colours_and_bells_of_others_do_nothing():
    assert one_line("\x1b[31mred\x07\r\nalert\x00") == "[31mred alert"


def test_an_error_without_words_is_called_by_its_type():
    assert one_line(KeyError()) == "KeyError"
    assert one_line(OSError(" \n")) == "OSError"


@pytest.mark.parametrize("name", NAMES)
def test_a_slip_of_one_letter_is_answered_with_the_name(name):
    for place in range(len(name)):
        begin, letter, end = name[:place], name[place], name[place + 1 :]
        for slip in (begin + end, begin + "x" + end, begin + letter + letter + end, begin + letter.upper() + end):
            assert choices(slip, NAMES) == f"did you mean {name}?"


def test_near_names_are_all_named_nearest_first():
    assert choices("helm-d-tin", ["llama", "helm-tiny", "helm-d-tiny"]) == "did you mean helm-d-tiny or helm-tiny?"


@given(st.text(string.digits, min_size=1))
def test_what_is_like_nothing_is_answered_with_all_there_are(name):
    assert choices(name, NAMES, ", or a file") == f"choose from {', '.join(NAMES)}, or a file"


def test_what_is_no_text_is_answered_too():
    assert choices(None, iter(NAMES)) == f"choose from {', '.join(NAMES)}"


def test_a_vocabulary_is_not_listed_in_full():
    words = [f"word{n}" for n in range(9999)]
    assert choices("x", words) == f"choose from {', '.join(words[:20])}, …"
    assert choices("word9998s", words).startswith("did you mean word9998")
