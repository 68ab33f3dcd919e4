import numpy as np
import pytest

from horosphere.errors import UserError
from horosphere.superposition.frequencies import frequencies, plain_law


@pytest.mark.parametrize("law", ["power:0", "power:1.25", "exponential:40", "linear", "uniform"])
@pytest.mark.parametrize("density", [0.01, 1.0, 1.3])
def test_decreasing_positive_and_scaled(law, density):
    p = frequencies(law, 300, density)
    assert p.shape == (300,)
    assert p.dtype == np.float64
    assert (np.diff(p) <= 0).all()
    assert p.min() > 0
    assert p.sum() == pytest.approx(density)


def test_only_rounding_is_forgiven():
    """p = 1 up to a billionth is a feature that is always on; a millionth more is refused, a millionth less is not."""
    for much in (1 + 1e-10, 1.0, 1 - 1e-10):
        assert (frequencies("uniform", 4, 4 * much) == 1).all()
    with pytest.raises(UserError, match="use at most 4"):
        frequencies("uniform", 4, 4 * (1 + 1e-7))
    assert (frequencies("uniform", 4, 4 * (1 - 1e-7)) < 1).all()


def test_formulas():
    i = np.arange(1, 51)
    for law, weight in (
        ("power:1.5", i**-1.5),
        ("exponential:7", np.exp(-i / 7)),
        ("linear", 51.0 - i),
        ("uniform", np.ones(50)),
    ):
        np.testing.assert_allclose(frequencies(law, 50, 0.9), 0.9 * weight / weight.sum(), rtol=1e-12)


def test_largest_density_is_legal_and_always_on():
    """power:1 over 1000 features: the paper's E = 7.485 is just below Σ 1/i."""
    total = (1 / np.arange(1, 1001)).sum()
    assert frequencies("power:1", 1000, 7.485)[0] < 1
    assert frequencies("power:1", 1000, total)[0] == 1.0
    with pytest.raises(UserError, match=r"use at most 7\.48547"):
        frequencies("power:1", 1000, 7.5)
    assert (frequencies("uniform", 4, 4.0) == 1).all()


def test_the_density_named_in_the_error_works():
    with pytest.raises(UserError) as caught:
        frequencies("exponential:3", 30, 20.0)
    assert frequencies("exponential:3", 30, float(str(caught.value).split()[-1]))[0] == pytest.approx(1, abs=1e-5)


def test_counts_from_a_list_and_from_a_table(tmp_path):
    plain, table = tmp_path / "plain.txt", tmp_path / "table.csv"
    plain.write_text("3\n\n9\n1\n5\n")
    table.write_text("token,count\nthe,3\na,9\nof,1\nin,5\n")
    expected = np.array([9, 5, 3]) / 17
    for path in (plain, table):
        np.testing.assert_allclose(frequencies(f"counts:{path}", 3, 1.0), expected)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("3\nx\n", 'line 2: "x"'),
        ("3\n-1\n", 'line 2: "-1"'),
        ("3\nnan\n", "line 2"),
        ("1\n", "1 counts for n = 2"),
        ("0\n0\n", "add up to 0"),
        ("a,b\n1,2\n", "column `count`"),
    ],
)
def test_bad_counts(tmp_path, content, complaint):
    path = tmp_path / "counts.txt"
    path.write_text(content)
    with pytest.raises(UserError, match=complaint) as caught:
        frequencies(f"counts:{path}", 2, 1.0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "law",
    ["zipf", "power", "power:x", "power:nan", "power:-1", "exponential:0", "linear:2", "counts", "counts:/none/such"],
)
def test_bad_laws(law):
    with pytest.raises(UserError, match=law.split(":")[0]):
        frequencies(law, 10, 1.0)


@pytest.mark.parametrize("density", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_densities(density):
    with pytest.raises(UserError, match="density"):
        frequencies("uniform", 10, density)


@pytest.mark.parametrize(
    ("law", "plain"),
    [
        ("power:0.50", "power:0.5"),
        ("power:1", "power:1"),
        ("power:1.0", "power:1"),
        ("power:1.23456789", "power:1.23456789"),
        ("exponential:4e2", "exponential:400"),
    ],
)
def test_a_law_has_one_shortest_spelling(law, plain):
    assert plain_law(law) == plain
    np.testing.assert_array_equal(frequencies(law, 20, 0.5), frequencies(plain, 20, 0.5))


def test_what_is_no_law_is_refused_without_reading_files():
    assert plain_law("counts:nowhere.txt") == "counts:nowhere.txt"
    for law in ("power:x", "power", "exponential:0", "counts:", "linear:2", "zipf:1"):
        with pytest.raises(UserError, match=f"^{law}: "):
            plain_law(law)
