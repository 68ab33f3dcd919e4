"""A sweep in parts, each a job, gives the rows of one sweep to the last bit."""

import math

import pytest

from horosphere.cli import main
from horosphere.errors import UserError
from horosphere.study.executors import executor
from horosphere.superposition import parts
from horosphere.superposition import sweep as module
from horosphere.superposition.asked import Asked, part_of
from horosphere.superposition.sweep import SweepOptions, sweep

ASKED = {"n": 24, "widths": ["2", "5"], "gammas": ["-0.5", "0.3"], "steps": 30, "batch": 32, "seeds": 3}
WORDS = ("--n=24", "--widths=2,5", "--gammas=-0.5,0.3", "--batch=32", "--seeds=3")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "EVALUATED", (4, 256))


@pytest.fixture
def begun(monkeypatch):
    """Jobs run here and now, without the seconds it takes to start Python; the names of those that were begun."""
    names = []

    def run_all(jobs, executor, update):
        for job in jobs:
            names.append(job.name)
            if main(job.command):
                raise UserError(f"{job.name} failed")
            assert job.done(job.folder) == job.steps

    monkeypatch.setattr(parts, "run_all", run_all)
    return names


def in_parts(out, count, steps=30, **options):
    runs, schedule = Asked(**{**ASKED, "steps": steps}).runs()
    words = (*WORDS, f"--steps={steps}")
    return parts.sweep_in_parts(
        runs, schedule, out, words, count, executor("here", 1), SweepOptions(quiet=True, **options)
    )


def at_once(out, steps=30):
    return sweep(*Asked(**{**ASKED, "steps": steps}).runs(), out, SweepOptions(quiet=True))


def timeless(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def table(out):
    """results.csv without the column of seconds, its last."""
    return [line.rpartition(",")[0] for line in (out / "results.csv").read_text().splitlines()]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_parts_share_the_runs_and_keep_together_those_with_the_same_batches(count):
    runs, _ = Asked(**ASKED).runs()
    shares = [part_of(runs, number, count) for number in range(1, count + 1)]
    assert sorted(index for share in shares for index in share) == list(range(len(runs)))
    home = {runs[index].seed: number for number, share in enumerate(shares) for index in share}
    assert all(home[runs[index].seed] == number for number, share in enumerate(shares) for index in share)


@pytest.mark.parametrize("count", [2, 7])
def test_the_rows_are_those_of_one_sweep(tmp_path, begun, count):
    whole, split = at_once(tmp_path / "whole"), in_parts(tmp_path / "split", count)
    assert all(math.isfinite(row["loss"]) for row in whole)
    assert timeless(split) == timeless(whole)
    assert table(tmp_path / "split") == table(tmp_path / "whole")
    assert begun == [f"part {number}" for number in range(1, min(count, 3) + 1)]  # three seeds: no more can be shared


def test_a_sweep_in_parts_goes_on_where_it_was_even_in_one(tmp_path, begun):
    whole, split = at_once(tmp_path / "whole"), in_parts(tmp_path / "split", 2)
    before = list(begun)
    assert in_parts(tmp_path / "split", 2, resume=True) == split
    assert begun == before  # nothing was left to do
    runs, schedule = Asked(**ASKED).runs()
    assert timeless(sweep(runs, schedule, tmp_path / "split", SweepOptions(quiet=True, resume=True))) == timeless(whole)


def test_a_sweep_in_parts_that_fails_leaves_the_one_it_was_to_replace(tmp_path, begun, monkeypatch):
    in_parts(tmp_path / "out", 2)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}

    def fail(*_):
        raise UserError("no worker is left")

    monkeypatch.setattr(parts, "run_all", fail)
    with pytest.raises(UserError, match="no worker"):
        in_parts(tmp_path / "out", 2, steps=20, overwrite=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_what_is_overwritten_leaves_no_part_of_another_grid(tmp_path, begun):
    in_parts(tmp_path / "out", 2)
    again = in_parts(tmp_path / "out", 2, steps=20, overwrite=True)
    assert timeless(again) == timeless(at_once(tmp_path / "whole", steps=20))
    assert {row["steps"] for row in again} == {20}
    assert not (tmp_path / "out/parts").exists()
