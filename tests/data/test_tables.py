"""Tables of numbers: headers, answers, what is held out, scales that can be undone; and a line for every mistake."""

import gzip

import numpy as np
import pytest

from horosphere.data.tables import SKLEARN, Scaling, Table, open_table
from horosphere.errors import UserError


@pytest.fixture
def put(tmp_path):
    def write(text, name="table.csv"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(tmp_path / name)

    return write


def refusal(call):
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns", "answers"),
    [
        ("1,2,0\n3,4,1\n", ["column 1", "column 2"], ["0", "1"]),
        ("1,2,cat\n3,4,dog\n", ["column 1", "column 2"], ["cat", "dog"]),
        ("a,b,kind\n1,2,cat\n3,4,dog\n", ["a", "b"], ["cat", "dog"]),
        ("\ufeffa, b ,kind\r\n\r\n1, 2,cat\r\n3,4,dog\r\n", ["a", "b"], ["cat", "dog"]),
        ('"a","b, c","kind"\n"1","2",cat\n3,4,dog', ["a", "b, c"], ["cat", "dog"]),
    ],
)
def test_a_file_with_or_without_a_header(put, text, columns, answers):
    table = open_table(put(text))
    assert (table.columns, table.answers) == (columns, answers)
    assert table.x.tolist() == [[1, 2], [3, 4]]


def test_other_separators_and_packed_files(put):
    assert open_table(put("1\t2\tx\n", "a.tsv")).x.tolist() == [[1, 2]]
    assert open_table(put(gzip.compress(b"1,2,x\n"), "a.csv.gz")).answers == ["x"]


def test_the_target_is_any_column_or_none(put):
    path = put("price,size,age\n1,2,3\n4,5,6\n")
    assert open_table(path, "price").numbers.tolist() == [1, 4]
    assert open_table(path, "price").columns == ["size", "age"]
    assert open_table(path, "none").x.shape == (2, 3)
    assert open_table(put("last,b\n1,2\n"), "last").answers == ["1"]  # a column of that name goes first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,c\n1,2,x\n1,oops,x\n", 'line 3, column b: "oops" is no number'),
        ("1,2,x\n1,,x\n", "line 2, column column 2: a number is missing"),
        ("1,NaN,x\n1,2,x\n", "line 1, column column 2: a number is missing"),
        ("a,b,c\n1,inf,x\n", "line 2, column b: inf is too large"),
        ("a,b,c\n1,1e300,x\n", "line 2, column b: 1e300 is too large"),
        ("1,2,x\n1,2\n", "line 2: 2 columns, and 3 above"),
        ("1,2,x\n\n1,2,3,4\n", "line 3: 4 columns, and 3 above"),
        ("a,a,c\n1,2,x\n", 'two columns are named "a"'),
        ("a,b,c\n1,2,\n", "line 2: no answer in the column c"),
        ("1,3.S,x\n1,2,x\n", 'line 1, column column 2: "3.S" is no number'),
        ("a,b,c\n", "no rows of numbers"),
        ("", "no rows of numbers"),
        ("1\n2\n", "one column only"),
        (b"\xff\xfe1,2", "UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_answered_in_one_line(put, text, said):
    assert said in refusal(lambda: open_table(put(text)))


def test_odd_sources(put, tmp_path):
    assert "give a .csv or .tsv file" in refusal(lambda: open_table(put("1", "a.xlsx")))
    assert "no such file" in refusal(lambda: open_table(str(tmp_path / "none.csv")))
    (tmp_path / "folder.csv").mkdir()
    assert "a directory" in refusal(lambda: open_table(str(tmp_path / "folder.csv")))
    assert "target=ages" in (said := refusal(lambda: open_table(put("age,b,c\n1,2,3\n"), "ages")))
    assert "did you mean age?" in said
    assert "did you mean wine?" in refusal(lambda: open_table("builtin:win"))
    assert "leave target out" in refusal(lambda: open_table("builtin:wine", "alcohol"))


# -- answers ----------------------------------------------------------------------------------------------------------


def table(answers):
    return Table("here", np.zeros((len(answers), 1)), ["a"], answers, "kind")


def test_classes_that_are_numbers_are_in_their_order():
    assert table(["10", "9", "9", "10", "-1", "-1"]).classes == ["-1", "9", "10"]
    assert table(["10", "9", "x", "10", "9", "x"]).classes == ["10", "9", "x"]
    assert table(["b", "a", "b", "a"]).labels.tolist() == [1, 0, 1, 0]


def test_answers_that_are_no_classes_or_no_numbers_are_refused():
    assert 'has only "x"' in refusal(lambda: table(["x", "x"]).classes)
    assert "3 classes in 3 rows; learn a number with model=linear-regression" in refusal(
        lambda: table(["1.5", "2.5", "3.5"]).classes
    )
    halves = [str(n / 2) for n in range(30)]
    assert "30 classes in 120 rows; learn a number" in refusal(lambda: table(halves * 4).classes)
    assert len(table(halves * 5).classes) == len(table([f"word {n}" for n in halves] * 4).classes) == 30
    assert 'here line 2, column kind: "cat" is no number' in refusal(lambda: table(["1", "cat"]).numbers)


def test_a_fifth_of_each_class_is_held_out():
    labels = np.array([0] * 10 + [1] * 7 + [2] * 3)
    held = Table("here", np.zeros((20, 1)), ["a"]).held_out(labels)
    assert [int(held[labels == k].sum()) for k in range(3)] == [2, 1, 0]
    mixed = np.random.default_rng(0).permutation(20)
    again = Table("here", np.zeros((20, 1)), ["a"]).held_out(labels[mixed])
    assert [int(again[labels[mixed] == k].sum()) for k in range(3)] == [2, 1, 0]


# -- scikit-learn -----------------------------------------------------------------------------------------------------

SHAPES = {"iris": (150, 4), "wine": (178, 13), "breast_cancer": (569, 30), "diabetes": (442, 10), "digits": (1797, 64)}


@pytest.mark.parametrize("name", SKLEARN)
def test_tables_of_sklearn(name):
    pytest.importorskip("sklearn")
    found = open_table(f"builtin:{name}")
    assert found.x.shape == SHAPES[name]
    assert len(found.columns) == SHAPES[name][1]
    if name == "diabetes":
        assert found.numbers.mean() == pytest.approx(152.13, abs=0.01)
    else:
        assert len(found.classes) == {"iris": 3, "wine": 3, "breast_cancer": 2, "digits": 10}[name]
    assert open_table(f"builtin:{name}", "none").answers is None


# -- scales -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(5, [1, 100, 1e-3], size=(40, 3))


def test_scales_are_those_of_sklearn(x):
    scales = pytest.importorskip("sklearn.preprocessing")
    np.testing.assert_allclose(Scaling.standard(x)(x), scales.StandardScaler().fit_transform(x))
    for ends in ((0, 1), (-2, 3)):
        np.testing.assert_allclose(Scaling.ranged(x, *ends)(x), scales.MinMaxScaler(ends).fit_transform(x), atol=1e-12)


@pytest.mark.parametrize("make", [Scaling.standard, Scaling.ranged, Scaling.of_unit_length])
def test_a_scale_is_fitted_on_some_rows_and_can_be_undone_on_others(x, make):
    scaling = make(x[:30])
    np.testing.assert_allclose(scaling.inverse(scaling(x)), x, rtol=1e-12)
    np.testing.assert_array_equal(scaling(x[:5]), scaling(x)[:5])


@pytest.mark.parametrize("make", [Scaling.standard, Scaling.ranged, Scaling.of_unit_length])
def test_columns_whose_spread_is_no_number_count_as_still(make):
    tiny = np.arange(9.0)[:, None] * 1e-320  # their squares are 0, and 1 over them is infinite
    scaling = make(tiny)
    assert scaling.of(1)
    assert np.abs(scaling(tiny)).max() <= 9


@pytest.mark.parametrize("value", [0.1, 7.0, -1e9])
@pytest.mark.parametrize("make", [Scaling.standard, Scaling.ranged, Scaling.of_unit_length])
def test_columns_that_never_change_are_safe(make, value):
    still = np.full((9, 2), value)
    scaling = make(still)
    assert np.array_equal(scaling(still), np.zeros((9, 2)))
    assert np.isfinite(scaling(still + 1)).all()
    np.testing.assert_allclose(scaling.inverse(scaling(still)), still)
