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


def test_empty_lines_say_nothing(tmp_path):
    write(tmp_path / "results.csv", made())
    lines = (tmp_path / "results.csv").read_text().splitlines()
    (tmp_path / "results.csv").write_text("\n".join([*lines[:3], "", *lines[3:], "", ""]))
    assert read_results([tmp_path]) == made()


def test_settings_hold_all_widths_and_seeds():
    gathered = settings(made(laws=("power:1", "linear"), alpha_m=1.25))
    assert [(s.law, round(s.gamma, 3)) for s in gathered] == [
        ("power:1", -0.556),
        ("power:1", 0.333),
        ("linear", -0.556),
        ("linear", 0.333),
    ]
    for s in gathered:
        assert tuple(s.widths) == WIDTHS
        assert s.losses.shape == (2, len(WIDTHS))
        assert s.fit.exponent == pytest.approx(1.25)
        np.testing.assert_allclose(s.losses[1] / s.losses[0], 1.1)


def test_rows_and_columns_are_in_the_order_of_seeds_and_widths():
    """Whatever the order of the rows; a set of numbers has none."""
    seeds, widths = [16, 8, 40, 0, 3], (64, 8, 128, 16)
    rows = [{**row, "seed": seeds[row["seed"]]} for row in made(gammas=(0.1,), widths=widths, seeds=5)]
    (setting,) = settings(rows)
    assert list(setting.widths) == sorted(widths)
    assert (setting.losses[:, :-1] > setting.losses[:, 1:]).all()
    np.testing.assert_allclose(setting.losses[:, 0] * 8, [1 + seeds.index(seed) / 10 for seed in sorted(seeds)])


def test_a_width_that_a_seed_lacks_is_left_out():
    rows = [row for row in made(gammas=(0.1,)) if (row["seed"], row["m"]) != (1, 25)]
    (setting,) = settings(rows)
    assert 25 not in setting.widths
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
    with pytest.raises(UserError, match=re.escape('results.csv line 5: column loss holds "much"')):
        read_results([tmp_path])


@pytest.mark.parametrize(
    ("column", "text", "complaint"),
    [
        ("m", "", "column m is empty"),
        ("m", "inf", 'column m holds "inf", which is no whole number'),
        ("m", "nan", 'column m holds "nan", which is no whole number'),
        ("m", "10.5", 'column m holds "10.5", which is no whole number'),
        ("m", "0", 'column m holds "0", which is no whole number from 1 on'),
        ("gamma", "inf", 'column gamma holds "inf", which is no finite number'),
        ("law", "power:x", 'power:x: "x" is no number'),
        ("law", "pow", "pow: no such law"),
        ("readout", "do", 'column readout holds "do", which is none of dot, lorentz, distance'),
    ],
)
def test_a_damaged_cell_is_named_with_its_line(tmp_path, column, text, complaint):
    rows = made()
    rows[3][column] = text
    write(tmp_path / "results.csv", rows)
    with pytest.raises(
        UserError, match="results.csv line 5: " + re.escape(complaint) + ".*; remove the line, or sweep again"
    ):
        read_results([tmp_path])


@pytest.mark.parametrize(
    ("change", "cells"), [(lambda line: line[: line.index(",normal")], 5), (lambda line: line + ",7", 11)]
)
def test_a_line_of_another_length_is_named(tmp_path, change, cells):
    write(tmp_path / "results.csv", made())
    lines = (tmp_path / "results.csv").read_text().splitlines()
    (tmp_path / "results.csv").write_text("\n".join([*lines[:-1], change(lines[-1])]))
    with pytest.raises(
        UserError, match=f"results.csv line {len(lines)}: {cells} cells for 10 columns; remove the line"
    ):
        read_results([tmp_path])


def test_a_header_alone_has_no_runs(tmp_path):
    (tmp_path / "results.csv").write_text(",".join(made()[0]) + "\n")
    with pytest.raises(UserError, match="a header and no runs"):
        read_results([tmp_path])


def test_a_run_that_diverged_is_read(tmp_path):
    rows = made()
    rows[3]["loss"] = float("nan")
    write(tmp_path / "results.csv", rows)
    assert np.isnan(read_results([tmp_path])[3]["loss"])
