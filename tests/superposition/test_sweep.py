import csv
import importlib.util
import json
import math
import os
import signal

import pytest
import torch

from horosphere import stopping
from horosphere.errors import UserError
from horosphere.files import locked
from horosphere.superposition import sweep as module
from horosphere.superposition.diagnostics import welch
from horosphere.superposition.results import read_results, settings
from horosphere.superposition.sampling import EVALUATION, Sampler
from horosphere.superposition.sweep import SweepOptions
from horosphere.superposition.toy import Schedule, Toy, initial, loss

SCHEDULE = Schedule(steps=40, batch=64, warmup=5)
DOT = [
    Toy(n=24, m=m, law="power:1", gamma=gamma, seed=seed) for seed in (0, 1) for gamma in (-0.5, 0.3) for m in (2, 5)
]
OTHERS = [
    Toy(n=24, m=4, law="power:1", readout="lorentz"),
    Toy(n=10, m=3, law="uniform", density=2.0, readout="distance"),
]
RUNS = [*DOT, *OTHERS]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few samples to measure on; save_every_s alone decides when to save."""
    monkeypatch.setattr(module, "EVALUATED", (4, 256))
    monkeypatch.setattr(module, "SAVING", math.inf)


def sweep(runs, schedule, out, **options):
    return module.sweep(runs, schedule, out, SweepOptions(**options))


def timeless(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_equals_the_same_runs_one_by_one(tmp_path, monkeypatch):
    together = sweep(RUNS, SCHEDULE, tmp_path / "together", quiet=True)
    alone = [sweep([toy], SCHEDULE, tmp_path / f"{index}", quiet=True)[0] for index, toy in enumerate(RUNS)]
    assert timeless(together) == timeless(alone)
    assert [(row["m"], row["gamma"], row["seed"], row["readout"]) for row in together] == [
        (t.m, t.gamma, t.seed, t.readout) for t in RUNS
    ]
    # room for one run at a time
    group, sizes = module._group, []
    monkeypatch.setattr(module, "_group", lambda runs, *more: sizes.append(len(runs)) or group(runs, *more))
    chunked = sweep(RUNS, SCHEDULE, tmp_path / "chunked", memory_gb=1e-9, jobs=1, quiet=True)
    assert timeless(chunked) == timeless(together)
    assert sizes == [1] * len(RUNS)


def test_table_is_what_is_returned(tmp_path):
    rows = sweep(RUNS, SCHEDULE, tmp_path / "out", quiet=True)
    with (tmp_path / "out" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows] == table
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.csv", "sweep.json"]
    for row in rows:
        assert 0 <= row["phi_1"] <= row["phi_half"] <= 1
        assert 0 < row["welch"] <= row["overlap_mean"] < 1
        assert row["welch"] == welch(row["n"], row["m"])  # no row of W is zero
        assert math.isfinite(row["loss"])
        assert math.isfinite(row["train_loss"])


@pytest.mark.parametrize("gb", [1e-9, 4.4015e-3, 4.403e-3, 4.45e-3, 1.0])
def test_runs_are_trained_together_as_many_as_memory_takes(gb):
    """One more would be too many, and one is always taken; only runs of one n and read-out go together."""
    options, waiting = SweepOptions(memory_gb=gb), list(range(len(RUNS)))
    chunk = module._chunk(RUNS, waiting, SCHEDULE, options)
    need = module._memory("dot", "cpu")
    assert chunk == list(range(len(chunk)))
    assert len(chunk) == 1 or need(RUNS[: len(chunk)], SCHEDULE) <= gb * 1e9
    assert len(chunk) == len(DOT) or need(RUNS[: len(chunk) + 1], SCHEDULE) > gb * 1e9
    assert 1 <= len(chunk) <= len(DOT)


def test_rows_without_a_direction_do_not_count_in_the_welch_bound():
    toy = DOT[0]
    W, b = initial(toy)
    W[5:] = 0
    (row,) = module._measure([toy], {"W.0": W, "b.0": b}, "cpu")
    assert row["welch"] == welch(5, toy.m)
    assert row["overlap_mean"] >= row["welch"]


def test_a_sweep_begun_before_a_column_was_there_goes_on(tmp_path):
    with pytest.raises(Killed):
        sweep(RUNS, SCHEDULE, tmp_path, report=killed_at(330), save_every_s=0.0)
    about = json.loads((tmp_path / "sweep.json").read_text())
    old = [row.pop("welch") for row in about["rows"].values()]
    (tmp_path / "sweep.json").write_text(json.dumps(about))
    sweep(RUNS, SCHEDULE, tmp_path, resume=True, quiet=True)
    rows = read_results([tmp_path])
    assert [math.isnan(row["welch"]) for row in rows] == [True] * len(old) + [False] * (len(RUNS) - len(old))
    assert len(settings(rows)) == 2  # of several widths


def test_loss_is_that_of_fresh_samples(monkeypatch):
    """In blocks, silent samples counted: as the dense loss over all of them."""
    monkeypatch.setattr(module, "OUTPUTS_AT_ONCE", 1000)
    for toy in (DOT[0], *OTHERS):
        W, b = initial(toy)
        batches = Sampler(toy.n, toy.law, 0.4, 0).batches(0, 3, 50, EVALUATION)
        losses = module._losses([(W, b, toy.readout)], batches, "cpu")
        assert losses[0] == pytest.approx(
            loss(torch.cat([batches.dense(k) for k in range(3)]), W, b, toy.readout).item(), rel=1e-5
        )


@pytest.mark.parametrize("toy", [DOT[0], OTHERS[1]], ids=["compiled", "autograd"])
def test_the_loss_of_a_run_is_on_samples_that_no_step_saw(tmp_path, toy):
    (row,) = sweep([toy], SCHEDULE, tmp_path / "out", quiet=True)
    group = module._group([toy], SCHEDULE, SweepOptions(quiet=True))
    group.advance(SCHEDULE.steps)
    state, sampler = group.state(), Sampler(toy.n, toy.law, toy.density, toy.seed)
    fresh = sampler.batches(0, *module.EVALUATED, EVALUATION)
    seen = sampler.batches(0, SCHEDULE.steps, SCHEDULE.batch)
    samples = [{tuple(x) for x in b.dense_rows(0, b.rows[-1]).tolist()} for b in (fresh, seen)]
    assert len(samples[0] & samples[1]) < 0.01 * len(samples[0])
    x = torch.cat([fresh.dense(k) for k in range(module.EVALUATED[0])])
    assert row["loss"] == pytest.approx(loss(x, state["W.0"], state["b.0"], toy.readout).item(), rel=1e-5)
    assert row["loss"] != pytest.approx(row["train_loss"], rel=1e-5)


class Killed(BaseException):
    pass


def killed_at(limit):
    def report(done, note):
        if done >= limit:
            raise Killed

    return report


@pytest.mark.parametrize("limit", [1, 150, 320, 330, 390])
def test_resume_is_exact(tmp_path, limit):
    expected = sweep(RUNS, SCHEDULE, tmp_path / "whole", quiet=True)
    options = {"quiet": True, "save_every_s": 0.0}
    with pytest.raises(Killed):
        sweep(RUNS, SCHEDULE, tmp_path / "out", report=killed_at(limit), **options)
    for _ in range(2):  # goes on; and, all done, reads back
        again = sweep(RUNS, SCHEDULE, tmp_path / "out", resume=True, **options)
        assert timeless(again) == timeless(expected)
    assert not (tmp_path / "out" / "checkpoint.safetensors").exists()


def test_resume_goes_on_where_it_was(tmp_path):
    with pytest.raises(Killed):
        sweep(DOT, SCHEDULE, tmp_path, report=killed_at(20 * len(DOT)), save_every_s=0.0)
    seen = []
    sweep(DOT, SCHEDULE, tmp_path, resume=True, report=lambda done, note: seen.append(done))
    assert min(seen) > 20 * len(DOT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_asked_to_stop_keeps_what_is_done(tmp_path, number):
    """Long before a checkpoint is due."""
    before, asked = signal.getsignal(number), 10 * len(DOT)
    expected = sweep(RUNS, SCHEDULE, tmp_path / "whole", quiet=True)

    def report(done, note):
        if done >= asked:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        sweep(RUNS, SCHEDULE, tmp_path / "out", report=report)
    assert (tmp_path / "out" / "checkpoint.safetensors").is_file()
    assert signal.getsignal(number) == before
    seen = []
    again = sweep(RUNS, SCHEDULE, tmp_path / "out", resume=True, report=lambda done, note: seen.append(done))
    assert min(seen) > asked
    assert timeless(again) == timeless(expected)


def test_who_is_asked_while_it_measures_keeps_the_rows(tmp_path, monkeypatch):
    measure = module._measure

    def interrupted(*args):
        os.kill(os.getpid(), signal.SIGINT)
        return measure(*args)

    monkeypatch.setattr(module, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(RUNS, SCHEDULE, tmp_path, quiet=True)
    assert len(read_results([tmp_path])) == len(DOT)


def test_who_asks_twice_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "ECHO", -1.0)

    def report(done, note):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sweep(DOT, SCHEDULE, tmp_path, report=report)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_damaged_checkpoint_is_one_line(tmp_path):
    with pytest.raises(Killed):
        sweep(DOT, SCHEDULE, tmp_path, report=killed_at(100), save_every_s=0.0)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"checkpoint.safetensors: a damaged checkpoint .*; delete this file") as caught:
        sweep(DOT, SCHEDULE, tmp_path, resume=True, quiet=True)
    assert "\n" not in str(caught.value)
    path.unlink()
    assert len(sweep(DOT, SCHEDULE, tmp_path, resume=True, quiet=True)) == len(DOT)


def test_another_grid_is_refused(tmp_path):
    sweep(DOT[:2], SCHEDULE, tmp_path, quiet=True)
    before = (tmp_path / "sweep.json").read_bytes()
    for runs, schedule, complaint in (
        (DOT[:3], SCHEDULE, "2 runs there, 3 here"),
        (DOT[1:3], SCHEDULE, "runs differ"),
        (DOT[:2], Schedule(steps=41, batch=64, warmup=5), "steps 40 there, 41 here"),
    ):
        with pytest.raises(UserError, match=complaint):
            sweep(runs, schedule, tmp_path, resume=True, quiet=True)
    with pytest.raises(UserError, match="--resume"):
        sweep(DOT[:2], SCHEDULE, tmp_path, quiet=True)
    assert (tmp_path / "sweep.json").read_bytes() == before
    assert len(sweep(DOT[:3], SCHEDULE, tmp_path, overwrite=True, quiet=True)) == 3


def test_changed_counts_are_another_grid(tmp_path):
    counts, out = tmp_path / "counts.txt", tmp_path / "out"
    counts.write_text("\n".join(str(100 - i) for i in range(30)))
    runs = [Toy(n=24, m=m, law=f"counts:{counts}") for m in (2, 5)]
    rows = sweep(runs, SCHEDULE, out, quiet=True)
    counts.write_text("count\n" + "\n".join(str(100 - i) for i in range(30)) + "\n3\n")  # the n largest are the same
    assert sweep(runs, SCHEDULE, out, resume=True, quiet=True) == rows
    counts.write_text("\n".join(str(90 - i) for i in range(30)))
    with pytest.raises(UserError, match=r"another grid \(counts:.*counts.txt held other counts\)"):
        sweep(runs, SCHEDULE, out, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"another grid \(the runs differ\)"):
        sweep(runs[::-1], SCHEDULE, out, resume=True, quiet=True)


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sweep_takes_the_place_of_another_with_the_first_thing_it_keeps(tmp_path, monkeypatch):
    out = tmp_path / "out"
    sweep(DOT[:2], SCHEDULE, out, quiet=True)
    before = everything(out)

    def fail(*_):
        assert everything(out) == before
        raise UserError("no memory is left")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_train", fail)
        with pytest.raises(UserError, match="no memory"):
            sweep(DOT[:3], SCHEDULE, out, overwrite=True, quiet=True)
    assert everything(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_measure", fail)  # after a checkpoint, which took the place
        with pytest.raises(AssertionError):
            sweep(DOT[:3], SCHEDULE, out, overwrite=True, quiet=True, save_every_s=0.0)
    assert (out / "checkpoint.safetensors").is_file()
    assert len(sweep(DOT[:3], SCHEDULE, out, resume=True, quiet=True)) == 3


def test_a_sweep_that_another_process_has_under_way_is_refused(tmp_path):
    with locked(tmp_path / "out"), pytest.raises(UserError, match="is in use by process"):
        sweep(DOT[:1], SCHEDULE, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_someone_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError):
        sweep(DOT[:1], SCHEDULE, tmp_path, overwrite=True, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_impossible_frequencies_are_found_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match="use at most"):
        sweep([*DOT, Toy(n=24, m=2, law="power:2", density=3.0)], SCHEDULE, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_damaged_table_of_contents_is_one_line(tmp_path):
    sweep(DOT[:1], SCHEDULE, tmp_path, quiet=True)
    (tmp_path / "sweep.json").write_text(json.dumps({"rows": {}}))
    with pytest.raises(UserError, match=r"sweep.json: damaged"):
        sweep(DOT[:1], SCHEDULE, tmp_path, resume=True, quiet=True)


def test_without_numba_it_says_so_and_trains(tmp_path, monkeypatch, capsys):
    fast = sweep(DOT[:2], SCHEDULE, tmp_path / "fast", quiet=True)
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "numba" else known(name, *rest)
    )
    slow = sweep(DOT[:2], SCHEDULE, tmp_path / "slow")
    assert "pip install 'horosphere[superposition]'" in capsys.readouterr().err
    assert [row["loss"] for row in slow] == pytest.approx([row["loss"] for row in fast], rel=1e-3)


def test_parquet_where_asked_for(tmp_path):
    if importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(UserError, match="pyarrow"):
            sweep(DOT[:2], SCHEDULE, tmp_path, parquet=True, quiet=True)
        return
    from pyarrow.parquet import read_table

    rows = sweep(DOT[:2], SCHEDULE, tmp_path, parquet=True, quiet=True)
    assert [row["loss"] for row in read_table(tmp_path / "results.parquet").to_pylist()] == [
        row["loss"] for row in rows
    ]
