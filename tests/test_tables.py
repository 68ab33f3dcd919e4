"""Tables keep every cell, and align them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from horosphere.tables import is_numeric, table_lines

WORD = st.text("abcxyz", min_size=1, max_size=9)
NUMBER = st.floats(allow_nan=True, allow_infinity=True).map(lambda x: f"{x:.3g}")


@st.composite
def tables(draw):
    """Heads, and rows whose first column names them, whose second has words, and whose others numbers."""
    columns = draw(st.integers(0, 3))
    heads = draw(st.lists(WORD, min_size=columns + 2, max_size=columns + 2))
    numbers = st.lists(NUMBER, min_size=columns, max_size=columns)
    rows = draw(st.lists(st.tuples(WORD, WORD, numbers).map(lambda r: [r[0], r[1], *r[2]]), min_size=1, max_size=5))
    return heads, rows


def places(lines):
    """Where the cells of each line begin and end."""
    return [[match.span() for match in re.finditer(r"\S+", line)] for line in lines]


@given(tables())
def test_every_cell_is_there_in_its_column(table):
    heads, rows = table
    lines = table_lines(heads, rows)
    assert [line.split() for line in lines] == [heads, *rows]
    for column, spans in enumerate(zip(*places(lines), strict=True)):
        begins, ends = ({span[side] for span in spans} for side in (0, 1))
        assert len(ends if column > 1 else begins) == 1  # numbers end together, words begin together
        if column:
            before = [spans_of[column - 1][1] for spans_of in places(lines)]
            assert min(begins) - max(before) == 2  # just wide enough
    assert all(line == line.rstrip() for line in lines)


@given(tables(), st.data())
def test_the_best_row_and_no_other_is_marked(table, data):
    heads, rows = table
    best = data.draw(st.integers(0, len(rows) - 1))
    plain, marked = table_lines(heads, rows), table_lines(heads, rows, [best])
    changed = [place for place, (a, b) in enumerate(zip(plain, marked, strict=True)) if a != b]
    assert changed == [best + 1]
    assert marked[best + 1].split() == [*rows[best], "<-", "best"]


@given(tables())
def test_without_heads_all_stand_to_the_left(table):
    _, rows = table
    lines = table_lines([], rows)
    assert [line.split() for line in lines] == rows
    assert all(len({span[0] for span in spans}) == 1 for spans in zip(*places(lines), strict=True))


def test_what_a_column_of_numbers_is():
    for cell in ("1", "-1.5", "−2", "+3", ".5", "±1", "<0.001", "≈3", "nan", "-inf", "", "-", "—", "3.1 ± 0.2", "1e-3"):
        assert is_numeric([["a", cell]], 1), cell
    for cell in ("lorentz", "--", "- a", "e3", "true"):
        assert not is_numeric([["a", "1"], ["b", cell]], 1), cell
    assert not is_numeric([], 0)


def test_nothing_gives_nothing():
    assert table_lines([], []) == []
    assert table_lines(["a", "b"], []) == ["a  b"]
