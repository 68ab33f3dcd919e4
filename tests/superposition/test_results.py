"""The table of a sweep read back: settings keep their runs together, and fits find the law that made them."""

import csv
import re

import numpy as np
import pytest

from horosphere.errors import UserError
from horosphere.superposition.results import law_exponent, read_results, settings
from tests.superposition.rows import WIDTHS, made


def write(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def test_what_was_written_is_read_back(tmp_path):
    rows = made()
    write(tmp_path / "results.csv", rows)
    assert read_results([tmp_path]) == rows
    assert read_results([tmp_path / "results.csv", tmp_path]) == rows * 2


def test_settings_hold_all_widths_and_seeds():
    found = settings(made(laws=("power:1", "linear"), alpha_m=1.25))
    assert [(s.law, round(s.gamma, 3)) for s in found] == [("power:1", -0.556), ("power:1", 0.333), ("linear", -0.556), ("linear", 0.333)]
    for s in found:
        assert tuple(s.widths) == WIDTHS
        assert s.losses.shape == (2, len(WIDTHS))
        assert s.fit.exponent == pytest.approx(1.25)
        np.testing.assert_allclose(s.losses[1] / s.losses[0], 1.1)


def test_a_width_that_a_seed_lacks_is_left_out():
    rows = [row for row in made(gammas=(0.1,)) if (row["seed"], row["m"]) != (1, 25)]
    (found,) = settings(rows)
    assert 25 not in found.widths
    assert settings([row for row in rows if row["m"] == 10]) == []


def test_wanted_values_are_met_up_to_rounding():
    assert [round(s.gamma, 2) for s in settings(made(), gamma=-0.556)] == [-0.56]
    assert settings(made(), law="linear") == []


@pytest.mark.parametrize(("law", "alpha"), [("power:1.5", 1.5), ("uniform", 0.0)])
def test_exponent_of_a_law(law, alpha):
    assert law_exponent(law) == alpha
    assert np.isnan(law_exponent("exponential:400"))


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match=r"results\.csv: cannot be read"):
        read_results([tmp_path])
    write(tmp_path / "results.csv", [{"n": 1, "m": 2}])
    with pytest.raises(UserError, match="no column law, density"):
        read_results([tmp_path])
    rows = made()
    rows[3]["loss"] = "much"
    write(tmp_path / "results.csv", rows)
    with pytest.raises(UserError, match=re.escape('column loss holds "much"')):
        read_results([tmp_path])
